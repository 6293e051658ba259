import Synchronization
import System

/// Subscribers of the benchmark `rls` with sockets, in separate processes. Each has its own claims.
final class SocketClients {
    private let hub: RlsHub
    private let fleet: LoadFleet
    let count: Int

    /// Creates clients that are connected but not joined.
    init(_ count: Int, _ stage: RlsStage, _ hub: RlsHub) throws {
        self.hub = hub
        self.count = count
        fleet = try LoadFleet(clients: count, errors: stage.clientErrors)
        try fleet.heartbeat(seconds: 0)
        try fleet.sign(secret: stage.secret, claims: RlsStage.claims(numbered: "{n:12}"))
        try fleet.connect(port: hub.port, path: "/socket/websocket?vsn=2.0.0&apikey={token}")
    }

    func close() { fleet.close() }

    /// Joins all clients to the policy's table. Returns the nanoseconds until all are subscribed.
    func join(_ policy: RlsPolicy) throws -> UInt64 {
        let began = Clock.monotonicNanoseconds()
        try fleet.join(
            topic: "realtime:bench", payload: RlsStage.joinPayload(policy, numbered: "{n:12}", token: "{token}"))
        return Clock.monotonicNanoseconds() - began
    }

    /// Releases the held hub and waits until all clients have received all of these changes. Returns the nanoseconds.
    func receive(_ changes: Range<Int64>, isForAll: Bool) throws -> UInt64 {
        try fleet.expect(first: changes.lowerBound, each: Int64(changes.count), stride: isForAll ? 1 : count)
        let moment = Mutex<Int64>(0)
        try awaitOrder { moment.withLock { $0 = Clock.unixMicroseconds() } }
        let began = moment.withLock { $0 }
        _ = try fleet.awaitAll(milliseconds: 120_000)
        // If the hub sends duplicates, or changes for other clients, they arrive during this pause.
        Pause.milliseconds(20)
        let report = try fleet.report()
        guard report.isFaultless else {
            throw BenchFailure(
                "void (rls, with sockets): of \(report.expected) changes \(report.missing) are missing, \(report.doubled) came "
                    + "twice or late, \(report.skipped) were passed over, \(report.foreign + report.malformed) are foreign, "
                    + "\(report.closed) clients lost their connection")
        }
        return UInt64(max(1, report.lastMicroseconds - began)) * 1000
    }

    private func awaitOrder(_ body: @escaping @Sendable () -> Void) throws {
        let done = Pulse()
        hub.goOn {
            body()
            done.beat()
        }
        guard done.wait(beyond: 0, untilMonotonic: Clock.monotonicNanoseconds() + 30_000_000_000) > 0 else {
            throw BenchFailure("the hub's loop does not answer")
        }
    }
}
