import System

/// Clients of one server, in as many processes as their number needs, commanded together.
public final class LoadFleet {
    /// Words that make this program a process of clients, and those that make it a bare server.
    public static let clientWords = ["clients"]
    public static let bareServerWords = ["bare-server"]

    /// Clients in one process, which leaves room below the limit of open files.
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

    /// Makes `{token}` stand for a token with these claims, in which `{n}` is a client's number.
    public func sign(secret: String, claims: String) throws {
        for worker in workers { try worker.ask("sign \(secret) \(claims)") }
    }

    /// Connects all clients to a server of this machine. In the path, `{n}` is a client's number.
    public func connect(port: UInt16, path: String) throws {
        for (worker, share) in zip(workers, shares) {
            // One process after the other: together they would only wait for the same server.
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

    /// Joins all clients and returns when they are subscribed. In both texts, `{n}` is a client's number, `{n%K}` its
    /// remainder by K, and `{n/K}` its quotient. Returns the nanoseconds from the first join to the last answer.
    @discardableResult
    public func join(topic: String, payload: String) throws -> Int64 {
        var longest: Int64 = 0
        for worker in workers {
            longest = max(longest, try worker.ask("join \(topic) \(payload)").numbers["ns"] ?? 0)
        }
        return longest
    }

    /// Sets how many handshakes and joins may be in progress at the same time.
    public func window(_ count: Int) throws {
        for worker in workers { try worker.ask("window \(count)") }
    }

    /// Makes clients send broadcasts in the channels that they have joined. Returns what they received, after the last
    /// message has come or should have come.
    func talk(_ order: Talk.Order) throws -> LoadReport {
        precondition(workers.count == 1, "clients that hear each other are in one process")
        return try reports(order.line, milliseconds: order.milliseconds + Talk.patienceMilliseconds + 30_000)
    }

    // MARK: Coming back

    /// Closes the clients' sockets without a message.
    func cut() throws { for worker in workers { try worker.ask("cut") } }

    /// Connects and joins all clients again, evenly over a time. Returns the nanoseconds until the last one is
    /// subscribed.
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

    /// Makes each client read `bytes` bytes in `milliseconds`; with 0, all available bytes.
    func readSlowly(bytes: Int, milliseconds: Int) throws {
        for worker in workers { try worker.ask("slow \(bytes) \(milliseconds)") }
    }

    // MARK: Presence

    /// Sets the presence keys of the clients. From then on their views of presence are checked.
    func watch(keys: String) throws { for worker in workers { try worker.ask("watch \(keys)") } }

    /// Makes the first clients track a presence: all together, or each after all clients have seen the one before.
    func track(_ count: Int, together: Bool, payload: String) throws -> PresenceOutcome {
        try presence("track \(count) \(together ? "all" : "one") \(payload)")
    }

    /// Makes the last clients leave.
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

    /// Sets what every client is to receive from now on: `count` changes, numbered from `first`, which carry `owner` if
    /// it is given.
    /// With a stride, `count` changes come in all, and of each `stride` in a row one is for a client.
    public func expect(first: Int64, each count: Int64, owner: String? = nil, stride: Int = 1) throws {
        let line = "expect \(first) \(count) \(owner ?? "-") \(stride)"
        for worker in workers { try worker.ask(line) }
    }

    /// Waits until all clients have received what they expect, or until the time is up. Returns a report in both cases.
    public func awaitAll(milliseconds: Int) throws -> LoadReport {
        try reports("await \(milliseconds)", milliseconds: milliseconds + 30_000)
    }

    /// Waits until all clients have the first `count` of the changes that they expect.
    public func await(each count: Int64, milliseconds: Int) throws -> LoadReport {
        try reports("await \(milliseconds) \(count)", milliseconds: milliseconds + 30_000)
    }

    /// Returns the first change that a client received since `expect`.
    public func sample() throws -> String {
        for worker in workers {
            if let text = try worker.ask("sample").texts["sample"], !text.isEmpty { return text }
        }
        throw BenchFailure("no client received a change")
    }

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
