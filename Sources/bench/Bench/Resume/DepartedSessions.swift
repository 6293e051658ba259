import System

/// Benchmark of the hub's memory for sessions that have disconnected and may resume.
final class DepartedSessions {
    private static let table = "resume_departed"

    private let stage: ServingStage
    private let settings: BenchSettings
    private let count: Int
    private let times: Int

    init(_ stage: ServingStage, _ settings: BenchSettings) throws {
        self.stage = stage
        self.settings = settings
        count = settings.isQuick ? 200 : 10_000
        times = settings.isQuick ? 3 : 11
    }

    func run() throws -> [BenchResult] {
        try stage.makeTable(Self.table)
        var bytes = Samples()
        for round in 0..<settings.rounds(usually: 1) { bytes.add(try measure(round)) }
        return [
            BenchResult(
                scenario: "resume", caseName: "departed: \(count * (times - 1)) sessions", metric: "memory of 100,000",
                unit: "MB", values: bytes, target: .valueAtMost(50), isLessBetter: true)
        ]
    }

    private func measure(_ round: Int) throws -> Double {
        let hub = try stage.startPatientHub(Self.table)
        defer { stage.end(hub) }
        var before = 0.0
        for time in 0..<times {
            settings.progress("departed: \((time + 1) * count) sessions")
            let clients = try KnownClients(
                count, stage, hub, table: Self.table, filter: nil, sessions: "departed-\(time)")
            try clients.fleet.cut()
            clients.fleet.close()
            // During this pause, the hub releases the sessions' memory and stores their positions.
            Pause.milliseconds(3000)
            if time == 0 { before = try ProcessMemory.privateBytes(hub.processID) }
        }
        let after = try ProcessMemory.privateBytes(hub.processID)
        return max(0, after - before) / Double(count * (times - 1)) * 100_000 / 1e6
    }
}
