import Bytes
import Calling
import Change
import Console
import Diagnostics
import History
import Postgres
import Settings
import System

/// Command `tidewire signal backfill`: writes all present rows of a table into a running hub's log.
struct SignalBackfillCommand: Command {
    let name = "backfill"
    let summary =
        "Write all rows that a table has now into the log, so that 'tidewire asof' also knows rows without changes."
    let discussion = """
        A log has only changes: it does not know rows that nothing has touched since its oldest change. This command \
        reads the whole table from the database and sends its rows to the hub. The hub writes them into its log, after \
        all that was committed before. 'asof' and 'seed' then have every row at each moment in the log, also before \
        the backfill: a row without a change was the same all the time, if the table was in the publication all the \
        time. Clients and replays never see these rows. Retention deletes them like changes, and 'log forget' removes \
        them.

        --database-url must name the database that the hub follows; another one is refused. Its login must see all \
        rows: use the table's owner, or a login with BYPASSRLS. The hub's own login, as 'tidewire db apply' creates \
        it, does not see all rows, and is refused. The table must be in the publication and have a key. The backfill \
        has the published columns and rows, without generated columns. Until its rows are read, the table is locked \
        against TRUNCATE and ALTER TABLE, and against nothing else. If another session has locked the table against \
        reading, the command waits up to 30 s. Values of more than 1 MiB are left out, and shown as unknown.

        A backfill takes room: each row as PostgreSQL writes it, in the log and in each copy of it. A log with a limit \
        of retention_size deletes its oldest changes for it.

        JSON. One object: table, rows, lsn (of the reading), left_out (values), offset (of the next change).
        """
    let operands = [
        Operand("TABLE", .one, "The table: notes (which is public.notes), app.notes or \"Odd Schema\".\"t\".")
    ]
    let options: [Option] = Option.signal + [.because, .withoutProgress]
    let optionGroups: [OptionGroup] = [.configuration(of: [Setting(\.databaseURL), Setting(\.publication)])]
    let examples = [
        Example(
            "tidewire signal backfill orders --database-url \"$SUPERUSER_URL\" --server https://hub.example.com",
            "So that the log has all orders:")
    ]
    let exitCodes: [ExitCode] = [.notFound, .unreachable]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        guard let table = TableName(arguments.operands[0]) else {
            throw UsageError(
                "TABLE \(arguments.operands[0]): expected table, schema.table or \"Quoted Schema\".\"table\"")
        }
        let signal = try HubSignal(arguments, terminal)
        let configuration = try arguments.configuration(terminal)
        let connection = try DatabaseAccess.connect(configuration, name)
        let progress = Progress(terminal, isQuiet: arguments.has(.withoutProgress) || arguments.has(.json))
        defer { progress.clear() }
        let source = try DatabaseAccess.asking {
            try BackfillSource(connection, table, publication: configuration.publication)
        }
        var sender = BackfillSender(source, signal, because: arguments.value(of: .because)) { rows in
            progress.note("sending rows to the hub: \(rows)")
        }
        let answer = try Self.give(source, by: &sender)
        progress.clear()
        guard arguments.has(.json) else {
            let left =
                sender.leftOut == 0 ? "" : "; left out \(Self.count(sender.leftOut, "value")) that were too large"
            try terminal.print(
                "\(Self.count(sender.count, "row")) of \(source.relation), as of \(source.lsn)\(left)\(answer.place)"
            )
            return .ok
        }
        var line = JSONLine()
        line.add("table", source.relation.description)
        line.add("rows", UInt64(sender.count))
        line.add("lsn", source.lsn.description)
        line.add("left_out", UInt64(sender.leftOut))
        line.add("offset", json: answer.members["offset"] ?? "null")
        try terminal.print(line.text)
        return .ok
    }

    private static func count(_ number: Int, _ what: String) -> String { "\(number) \(what)\(number == 1 ? "" : "s")" }

    /// Reads the table's rows and sends them to the hub. Rows that it sent before a failure stay in the log. That does
    /// no harm, and the error message says so.
    private static func give(
        _ source: BackfillSource, by sender: inout BackfillSender
    ) throws -> HubSignal.Answer {
        // Before this point an interruption needs no message.
        Signals.noteInterruptions()
        do {
            try DatabaseAccess.asking { try source.read { try sender.take($0) } }
            return try sender.finish()
        } catch is HubInterruption {
            throw CommandFailure(
                .notFound, "interrupted", hint: sender.whatIsLeft ?? "The hub got nothing. Run the command again.")
        } catch let failure as CommandFailure {
            let hints = [failure.hint, sender.whatIsLeft].compactMap(\.self)
            throw CommandFailure(
                failure.exitCode, failure.message, hint: hints.joined(separator: "\n"))
        }
    }
}

