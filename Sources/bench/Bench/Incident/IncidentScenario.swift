import Change
import EventLog
import Explaining
import History
import System

/// Benchmark of questions to a log after an incident. The baseline is one pass over the whole log.
struct IncidentScenario: Scenario {
    let name = "incident"
    let summary = "Questions to a log of ten million changes: row, tx, who, stats, whatif, beside a bare pass over it."
    let discussion = """
        Writes a log as the hub does: updates of one table with REPLICA IDENTITY FULL, 20 in a transaction, 10 for each \
        row; half of the rows have all their versions close together, the others theirs all over the log. 5,000 clients are \
        there, of whom some come and go all the time, as the ledger has it. Then it asks what 'tidewire row', 'tx', 'who', \
        'stats' and 'whatif' ask, by the same code, with the files in memory: every version of a row, the changes of a \
        transaction, who was there at a change, the counts by table and by minute, and what a compiled policy would change \
        for one client. And it replays the log's first changes, as fast as it goes, into tables of a database and into \
        channels of a hub. The baseline, in turns over the same files, is a bare \
        pass from change to change, without a look at the rows.
        """

    func run(_ settings: BenchSettings) throws -> [BenchResult] {
        let place = try Workplace(below: settings.directory)
        let log = IncidentLog(
            directory: try place.directory("log"), changes: settings.isQuick ? 200_000 : 10_000_000)
        try log.write { settings.progress("writing a log: \($0) of \(log.changes) changes") }
        let database = try IncidentDatabase(place)
        defer { database.close() }
        settings.progress("starting a hub to replay into")
        let staging = try IncidentStaging(
            HistoryLog(directory: log.directory, masking: .nothing), database, place,
            changes: settings.isQuick ? 10_000 : 100_000)
        defer { staging.close() }
        var questions = Questions(log, database, staging)
        let rounds = settings.rounds(usually: 5)
        for round in 0..<rounds {
            settings.progress("asking, round \(round + 1) of \(rounds)")
            try questions.ask()
        }
        return questions.results
    }
}

private struct Questions {
    private let log: IncidentLog
    private let history: HistoryLog
    /// Rates of a plain pass over the whole log, the baseline.
    private var bare = Samples()
    private var pass = Samples()
    /// Seconds for the history of a row whose versions are close together in the log.
    private var gathered = Samples()
    /// Seconds for the history of a row whose versions are spread over the log.
    private var scattered = Samples()
    private var transaction = Samples()
    private var audience = Samples()
    private var proposal = Samples()
    private var byTable = Samples()
    private var byMinute = Samples()
    private var intoDatabase = Samples()
    private var intoHub = Samples()

    private let database: IncidentDatabase
    private let staging: IncidentStaging

    init(_ log: IncidentLog, _ database: IncidentDatabase, _ staging: IncidentStaging) {
        self.staging = staging
        self.log = log
        self.database = database
        history = HistoryLog(directory: log.directory, masking: .nothing)
    }

    mutating func ask() throws {
        let seconds = try timed { try read() }
        pass.add(seconds)
        bare.add(Double(log.changes) / seconds)
        gathered.add(try timed { try versions(of: log.gathered) })
        scattered.add(try timed { try versions(of: log.scattered) })
        transaction.add(try timed { try changes(of: UInt32(log.transactions / 3)) })
        audience.add(try timed { try who() })
        proposal.add(Double(log.changes) / (try timed { try whatIf() }))
        byTable.add(Double(log.changes) / (try timed { try count(by: .table) }))
        byMinute.add(Double(log.changes) / (try timed { try count(by: .minute) }))
        intoDatabase.add(Double(staging.changes) / (try timed { try staging.intoDatabase() }))
        intoHub.add(Double(staging.changes) / (try timed { try staging.intoHub() }))
    }

