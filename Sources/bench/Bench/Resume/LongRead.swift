import Change
import EventLog
import System

/// Benchmark of one client that resumes and catches up over a long log.
final class LongRead {
    private static let table = "resume_long"

    private let stage: ServingStage
    private let settings: BenchSettings
    private let count: Int
    private let owners: Int

    init(_ stage: ServingStage, _ settings: BenchSettings) throws {
        self.stage = stage
        self.settings = settings
        count = settings.isQuick ? 20_000 : 1_000_000
        owners = settings.isQuick ? 1000 : 10_000
    }

    private var owner: Int { owners - 1 }

    func run() throws -> [BenchResult] {
        try stage.makeTable(Self.table)
        let hub = try stage.startHub(
            Self.table, loops: 1, TalkLane.unlimited + ["--segment-size", settings.isQuick ? "1MB" : "2MB"])
        defer { stage.end(hub) }
        let start = try waitFor {
            try EventLogReader(directory: DiskDirectory(self.stage.logOfLastHub), from: .end).position
        }
        settings.progress("one client: \(count) changes are made")
        try stage.load(Self.table, first: 1, count: count, owners: owners)
        try waitFor {
            let last = try EventLogReader.segments(in: DiskDirectory(self.stage.logOfLastHub)).last
            return last.map { $0.endOffset >= start.offset + UInt64(self.count) } ?? false ? true : nil
        }
        var (read, passed, bare) = (Samples(), Samples(), Samples())
        for round in 0..<settings.rounds(usually: 5) {
            settings.progress("one client: round \(round + 1)")
            bare.add(try readBare(from: start))
            read.add(try comeBack(hub, from: start, filter: "owner=eq.\(owner)", changes: count / owners))
            passed.add(try comeBack(hub, from: start, filter: "id=eq.\(count)", changes: 1))
        }
        let name = "one client, \(count) changes"
        return [
            BenchResult(
                scenario: "resume", caseName: name, metric: "read", unit: "changes/s", values: read,
                baseline: .init("a bare loop", bare), target: .valueAtLeast(2_000_000)),
            BenchResult(
                scenario: "resume", caseName: name, metric: "passed over", unit: "changes/s", values: passed,
                baseline: .init("read", read), target: .valueAtLeast(20_000_000)),
        ]
    }

    /// Asks a question, such as one to the hub's log, until it has an answer, and returns the answer. Failures count as
    /// no answer.
    @discardableResult
    private func waitFor<Answer>(_ question: () throws -> Answer?) throws -> Answer {
        for _ in 0..<1200 {
            if let answer = try? question() { return answer }
            Pause.milliseconds(100)
        }
        throw BenchFailure("void (resume, one client): the hub did not take in what was made")
    }

    /// Returns the number of the log's changes per second that the hub passes while the client catches up, from the
    /// join to the client's last change. `changes` is the number of changes that the client receives: the last ones of
    /// its owner.
    private func comeBack(
        _ hub: HubProcess, from start: EventLogPosition, filter: String, changes: Int
    ) throws -> Double {
        let fleet = try LoadFleet(clients: 1, errors: stage.place.path + "/clients.log")
        defer { fleet.close() }
        try fleet.connect(port: hub.port, path: stage.path)
        try fleet.expect(first: Int64(count / owners - changes), each: Int64(changes), owner: String(owner))
        let began = Clock.unixMicroseconds()
        let binding = #"{"event":"*","schema":"public","table":"\#(Self.table)","filter":"\#(filter)"}"#
        try fleet.join(
            topic: "realtime:bench",
            payload: #"{"config":{"tidewire":{"resume":"\#(start)"},"postgres_changes":[\#(binding)]}}"#)
        let report = try fleet.awaitAll(milliseconds: 120_000)
        guard report.isFaultless else { throw ResumeScenario.void("one client, \(filter)", report) }
        return Double(count) * 1e6 / Double(max(1, report.lastMicroseconds - began))
    }

    /// Returns the changes per second of a bare loop over the log, which does not read rows.
    private func readBare(from start: EventLogPosition) throws -> Double {
        var reader = try EventLogReader(
            directory: DiskDirectory(stage.logOfLastHub), from: .offset(start.offset))
        let began = Clock.monotonicNanoseconds()
        var changes = 0
        while try reader.next() {
            guard reader.entry.kind == .transaction else { continue }
            var part = try TransactionPart(reader.payload)
            while true {
                guard let change = try part.next() else { break }
                _ = change
                changes += 1
            }
        }
        guard changes >= count else { throw BenchFailure("void (resume, one client): the log has \(changes) changes") }
        return Double(changes) * 1e9 / Double(Clock.monotonicNanoseconds() - began)
    }
}
