import Bytes
import Change
import Console
import EventLog
import History
import Projects
import Settings

/// Command `tidewire stats`: counts the changes, transactions and bytes in the log.
struct StatisticsCommand: Command {
    let name = "stats"
    let summary = "Count what the log holds: by table, operation, origin, actor or time."
    let discussion = """
        Prints one line for each table (or whatever --by says): those with most changes first, times in their order. \
        Then prints the totals of the window, its gaps, and the largest transactions and changes in it, by the bytes \
        of their rows (old and new) in the log. Values are not shown.

        It reads the event log's files and needs neither hub nor database; a hub may run meanwhile. Without --from and \
        --to it counts everything that is kept. With --table, it skips segments without changes of that table.

        \(SelectorHelp.text)

        JSON. One object a line. With kind "group": table with schema, operation, actor (null: not named; see sql/actors), origin (empty: made in this \
        database) or from (the beginning of the minute, hour or day); with kind "transaction" one of the largest: xid, \
        lsn, time, offset (of its first change), changes, bytes; with kind "change" one of the largest: offset, xid, \
        time, op, schema, table, bytes; with kind "gap": as in 'tidewire tail --json'; last one with kind "total": \
        first_offset, last_offset, from, to, gaps. Groups and the total have changes, insert, update, delete, \
        truncate, message, transactions, bytes.
        """
    let options: [Option] =
        [
            .by, .top, .from, .to, .table, .operation, .condition, .withoutProgress, .output, .json, .zone, .log,
            .project,
        ] + Option.masking + Option.asking
    let optionGroups: [OptionGroup] = [.dataDirectory]
    let examples = [
        Example("tidewire stats", "What fills the log?"),
        Example("tidewire stats --from -1h --by minute", "When did the many changes begin?"),
        Example("tidewire stats --from -15m --table orders --op D --top 3", "Who deleted orders, and how many?"),
    ]
    let exitCodes = LogAccess.exitCodes

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        if let code = try arguments.answer("stats", options: allOptions, terminal) { return code }
        let zone = try arguments.zone()
        let query = try arguments.query(zone)
        let (grouping, top) = (try arguments.grouping(), try arguments.top())
        return try LogAccess.explained {
            let log = try arguments.historyLog(terminal)
            try NameCheck(log).check(query)
            var statistics = LogStatistics(by: grouping, top: top)
            let progress = Progress(terminal, isQuiet: arguments.has(.withoutProgress))
            try count(log, query, into: &statistics, progress)
            progress.clear()
            let report = StatisticsReport(statistics, top: top, zone: zone)
            if arguments.has(.json) {
                for line in report.json { try terminal.print(line) }
            } else {
                try report.print(on: terminal)
            }
            return statistics.total.changes + UInt64(statistics.gaps.count) > 0 ? .ok : .notFound
        }
    }

    private func count(
        _ log: HistoryLog, _ query: HistoryQuery, into statistics: inout LogStatistics, _ progress: Progress
    ) throws {
        var reader = try HistoryReader(log, query)
        let end = min(try log.segments().last?.endOffset ?? 0, reader.window.endOffset)
        let first = reader.offset
        try reader.count(into: &statistics) { offset in
            let done = Progress.percent(offset - min(first, offset), of: end - min(first, end))
            progress.note("counting changes: \(done)")
        }
    }
}

extension Option {
    fileprivate static let by = Option.value(
        "by", "WHAT", "The groups to count by: table (default), operation, origin, actor, minute, hour or day.")
    fileprivate static let top = Option.value(
        "top", "N", "The most groups, transactions and changes to list (default 10); 0 for only the totals.")
}

extension Arguments {
    fileprivate func grouping() throws(UsageError) -> LogStatistics.Grouping {
        guard let text = value(of: .by) else { return .table }
        guard let found = LogStatistics.Grouping(rawValue: text.lowercased()) else {
            let names = LogStatistics.Grouping.allCases.map(\.rawValue).joined(separator: ", ")
            throw UsageError("--by \(text): expected one of \(names)")
        }
        return found
    }

