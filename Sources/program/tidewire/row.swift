import Change
import Console
import EventLog
import History

/// Command `tidewire row`: shows every version of one row.
struct RowCommand: Command {
    let name = "row"
    let summary = "Show every version of one row, and what each change did to it."
    let discussion = """
        Shows every insert, update and delete of a row that the event log still has, in order, with what changed: \
        body: "a"→"b". The table's truncates are also shown, from the row's first version on.

        Name the row by the values of its key, one operand a column in the order of the table's columns, or by \
        column=value. You may write a uuid in any case, and must write other values as PostgreSQL writes them. With \
        column=value you may use any columns, also of a table without a key; then the command shows every change whose \
        row had these values before or after it.

        A renamed table is followed under all its names, whichever of them you give, and a line shows each renaming. \
        If a name was given to another table later, the rows of both tables are shown, and a line says so.

        Changes that 'tidewire log forget' removed are shown without values, with the day of the removal.

        READ shows a row that 'tidewire signal backfill' read before the row's first change or after a gap. The \
        changes that such a line shows were lost in the gap.

        When a change gave the row another key, the row is followed under the new key as well, and a line says so. All \
        values come from the log. For an update in a table without REPLICA IDENTITY FULL, the old values come from the \
        version before.

        \(SelectorHelp.text)

        \(MaskHelp.text)

        JSON. One object a line, as 'tidewire tail --json' prints them, and diff: for each column that changed, old \
        (also null if unknown) and new. For a row that a backfill read: op READ, offset (of the next change), epoch, \
        lsn, time, schema, table, key and record.
        """
    let operands = [
        Operand("TABLE", .one, "The table: notes (which is public.notes), app.notes or \"Odd Schema\".\"t\"."),
        Operand("KEY", .any, "A value for each column of the key, or column=value."),
    ]
    let options: [Option] =
        [.from, .to, .withoutProgress, .output, .json, .zone, .log, .project] + Option.masking + Option.asking
    let optionGroups: [OptionGroup] = [.dataDirectory]
    let examples = [
        Example("tidewire row orders 4711", "What happened to order 4711?"),
        Example("tidewire row app.members org=7 user=12 --from -2h", "A key of two columns, in the last two hours:"),
        Example("tidewire row users 7f3c2b1e-0c5d-4f6e-8a52-000000000001 --mask name --json", "For a ticket:"),
    ]
    let exitCodes = LogAccess.exitCodes

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        if let code = try arguments.answer("row", options: allOptions, terminal) { return code }
        let zone = try arguments.zone()
        let query = try arguments.query(zone)
        guard let table = TableName(arguments.operands[0]) else {
            throw UsageError(
                "TABLE \(arguments.operands[0]): expected table, schema.table or \"Quoted Schema\".\"table\"")
        }
        guard arguments.operands.count > 1 else {
            throw UsageError("KEY is missing: give the values of the row's key, or column=value")
        }
        return try LogAccess.explained {
            let log = try arguments.historyLog(terminal)
            let names = try NameCheck(log)
            var printer = VersionPrinter(terminal, isJSON: arguments.has(.json), zone: zone)
            let progress = Progress(terminal, isQuiet: arguments.has(.withoutProgress), sharesScreen: true)
            defer { progress.clear() }
            do {
                var history = try RowHistory(
                    log, table, RowName(Array(arguments.operands.dropFirst())), query
                ) { offset in progress.note("reading the log: @\(offset)") }
                while let item = try history.next() { try printer.print(item) }
            } catch let error as RowNameError {
                throw Self.explained(error, names)
            }
            progress.clear()
            return try printer.finish(log)
        }
    }

    static func explained(_ error: RowNameError, _ names: NameCheck) -> any Error {
        switch error {
        case .masked(let table, let column): return NameCheck.masked("KEY", column, of: table)
        case .unknownTable(let table): return names.unknown(table)
        case .impossible(let table, let column, let value, let expected):
            return UsageError("KEY \(value): \(SQLName.quoted(column)) of \(table) must be \(expected)")
        case .doesNotFit(let table, let key, let given):
            guard !key.isEmpty else {
                return UsageError("\(table) has no key that distinguishes its rows: name the row by column=value")
            }
            let list = key.map(SQLName.quoted).joined(separator: ", ")
            let columns = key.count == 1 ? "one column" : "\(key.count) columns"
            return UsageError(
                "the key of \(table) has \(columns) (\(list)); the operands after TABLE (\(given)) do not fit it")
        }
    }
}

