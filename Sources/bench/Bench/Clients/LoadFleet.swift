import System

/// Load generator's clients of one server, in as many processes as their number needs. Each command goes to all
/// processes.
public final class LoadFleet {
    /// Words of the command line that make this program a process of clients.
    public static let clientWords = ["clients"]
    /// Words of the command line that make this program a bare server.
    public static let bareServerWords = ["bare-server"]

    /// Maximum number of clients in one process, below the limit of open files.
    static let clientsPerProcess = 15_000

    private let workers: [Dialogue]
    public let count: Int

    /// Starts the processes, without connecting clients. Error output goes to the file `errors`. Clients that observe
    /// each other must be in one process.
    public convenience init(clients count: Int, inOneProcess: Bool = false, errors: String? = nil) throws {
        let processes = inOneProcess ? 1 : max(1, (count + Self.clientsPerProcess - 1) / Self.clientsPerProcess)
        self.init(
            workers: try (0..<processes).map { _ in try Dialogue(starting: Self.clientWords, errors: errors) },
            clients: count)
    }

    init(workers: [Dialogue], clients count: Int) {
        self.workers = workers
        self.count = count
    }

    public var processIDs: [Int32] { workers.compactMap(\.processID) }

    /// Defines `{token}` in later texts: a token with these claims, in which `{n}` is the client's number.
    public func sign(secret: String, claims: String) throws {
        for worker in workers { try worker.ask("sign \(secret) \(claims)") }
    }

    /// Connects all clients to a server on this machine. In the path, `{n}` is the client's number.
    public func connect(port: UInt16, path: String) throws {
        for (worker, share) in zip(workers, shares) {
            // The processes connect one after the other. In parallel, they would only wait for the same server.
            let line = "connect \(port) \(path) \(share.lowerBound) \(share.count)"
            let connected = try worker.ask(line).numbers["connected"] ?? 0
            guard connected == share.count else {
                throw BenchFailure("\(share.count - Int(connected)) did not connect")
            }
        }
    }

    private var shares: [Range<Int>] {
        workers.indices.map { count * $0 / workers.count..<count * ($0 + 1) / workers.count }
    }

    /// Joins all clients and waits until they are subscribed. In both texts, `{n}` is the client's number, `{n%K}` the
    /// number modulo K, and `{n/K}` the number divided by K. Returns the nanoseconds from the first join to the last
    /// reply.
    @discardableResult
    public func join(topic: String, payload: String) throws -> Int64 {
        var longest: Int64 = 0
        for worker in workers {
            longest = max(longest, try worker.ask("join \(topic) \(payload)").numbers["ns"] ?? 0)
        }
        return longest
    }

    /// Sets the number of handshakes and joins that may be in progress simultaneously.
    public func window(_ count: Int) throws {
        for worker in workers { try worker.ask("window \(count)") }
    }

    /// Makes clients send broadcasts in the channels that they have joined. Waits for the last message, or until it is
    /// overdue, and returns a report of the received messages.
    func talk(_ order: Talk.Order) throws -> LoadReport {
        precondition(workers.count == 1, "clients that hear each other are in one process")
        return try reports(order.line, milliseconds: order.milliseconds + Talk.patienceMilliseconds + 30_000)
    }

    // MARK: Coming back

    /// Closes the clients' sockets without a message.
    func cut() throws { for worker in workers { try worker.ask("cut") } }

    /// Connects and joins all clients again, at equal intervals over a time. Returns the nanoseconds until the last one
    /// is subscribed.
    func comeBack(
        port: UInt16, path: String, milliseconds: Int, topic: String, payload: String
    ) throws -> Int64 {
        let line = "back \(port) \(path) \(milliseconds) \(topic) \(payload)"
        for worker in workers { try worker.tell(line) }
        var longest: Int64 = 0
        for worker in workers {
            let answer = try worker.answer(to: line, milliseconds: milliseconds + 120_000)
            longest = max(longest, answer.numbers["ns"] ?? 0)
        }
        return longest
    }

    /// Limits each client to reading `bytes` bytes every `milliseconds`. With 0, clients read all available bytes.
    func readSlowly(bytes: Int, milliseconds: Int) throws {
        for worker in workers { try worker.ask("slow \(bytes) \(milliseconds)") }
    }

    // MARK: Presence

    /// Sets the presence keys of the clients. From now on, the processes check the presences that each client has
    /// received (its view).
    func watch(keys: String) throws { for worker in workers { try worker.ask("watch \(keys)") } }

    /// Makes the first clients track a presence: all simultaneously, or each after all clients have seen the previous
    /// one.
    func track(_ count: Int, together: Bool, payload: String) throws -> PresenceOutcome {
        try presence("track \(count) \(together ? "all" : "one") \(payload)")
    }

    /// Makes the last clients leave the channel joined last.
    func depart(_ count: Int) throws -> PresenceOutcome { try presence("depart \(count)") }

    private func presence(_ line: String) throws -> PresenceOutcome {
        guard workers.count == 1, let worker = workers.first else {
            preconditionFailure("clients that see each other are in one process")
        }
        guard let outcome = PresenceOutcome(try worker.ask(line)) else {
            throw BenchFailure("the clients' report is not one")
        }
        return outcome
    }

    /// Makes every client expect `count` changes from now on, numbered from `first`. If `owner` is given, the changes
    /// must carry it. With a stride greater than 1, all clients together expect `count` changes, and each client
    /// expects only every `stride`-th of them.
    public func expect(first: Int64, each count: Int64, owner: String? = nil, stride: Int = 1) throws {
        let line = "expect \(first) \(count) \(owner ?? "-") \(stride)"
        for worker in workers { try worker.ask(line) }
    }

    /// Waits until all clients have received the changes that they expect, or until the time has passed. Returns a
    /// report in both cases.
    public func awaitAll(milliseconds: Int) throws -> LoadReport {
        try reports("await \(milliseconds)", milliseconds: milliseconds + 30_000)
    }

    /// Waits until all clients have received the first `count` of the changes that they expect, or until the time has
    /// passed. Returns a report in both cases.
    public func await(each count: Int64, milliseconds: Int) throws -> LoadReport {
        try reports("await \(milliseconds) \(count)", milliseconds: milliseconds + 30_000)
    }

    /// Returns the first change that a client has received since the last `expect`.
    public func sample() throws -> String {
        for worker in workers {
            if let text = try worker.ask("sample").texts["sample"], !text.isEmpty { return text }
        }
        throw BenchFailure("no client received a change")
    }

    /// Returns a report of the changes that the clients have received since the last `expect`.
    public func report() throws -> LoadReport { try reports("report") }

    private func reports(_ line: String, milliseconds: Int = 120_000) throws -> LoadReport {
        for worker in workers { try worker.tell(line) }
        var total = LoadReport()
        for worker in workers {
            guard let report = LoadReport(try worker.answer(to: line, milliseconds: milliseconds)) else {
                throw BenchFailure("the clients' report is not one")
            }
            total.add(report)
        }
        return total
    }

    public func heartbeat(seconds: Int) throws {
        for worker in workers { try worker.ask("heartbeat \(seconds)") }
    }

    public func close() { for worker in workers { worker.close() } }
}
