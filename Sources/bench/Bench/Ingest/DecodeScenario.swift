/// Benchmark of the processor time for a row, without network and disk.
struct DecodeScenario: Scenario {
    let name = "decode"
    let summary = "A captured stream to stored transactions and to JSON: processor time a row."
    let discussion = """
        Starts a private PostgreSQL, captures the stream of some thousand inserts (eight columns, some 270 bytes a row on \
        the wire), and takes it again and again through the decoder and assembler into the stored form of transactions; \
        then also reads each change from that, as a socket loop does, and writes the new row as a JSON object.

        It is the processor time of one thread, beside a loop that copies the same bytes one by one. The stream is small enough for the processor's caches, where a row that \
        was just received is too. `bench ingest` reports the same figures.
        """

    func run(_ settings: BenchSettings) throws -> [BenchResult] {
        let place = try Workplace(below: settings.directory)
        let stage = try IngestStage(place)
        defer { stage.close() }
        let shape = IngestShape.all(isQuick: true)[1]
        try stage.load(shape)
        return try Self.results(name, stage, shape, place, settings)
    }

    static func results(
        _ scenario: String, _ stage: IngestStage, _ shape: IngestShape, _ place: Workplace, _ settings: BenchSettings
    ) throws -> [BenchResult] {
        settings.progress("decoding a captured stream")
        let cost = try DecodeCost(stage, shape, place)
        let passes = settings.isQuick ? 5 : 100
        var decode = Samples()
        var both = Samples()
        var plain = Samples()
        for _ in 0..<settings.rounds(usually: 7) {
            decode.add(try cost.measure(passes: passes, asJSON: false))
            both.add(try cost.measure(passes: passes, asJSON: true))
            plain.add(cost.measureCopying(passes: passes))
        }
        func result(
            _ metric: String, _ values: Samples, unit: String = "ns/row", _ baseline: BenchResult.Baseline? = nil,
            _ target: Target? = nil
        ) -> BenchResult {
            BenchResult(
                scenario: scenario, caseName: "captured stream", metric: metric, unit: unit, values: values,
                baseline: baseline, target: target, isLessBetter: true)
        }
        let copying = BenchResult.Baseline("copying byte by byte", plain)
        return [
            result("decode to stored form", decode, copying),
            result("decode + JSON", both, copying, .ratioAtLeast(0.5)),
            result("row on the wire", Samples([cost.wireBytesPerRow]), unit: "B"),
        ]
    }
}
