import Change
import EventLog
import History

/// SQL script that fills a database with the rows that existed at a position of the log, so far as the log has them.
/// Values are masked if the log was opened with masking.
public struct SeedScript {
    public struct Report: Sendable, Equatable {
        public var tables = 0
        public var rows = 0
        /// Tables without a key. The script leaves them out, because their rows cannot be told apart in the log.
        public var leftOut: [TableName] = []
    }

    public struct Settings: Sendable {
        /// Maximum number of rows per table. All rows of one table are held in memory.
        public var mostRows = 1_000_000
        /// True if triggers and foreign keys stay active while the script runs.
        public var keepsTriggersActive = false
        /// References between tables, by which the script orders the tables, and the source that states them. If nil,
        /// the script guesses references from the names of columns.
        public var references: (list: [TableOrder.Reference], source: TableOrder.Source)?

        public init() {}
    }

    private let log: HistoryLog
    private let query: HistoryQuery
    private let settings: Settings

    /// Makes a script.
    ///
    /// - Parameter query: tables to write, or none for all tables. Its end is the position in the log.
    public init(_ log: HistoryLog, _ query: HistoryQuery, _ settings: Settings) {
        self.log = log
        self.query = query
        self.settings = settings
    }

    /// First statements of the script. They set what determines how PostgreSQL reads the values as text.
    private static let head = [
        "BEGIN;", "SET LOCAL client_encoding = 'UTF8';", "SET LOCAL DateStyle = ISO;",
        "SET LOCAL IntervalStyle = postgres;", "SET LOCAL lc_monetary = 'C';", "SET LOCAL TimeZone = 'UTC';",
    ]
    /// Statements for a script during which triggers and foreign keys stay active.
    private static let acting = [
        "-- Triggers and foreign keys act: those that can wait do so until the end.", "SET CONSTRAINTS ALL DEFERRED;",
    ]
    /// Statements for a script during which triggers and foreign keys are disabled.
    private static let notActing = [
        "-- Triggers and foreign keys do not act meanwhile.", "SET LOCAL session_replication_role = replica;",
    ]

    /// Writes the script line by line, and returns what it contains.
    ///
    /// - Parameter noting: called with the table that is being read, the number of tables done, the number of all
    ///   tables, and the offset reached in the log. An error that it throws ends the writing.
    public func write(
        _ line: (String) throws -> Void,
        noting: ((_ table: TableName, _ done: Int, _ all: Int, _ offset: UInt64) throws -> Void)? = nil
    ) throws -> Report {
        for text in Self.head + (settings.keepsTriggersActive ? Self.acting : Self.notActing) { try line(text) }
        let order = try order()
        for text in order.words { try line(Self.comment(text)) }
        var report = Report()
        var written: Set<TableName> = []
        for (place, table) in order.tables.enumerated() {
            do {
                let rows = try TableAsOf(log, table, query, atMost: settings.mostRows) { offset in
                    try noting?(table, place, order.tables.count, offset)
                }
                // The query may also list the same table under an older name.
                guard let name = rows.name, written.insert(name).inserted else { continue }
                report.tables += 1
                report.rows += rows.count
                try write(rows, of: name, line)
            } catch TableAsOfError.noKey(let table) {
                report.leftOut.append(table)
                try line(Self.comment("\(table) is left out: it has no key that distinguishes its rows"))
            }
        }
        try line("COMMIT;")
        return report
    }

    private func order() throws -> TableOrder {
        let relations = try log.relations().filter { !MessageTable.holds($0.relation) }
        var (tables, seen): ([TableName], Set<TableName>) = ([], [])
        for table in query.tables.isEmpty ? relations.map(\.table) : query.tables where seen.insert(table).inserted {
            tables.append(table)
        }
        let references = settings.references ?? (TableOrder.guessed(of: relations), .names)
        return TableOrder(of: tables, references.list, from: references.source)
    }