    fileprivate func top() throws(UsageError) -> Int {
        guard case .integer(let number) = try value(of: .top, as: .integer(0...10_000)) else { return 10 }
        return Int(number)
    }
}

/// Printer of the numbers of changes, transactions and bytes in the log, as tables or JSON.
private struct StatisticsReport {
    private let statistics: LogStatistics
    private let top: Int
    private let zone: DisplayZone

    init(_ statistics: LogStatistics, top: Int, zone: DisplayZone) {
        self.statistics = statistics
        self.top = top
        self.zone = zone
    }

    /// Groups that the table shows: at most the number of `--top`.
    private var shown: ArraySlice<(group: LogStatistics.Group, count: LogStatistics.Count)> {
        statistics.groups(top: top)
    }

    // MARK: Text

    func print(on terminal: Terminal) throws {
        if !shown.isEmpty {
            for line in groups.lines(on: terminal) { try terminal.print(line) }
            for line in rest + [""] { try terminal.remark(line) }
        }
        for line in sums { try terminal.remark(line) }
        for gap in statistics.gaps {
            try terminal.remark("gap at @\(gap.offset), \(time(gap.time)): \(gap.gap.reason.rawValue)")
        }
        // A CSV file contains one table only.
        guard terminal.form != .csv else { return }
        for (title, table, isEmpty) in [
            ("Largest transactions", transactions, statistics.largestTransactions.isEmpty),
            ("Largest changes", changes, statistics.largestRows.isEmpty),
        ] where !isEmpty {
            for line in ["", title, ""].dropLast(terminal.form == .table ? 1 : 0) { try terminal.print(line) }
            for line in table.lines(on: terminal) { try terminal.print(line) }
        }
    }

    private var title: String {
        switch statistics.grouping {
        case .table: "TABLE"
        case .operation: "OPERATION"
        case .origin: "ORIGIN"
        case .actor: "ACTOR"
        case .minute, .hour, .day: "FROM (\(zone.name))"
        }
    }

    private var groups: Table {
        var table = Table([
            .text(title, canBeCut: true), .number("CHANGES"), .number("INSERT"), .number("UPDATE"), .number("DELETE"),
            .number("OTHER"), .number("TX"), .number("SIZE"),
        ])
        for (group, count) in shown {
            table.add(
                [name(group), String(count.changes)] + [.insert, .update, .delete].map { String(count[$0]) } + [
                    String(count[.truncate] + count[.message]), String(count.transactions), ByteText.write(count.bytes),
                ])
        }
        return table
    }

    /// Line that says how many groups the table omits; empty if it has all.
    private var rest: [String] {
        let left = statistics.groups.count - shown.count
        return left > 0 ? ["and \(left) more (--top \(statistics.groups.count) shows all)"] : []
    }

    /// Lines with the totals of the window.
    private var sums: [String] {
        let total = statistics.total
        let count = "\(total.changes) change\(total.changes == 1 ? "" : "s")"
        let transactions = "\(total.transactions) transaction\(total.transactions == 1 ? "" : "s")"
        guard let offsets = statistics.offsets else { return ["no changes in this window"] }
        let times = statistics.times.map { ", committed \(zone.text($0.lowerBound)) to \(time($0.upperBound))" } ?? ""
        return [
            "\(count) in \(transactions), \(ByteText.write(total.bytes)) of rows, "
                + "@\(offsets.lowerBound) to @\(offsets.upperBound)\(times)"
        ]
    }

    private var transactions: Table {
        var table = Table([
            .number("XID"), .text(zone.heading), .text("LSN"), .number("OFFSET"), .number("CHANGES"),
            .number("SIZE"),
        ])
        for transaction in statistics.largestTransactions {
            table.add([
                String(transaction.info.xid), zone.text(known(transaction.info)),
                transaction.info.commitLSN.description,
                String(transaction.firstOffset), String(transaction.changes), ByteText.write(transaction.bytes),
            ])
        }
        return table
    }

