import Catalog
import Change
import Console
import EventLog
import Explaining
import History
import Replaying
import Settings
import System

/// Command `tidewire seed`.
struct SeedCommand: Command {
    let name = "seed"
    let summary = "Write the rows that the log knows at a moment as SQL, masked, for a staging database."
    let discussion = """
        The rows that 'tidewire asof' shows, of the tables that are named or of all, as a script for psql: one transaction of \
        INSERTs into tables that are there and empty. It is what 'tidewire replay' of the window that follows begins with; both \
        take the same --mask-key then, so that masked keys are found again.

        It knows what the log tells. Rows that nothing has touched in all of the log are not in it, and a \
        comment at each table says so, unless the table was emptied, or its rows were put into the log ('tidewire signal backfill'). A value that the log does not tell is left to its \
        default. The columns of a row are those that its table had when it was last changed. Tables without a key and \
        realtime.messages are left out; sequences stay where they are.

        ORDER. A table comes behind those that its rows refer to: by the foreign keys that the log has of then (it has them \
        where ledger is not off), or else those of the database of --database-url now. Where neither says it, a column listing_id \
        is taken to refer to listing or listings. A comment says by which, and which tables refer to each other in a circle.

        The script sets session_replication_role to replica, so that triggers and foreign keys do not act while rows come table \
        by table: whoever loads it needs to be a superuser or to be granted that. With --triggers it does not, and they act: \
        then rows that the log does not have are missed, and so is an order where tables refer to each other in a circle, or \
        rows to others of their table, and the keys cannot be deferred.

        With -o the script is in FILE once it is whole, and what was there before is there until then.

        \(AskingHelp.text) What it masks has another stand-in in each script: where keys are masked, 'tidewire bundle --server' once, and \
        seed and replay of that file with the same --mask-key.

        \(MaskHelp.text)

        WHAT STANDS IN for a masked value is one that its column takes: \(StandIn.description); other types, and those of the \
        user's own, which the log knows by name only, get NULL, and a comment says so.
        """
    let options: [Option] =
        [.table, .to, .file, .triggers, .mostRows, .withoutProgress, .zone, .log, .project] + Option.masking + [
            .maskKey
        ] + Option.asking
    let optionGroups: [OptionGroup] = [
        .configuration(of: [Setting(\.dataDirectory), Setting(\.maskRules), Setting(\.databaseURL)])
    ]
    let examples = [
        Example(
            "tidewire seed --to -1h --mask-key key | psql -v ON_ERROR_STOP=1 \"$STAGING\"",
            "What there was an hour ago:"),
        Example(
            "tidewire replay --from -1h --mask-key key --target \"$STAGING\" --go", "And what happened to it since:"),
    ]
    let exitCodes = LogAccess.exitCodes

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        if let code = try arguments.answer(
            "seed", options: allOptions, to: arguments.value(of: .file), terminal)
        {
            return code
        }
        let query = try arguments.query(try arguments.zone())
        var settings = SeedScript.Settings()
        settings.mostRows = try arguments.mostRows()
        settings.letsTriggersAct = arguments.has(.triggers)
        return try LogAccess.explained {
            let log = try arguments.historyLog(terminal)
            let names = try NameCheck(log)
            try names.check(query)
            settings.references = try references(log, query, arguments, terminal)
            do {
                let report = try write(SeedScript(log, query, settings), arguments, terminal)
                return report.rows > 0 ? .ok : .notFound
            } catch TableAsOfError.unknownTable(let table) {
                throw names.unknown(table)
            } catch TableAsOfError.tooManyRows(let most) {
                throw CommandFailure(.notFound, "a table has more than \(most) rows", hint: "Raise --limit.")
            }
        }
    }

    private func write(
        _ script: SeedScript, _ arguments: Arguments, _ terminal: Terminal
    ) throws -> SeedScript.Report {
        let file = try arguments.value(of: .file).map { try NewFile($0) }
        let progress = Progress(terminal, isQuiet: arguments.has(.withoutProgress), sharesScreen: file == nil)
        defer { progress.clear() }
        if file != nil { Signals.noteInterruptions() }
        let report = try script.write { line in
            if let file { try file.write(line: line) } else { try terminal.print(line) }
        } noting: { table, done, all, offset in
            if file != nil, Signals.wasInterrupted {
                throw CommandFailure(.notFound, "interrupted; nothing was written")
            }
            progress.note("\(done) of \(all) tables are written; reading \(table): @\(offset)")
        }
        guard let file, let path = arguments.value(of: .file) else { return report }
        try file.keep()
        progress.clear()
        let tables = report.tables == 1 ? "1 table" : "\(report.tables) tables"
        try terminal.print("\(path): \(report.rows == 1 ? "1 row" : "\(report.rows) rows") of \(tables)")
        return report
    }

    /// Returns the foreign keys between tables, and their source: the log's record of the catalog, or the database.
    private func references(
        _ log: HistoryLog, _ query: HistoryQuery, _ arguments: Arguments, _ terminal: Terminal
    ) throws -> (list: [TableOrder.Reference], source: TableOrder.Source)? {
        let end = try log.window(from: nil, to: query.to).endOffset
        if let record = try PastCatalogs.record(of: log, at: max(end, 1) - 1), let keys = ForeignKeys(of: record) {
            return (keys.order, .log)
        }
        let configuration = try arguments.configuration(terminal)
        guard configuration.databaseURL != nil else { return nil }
        do {
            let connection = try DatabaseAccess.connect(configuration, name)
            return (try DatabaseAccess.asking { try ForeignKeys.ask(connection) }.order, .database)
        } catch let failure as CommandFailure {
            terminal.complain("\(failure.message); the order of the tables is by names")
            return nil
        }
    }
}

extension ForeignKeys {
    fileprivate var order: [TableOrder.Reference] {
        references.map { reference in
            TableOrder.Reference(
                TableName(schema: reference.schema, name: reference.table),
                to: TableName(schema: reference.referencedSchema, name: reference.referencedTable))
        }
    }
}

extension Option {
    fileprivate static let file = Option.value(
        "file", "FILE", short: "o", "Where to, instead of standard output: all of it, or nothing.")
    fileprivate static let triggers = Option.flag(
        "triggers", "Let triggers and foreign keys of the database that is filled act.")
}