    private func write(_ rows: borrowing TableAsOf, of name: TableName, _ line: (String) throws -> Void) throws {
        let oldest = try log.segments()[0].firstOffset
        try line("")
        try line(
            Self.comment(
                "\(name): \(rows.count == 1 ? "1 row" : "\(rows.count) rows"); "
                    + (rows.isWhole
                        ? "these are all rows, by the log"
                        : "rows that no change touched since @\(oldest) are missing")))
        if !rows.gaps.isEmpty { try line(Self.comment("some changes were lost: \(rows.gaps.count) gaps in the log")) }
        var batch = Batch()
        try rows.visit { row in if let statement = batch.add(row, to: name) { try line(statement) } }
        if let statement = batch.take() { try line(statement) }
        for column in batch.unknown.sorted() {
            try line(Self.comment("\(column) is unknown in some rows, which get its default"))
        }
        for column in batch.withoutStandIn.sorted() {
            try line(Self.comment("\(column) is masked, and its type has no stand-in: it is NULL"))
        }
    }

    /// Returns an SQL comment on one line. Line breaks and control characters in names become blanks.
    private static func comment(_ text: String) -> String {
        "-- " + String(text.map { $0.isNewline || $0 < " " ? " " : $0 })
    }
}

extension TableOrder {
    /// Lines of text that say how the tables are ordered, for comments in the script.
    fileprivate var words: [String] {
        let known =
            switch source {
            case .log: "foreign keys, as the log has them"
            case .database: "foreign keys, as the database has them now"
            case .names: "names of columns (x_id after x or xs), because the foreign keys are unknown"
            }
        return ["the order of the tables follows " + known]
            + circles.map { circle in
                "\(circle.map(\.description).joined(separator: ", ")) refer to each other in a circle: no order satisfies all of their foreign keys"
            }
    }
}

/// Rows of one table, collected for one INSERT statement. All rows of a batch set the same columns.
private struct Batch {
    private var heading = ""
    private var rows: [String] = []
    private var bytes = 0
    /// Schema and columns that the heading is for.
    private var columns: (schema: UInt64, given: [Int])?
    private var statements: [UInt64: RowStatements] = [:]
    /// Names of the columns whose value the log does not have in some row.
    private(set) var unknown: Set<String> = []
    /// Names of the masked columns for whose type `StandIn` has no value.
    private(set) var withoutStandIn: Set<String> = []

    private static let mostRows = 500
    private static let mostBytes = 1 << 20

    /// Adds a row. If the row needs a new statement, returns the complete statement for the earlier rows.
    mutating func add(_ row: RowAsOf, to name: TableName) -> String? {
        let statements = statements(row.relation, name)
        note(row, statements)
        var (given, values): ([Int], [String]) = ([], [])
        given.reserveCapacity(row.row.count)
        values.reserveCapacity(row.row.count)
        statements.insertable(row.row, &given, &values)
        guard !given.isEmpty else { return nil }
        var heading = self.heading
        if columns?.schema != row.relation.fingerprint || columns?.given != given {
            heading = statements.heading(of: given)
            columns = (row.relation.fingerprint, given)
        }
        var ended: String?
        if heading != self.heading || rows.count >= Self.mostRows || bytes >= Self.mostBytes { ended = take() }
        self.heading = heading
        let text = "(" + values.joined(separator: ", ") + ")"
        rows.append(text)
        bytes += text.utf8.count
        return ended
    }

    /// Returns the INSERT statement for the collected rows, and removes them; nil if there are none.
    mutating func take() -> String? {
        defer {
            rows = []
            bytes = 0
        }
        return rows.isEmpty ? nil : heading + "\n" + rows.joined(separator: ",\n") + ";"
    }

    private mutating func statements(_ relation: RecordedRelation, _ name: TableName) -> RowStatements {
        if let known = statements[relation.fingerprint] { return known }
        var target = TargetTable(relation.relation)
        target.name = name
        let made = RowStatements(of: relation.relation, into: target)
        statements[relation.fingerprint] = made
        return made
    }

    /// Records the columns of the row whose values are unknown or have no stand-in.
    private mutating func note(_ row: RowAsOf, _ statements: RowStatements) {
        for (value, column) in zip(row.row, statements.target.columns) {
            switch value {
            case .unchanged: unknown.insert(column.name)
            case .masked where StandIn.text(of: 0, for: column.type) == nil: withoutStandIn.insert(column.name)
            case .null, .text, .binary, .masked: break
            }
        }
    }
}