/// Table of the publication that a backfill reads, by a login that sees all of its rows.
private struct BackfillSource {
    let relation: Relation
    /// WAL position after every change that the rows include. Changes shortly before it may be missing in the rows.
    let lsn: LSN
    let system: String
    let database: String
    private let connection: Connection
    private let sql: String

    /// Locks the table and opens a transaction that reads it. Statements that truncate or alter the table come before
    /// the reading or wait for its end.
    init(_ connection: Connection, _ table: TableName, publication: String) throws {
        self.connection = connection
        let name = "\(SQLName.quoted(table.schema)).\(SQLName.quoted(table.name))"
        let listed = connection.serverVersion >= 150_000
        let published = try connection.query(
            """
            SELECT \(listed ? "p.attnames, p.rowfilter" : "NULL, NULL"), c.oid, c.relkind = 'p'
            FROM pg_catalog.pg_publication_tables p
            JOIN pg_catalog.pg_namespace n ON n.nspname = p.schemaname
            JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
            WHERE p.pubname = $1 AND p.schemaname = $2 AND p.tablename = $3
            """, [publication, table.schema, table.name])
        guard let row = published.first, row.count == 4, let oid = row[2].flatMap({ UInt32($0) }) else {
            throw CommandFailure(
                .notFound, "\(name) is not in the publication \(publication): the log has no changes of it",
                hint: "If a partitioned table is published by its partitions, name each partition.")
        }
        for statement in [
            "SET row_security = off", "SET lock_timeout = '30s'", "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            "LOCK TABLE \(row[3] == "t" ? "" : "ONLY ")\(name) IN ACCESS SHARE MODE",
        ] { _ = try connection.execute(statement) }
        let columns = try Self.columns(connection, oid, among: row[0])
        relation = Relation(
            oid: oid, schema: table.schema, name: table.name, identity: .full, columns: columns)
        guard !relation.keyColumns.isEmpty else {
            throw CommandFailure(
                .notFound, "\(name) has no published primary key, so the log cannot distinguish its rows",
                hint: "Add a primary key, or publish its columns, and try again.")
        }
        // The position follows the first look at the tables, which determines the visible rows.
        let place = try connection.execute(
            """
            SELECT pg_catalog.pg_current_wal_insert_lsn(), (SELECT system_identifier FROM pg_catalog.pg_control_system()),
                (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
            """
        ).first
        guard let place, place.count == 3, let lsn = place[0].flatMap({ LSN($0) }), let system = place[1],
            let database = place[2]
        else {
            throw CommandFailure(
                .unreachable, "the database did not report its WAL position",
                hint: "Does --on name a PostgreSQL server directly, and not a pooler or a standby?")
        }
        (self.lsn, self.system, self.database) = (lsn, system, database)
        let names = columns.map { SQLName.quoted($0.name) }.joined(separator: ", ")
        sql = """
            SELECT \(names) FROM \(row[3] == "t" ? "" : "ONLY ")\(name) \(row[1].map { "WHERE \($0)" } ?? "")
            """
    }

    /// Returns the columns as the replication stream describes them.
    /// - Parameter list: the publication's column list; nil for all columns.
    private static func columns(_ connection: Connection, _ oid: UInt32, among list: String?) throws -> [Column] {
        let rows = try connection.query(
            """
            SELECT a.attname, a.atttypid, a.atttypmod, t.typname, COALESCE(a.attnum = ANY (i.indkey), false)
            FROM pg_catalog.pg_attribute a
            JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
            LEFT JOIN pg_catalog.pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
            WHERE a.attrelid = CAST($1 AS pg_catalog.oid) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
                AND ($2::pg_catalog.name[] IS NULL OR a.attname = ANY ($2::pg_catalog.name[]))
            ORDER BY a.attnum
            """, [String(oid), list])
        var columns: [Column] = []
        for row in rows.values {
            guard row.count == 5, let name = row[0], let type = row[1].flatMap({ UInt32($0) }),
                let modifier = row[2].flatMap({ Int32($0) }), let typeName = row[3]
            else { continue }
            columns.append(
                Column(
                    name: name, typeOID: type, typeModifier: modifier, typeName: typeName, isIdentity: true,
                    isPrimaryKey: row[4] == "t"))
        }
        return columns
    }

