import Change

/// Benchmark of the path from PostgreSQL's WAL to a durable event log. The baseline is `pg_recvlogical`, which receives
/// the same WAL and discards it.
struct IngestScenario: Scenario {
    let name = "ingest"
    let summary = "From WAL to a durable event log, beside pg_recvlogical to /dev/null."
    let discussion = """
        Starts a private PostgreSQL, makes the WAL of four shapes once, and drains it again and again, in turns: with \
        pg_recvlogical to /dev/null (same pgoutput options, no fsync), and with the hub's whole path in a process of its \
        own (libpq, decode, encode, append, fdatasync in group commit, confirm). Each drain has a copy of the same slot \
        and is timed from the start of its process to the end, connecting included, over TCP on 127.0.0.1 without TLS.

        A row has eight columns (bigint, uuid, timestamptz, numeric, boolean, two texts, jsonb), some 270 bytes on the \
        wire. For the single large transaction pg_recvlogical is measured with and without streaming, and the faster \
        of the two is the baseline.

        After every drain the log is read: a missing, doubled or misplaced row, a hole in the offsets or a wrong \
        checksum makes the run void.
        """

    func run(_ settings: BenchSettings) throws -> [BenchResult] {
        let place = try Workplace(below: settings.directory)
        settings.progress("starting a private PostgreSQL")
        let stage = try IngestStage(place)
        defer { stage.close() }
        let shapes = IngestShape.all(isQuick: settings.isQuick).filter { settings.includes($0.name) }
        for shape in shapes {
            settings.progress("making WAL: \(shape.name)")
            try stage.load(shape)
        }
        let drains = Drains(stage: stage, place: place)
        var series = shapes.map { ShapeSeries(shape: $0) }
        let rounds = settings.rounds(usually: 7)
        for round in 0..<rounds {
            for index in series.indices {
                settings.progress("round \(round + 1) of \(rounds): \(shapes[index].name)")
                try series[index].measure(drains, hubFirst: round % 2 == 1)
            }
        }
        let results = series.flatMap(\.results)
        guard let captured = shapes.first(where: { $0.kind == .inserts && $0.rowsPerTransaction == 1000 }) else {
            return results
        }
        return results + (try DecodeScenario.results(name, stage, captured, place, settings))
    }
}

/// Measurements of one `IngestShape`, one for each round.
private struct ShapeSeries {
    let shape: IngestShape
    private var hub: [Drain] = []
    private var plain: [Drain] = []
    /// Measurements of a large transaction without streaming, so that the server keeps the transaction until it
    /// commits.
    private var unstreamed: [Drain] = []

    init(shape: IngestShape) { self.shape = shape }

    private var isLarge: Bool { shape.transactions == 1 }

    /// Measures the hub and the baseline. The order, `hubFirst`, alternates between rounds.
    mutating func measure(_ drains: Drains, hubFirst: Bool) throws {
        if hubFirst { hub.append(try drains.hub(shape, streaming: true)) }
        plain.append(try drains.baseline(shape, streaming: true))
        if isLarge { unstreamed.append(try drains.baseline(shape, streaming: false)) }
        if !hubFirst { hub.append(try drains.hub(shape, streaming: true)) }
    }

    private func rate(_ drains: [Drain]) -> Samples { Samples(drains.map { Double(shape.rows) / $0.seconds }) }

    private func perMillion(_ drains: [Drain], _ seconds: KeyPath<Drain, Double>) -> Samples {
        Samples(drains.map { $0[keyPath: seconds] * 1e6 / Double(shape.rows) })
    }

    private var baseline: (name: String, drains: [Drain]) {
        guard isLarge else { return ("pg_recvlogical", plain) }
        return rate(unstreamed).median > rate(plain).median
            ? ("pg_recvlogical, streaming off", unstreamed) : ("pg_recvlogical, streaming on", plain)
    }

    var results: [BenchResult] {
        let (name, drains) = baseline
        var results = [
            result("drained", "rows/s", rate(hub), .init(name, rate(drains)), .ratioAtLeast(0.95)),
            result(
                "client processor time", "s/M rows", perMillion(hub, \.clientSeconds),
                .init(name, perMillion(drains, \.clientSeconds)), isLessBetter: true),
            result(
                "walsender processor time", "s/M rows", perMillion(hub, \.serverSeconds),
                .init(name, perMillion(drains, \.serverSeconds)), isLessBetter: true),
        ]
        let peak = Samples(hub.compactMap(\.peakBytes).map { $0 / 1_048_576 })
        results.append(result("peak memory", "MiB", peak, nil, isLarge ? .valueAtMost(200) : nil))
        return results
    }

    private func result(
        _ metric: String, _ unit: String, _ values: Samples, _ baseline: BenchResult.Baseline?, _ target: Target? = nil,
        isLessBetter: Bool = false
    ) -> BenchResult {
        BenchResult(
            scenario: "ingest", caseName: shape.name, metric: metric, unit: unit, values: values, baseline: baseline,
            target: target, isLessBetter: isLessBetter)
    }
}
