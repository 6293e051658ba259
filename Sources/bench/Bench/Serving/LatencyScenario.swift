import Embedded
import Postgres
import Synchronization
import System

/// Benchmark of the time from the insertion of a row to its reception by subscribers.
struct LatencyScenario: Scenario {
    let name = "latency"
    let summary = "From insert to client at 100 changes/s, beside a plain LISTEN/NOTIFY."
    let discussion = """
        Starts a private PostgreSQL (with its usual synchronous commits) and a hub as it comes. Of 1,000 subscribers each \
        filters by an owner, so that every change is for one in ten. A session inserts a hundred rows a second, one a \
        transaction, evenly; each row carries the moment at which its statement ran, before its commit, and each client \
        that gets it takes the time since.

        Baseline, in turns and at the same rate: pg_notify with the same moment in a session, also one a transaction and \
        also committed to disk, to one session that listens. It crosses no log and reaches one client where the hub \
        reaches a hundred.

        Every change must come once, in order, and to nobody else; else there are no figures.
        """

    func run(_ settings: BenchSettings) throws -> [BenchResult] {
        let place = try Workplace(below: settings.directory)
        settings.progress("starting a private PostgreSQL")
        let stage = try ServingStage(place)
        defer { stage.close() }
        let clients = settings.isQuick ? 100 : 1000
        try stage.makeTable("latency")
        let hub = try stage.startHub("latency", loops: 0)
        defer { stage.end(hub) }
        settings.progress("\(clients) clients")
        let fleet = try stage.connect(clients, to: hub, table: "latency", filter: "owner=eq.{n%10}")
        defer { fleet.close() }
        let race = try LatencyRace(stage, fleet, changes: settings.isQuick ? 100 : 1000)
        let rounds = settings.rounds(usually: 5)
        for round in 0..<rounds {
            settings.progress("round \(round + 1) of \(rounds)")
            try race.measure(hubFirst: round % 2 == 1)
        }
        return race.results("\(clients) clients, 1 in 10 matching")
    }
}

private final class LatencyRace {
    private static let owners = 10

    private let stage: ServingStage
    private let fleet: LoadFleet
    private let changes: Int
    private let notifier: Connection
    private var next: Int64 = 0
    private var hub: [LatencyHistogram] = []
    private var plain: [LatencyHistogram] = []

    init(_ stage: ServingStage, _ fleet: LoadFleet, changes: Int) throws {
        self.stage = stage
        self.fleet = fleet
        self.changes = changes
        notifier = try stage.cluster.connect()
    }

    func measure(hubFirst: Bool) throws {
        if hubFirst { hub.append(try measureHub()) }
        plain.append(try measureNotify())
        if !hubFirst { hub.append(try measureHub()) }
    }

    /// Returns the latencies of the hub. The rows of each owner are numbered separately, so that a client notices
    /// missing ones.
    private func measureHub() throws -> LatencyHistogram {
        try fleet.expect(first: next, each: Int64(changes / Self.owners), owner: "{n%\(Self.owners)}")
        try EvenPace.run(changes) { number in
            try stage.connection.query(
                """
                INSERT INTO latency VALUES
                ($1::bigint * \(Self.owners) + $2::bigint, $2, $1, \(Self.moment), 'Expense of a shared trip')
                """, [String(next + Int64(number / Self.owners)), String(number % Self.owners)])
        }
        next += Int64(changes / Self.owners)
        _ = try fleet.awaitAll(milliseconds: 10_000)
        Pause.milliseconds(50)
        let report = try fleet.report()
        guard report.isFaultless else {
            throw BenchFailure(
                "void (latency): \(report.missing) changes are missing, \(report.doubled) came twice or late, "
                    + "\(report.skipped) were passed over, \(report.foreign) came to others")
        }
        return report.latency
    }

    private static let moment = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

    /// Returns the latencies of the baseline: PostgreSQL's own notifications.
    private func measureNotify() throws -> LatencyHistogram {
        let listener = try NotifyListener(stage.cluster.target(), expected: changes)
        try EvenPace.run(changes) { _ in
            try notifier.query("SELECT pg_notify('bench', \(Self.moment)::text)")
        }
        return try listener.finish()
    }

    func results(_ caseName: String) -> [BenchResult] {
        func samples(_ histograms: [LatencyHistogram], _ share: Double) -> Samples {
            Samples(histograms.map { ($0.percentile(share) ?? .nan) / 1000 })
        }
        return [(0.5, "p50", nil as Target?), (0.99, "p99", .valueAtMost(10)), (0.999, "p99.9", nil)].map {
            share, metric, target in
            BenchResult(
                scenario: "latency", caseName: caseName, metric: metric, unit: "ms", values: samples(hub, share),
                baseline: .init("LISTEN/NOTIFY", samples(plain, share)), target: target, isLessBetter: true)
        }
    }
}

/// PostgreSQL session of the baseline, which listens for notifications on a separate thread.
private final class NotifyListener {
    private final class Outcome: Sendable {
        let latency = Mutex(LatencyHistogram())
        let failure = Mutex<String?>(nil)
    }

    private let outcome = Outcome()
    private let thread: BackgroundThread
    private let expected: Int

    /// Starts the session and waits until it listens.
    init(_ target: ConnectionTarget, expected: Int) throws {
        self.expected = expected
        let ready = try Wake()
        let outcome = outcome
        thread = try BackgroundThread("listener") {
            do throws(PostgresError) {
                let connection = try Connection(target)
                try connection.execute("LISTEN bench")
                ready.ring()
                for _ in 0..<expected {
                    guard let text = try connection.notification(waitingMilliseconds: 10_000), let sent = Int64(text)
                    else { return }
                    let now = Clock.unixMicroseconds()
                    outcome.latency.withLock { $0.add(now - sent) }
                }
            } catch {
                outcome.failure.withLock { $0 = "\(error)" }
                ready.ring()
            }
        }
        ready.sleep(milliseconds: 10_000)
    }

    func finish() throws -> LatencyHistogram {
        thread.join()
        let latency = outcome.latency.withLock { $0 }
        guard latency.count == UInt64(expected) else {
            let why = outcome.failure.withLock { $0 } ?? "notifications are missing"
            throw BenchFailure("void (latency): \(why)")
        }
        return latency
    }
}