    var results: [BenchResult] {
        [
            seconds("row, versions close together", gathered), seconds("row, versions all over", scattered),
            seconds("tx", transaction), seconds("who", audience), rate("stats by table", byTable),
            rate("stats by minute", byMinute), rate("whatif, a compiled policy", proposal, atLeast: 1_000_000),
            replay("replay into a database", intoDatabase), replay("replay into a hub", intoHub),
        ]
    }

    private func seconds(_ name: String, _ values: Samples) -> BenchResult {
        BenchResult(
            scenario: "incident", caseName: name, metric: "answer", unit: "s", values: values,
            baseline: .init("a bare pass", pass), target: .valueAtMost(0.2))
    }

    private func rate(_ name: String, _ values: Samples, atLeast target: Double = 2_000_000) -> BenchResult {
        BenchResult(
            scenario: "incident", caseName: name, metric: "counted", unit: "changes/s", values: values,
            baseline: .init("a bare pass", bare), target: .valueAtLeast(target))
    }

    private func replay(_ name: String, _ values: Samples) -> BenchResult {
        BenchResult(
            scenario: "incident", caseName: name, metric: "replayed", unit: "changes/s", values: values,
            baseline: .init("a bare pass", bare))
    }

    // MARK: Each of them

    /// Returns the seconds that `body` takes.
    private func timed(_ body: () throws -> Void) rethrows -> Double {
        let began = Clock.monotonicNanoseconds()
        try body()
        return Double(Clock.monotonicNanoseconds() - began) / 1e9
    }

    private func check(_ found: Int, _ expected: Int, _ what: String) throws {
        guard found == expected else {
            throw BenchFailure("void (incident, \(what)): \(found) were found of \(expected)")
        }
    }

    private func read() throws {
        var reader = try EventLogReader(directory: log.directory)
        var changes = 0
        while try reader.next() {
            guard reader.entry.kind == .transaction else { continue }
            var part = try TransactionPart(reader.payload)
            while let change = try part.next() {
                _ = change
                changes += 1
            }
        }
        try check(changes, log.changes, "a bare pass")
    }

    private func versions(of row: Int) throws {
        let table = TableName(schema: IncidentLog.relation.schema, name: IncidentLog.relation.name)
        var rows = try RowHistory(history, table, RowName(["\(row)"]), HistoryQuery())
        var found = 0
        while let item = try rows.next() { if case .version = item { found += 1 } }
        try check(found, IncidentLog.versionsOfRow, "row")
    }

    private func changes(of xid: UInt32) throws {
        var found = 0
        try history.transactions(.xid(xid)) { transaction in
            let query = HistoryQuery(
                from: .offset(transaction.offsets.lowerBound), to: .offset(transaction.offsets.upperBound))
            var reader = try HistoryReader(history, query)
            while let item = try reader.next() { if item.isChange { found += 1 } }
            return true
        }
        try check(found, IncidentLog.changesOfTransaction, "tx")
    }

    private func who() throws {
        let offset = UInt64(log.changes / 2)
        var reader = try HistoryReader(history, HistoryQuery(from: .offset(offset), to: .offset(offset + 1)))
        guard case .change(let change)? = try reader.next() else {
            throw BenchFailure("void (incident, who): no change")
        }
        let book = try AttendanceBook(history, at: change)
        let there = book.all.count { attendance in
            guard case .sent = attendance.reach(of: offset, committed: change.time ?? 0) else { return false }
            return true
        }
        try check(there, IncidentAttendance.clients, "who")
    }

    private func whatIf() throws {
        let report = try database.answer(history)
        // Every second version of a row is open. One row is the client's own, so it does not gain that row.
        try check(report.gains, log.changes / 2 - IncidentLog.versionsOfRow / 2, "whatif, gains")
        try check(report.losses, IncidentLog.versionsOfRow / 2, "whatif, losses")
    }

    private func count(by grouping: LogStatistics.Grouping) throws {
        var statistics = LogStatistics(by: grouping, top: 10)
        var reader = try HistoryReader(history, HistoryQuery())
        try reader.count(into: &statistics) { _ in }
        try check(Int(statistics.total.changes), log.changes, "stats")
    }
}
