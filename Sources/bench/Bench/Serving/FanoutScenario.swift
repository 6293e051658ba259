import System

/// Benchmark of one change for many subscribers, compared with a bare loop of `send()`.
struct FanoutScenario: Scenario {
    let name = "fanout"
    let summary = "One change to 1,000 and 10,000 subscribers, beside a bare send() loop of the same bytes."
    let discussion = """
        Starts a private PostgreSQL and hubs, each a process with a table and subscribers of its own, and a bare server: \
        one thread that calls send() with the hub's own message on as many sockets and does nothing else. Then, in turns and one \
        after the other: a row is inserted, and the next one when every subscriber has it ("one at a time"); or sixteen \
        rows in one transaction ("16 queued"), which the hub may send by one call a socket.

        Processor time is the kernel's, by thread. A hub's loop threads read the log, look for subscribers, write the \
        message and send it; that is what stands beside the bare loop's sending. For the ratio the hub has one loop, as \
        the bare server has; hubs and bare server share the first processor, clients have the last one. The hub as it \
        comes (a loop for each processor, nothing pinned) is measured too. Deliveries a second count from the insert, with \
        its commit and its way through the log, until the last subscriber has it; the bare server's from its own sending.

        Then four hubs with one loop and 4,000 subscribers each, which differ in what the event log keeps of those (ledger: off, \
        exceptions, ranges, full): 40,000 deliveries a second, of 10 changes for everybody or 40,000 for one of them each. What \
        the loop thread's time a delivery is stands beside that of the hub that keeps nothing, with the ledger's bytes a \
        delivery as they are in the log. Cases are named "ledger" for --only.

        Every subscriber checks that each change came once and in order; else there are no figures.
        """

    func run(_ settings: BenchSettings) throws -> [BenchResult] {
        let place = try Workplace(below: settings.directory)
        settings.progress("starting a private PostgreSQL")
        let stage = try ServingStage(place)
        defer { stage.close() }
        var results: [BenchResult] = []
        for count in settings.isQuick ? [200] : [1000, 10_000] where settings.includes("\(count) clients") {
            let race = try FanoutRace(count, stage, place, settings)
            defer { race.close() }
            results += try race.run(settings)
        }
        for shape in LedgerRace.Shape.allCases where settings.includes("ledger \(shape.rawValue)") {
            let race = try LedgerRace(shape, stage, place, settings)
            defer { race.close() }
            results += try race.run(settings)
        }
        return results
    }
}

/// Cost per delivery in one round of the benchmark `fanout`.
struct FanoutCost {
    /// Processor time of the sending threads, in microseconds.
    var loopMicroseconds: Double
    var processMicroseconds: Double
    var deliveriesPerSecond: Double
    var bytes: Double
}

/// Hub of the benchmark `fanout`, and its subscribers.
final class FanoutLane {
    static let firstSequence: Int64 = 1_000_000

    let name: String
    let isPinned: Bool
    let hub: HubProcess
    private let fleet: LoadFleet
    private let table: String
    private let stage: ServingStage
    private var next = FanoutLane.firstSequence
    var single: [FanoutCost] = []
    var queued: [FanoutCost] = []

    init(
        _ name: String, _ stage: ServingStage, clients: Int, loops: Int, backend: String, isPinned: Bool
    ) throws {
        self.name = name
        self.stage = stage
        self.isPinned = isPinned
        table = "fanout_\(clients)_\(backend)"
        try stage.makeTable(table)
        hub = try stage.startHub(table, loops: loops, backend: backend)
        fleet = try stage.connect(clients, to: hub, table: table)
        guard isPinned else { return }
        try ProcessorPin.put([hub.processID], on: ProcessorPin.servers)
        try ProcessorPin.put(fleet.processIDs, on: ProcessorPin.clients)
    }

    func close() {
        fleet.close()
        stage.end(hub)
    }

    /// Commits transactions. After each, waits until all clients have received its rows. Returns the hub's cost.
    func send(transactions: Int, rows: Int) throws -> FanoutCost {
        let before = try hub.use()
        try fleet.expect(first: next, each: Int64(transactions * rows))
        var microseconds: Int64 = 0
        for transaction in 1...transactions {
            let began = Clock.unixMicroseconds()
            try stage.insert(into: table, first: next, count: rows)
            next += Int64(rows)
            let report = try fleet.await(each: Int64(transaction * rows), milliseconds: 60_000)
            guard report.received == Int64(fleet.count * transaction * rows) else { throw void(report) }
            microseconds += max(1, report.lastMicroseconds - began)
        }
        // If the hub sends duplicates, they arrive during this pause. It also makes the kernel's figures exact: they
        // are so only for threads at rest.
        Pause.milliseconds(50)
        let report = try fleet.report()
        guard report.isFaultless else { throw void(report) }
        let after = try hub.use()
        let deliveries = Double(report.received)
        return FanoutCost(
            loopMicroseconds: after.nanoseconds(since: before, threads: "loop-") / deliveries / 1000,
            processMicroseconds: after.nanoseconds(since: before) / deliveries / 1000,
            deliveriesPerSecond: deliveries * 1e6 / Double(microseconds), bytes: Double(report.bytes) / deliveries)
    }

    func sample() throws -> String { try fleet.sample() }

    private func void(_ report: LoadReport) -> BenchFailure {
        BenchFailure(
            "void (fanout, \(name)): of \(report.expected) changes \(report.missing) are missing, \(report.doubled) came "
                + "twice or late, \(report.skipped) were passed over, \(report.foreign + report.malformed) mean nothing, "
                + "\(report.closed) clients lost their connection")
    }
}

/// Comparison of hubs with the bare server, for the same number of clients.
private final class FanoutRace {
    private static let rowsQueued = 16

