import Glibc
import Synchronization
import System

/// Settings of a verification run.
public struct VerifySettings: Sendable {
    public var seed: UInt64 = 1
    public var seconds = 300
    public var clients = 240
    /// Number of clients that are unmodified clients for Python. Applies only if `python` is set.
    public var realClients = 10
    /// Path of a Python that has the package `realtime`; nil for a run without real clients.
    public var python: String?
    /// Names of the faults that the run causes; empty for all.
    public var only: [String] = []
    /// Names of the faults that the run does not cause.
    public var without: [String] = []
    /// Path of the NATS server's program, for a run with a cluster of three servers and three hubs; nil for one hub.
    public var servers: String?
    public var directory = "/var/tmp"
    /// True if the run leaves a copy of its directory, with all logs and the clients' notes.
    public var keeps = false
    public var progress: @Sendable (String) -> Void = { _ in }

    public init() {}

    public static let faults = Fault.allCases.map(\.rawValue)

    func chosenFaults() throws -> [Fault] {
        for name in only + without where Fault(rawValue: name) == nil && name != "none" {
            throw BenchFailure("no fault is called \(name)", hint: "there are \(Self.faults.joined(separator: ", "))")
        }
        return Fault.allCases.filter {
            (only.isEmpty || only.contains($0.rawValue)) && !without.contains($0.rawValue)
                && ($0.lane != .servers || servers != nil)
        }
    }
}

/// Verification, `tidewire bench verify`: runs a database, a hub, a proxy, clients, writers and faults, and evaluates
/// what the clients receive.
public final class Verification {
    private static let writers = 3
    /// Number of hubs of a cluster.
    private static let nodes = 3
    /// Nanoseconds within which all clients must receive a committed change. After that, a client counts as stuck.
    private static let arrivalNanoseconds: UInt64 = 150_000_000_000
    /// Number of findings at which the run ends early.
    private static let enough = 200
    /// Maximum number of findings that the report describes.
    private static let shown = 40

    private let settings: VerifySettings
    private let faults: [Fault]
    private let place: Workplace
    private let database: VerifyDatabase
    private let hubs: [VerifyHub]
    private let servers: VerifyServers?
    private let network: VerifyNetwork?
    private let proxy: FaultyProxy
    private let notebook: Notebook
    private let clients: [OwnClient]
    private var stage: VerifyStage
    private var judge: DeliveryChecker
    private var fences: Int64 = 0
    private var isStuck = false
    private let began = Clock.monotonicNanoseconds()

    /// Runs a complete verification. The report lists faults of the hub. An error means that the run was not possible.
    public static func run(_ settings: VerifySettings) throws -> VerifyReport {
        DescriptorTable.raiseLimit()
        // Interruptions are handled, so that every run removes the hub's small disk, the server and the directory.
        Signals.noteInterruptions()
        let verification = try Verification(settings)
        defer { verification.close() }
        return try verification.run()
    }

