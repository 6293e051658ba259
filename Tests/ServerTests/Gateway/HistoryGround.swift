import TestSupport

/// Kind of table and publication on which a random history runs.
enum HistoryGround: CaseIterable {
    case root, columnList, leaves, table, mixedRoot, indexIdentity

    /// Tables whose policies decide about the changes. Changes arrive under these names.
    var judged: [String] { self == .leaves ? ["notes_low", "notes_high"] : ["notes"] }

    /// True if the hub searches the log for the values that a delete does not contain. For partitioned tables it tells
    /// clients that the delete may be missing.
    var isRecalled: Bool { !isPartitioned }

    private var isPartitioned: Bool { self == .root || self == .leaves || self == .mixedRoot }

    /// True if changes can contain whole old rows. A column list excludes the identity FULL, and other identities keep
    /// less.
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

    /// SQL that creates the table. One partition has its columns in another order, and once had an additional column.
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

    /// Returns SQL that makes changes contain whole old rows, or only their identity.
    func identity(_ whole: Bool) -> String {
        let full = { (table: String) in "ALTER TABLE \(table) REPLICA IDENTITY FULL;" }
        switch self {
        case .indexIdentity:
            return """
                ALTER TABLE notes ADD COLUMN place int NOT NULL DEFAULT 0;
                CREATE UNIQUE INDEX notes_place ON notes (place, id);
                ALTER TABLE notes REPLICA IDENTITY USING INDEX notes_place;
                """
        // The identity of the table differs from that of some partitions.
        case .mixedRoot: return full("notes") + full("notes_high")
        case .root: return whole ? full("notes") + full("notes_low") + full("notes_high") : ""
        case .leaves: return whole ? full("notes_low") + full("notes_high") : ""
        case .table, .columnList: return whole ? full("notes") : ""
        }
    }

    /// True if a policy reads data that changes do not contain. Such a policy shows no rows, and the hub tells its
    /// clients that.
    func isBeyondRows(_ text: String) -> Bool {
        // PostgreSQL recognizes `(notes).team` as a column.
        let wholeRows = PolicyHistory.wholeRows.filter { !$0.hasPrefix("(notes).") }
        return self == .columnList && (text.contains("data ") || wholeRows.contains { text.contains($0) })
    }
}
