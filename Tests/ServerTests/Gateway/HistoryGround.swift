import TestSupport

/// What the table of a history is: with all its rows and columns published, or as less.
enum HistoryGround: CaseIterable {
    case root, columnList, leaves, table, mixedRoot, indexIdentity

    /// The tables whose policies decide, and as whose rows the changes come.
    var judged: [String] { self == .leaves ? ["notes_low", "notes_high"] : ["notes"] }

    /// Rows that a delete does not tell are looked for in the log. Of partitions it is said that they are not.
    var isRecalled: Bool { !isPartitioned }

    private var isPartitioned: Bool { self == .root || self == .leaves || self == .mixedRoot }

    /// Changes can hold rows as they were: no column list goes with a whole identity, and other identities are others.
    var canKeepThePast: Bool { self == .root || self == .leaves || self == .table }

    var publication: String {
        switch self {
        case .root, .mixedRoot: "FOR TABLE notes, fences WITH (publish_via_partition_root = true)"
        case .columnList: "FOR TABLE notes (id, owner, kind, body, team, score, tags, rank, level), fences"
        case .leaves, .table, .indexIdentity: "FOR TABLE notes, fences"
        }
    }

    private static let columns =
        "owner uuid, kind text, body text, team int, score numeric, tags text[], data jsonb, rank rank, level int"

    /// One partition has its columns in another order than the table, and had one more.
    var creation: String {
        guard isPartitioned else {
            return "CREATE TABLE notes (id int PRIMARY KEY, \(Self.columns)); " + stored("notes")
        }
        return """
            CREATE TABLE notes (id int PRIMARY KEY, \(Self.columns)) PARTITION BY RANGE (id);
            CREATE TABLE notes_low PARTITION OF notes FOR VALUES FROM (MINVALUE) TO (10);
            CREATE TABLE notes_high (rank rank, gone int, data jsonb, team int, id int NOT NULL, owner uuid, body text,
                kind text, level int, score numeric, tags text[]);
            ALTER TABLE notes_high DROP COLUMN gone;
            ALTER TABLE notes ATTACH PARTITION notes_high FOR VALUES FROM (10) TO (MAXVALUE);
            GRANT SELECT ON notes_low, notes_high TO READER, OUTSIDER;
            \(stored("notes_low") + stored("notes_high"))
            """
    }

    private func stored(_ table: String) -> String { "ALTER TABLE \(table) ALTER body SET STORAGE EXTERNAL;" }

    /// What changes keep of the rows that they end, `whole` or not.
    func identity(_ whole: Bool) -> String {
        let full = { (table: String) in "ALTER TABLE \(table) REPLICA IDENTITY FULL;" }
        switch self {
        case .indexIdentity:
            return """
                ALTER TABLE notes ADD COLUMN place int NOT NULL DEFAULT 0;
                CREATE UNIQUE INDEX notes_place ON notes (place, id);
                ALTER TABLE notes REPLICA IDENTITY USING INDEX notes_place;
                """
        // Said of the table and not of all that hold its rows.
        case .mixedRoot: return full("notes") + full("notes_high")
        case .root: return whole ? full("notes") + full("notes_low") + full("notes_high") : ""
        case .leaves: return whole ? full("notes_low") + full("notes_high") : ""
        case .table, .columnList: return whole ? full("notes") : ""
        }
    }

    /// A policy's text looks at what changes do not carry. It shows nothing then, and who asks is told so.
    func isBeyondRows(_ text: String) -> Bool {
        // PostgreSQL knows `(notes).team` for a column.
        let wholeRows = PolicyHistory.wholeRows.filter { !$0.hasPrefix("(notes).") }
        return self == .columnList && (text.contains("data ") || wholeRows.contains { text.contains($0) })
    }
}