    private init(_ settings: VerifySettings) throws {
        self.settings = settings
        faults = try settings.chosenFaults()
        let (place, notebook) = (
            try Workplace(below: settings.directory, for: "verify"), Notebook(keepsAll: settings.keeps)
        )
        self.place = place
        self.notebook = notebook
        let (listeners, bySeat) = VerifySeat.listeners(VerifySeat.all)
        var generator = SystemRandomNumberGenerator()
        let secret = (0..<4).map { _ in String(generator.next() as UInt64, radix: 36) }.joined()
        settings.progress("PostgreSQL and its journal")
        let network = settings.servers.flatMap { _ in VerifyNetwork(servers: VerifyServers.count, hubs: Self.nodes) }
        self.network = network
        database = try VerifyDatabase(
            directory: place.path + "/postgres", secret: secret, listeners: listeners, network: network)
        settings.progress(settings.servers == nil ? "the hub" : "three NATS servers and three hubs")
        let database = database
        let servers = try settings.servers.map {
            try VerifyServers(program: $0, network: network, place: place.path)
        }
        self.servers = servers
        hubs =
            try servers.map { servers in
                try (0..<Self.nodes).map {
                    try VerifyHub(
                        database, place: place.path,
                        membership: VerifyHub.Membership(servers: servers, network: network, index: $0))
                }
            } ?? [VerifyHub(database, place: place.path)]
        for hub in hubs { try hub.start() }
        for hub in hubs { try hub.awaitReadiness() }
        proxy = try FaultyProxy(hubs: hubs.flatMap { try SocketAddress.resolve($0.host, port: $0.port) })
        let all = Self.clients(settings)
        clients = all
        let own = try OwnClients(
            all.filter { $0.kind != .real }, port: proxy.port, secret: secret, notebook: notebook)
        let reals = all.filter { $0.kind == .real }
        let port = proxy.port
        let real =
            try settings.python.map {
                try RealClients(
                    python: $0, clients: reals, port: port, secret: secret, notebook: notebook,
                    errors: place.path + "/python.log")
            }
        stage = VerifyStage(
            database: database, hubs: hubs, servers: servers, network: network, proxy: proxy, own: own, real: real)
        let seats = all.map { client in
            VerifySeat.all.firstIndex { $0.name == client.seat.name && $0.person == client.seat.person } ?? 0
        }
        judge = DeliveryChecker(
            database, journal: Journal(seats: bySeat), clients: zip(all, seats).map { ($0.kind, $1) },
            notebook: notebook)
    }

    /// Creates the clients. Half of them resume without stating a position, a quarter states a position, and a quarter
    /// begins anew. With Python, the first of them are real clients instead.
    private static func clients(_ settings: VerifySettings) -> [OwnClient] {
        let real = settings.python == nil ? 0 : settings.realClients
        let kinds: [ClientLedger.Kind] = [.catchUp, .explicit, .catchUp, .plain]
        return (0..<settings.clients).map { number in
            let kind = number < real ? .real : kinds[number % kinds.count]
            let seat = VerifySeat.all[(number / kinds.count + number) % VerifySeat.all.count]
            return OwnClient(
                number: number, seat: seat, kind: kind, session: "5e551000-0000-4000-8000-\(100_000_000_000 + number)")
        }
    }

    private func close() {
        stage.isOver.withLock { $0 = true }
        stage.own.close()
        stage.real?.close()
        proxy.close()
        if settings.keeps {
            _ = try? notebook.write(into: DiskDirectory(place.path), since: began)
            // The hub's data is on a separate disk, which `hub.close()` removes.
            _ = try? ChildProcess(["cp", "-r", place.path, place.path + ".kept"]).wait()
        }
        for hub in hubs { hub.close() }
        servers?.close()
        network?.close()
        database.stop()
    }

    // MARK: The run

    private func run() throws -> VerifyReport {
        settings.progress("\(clients.count) clients")
        try reach(fence(), "the first fence")
        settings.progress("running with seed \(settings.seed)")
        let threads = try begin()
        let end = Clock.monotonicNanoseconds() + UInt64(settings.seconds) * 1_000_000_000
        var nextFence: UInt64 = 0
        var nextWord: UInt64 = 0
        while Clock.monotonicNanoseconds() < end, judge.findings.count < Self.enough, !isStuck, !Signals.wasInterrupted,
            stage.failure.withLock({ $0 == nil })
        {
            judge.round(stage.history.causes)
            if case .asked = stage.quiet.withLock({ $0 }) { makeQuiet() }
            let now = Clock.monotonicNanoseconds()
            if now >= nextFence {
                _ = try? fence()
                nextFence = now + 2_000_000_000
            }
            if now >= nextWord {
                say(end > now ? (end - now) / 1_000_000_000 : 0)
                nextWord = now + 15_000_000_000
            }
            Pause.milliseconds(100)
        }
        try finish(threads)
        return report()
    }

