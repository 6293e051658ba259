import Postgres
import System

/// Benchmark of the effect that attackers have on well-behaved clients.
struct HostileScenario: Scenario {
    let name = "hostile"
    let summary = "Latency and memory while 1, 10 and 100 clients with the public key do their worst."
    let discussion = """
        Starts a private PostgreSQL and a hub as it comes. 100 subscribers each filter by an owner; a session inserts a hundred \
        rows a second, one a transaction, every fiftieth with 20 KB of text, and each subscriber that gets a row takes the \
        time since its statement ran. Meanwhile 1, 10 and 100 other sockets attack the hub: with filters that take long to try, lists \
        of very many values, messages and requests that are begun and not finished, subscriptions that nobody reads, joins and leaves \
        without pause, talk without pause, and bytes that are no protocol. What the hub closes connects again after a second. \
        Hub, database, subscribers and attackers share the machine; the attackers have what the others leave of it, \
        and it is said how much of the attack the hub took.

        Baseline: the same hub and subscribers just before each attack. Memory is what the hub has of its own, above what it \
        had then: while the attack goes on, and some seconds after its clients have left.

        Every row must come once, in order, and to nobody else; else there are no figures.
        """

    func run(_ settings: BenchSettings) throws -> [BenchResult] {
        let place = try Workplace(below: settings.directory)
        settings.progress("starting a private PostgreSQL")
        let stage = try ServingStage(place)
        defer { stage.close() }
        try stage.makeTable("hostile")
        let hub = try stage.startHub("hostile", loops: 0)
        defer { stage.end(hub) }
        let fleet = try stage.connect(100, to: hub, table: "hostile", filter: "owner=eq.{n%10}")
        defer { fleet.close() }
        let siege = Siege(stage, hub, fleet, changes: settings.isQuick ? 100 : 500)
        var results: [BenchResult] = []
        for attack in Attack.allCases where settings.includes(attack.rawValue) {
            for count in settings.isQuick ? [1] : [1, 10, 100] {
                settings.progress("\(attack.rawValue): \(count)")
                results += try siege.suffer(attack, count: count)
            }
        }
        return results
    }
}

private final class Siege {
    private static let owners = 10
    private static let mebibyte = 1_048_576.0

    private let stage: ServingStage
    private let hub: HubProcess
    private let fleet: LoadFleet
    private let changes: Int
    private var next: Int64 = 0

    init(_ stage: ServingStage, _ hub: HubProcess, _ fleet: LoadFleet, changes: Int) {
        (self.stage, self.hub, self.fleet, self.changes) = (stage, hub, fleet, changes)
    }

    func suffer(_ attack: Attack, count: Int) throws -> [BenchResult] {
        let before = try ProcessMemory.privateBytes(hub.processID)
        let quiet = try measure()
        let target = HostileTarget(port: hub.port, path: stage.path, token: stage.token, table: "hostile")
        let force = try HostileForce(attack, count: count, target)
        // The attackers get time to connect and to reach full strength.
        Pause.milliseconds(1000)
        let (began, sent) = (Clock.monotonicNanoseconds(), force.sentBytes)
        let besieged: LatencyHistogram
        do {
            besieged = try measure()
        } catch {
            force.stop()
            throw error
        }
        let taken = Double(force.sentBytes - sent) / (Double(Clock.monotonicNanoseconds() - began) / 1e9)
        let during = try ProcessMemory.privateBytes(hub.processID)
        force.stop()
        Pause.milliseconds(3000)
        let after = try ProcessMemory.privateBytes(hub.processID)
        let caseName = "\(count) \(attack.rawValue)"
        func latency(_ share: Double, _ metric: String, _ target: Target?) -> BenchResult {
            func sample(_ histogram: LatencyHistogram) -> Samples {
                Samples([(histogram.percentile(share) ?? .nan) / 1000])
            }
            return BenchResult(
                scenario: "hostile", caseName: caseName, metric: metric, unit: "ms", values: sample(besieged),
                baseline: .init("quiet", sample(quiet)), target: target, isLessBetter: true)
        }
        func memory(_ bytes: Double, _ metric: String, _ most: Double) -> BenchResult {
            BenchResult(
                scenario: "hostile", caseName: caseName, metric: metric, unit: "MiB",
                values: Samples([(bytes - before) / Self.mebibyte]), target: .valueAtMost(most))
        }
        return [
            latency(0.5, "p50", nil), latency(0.99, "p99", .ratioAtLeast(0.5)),
            BenchResult(
                scenario: "hostile", caseName: caseName, metric: "attack taken", unit: "MiB/s",
                values: Samples([taken / Self.mebibyte])),
            memory(during, "memory above quiet", 300), memory(after, "memory kept afterwards", 100),
        ]
    }

    private func measure() throws -> LatencyHistogram {
        try fleet.expect(first: next, each: Int64(changes / Self.owners), owner: "{n%\(Self.owners)}")
        try EvenPace.run(changes) { number in
            try insert(next + Int64(number / Self.owners), owner: number % Self.owners, isLarge: number % 50 == 0)
        }
        next += Int64(changes / Self.owners)
        _ = try fleet.awaitAll(milliseconds: 30_000)
        let report = try fleet.report()
        guard report.isFaultless else {
            throw BenchFailure(
                "void (hostile): \(report.missing) changes are missing, \(report.doubled) came twice or late, "
                    + "\(report.skipped) were passed over, \(report.foreign) came to others")
        }
        return report.latency
    }

    private func insert(_ number: Int64, owner: Int, isLarge: Bool) throws {
        try stage.connection.query(
            """
            INSERT INTO hostile VALUES
            ($1::bigint * \(Self.owners) + $2::bigint, $2, $1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
             repeat('a', $3::int))
            """, [String(number), String(owner), isLarge ? "20000" : "50"])
    }
}
