import Embedded
import Postgres
import Synchronization
import System

/// Benchmark in which most clients lose their sockets and resume.
final class ReturningStorm {
    private static let table = "resume_storm"
    /// Owner of the rows for the clients that stay connected. No client of the storm has this owner.
    private static let liveOwner: Int64 = 1_000_000
    private static let owners = 100

    private let stage: ServingStage
    private let settings: BenchSettings
    private let count: Int
    private let liveCount: Int
    /// Number of changes that are committed while the clients are disconnected.
    private let missed: Int
    private let milliseconds: Int
    private var nextRow: Int64 = 1
    private var nextLive: Int64 = 0

    init(_ stage: ServingStage, _ settings: BenchSettings) throws {
        self.stage = stage
        self.settings = settings
        count = settings.isQuick ? 300 : 10_000
        liveCount = settings.isQuick ? 20 : 100
        missed = 1000
        milliseconds = settings.isQuick ? 1000 : 10_000
    }

    func run() throws -> [BenchResult] {
        try stage.makeTable(Self.table)
        let hub = try stage.startPatientHub(Self.table)
        defer { stage.end(hub) }
        settings.progress("storm: \(count) clients")
        let live = try KnownClients(
            liveCount, stage, hub, table: Self.table, filter: "owner=eq.\(Self.liveOwner)", sessions: "live")
        defer { live.fleet.close() }
        let storm = try KnownClients(
            count, stage, hub, table: Self.table, filter: "owner=eq.{n%\(Self.owners)}", sessions: "storm")
        defer { storm.fleet.close() }
        // During this pause, the hub stores the clients' positions.
        Pause.milliseconds(2500)
        var (seconds, behind, during, quiet) = (Samples(), Samples(), Samples(), Samples())
        for round in 0..<settings.rounds(usually: 3) {
            settings.progress("storm: round \(round + 1)")
            quiet.add(try latency(of: live) { Pause.milliseconds(self.milliseconds) })
            var took: (whole: Double, last: Double) = (0, 0)
            try cut(storm)
            during.add(try latency(of: live) { took = try self.comeBack(storm) })
            seconds.add(took.whole)
            behind.add(took.last)
        }
        return results(seconds, behind, during, quiet)
    }

    private func cut(_ storm: KnownClients) throws {
        let first = (nextRow - 1) / Int64(Self.owners)
        try storm.fleet.expect(first: first, each: Int64(missed / Self.owners), owner: "{n%\(Self.owners)}")
        try storm.fleet.cut()
        try stage.load(Self.table, first: nextRow, count: missed, owners: Self.owners)
        nextRow += Int64(missed)
    }

    /// Connects and joins the clients again. Returns the seconds until all clients have all changes: since the first
    /// connection (`whole`), and since the last subscription (`last`).
    private func comeBack(_ storm: KnownClients) throws -> (whole: Double, last: Double) {
        let began = Clock.monotonicNanoseconds()
        let subscribed = try storm.comeBack(milliseconds: milliseconds)
        let report = try storm.fleet.awaitAll(milliseconds: 60_000)
        let nanoseconds = Clock.monotonicNanoseconds() - began
        guard report.isFaultless else { throw ResumeScenario.void("storm", report) }
        return (Double(nanoseconds) / 1e9, max(0, Double(nanoseconds) - Double(subscribed)) / 1e9)
    }

    /// Runs `doing` and measures the latency of the clients that stay connected. Returns its 99th percentile in
    /// milliseconds.
    private func latency(of live: KnownClients, while doing: () throws -> Void) throws -> Double {
        let first = nextLive
        // The clients expect more changes than will be committed. The result depends on the number of written rows.
        try live.fleet.expect(first: first, each: 1 << 40, owner: String(Self.liveOwner))
        let writer = try EvenWriter(stage, Self.table, owner: Self.liveOwner, first: first)
        do {
            try doing()
        } catch {
            _ = try? writer.stop()
            throw error
        }
        nextLive = try writer.stop()
        let report = try live.fleet.await(each: nextLive - first, milliseconds: 20_000)
        guard report.received == (nextLive - first) * Int64(liveCount), report.doubled == 0, report.skipped == 0,
            report.foreign == 0, report.malformed == 0, report.closed == 0
        else { throw ResumeScenario.void("storm, those who stayed", report) }
        return (report.latency.percentile(0.99) ?? .nan) / 1000
    }

    private func results(
        _ seconds: Samples, _ behind: Samples, _ during: Samples, _ quiet: Samples
    ) -> [BenchResult] {
        let name = "storm: \(count) clients, \(missed) changes, 1 in \(Self.owners) matching"
        return [
            BenchResult(
                scenario: "resume", caseName: name, metric: "until all are live", unit: "s", values: seconds,
                isLessBetter: true),
            BenchResult(
                scenario: "resume", caseName: name, metric: "… from the last one's return", unit: "s", values: behind,
                isLessBetter: true),
            BenchResult(
                scenario: "resume", caseName: name, metric: "p99 of those who stayed", unit: "ms", values: during,
                baseline: .init("when quiet", quiet), target: .ratioAtLeast(1.0 / 3), isLessBetter: true),
        ]
    }
}

/// Writer of a hundred rows per second, each in its own transaction, on a thread of its own.
private final class EvenWriter {
    private final class Shared: Sendable {
        let isEnding = Atomic<Bool>(false)
        let next: Atomic<Int64>
        let failure = Mutex<String?>(nil)

        init(_ first: Int64) { next = Atomic(first) }
    }

    private let shared: Shared
    private let thread: BackgroundThread

    init(_ stage: ServingStage, _ table: String, owner: Int64, first: Int64) throws {
        let shared = Shared(first)
        self.shared = shared
        let target = stage.cluster.target()
        thread = try BackgroundThread("writer") {
            do throws(PostgresError) {
                let connection = try Connection(target)
                let began = Clock.monotonicNanoseconds()
                while !shared.isEnding.load(ordering: .relaxed) {
                    let number = shared.next.load(ordering: .relaxed)
                    try connection.query(
                        """
                        INSERT INTO \(table) VALUES (-1 - $1::bigint, \(owner), $1,
                        (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, 'Expense of a shared trip')
                        """, [String(number)])
                    shared.next.store(number + 1, ordering: .relaxed)
                    let due = began + UInt64(number + 1 - first) * 10_000_000
                    let now = Clock.monotonicNanoseconds()
                    if due > now { Pause.milliseconds(Int((due - now) / 1_000_000)) }
                }
            } catch {
                shared.failure.withLock { $0 = "\(error)" }
            }
        }
    }

    /// Stops the writer and returns the number that the next row would have had.
    func stop() throws -> Int64 {
        shared.isEnding.store(true, ordering: .relaxed)
        thread.join()
        if let failure = shared.failure.withLock({ $0 }) { throw BenchFailure("the writer failed: \(failure)") }
        return shared.next.load(ordering: .relaxed)
    }
}
