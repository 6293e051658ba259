import System

/// Clients of one server, in as many processes as their number needs, told and asked as one.
public final class LoadFleet {
    /// The words that make this program a process of clients, and a bare server.
    public static let clientWords = ["clients"]
    public static let bareServerWords = ["bare-server"]

    /// With room left below the limit of open files.
    static let clientsPerProcess = 15_000

    private let workers: [Dialogue]
    public let count: Int

    /// Starts the processes; nobody is connected yet. What they complain of goes to the file `errors`.
    /// Clients that look at each other are all in one.
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

    /// From here on `{token}` stands for a token with these claims, in which `{n}` is a client's number.
    public func sign(secret: String, claims: String) throws {
        for worker in workers { try worker.ask("sign \(secret) \(claims)") }
    }

    /// Connects all of them to a server of this machine. In the path, `{n}` is a client's number.
    public func connect(port: UInt16, path: String) throws {
        for (worker, share) in zip(workers, shares) {
            // One after the other: together they would only wait for the same server.
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

    /// All join, and are subscribed when this returns. In both, `{n}` is a client's number, `{n%K}` its rest by K and
    /// `{n/K}` how often K is in it. Nanoseconds from the first one's asking to the last one's answer.
    @discardableResult
    public func join(topic: String, payload: String) throws -> Int64 {
        var longest: Int64 = 0
        for worker in workers {
            longest = max(longest, try worker.ask("join \(topic) \(payload)").numbers["ns"] ?? 0)
        }
        return longest
    }

    /// So many handshakes and joins may be under way at the same time.
    public func window(_ count: Int) throws {
        for worker in workers { try worker.ask("window \(count)") }
    }

    /// They talk in the channels that they have joined; what they heard when all was said and the last of it has come, or
    /// when it should have.
    func talk(_ order: Talk.Order) throws -> LoadReport {
        precondition(workers.count == 1, "clients that hear each other are in one process")
        return try reports(order.line, milliseconds: order.milliseconds + Talk.patienceMilliseconds + 30_000)
    }

    // MARK: Coming back

    /// Their sockets are gone, without a word.
    func cut() throws { for worker in workers { try worker.ask("cut") } }

    /// All come back, evenly over that time, and join; nanoseconds until the last of them is subscribed.
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

    /// From here on each reads so many bytes in so many milliseconds; all there is with 0.
    func readSlowly(bytes: Int, milliseconds: Int) throws {
        for worker in workers { try worker.ask("slow \(bytes) \(milliseconds)") }
    }

    // MARK: Presence

    /// What their presence keys are: from here on their views are looked at.
    func watch(keys: String) throws { for worker in workers { try worker.ask("watch \(keys)") } }

    /// The first so many track a presence, all together or each when everybody has seen the one before.
    func track(_ count: Int, together: Bool, payload: String) throws -> PresenceOutcome {
        try presence("track \(count) \(together ? "all" : "one") \(payload)")
    }

    /// The last so many leave.
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

    /// What every client is to receive from now on: so many changes, numbered from `first`; with an owner, those that
    /// carry it.
    /// With a stride, so many changes come in all, and of that many in a row one is for a client.
    public func expect(first: Int64, each count: Int64, owner: String? = nil, stride: Int = 1) throws {
        let line = "expect \(first) \(count) \(owner ?? "-") \(stride)"
        for worker in workers { try worker.ask(line) }
    }

    /// Waits until all have received what they expect; what they saw, complete or not when the time is up.
    public func awaitAll(milliseconds: Int) throws -> LoadReport {
        try reports("await \(milliseconds)", milliseconds: milliseconds + 30_000)
    }

    /// Waits until all have the first so many of the changes that they expect.
    public func await(each count: Int64, milliseconds: Int) throws -> LoadReport {
        try reports("await \(milliseconds) \(count)", milliseconds: milliseconds + 30_000)
    }

    /// The first change that a client received since `expect`.
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
