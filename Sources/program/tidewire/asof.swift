import Change
import Console
import EventLog
import History
import Settings

/// Command `tidewire asof`: prints the rows that a table had at a moment, from the event log.
struct AsOfCommand: Command {
    let name = "asof"
    let summary = "Show the rows that a table had at a moment."
    let discussion = """
        Shows which rows were in the table at a moment. The command reads the table's changes and prints each row as \
        it was at --to, with the source of that knowledge: the offset of the row's last change before --to; or "before \
        @4711", if the row's next change shows the row as it was; or "kept @4711", if the log has only a backfill of \
        the row. A renamed table is followed under all its names.

        The command knows only what the log has. Rows that no change in the log touched are missing, and a line at the \
        end says so. The result is complete if the table was emptied before --to, or if 'tidewire signal backfill' \
        wrote all its rows into the log, before --to or after it. In both cases the table must have been in the \
        publication all the time between, because the log has no changes of unpublished tables. Changes before a gap \
        say nothing about the time after the gap. Values that an update did not change are known if the log has an \
        earlier change of the row, or if the table has REPLICA IDENTITY FULL; otherwise they are left out.

        --to takes what SELECTORS of 'tidewire help tail' describes. Without it, the command shows the rows of now.

        \(MaskHelp.text)

        JSON. One object a row: offset, witness (change: the change at offset left the row so; later: the change at \
        offset found the row so; kept: a backfill before that change read the row from the database), key, record.
        """
    let operands = [
        Operand("TABLE", .one, "The table: notes (which is public.notes), app.notes or \"Odd Schema\".\"t\".")
    ]
    let options: [Option] =
        [.to, .mostRows, .withoutProgress, .output, .json, .zone, .log, .project] + Option.masking + Option.asking
    let optionGroups: [OptionGroup] = [.dataDirectory]
    let examples = [
        Example("tidewire asof orders --to -15m", "Which orders were there a quarter of an hour ago?"),
        Example("tidewire asof app.members --to @18442901 --json", "Who was a member when that change came?"),
    ]
    let exitCodes = LogAccess.exitCodes

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        if let code = try arguments.answer("asof", options: allOptions, terminal) { return code }
        let zone = try arguments.zone()
        let query = try arguments.query(zone)
        let most = try arguments.mostRows()
        guard let table = TableName(arguments.operands[0]) else {
            throw UsageError(
                "TABLE \(arguments.operands[0]): expected table, schema.table or \"Quoted Schema\".\"table\"")
        }
        return try LogAccess.explained {
            let log = try arguments.historyLog(terminal)
            let names = try NameCheck(log)
            let progress = Progress(terminal, isQuiet: arguments.has(.withoutProgress))
            defer { progress.clear() }
            do {
                let rows = try TableAsOf(log, table, query, atMost: most) { offset in
                    progress.note("reading the log: @\(offset)")
                }
                progress.clear()
                return try print(rows, log, arguments.has(.json), terminal)
            } catch TableAsOfError.unknownTable(let table) {
                throw names.unknown(table)
            } catch TableAsOfError.noKey(let table) {
                throw UsageError("\(table) has no key that distinguishes its rows")
            } catch TableAsOfError.tooManyRows(let most) {
                throw CommandFailure(.notFound, "the table has more than \(most) rows", hint: "Raise --limit.")
            }
        }
    }

    private func print(
        _ rows: borrowing TableAsOf, _ log: HistoryLog, _ isJSON: Bool, _ terminal: Terminal
    ) throws -> ExitCode {
        var table = TableStream(
            [
                .text("KNOWN BY", minimumWidth: 8), .text("KEY", minimumWidth: 12),
                .text("ROW", canBeCut: terminal.isInteractive, minimumWidth: 24),
            ], on: terminal)
        if !isJSON, rows.count > 0 { try terminal.print(heading: table) }
        var labels: [UInt64: [String]] = [:]
        try rows.visit { row in
            if isJSON { return try terminal.print(row.json) }
            let relation = row.relation
            let names = labels[relation.fingerprint] ?? relation.relation.columns.map { SQLName.quoted($0.name) + ": " }
            labels[relation.fingerprint] = names
            var values = ""
            for (index, value) in row.row.enumerated() {
                values += (index == 0 ? "" : ", ") + names[index]
                values += value.json(relation.renderings[index]) ?? "(unknown)"
            }
            try terminal.print(table.line([row.knownBy, row.key, values]))
        }
        guard !isJSON else { return rows.count > 0 ? .ok : .notFound }
        let oldest = try log.segments()[0].firstOffset
        let reach =
            rows.isWholeIfPublished
            ? "these are all rows, if the table was in the publication the whole time"
            : rows.isWhole
                ? "these are all rows"
                : "rows that no change touched since @\(oldest) are missing (see 'tidewire signal backfill')"
        let gaps = rows.gaps.isEmpty ? "" : "; some changes were lost: see the gaps in 'tidewire tail'"
        let left =
            rows.forgottenCount == 0
            ? "" : "; \(rows.forgottenCount) more rows are left out, because their values were forgotten"
        try terminal.remark("\(rows.count == 1 ? "1 row" : "\(rows.count) rows"); \(reach)\(gaps)\(left).")
        return rows.count > 0 ? .ok : .notFound
    }
}

extension RowAsOf {
    /// Text of the KNOWN BY column: the offset of the entry from which the log knows this row.
    fileprivate var knownBy: String {
        switch witness {
        case .change: "@\(offset)"
        case .later: "before @\(offset)"
        case .kept: "kept @\(offset)"
        }
    }

    fileprivate var json: String {
        var record = JSONLine()
        for value in values { if let json = value.json { record.add(value.name, json: json) } }
        var line = JSONLine()
        line.add("offset", offset)
        line.add("witness", witness.rawValue)
        line.add("key", key)
        line.add("record", json: record.text)
        return line.text
    }
}

extension Option {
    static let mostRows = Option.value(
        "limit", "N", short: "n",
        "Fail if there are more rows than this, because they are held in memory (default 1000000).")
}

extension Arguments {
    /// Returns the maximum number of rows that the command may collect, as the option says.
    func mostRows() throws(UsageError) -> Int {
        guard case .integer(let number) = try value(of: .mostRows, as: .integer(1...100_000_000)) else {
            return 1_000_000
        }
        return Int(number)
    }
}
