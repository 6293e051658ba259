/// Baseline of a fan-out: a bare loop of `send()` to as many sockets as the hub has clients. The same client program as
/// for the hub reads the messages.
public final class BareFanout {
    /// Cost of sending alone. Excludes what a hub does to build the messages, and what clients do to read them.
    public struct Cost: Sendable, Equatable {
        public var deliveries: Int64
        public var processorNanoseconds: Int64
        public var nanoseconds: Int64
        /// Number of times that the buffer of a socket was full.
        public var blocked: Int64

        /// Deliveries per second of processor time.
        public var deliveriesPerProcessorSecond: Double { Double(deliveries) * 1e9 / Double(processorNanoseconds) }
    }

    private let server: Dialogue
    private let fleet: LoadFleet
    private var next: Int64

    /// Starts the bare server and connects the clients. Messages are numbered from `first`.
    public convenience init(clients count: Int, first: Int64 = 1, errors: String? = nil) throws {
        try self.init(
            server: Dialogue(starting: LoadFleet.bareServerWords, errors: errors),
            fleet: LoadFleet(clients: count, errors: errors), first: first)
    }

    init(server: Dialogue, fleet: LoadFleet, first: Int64 = 1) throws {
        self.server = server
        self.fleet = fleet
        next = first
        guard let port = try server.ask("listen").numbers["port"].flatMap({ UInt16(exactly: $0) }) else {
            throw BenchFailure("the bare server has no port")
        }
        try fleet.connect(port: port, path: "/")
        try server.ask("ready \(fleet.count)")
    }

    public var serverProcessID: Int32? { server.processID }
    public var clientProcessIDs: [Int32] { fleet.processIDs }

    /// Sends messages and waits until the clients have received all of them.
    /// - Parameter together: number of messages in one call of `send()`.
    public func send(
        _ count: Int, together: Int = 1, template: String
    ) throws -> (cost: Cost, report: LoadReport) {
        try fleet.expect(first: next, each: Int64(count))
        let answer = try server.ask("send \(count) \(together) \(next) \(template)")
        next += Int64(count)
        let report = try fleet.awaitAll(milliseconds: 60_000)
        guard report.isFaultless else { throw BenchFailure("the bare server's clients missed something: \(report)") }
        guard let deliveries = answer.numbers["deliveries"], let processor = answer.numbers["cpu_ns"],
            let nanoseconds = answer.numbers["ns"], let blocked = answer.numbers["blocked"]
        else { throw BenchFailure("the bare server does not say what it did") }
        return (
            Cost(deliveries: deliveries, processorNanoseconds: processor, nanoseconds: nanoseconds, blocked: blocked),
            report
        )
    }

    public func close() {
        fleet.close()
        server.close()
    }
}
