import Postgres
import System

/// Benchmark of clients that read more slowly than the hub sends.
final class SlowCrowd {
    private static let table = "resume_slow"

    private let stage: ServingStage
    private let settings: BenchSettings
    private let count: Int
    private let changes: Int

    init(_ stage: ServingStage, _ settings: BenchSettings) throws {
        self.stage = stage
        self.settings = settings
        count = settings.isQuick ? 50 : 1000
        changes = settings.isQuick ? 20_000 : 1_000_000
    }

    func run() throws -> [BenchResult] {
        try stage.makeTable(Self.table)
        var bytes = Samples()
        for _ in 0..<settings.rounds(usually: 1) { bytes.add(try measure()) }
        return [
            BenchResult(
                scenario: "resume", caseName: "slow: \(count) clients, \(changes) changes", metric: "memory of all",
                unit: "MB", values: bytes, target: .valueAtMost(100), isLessBetter: true)
        ]
    }

    private func measure() throws -> Double {
        let hub = try stage.startPatientHub(Self.table)
        defer { stage.end(hub) }
        try stage.connection.execute("TRUNCATE \(Self.table)")
        settings.progress("slow: \(count) clients")
        let clients = try KnownClients(count, stage, hub, table: Self.table, filter: nil, sessions: "slow")
        defer { clients.fleet.close() }
        Pause.milliseconds(2500)
        let before = try ProcessMemory.privateBytes(hub.processID)
        try clients.fleet.expect(first: 0, each: Int64(changes))
        try clients.fleet.readSlowly(bytes: 8 << 10, milliseconds: 500)
        settings.progress("slow: \(changes) changes are made")
        var most = before
        for part in 0..<10 {
            let first = Int64(part * changes / 10 + 1)
            try stage.load(Self.table, first: first, count: changes / 10, owners: 1)
            most = max(most, try ProcessMemory.privateBytes(hub.processID))
        }
        // The clients continue to read for a while, each at its own speed.
        for _ in 0..<(settings.isQuick ? 5 : 40) {
            Pause.milliseconds(1000)
            most = max(most, try ProcessMemory.privateBytes(hub.processID))
        }
        let report = try clients.fleet.report()
        guard report.received > 0, report.received < report.expected || settings.isQuick, report.doubled == 0,
            report.skipped == 0, report.foreign == 0, report.malformed == 0, report.closed == 0
        else { throw ResumeScenario.void("slow", report) }
        return (most - before) / 1e6
    }
}