    func read(_ take: (RawSpan) throws -> Void) throws {
        var trouble: (any Error)?
        do throws(PostgresError) {
            try connection.stream(sql, timeoutMilliseconds: Self.patience) { tuple in
                do {
                    if Signals.wasInterrupted { throw HubInterruption() }
                    try take(tuple)
                } catch { trouble = error }
                return trouble == nil
            }
        } catch {
            if let trouble { throw trouble }
            throw error
        }
    }

    /// Maximum time in milliseconds in which PostgreSQL must send the next row. It is long, because the server may have
    /// to search for that row.
    private static let patience = 600_000
}

/// Sender of a backfill: collects rows as JSON, and posts them to the hub in batches.
private struct BackfillSender: ~Copyable {
    private let source: BackfillSource
    private let signal: HubSignal
    private let because: String?
    private let noting: (Int) -> Void
    private let reading = UInt64.random(in: 0 ... .max)
    private var rows = ByteWriter(capacity: 300 << 10)
    private var part = 0
    /// Number of rows that the hub has confirmed.
    private var given = 0
    /// Number of rows read so far.
    private(set) var count = 0
    /// Number of values that were too large to send.
    private(set) var leftOut = 0

    init(_ source: BackfillSource, _ signal: HubSignal, because: String?, noting: @escaping (Int) -> Void) {
        self.source = source
        self.signal = signal
        self.because = because
        self.noting = noting
    }

    /// Adds a row to the batch. Sends the batch once it is large enough.
    mutating func take(_ tuple: RawSpan) throws {
        rows.append(rows.isEmpty ? "[" : ",[")
        var columns = Tuple(tuple).columns()
        var isFirst = true
        while let value = try columns.next() {
            if !isFirst { rows.append(",") }
            isFirst = false
            switch value {
            case .null: rows.append("null")
            case .text(let text) where text.byteCount <= Self.largestValue: JSONText.appendString(text, to: &rows)
            case .text, .unchanged, .binary:
                leftOut += 1
                rows.append("{}")
            }
        }
        rows.append("]")
        count += 1
        if rows.count >= Self.requestBytes { _ = try send(isLast: false) }
    }

    /// Sends the last batch, and returns the hub's answer.
    mutating func finish() throws -> HubSignal.Answer { try send(isLast: true) }

    private mutating func send(isLast: Bool) throws -> HubSignal.Answer {
        var body = JSONLine()
        if isLast {
            body.add("text", ["\(count) rows as of \(source.lsn)", because].compactMap(\.self).joined(separator: "; "))
        }
        body.add("system", source.system)
        body.add("database", json: source.database)
        body.add("reading", Hex.text(reading))
        body.add("lsn", source.lsn.description)
        body.add("part", UInt64(part))
        body.add("last", json: isLast ? "true" : "false")
        body.add("table", json: Self.table(source.relation))
        body.add("rows", json: "[" + rows.bytes.text + "]")
        rows.removeAll()
        part += 1
        noting(count)
        let answer = try signal.answer("backfill", Array(body.text.utf8), trying: Self.tries)
        given = count
        return answer
    }

    /// Advice after a backfill that ended early; nil if the hub confirmed no rows.
    var whatIsLeft: String? {
        guard given > 0 else { return nil }
        return "The log has \(given) of the table's rows, which does no harm. Run the command again to write all rows."
    }

    /// Returns the JSON that describes the table and its columns to the hub.
    private static func table(_ relation: Relation) -> String {
        let columns = relation.columns.map { column in
            var line = JSONLine()
            line.add("name", column.name)
            line.add("type", column.typeName)
            line.add("type_oid", UInt64(column.typeOID))
            line.add("type_modifier", json: String(column.typeModifier))
            line.add("key", json: column.isPrimaryKey ? "true" : "false")
            return line.text
        }
        var line = JSONLine()
        line.add("schema", relation.schema)
        line.add("name", relation.name)
        line.add("oid", UInt64(relation.oid))
        line.add("columns", json: "[" + columns.joined(separator: ",") + "]")
        return line.text
    }

    /// Size in bytes from which a batch is sent.
    private static let requestBytes = 256 << 10
    /// Maximum size of a value in bytes; the backfill leaves out larger ones.
    private static let largestValue = 1 << 20
    /// Maximum number of attempts to send a batch. The hub refuses a batch while it has not yet read the WAL up to the
    /// backfill's position.
    private static let tries = 12
}