/// Printer of one row's versions, as lines of a table or as JSON.
private struct VersionPrinter {
    private let terminal: Terminal
    private let isJSON: Bool
    private let zone: DisplayZone
    private let text: ChangeText
    private var table: TableStream
    private var count = 0
    private var gaps: [RecordedGap] = []
    private var firstOffset: UInt64 = 0
    private var last: RecordedRelation?

    init(_ terminal: Terminal, isJSON: Bool, zone: DisplayZone) {
        self.terminal = terminal
        self.isJSON = isJSON
        self.zone = zone
        text = ChangeText(zone: zone, terminal)
        table = TableStream(
            [
                .number("OFFSET", minimumWidth: 8), .text(zone.heading, minimumWidth: 23),
                .text("LSN", minimumWidth: 10),
                .number("XID", minimumWidth: 6), .text("OP"),
                .text("CHANGED", canBeCut: terminal.isInteractive, minimumWidth: 24),
            ], on: terminal)
    }

    mutating func print(_ item: RowHistoryItem) throws {
        switch item {
        case .gap(let gap): gaps.append(gap)
        case .version(let version):
            // A gap before the first version is not printed, because the row may not have existed then.
            if count > 0 { for gap in gaps { try print(gap) } }
            gaps.removeAll()
            try print(version)
        }
    }

    private func print(_ gap: RecordedGap) throws {
        if isJSON { try terminal.print(gap.json) } else { try terminal.remark(text.line(gap)) }
    }

    private mutating func print(_ version: RowVersion) throws {
        if count == 0 {
            firstOffset = version.change.offset
            if !isJSON { try terminal.print(heading: table) }
        }
        count += 1
        guard !isJSON else { return try terminal.print(version.json) }
        try printTable(version.change)
        let place = version.wasRead ? text.place(ofReading: version.change) : text.place(version.change)
        try terminal.print(table.line(place + [changed(version)]))
        if let formerKey = version.formerKey {
            let key = formerKey.map { $0.plainText ?? $0.word }.joined(separator: ",")
            try terminal.remark(
                "──── its key was \(key) and is now \(text.key(version.change)); both are followed ────")
        }
    }

    /// Prints a line if the table was renamed since the version before, or if this version is in another table.
    private mutating func printTable(_ change: RecordedChange) throws {
        guard let relation = change.relation else { return }
        defer { last = relation }
        guard let last, last.table != relation.table || last.relation.oid != relation.relation.oid else { return }
        let (former, table, place) = (last.table, relation.table, "from @\(change.offset) on")
        let isSame = last.relation.oid == relation.relation.oid
        try terminal.remark(
            isSame
                ? "──── its table was \(former) until here and is \(table) \(place) ────"
                : "──── until here a row of \(former), \(place) one of another table, \(table) ────")
    }

    private func changed(_ version: RowVersion) -> String {
        guard version.change.operation == .update || version.wasRead, version.change.forgotten == nil,
            let differences = version.differences
        else {
            return text.wholeRow(version.change)
        }
        if differences.isEmpty { return "(nothing changed)" }
        return differences.map { text.difference(version.change, $0.column, $0.before) }.joined(separator: ", ")
    }

    func finish(_ log: HistoryLog) throws -> ExitCode {
        let segments = try log.segments()
        let held = "the log holds \(zone.text(segments[0].begin)) … now, from @\(segments[0].firstOffset) on"
        guard count > 0 else {
            if !isJSON { terminal.complain("no version of this row found; \(held)") }
            return .notFound
        }
        guard !isJSON else { return .ok }
        for gap in gaps { try print(gap) }
        let versions = count == 1 ? "1 version" : "\(count) versions"
        try terminal.remark("\(versions); first seen at @\(firstOffset); \(held).")
        return .ok
    }
}

extension RowVersion {
    fileprivate var json: String {
        var diff = JSONLine()
        if let relation = change.relation?.relation {
            for difference in differences ?? [] {
                var pair = JSONLine()
                pair.add("old", json: json(difference.before ?? .null, difference.column))
                pair.add("new", json: json(difference.after, difference.column))
                diff.add(relation.columns[difference.column].name, json: pair.text)
            }
        }
        var line = wasRead ? change.readingJSON : change.json
        line.removeLast()
        line += ",\"diff\":"
        line += differences == nil ? "null" : diff.text
        line += "}"
        return line
    }

    private func json(_ value: RowValue, _ column: Int) -> String {
        change.relation.flatMap { value.json($0.renderings[column]) } ?? "null"
    }
}