    private var changes: Table {
        var table = Table([
            .number("OFFSET"), .text(zone.heading), .number("XID"), .text("OP"),
            .text("TABLE", canBeCut: true), .number("SIZE"),
        ])
        for change in statistics.largestRows {
            table.add([
                String(change.offset), zone.text(known(change.transaction)), String(change.transaction.xid),
                change.operation.letter, change.table.map { "\($0)" } ?? "", ByteText.write(change.bytes),
            ])
        }
        return table
    }

    private func name(_ group: LogStatistics.Group) -> String {
        switch group {
        case .table(let table): "\(table)"
        case .operation(let operation): operation.name.lowercased()
        case .origin(let origin): origin.isEmpty ? "(made here)" : origin
        case .actor(let actor): actor.isEmpty ? "(not named)" : actor
        case .time(let time): zone.text(time)
        case .messages: "(messages)"
        case .unknownTime: "(unknown)"
        }
    }

    private func time(_ microseconds: Int64) -> String { zone.text(microseconds) + " " + zone.name }

    /// Returns the commit time of a transaction. Nil for a message outside of transactions, which has none.
    private func known(_ info: TransactionInfo) -> Int64? { info.commitTime == 0 ? nil : info.commitTime }

    // MARK: JSON

    var json: [String] {
        shown.map { json($0.group, $0.count) } + statistics.largestTransactions.map(json)
            + statistics.largestRows.map(json) + statistics.gaps.map(json) + [total]
    }

    private func json(_ group: LogStatistics.Group, _ count: LogStatistics.Count) -> String {
        var line = JSONLine()
        line.add("kind", "group")
        switch group {
        case .table(let table):
            line.add("schema", table.schema)
            line.add("table", table.name)
        case .operation(let operation): line.add("operation", operation.name)
        case .origin(let origin): line.add("origin", origin)
        case .actor(let actor): line.add("actor", actor.isEmpty ? nil : actor)
        case .time(let time): line.add("from", TimeText.json(time))
        case .messages: line.add("table", nil)
        case .unknownTime: line.add("from", nil)
        }
        add(count, to: &line)
        return line.text
    }

    private func add(_ count: LogStatistics.Count, to line: inout JSONLine) {
        line.add("changes", count.changes)
        for operation in Operation.allCases { line.add(operation.name.lowercased(), count[operation]) }
        line.add("transactions", count.transactions)
        line.add("bytes", count.bytes)
    }

    private func json(_ transaction: LogStatistics.Transaction) -> String {
        var line = JSONLine()
        line.add("kind", "transaction")
        line.add("xid", transaction.info.xid)
        line.add("lsn", transaction.info.commitLSN.description)
        line.add("time", known(transaction.info).map(TimeText.json))
        line.add("offset", transaction.firstOffset)
        line.add("changes", transaction.changes)
        line.add("bytes", transaction.bytes)
        return line.text
    }

    private func json(_ change: LogStatistics.LargeChange) -> String {
        var line = JSONLine()
        line.add("kind", "change")
        line.add("offset", change.offset)
        line.add("xid", change.transaction.xid)
        line.add("time", known(change.transaction).map(TimeText.json))
        line.add("op", change.operation.name)
        line.add("schema", change.table?.schema)
        line.add("table", change.table?.name)
        line.add("bytes", change.bytes)
        return line.text
    }

    private func json(_ gap: RecordedGap) -> String {
        var line = JSONLine()
        line.add("kind", "gap")
        gap.add(to: &line)
        return line.text
    }

    private var total: String {
        var line = JSONLine()
        line.add("kind", "total")
        line.add("first_offset", json: statistics.offsets.map { String($0.lowerBound) } ?? "null")
        line.add("last_offset", json: statistics.offsets.map { String($0.upperBound) } ?? "null")
        line.add("from", (statistics.times?.lowerBound).map(TimeText.json))
        line.add("to", (statistics.times?.upperBound).map(TimeText.json))
        line.add("gaps", statistics.gaps.count)
        add(statistics.total, to: &line)
        return line.text
    }
}
