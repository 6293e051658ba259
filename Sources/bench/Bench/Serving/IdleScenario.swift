/// Benchmark of clients that are connected but receive nothing.
struct IdleScenario: Scenario {
    let name = "idle"
    let summary = "Memory and processor time of 10,000 subscribed clients to whom nothing happens."
    let discussion = """
        Starts a private PostgreSQL and a hub as it comes, then lets clients connect, join a channel and subscribe to a \
        table: all to the whole table, or each with a filter of its own. Memory is what the hub's process has of its own \
        (Private in smaps_rollup) with all of them, minus what it had when nobody had ever connected, so everything that \
        it needs once is in it too. The kernel's part of a connection is not. The baseline is the bare server's memory for \
        as many connections: it keeps a descriptor of each and nothing else.

        Processor time is of all threads of the hub, over some seconds, with clients that are silent and with clients that \
        each send a heartbeat every 25 seconds, as Supabase's do; 1 % is one hundredth of one processor.
        """

    func run(_ settings: BenchSettings) throws -> [BenchResult] {
        let place = try Workplace(below: settings.directory)
        settings.progress("starting a private PostgreSQL")
        let stage = try ServingStage(place)
        defer { stage.close() }
        let count = settings.isQuick ? 500 : 10_000
        try stage.makeTable("idle")
        var series = [
            IdleSeries(name: "\(count) clients of a table", filter: nil),
            IdleSeries(name: "\(count) clients with a filter each", filter: "owner=eq.{n}"),
        ].filter { settings.includes($0.name) }
        var bare = Samples()
        let rounds = settings.rounds(usually: 3)
        for round in 0..<rounds {
            settings.progress("round \(round + 1) of \(rounds): the bare server")
            bare.add(try bareBytes(count, place))
            for index in series.indices {
                settings.progress("round \(round + 1) of \(rounds): \(series[index].name)")
                try series[index].measure(count, stage, seconds: settings.isQuick ? 1 : 5)
            }
        }
        return series.flatMap { $0.results(bare) }
    }

    /// Returns the bytes of memory per client of the bare server.
    private func bareBytes(_ count: Int, _ place: Workplace) throws -> Double {
        let none = try BareFanout(clients: 1, errors: place.path + "/bare.log")
        defer { none.close() }
        let all = try BareFanout(clients: count, errors: place.path + "/bare.log")
        defer { all.close() }
        guard let before = none.serverProcessID, let after = all.serverProcessID else { return .nan }
        return try (ProcessMemory.privateBytes(after) - ProcessMemory.privateBytes(before)) / Double(count)
    }
}

/// Measurements of idle clients with one kind of subscription, one for each round.
private struct IdleSeries {
    let name: String
    let filter: String?
    private var bytes = Samples()
    private var silent = Samples()
    private var beating = Samples()

    init(name: String, filter: String?) {
        self.name = name
        self.filter = filter
    }

    mutating func measure(_ count: Int, _ stage: ServingStage, seconds: Int) throws {
        let hub = try stage.startHub("idle", loops: 0)
        defer { stage.end(hub) }
        Pause.milliseconds(1000)
        let before = try ProcessMemory.privateBytes(hub.processID)
        let fleet = try stage.connect(count, to: hub, table: "idle", filter: filter)
        defer { fleet.close() }
        Pause.milliseconds(1000)
        bytes.add((try ProcessMemory.privateBytes(hub.processID) - before) / Double(count))
        silent.add(try share(hub, seconds))
        try fleet.heartbeat(seconds: 25)
        beating.add(try share(hub, seconds))
        let report = try fleet.report()
        guard report.connected == Int64(count), report.closed == 0, report.malformed == 0, report.foreign == 0 else {
            throw BenchFailure("void (idle): \(count - Int(report.connected)) clients did not stay")
        }
    }

    /// Returns the percentage of one processor that the hub uses, measured over this number of seconds.
    private func share(_ hub: HubProcess, _ seconds: Int) throws -> Double {
        let before = try hub.use()
        Pause.milliseconds(seconds * 1000)
        return try hub.use().nanoseconds(since: before) / Double(seconds) / 1e7
    }

    func results(_ bare: Samples) -> [BenchResult] {
        [
            BenchResult(
                scenario: "idle", caseName: name, metric: "memory", unit: "B/client", values: bytes,
                baseline: .init("bare server", bare), target: .valueAtMost(2048), isLessBetter: true),
            BenchResult(
                scenario: "idle", caseName: name, metric: "processor, silent", unit: "%", values: silent,
                target: .valueAtMost(1)),
            BenchResult(
                scenario: "idle", caseName: name, metric: "processor, a heartbeat per 25 s", unit: "%",
                values: beating, target: .valueAtMost(5)),
        ]
    }
}