    private func begin() throws -> [BackgroundThread] {
        let stage = stage
        var threads: [BackgroundThread] = []
        for number in 1...Self.writers {
            let database = database
            let seed = settings.seed
            threads.append(
                try stage.start("writer") { [tallies = stage.tallies] in
                    var writer = VerifyWriter(database, seed: seed, number: number)
                    while !stage.hasEnded {
                        stage.gate.pass { writer.step() }
                        writer.pause(milliseconds: 40...260)
                    }
                    let (done, failed) = (writer.transactions, writer.failures)
                    tallies.withLock { $0 = ($0.0 + done, $0.1 + failed) }
                })
        }
        let possible = faults.filter { !$0.isPartition || network != nil }
        for lane in Fault.Lane.allCases {
            guard let schedule = FaultSchedule(seed: settings.seed, lane: lane, of: possible) else { continue }
            threads.append(try stage.start("faults") { try stage.run(schedule) })
        }
        return threads
    }

    /// Waits until writers and faults have ended and all clients have received every committed change.
    private func finish(_ threads: [BackgroundThread]) throws {
        stage.isOver.withLock { $0 = true }
        // A fault that waits for quiet still gets it.
        while stage.hasThreads {
            judge.round(stage.history.causes)
            if case .asked = stage.quiet.withLock({ $0 }) { makeQuiet() }
            Pause.milliseconds(50)
        }
        for thread in threads { thread.join() }
        if let failure = stage.failure.withLock({ $0 }) { throw BenchFailure("the run did not go on: \(failure)") }
        if !isStuck { try reach(fence(), "the last fence") }
        // If the hub sends duplicates, or changes for other clients, they arrive during this pause.
        Pause.milliseconds(2000)
        judge.round(stage.history.causes)
        judge.finish()
    }

    /// Commits a row that all clients receive (a fence), and returns the number of its version.
    private func fence() throws -> Int64 {
        fences += 1
        return try judge.fence(fences)
    }

    private func makeQuiet() {
        do {
            try reach(fence(), "the fence before a change of who may see what")
            // During this pause, the hub stores the acknowledgements of all clients.
            let until = Clock.monotonicNanoseconds() + 3_500_000_000
            while Clock.monotonicNanoseconds() < until, !Signals.wasInterrupted {
                judge.round(stage.history.causes)
                Pause.milliseconds(50)
            }
            stage.quiet.withLock { $0 = isStuck ? .failed : .reached }
        } catch {
            stage.failure.withLock { $0 = "\(error)" }
            stage.quiet.withLock { $0 = .failed }
        }
    }

    /// Waits until all clients have received the fence with this version number, or a later one. Commits further fences
    /// in the meantime, because a client that was disconnected may not receive this one.
    private func reach(_ version: Int64, _ what: String) throws {
        let limit = Clock.monotonicNanoseconds() + Self.arrivalNanoseconds
        var nextFence = Clock.monotonicNanoseconds() + 3_000_000_000
        while true {
            judge.round(stage.history.causes)
            let behind = judge.behind(version)
            if behind.isEmpty || Signals.wasInterrupted { return }
            let now = Clock.monotonicNanoseconds()
            guard now < limit else { return giveUp(behind, what, now) }
            if now >= nextFence {
                _ = try fence()
                nextFence = now + 3_000_000_000
            }
            Pause.milliseconds(30)
        }
    }

    /// Records a finding for each client that has not received the fence in time.
    private func giveUp(_ behind: [Int], _ what: String, _ now: UInt64) {
        isStuck = true
        for client in behind.prefix(Self.enough) {
            judge.add(
                Finding(
                    kind: .stuck, text: "\(what) did not come within \(Self.arrivalNanoseconds / 1_000_000_000) s",
                    at: now),
                client: client)
        }
    }

    // MARK: Reporting

