import Bytes

/// Tables whose entries in the catalog may have changed. The log gets a mark (`CatalogMark`) for each.
///
/// PostgreSQL announces a table before its next change if anything about the table may have changed: columns, policies,
/// rights. It also announces a table at its first change on each connection. Something may have changed before the
/// connection, so this counts, too.
public struct CatalogMarks {
    /// OIDs of tables whose catalog entries may have changed and for which the log has no mark yet. Zero stands for any
    /// table.
    private(set) var waiting: [UInt32] = []
    /// OIDs of tables announced inside streamed transactions, by the transaction's number. They are stored when the
    /// transaction ends.
    private var streamed: [UInt32: Set<UInt32>] = [:]

    /// Maximum number of waiting tables. If there are more, a single mark for any table replaces them.
    private static let maximum = 64
    private static let definitionsPrefix = Array("rt:ddl".utf8)

    /// True if the message reports changed definitions (`sql/050_ddl_messages.sql` sends it).
    static func isOfDefinitions(_ prefix: RawSpan) -> Bool {
        guard prefix.byteCount == definitionsPrefix.count else { return false }
        return definitionsPrefix.indices.allSatisfy { prefix.byte($0) == definitionsPrefix[$0] }
    }

    mutating func add(_ table: UInt32, inStream xid: UInt32?) {
        guard let xid else { return add(table) }
        streamed[xid, default: []].insert(table)
    }

    private mutating func add(_ table: UInt32) {
        if waiting.contains(table) || waiting.first == 0 { return }
        if waiting.count < CatalogMarks.maximum {
            waiting.append(table)
        } else {
            waiting = [0] + waiting.filter { $0 == CatalogMarks.everything }
        }
        assert(waiting.count <= CatalogMarks.maximum + 1, "the number of waiting marks is bounded")
    }

    /// Adds a mark for all tables that applies to every reader, whichever transactions its catalog includes.
    mutating func addEverything() {
        if !waiting.contains(CatalogMarks.everything) { waiting.append(CatalogMarks.everything) }
    }

    /// Mark for all tables. It is no table's OID, and it belongs to no transaction.
    public static let everything = UInt32.max

    /// Moves the marks of a streamed transaction to the waiting ones. This is also done after a rollback, because
    /// PostgreSQL does not announce the tables again.
    mutating func streamEnded(_ xid: UInt32) {
        for table in streamed.removeValue(forKey: xid) ?? [] { add(table) }
    }

    /// Removes all waiting marks, because the log has stored them.
    mutating func said() { waiting.removeAll(keepingCapacity: true) }
}