    private let count: Int
    private let changes: Int
    private let lanes: [FanoutLane]
    private let bare: BareFanout
    private let template: String
    private var bareSingle: [FanoutCost] = []
    private var bareQueued: [FanoutCost] = []

    init(_ count: Int, _ stage: ServingStage, _ place: Workplace, _ settings: BenchSettings) throws {
        self.count = count
        // There are many short rounds, so that a disturbance of the machine affects neighbouring rounds equally.
        changes = settings.isQuick ? 10 : 100_000 / count
        var lanes: [FanoutLane] = []
        for (name, loops, backend) in [
            ("epoll, 1 loop", 1, "epoll"), ("io_uring, 1 loop", 1, "io_uring"),
            ("as it comes, \(Processors.count) loops", 0, "auto"),
        ] {
            settings.progress("\(count) clients of a hub: \(name)")
            lanes.append(
                try FanoutLane(name, stage, clients: count, loops: loops, backend: backend, isPinned: loops == 1))
        }
        self.lanes = lanes
        settings.progress("\(count) clients of the bare server")
        bare = try BareFanout(
            clients: count, first: FanoutLane.firstSequence, errors: place.path + "/bare.log")
        try ProcessorPin.put(bare.serverProcessID.map { [$0] } ?? [], on: ProcessorPin.servers)
        try ProcessorPin.put(bare.clientProcessIDs, on: ProcessorPin.clients)
        // The first messages are a warm-up. They also give a sample of the hub's message for the bare server.
        for lane in lanes { _ = try lane.send(transactions: 3, rows: 1) }
        template = ChangeTemplate.text(of: try lanes[0].sample())
    }

    func close() {
        bare.close()
        for lane in lanes { lane.close() }
    }

    func run(_ settings: BenchSettings) throws -> [BenchResult] {
        let rounds = settings.rounds(usually: 13)
        for round in 0..<rounds {
            settings.progress("\(count) clients: round \(round + 1) of \(rounds)")
            if round % 2 == 0 { try measureBare() }
            for lane in round % 2 == 0 ? lanes : lanes.reversed() {
                lane.single.append(try lane.send(transactions: changes, rows: 1))
                lane.queued.append(
                    try lane.send(transactions: max(2, changes / Self.rowsQueued * 2), rows: Self.rowsQueued))
            }
            if round % 2 == 1 { try measureBare() }
        }
        return lanes.flatMap(results)
    }

    private func measureBare() throws {
        bareSingle.append(try sendBare(messages: changes, together: 1))
        bareQueued.append(try sendBare(messages: max(2, changes / Self.rowsQueued * 2), together: Self.rowsQueued))
    }

    private func sendBare(messages: Int, together: Int) throws -> FanoutCost {
        var (used, microseconds, deliveries, bytes) = (0.0, 0.0, 0.0, 0.0)
        for _ in 0..<messages {
            let (cost, report) = try bare.send(together, together: together, template: template)
            used += Double(cost.processorNanoseconds)
            microseconds += Double(report.latency.maximum)
            deliveries += Double(cost.deliveries)
            bytes += Double(report.bytes)
        }
        guard let hub = lanes.first?.single.first?.bytes ?? lanes.first.map({ _ in bytes / deliveries }),
            (hub - bytes / deliveries).magnitude < 8
        else { throw BenchFailure("the bare server does not send as many bytes as the hub") }
        return FanoutCost(
            loopMicroseconds: used / deliveries / 1000, processMicroseconds: used / deliveries / 1000,
            deliveriesPerSecond: deliveries * 1e6 / max(1, microseconds), bytes: bytes / deliveries)
    }

    // MARK: Results

    private func results(_ lane: FanoutLane) -> [BenchResult] {
        let one = "\(count) clients, one at a time, \(lane.name)"
        let many = "\(count) clients, \(Self.rowsQueued) queued, \(lane.name)"
        let target: Double? = !lane.isPinned ? nil : lane.name.hasPrefix("epoll") ? 0.95 : 1.2
        return [
            time(one, "loop threads' time a delivery", lane.single, \.loopMicroseconds, bareSingle, target),
            time(one, "process's time a delivery", lane.single, \.processMicroseconds, bareSingle, nil),
            rate(one, lane.single, bareSingle),
            time(
                many, "loop threads' time a delivery", lane.queued, \.loopMicroseconds, bareSingle,
                lane.isPinned ? 5 : nil),
            time(
                many, "loop threads' time a delivery", lane.queued, \.loopMicroseconds, bareQueued, nil,
                baseline: "bare send() of 16 messages"),
            rate(many, lane.queued, bareSingle),
        ]
    }

    private func time(
        _ caseName: String, _ metric: String, _ costs: [FanoutCost], _ path: KeyPath<FanoutCost, Double>,
        _ bare: [FanoutCost], _ target: Double?, baseline: String = "bare send()"
    ) -> BenchResult {
        BenchResult(
            scenario: "fanout", caseName: caseName, metric: metric, unit: "us", values: samples(costs, path),
            baseline: .init(baseline, samples(bare, path)), target: target.map { .ratioAtLeast($0) },
            isLessBetter: true)
    }

    private func rate(_ caseName: String, _ costs: [FanoutCost], _ bare: [FanoutCost]) -> BenchResult {
        BenchResult(
            scenario: "fanout", caseName: caseName, metric: "deliveries", unit: "1/s",
            values: samples(costs, \.deliveriesPerSecond),
            baseline: .init("bare send()", samples(bare, \.deliveriesPerSecond)))
    }

    private func samples(_ costs: [FanoutCost], _ path: KeyPath<FanoutCost, Double>) -> Samples {
        Samples(costs.map { $0[keyPath: path] })
    }
}