    private func say(_ left: UInt64) {
        let deliveries = judge.ledgers.reduce(0) { $0 + $1.received }
        settings.progress(
            "\(left) s to go: \(judge.journal.lines) changes, \(deliveries) deliveries, \(stage.history.all.count) faults, "
                + "\(judge.findings.count) findings")
    }

    private func report() -> VerifyReport {
        var report = VerifyReport(seed: settings.seed, seconds: settings.seconds)
        let ledgers = judge.ledgers
        (report.transactions, report.failedTransactions) = stage.tallies.withLock { $0 }
        report.clients = clients.count
        report.changes = judge.journal.lines
        report.deliveries = ledgers.reduce(0) { $0 + $1.received }
        let outcome = proxy.outcome
        (report.connections, report.bytesLostOnTheWay) = (outcome.connections, outcome.bytesLost)
        for closed in outcome.unexplained {
            judge.add(Finding(kind: .unexplainedClose, text: closed.said, at: closed.at))
        }
        report.kinds = ClientLedger.Kind.allCases.map { kind in
            let those = ledgers.filter { $0.kind == kind }
            return VerifyReport.KindLine(
                kind: kind.rawValue, clients: those.count, deliveries: those.reduce(0) { $0 + $1.received },
                repeated: those.reduce(0) { $0 + $1.repeated },
                oldestRepeatSeconds: Double(those.map(\.oldestRepeat).max() ?? 0) / 1e9,
                told: those.reduce(0) { $0 + $1.told })
        }
        report.faults = faultLines()
        report.counts = Finding.Kind.allCases.map { kind in
            (kind.rawValue, judge.findings.count { $0.finding.kind == kind })
        }
        report.findings = first().map(words)
        if stage.real == nil {
            report.remarks.append("no real clients took part: there is no Python for them (--python)")
        }
        report.wasInterrupted = Signals.wasInterrupted
        if report.wasInterrupted { report.remarks.append("it was interrupted: what was on its way was not waited for") }
        if settings.servers != nil, network == nil {
            report.remarks.append("no network was cut: only root can make one that can be, with the program ip")
        }
        if !hubs[0].disk.isSmall { report.remarks.append("no disk ran full: only root can give the hub a small one") }
        if !hubs[0].clock.canStep { report.remarks.append("no clock was stepped: libfaketime is not installed") }
        return report
    }

    /// Returns a few findings of each kind, for each kind of client.
    private func first() -> [(client: Int?, finding: Finding)] {
        var met: [String: Int] = [:]
        let some = judge.findings.filter { found in
            let kind = found.client.map { clients[$0].kind.rawValue } ?? ""
            met["\(found.finding.kind) \(kind)", default: 0] += 1
            return met["\(found.finding.kind) \(kind)", default: 0] <= 3
        }
        return Array(some.prefix(Self.shown))
    }

    private func faultLines() -> [VerifyReport.FaultLine] {
        let deeds = stage.history.all
        let lost = judge.findings.filter { $0.finding.kind == .missing || $0.finding.kind == .stuck }
        return faults.map { fault in
            let those = lost.filter { stage.history.fault(before: $0.finding.at) == fault }
            return VerifyReport.FaultLine(
                fault: fault.rawValue, times: deeds.count { $0.fault == fault }, lost: those.count,
                lostOfReal: those.count { $0.client.map { clients[$0].kind == .real } ?? false })
        }
    }

    private func words(_ found: (client: Int?, finding: Finding)) -> String {
        let who = found.client.map { "client \($0) (\(clients[$0].kind.rawValue), \(clients[$0].seat.name)): " } ?? ""
        let seconds = Double(found.finding.at &- began) / 1e9
        let around = stage.history.around(found.finding.at)
        return "\(who)\(found.finding.kind.rawValue): \(found.finding.text), at \((seconds * 10).rounded() / 10) s; "
            + (around.isEmpty ? "no fault was near" : "faults: \(around)")
    }
}
