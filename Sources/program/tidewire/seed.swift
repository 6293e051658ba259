import Catalog
import Change
import Console
import EventLog
import Explaining
import History
import Replaying
import Settings
import System

/// Command `tidewire seed`: writes the rows that the log knows at a moment as SQL.
struct SeedCommand: Command {
    let name = "seed"
    let summary = "Write the rows that the log knows at a moment as SQL, masked, for a staging database."
    let discussion = """
        Writes the rows that 'tidewire asof' shows, of the named tables or of all tables, as a script for psql: one \
        transaction of INSERTs into tables that exist and are empty. It is the starting point for 'tidewire replay' of \
        the window that follows. Give both the same --mask-key, so that the replay finds rows by their masked keys.

        The script knows only what the log has. Rows that no change in the log touched are missing, and a comment at \
        each table says so, unless the table was emptied, or 'tidewire signal backfill' wrote its rows into the log. A \
        column whose value the log does not have gets its default. A row has the columns that its table had when the \
        row was last changed. The script leaves out tables without a key and realtime.messages, and does not change \
        sequences.

        ORDER. A table comes after the tables that its rows refer to. The order follows the foreign keys that the log \
        recorded for that moment (the log has them unless ledger is off), or else those that the database of \
        --database-url has now. If neither is known, a column listing_id is taken to refer to listing or listings. A \
        comment says which source was used, and which tables refer to each other in a circle.

        The script sets session_replication_role to replica, so that triggers and foreign keys do not act while it \
        loads the tables: whoever loads it needs to be a superuser or needs the right to set it. With --triggers the \
        script does not set it, and triggers and foreign keys act. Loading then fails where the log does not have a \
        row that others refer to, or where tables, or rows of one table, refer to each other in a circle and the keys \
        cannot be deferred.

        With -o, the script gets the name FILE when it is complete. Until then an earlier file keeps that name.

        \(AskingHelp.text) Its stand-ins for masked values differ in each script. Where keys are masked, make one \
        bundle with 'tidewire bundle --server', and seed and replay from that file with the same --mask-key.

        \(MaskHelp.text)

        STAND-INS. A masked value is replaced by one that its column takes: \(StandIn.description). Other types get \
        NULL, and so do types that users made, because the log knows only their names. A comment says so.
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
            "The rows of an hour ago:"),
        Example(
            "tidewire replay --from -1h --mask-key key --target \"$STAGING\" --go",
            "Then what has happened to them since:"),
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
        settings.keepsTriggersActive = arguments.has(.triggers)
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
                throw CommandFailure(
                    .notFound, "interrupted; nothing was written",
                    hint: "Run the same command again to write everything.")
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

    /// Returns the foreign keys by which the script orders its tables, and their source: the log's record of the
    /// catalog, or the database. Nil if neither has them.
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
            terminal.complain("\(failure.message); the order of the tables follows names of columns")
            return nil
        }
    }
}

extension ForeignKeys {
    /// Foreign keys as references between tables, by which the script orders its tables.
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
        "file", "FILE", short: "o", "Write to this file instead of standard output: the complete script, or nothing.")
    fileprivate static let triggers = Option.flag(
        "triggers", "Let triggers and foreign keys of the database that is filled act.")
}
