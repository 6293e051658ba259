import Bytes

/// Tables whose catalog entries may have changed, until the log has a mark for each.
///
/// The server announces a table before its next change if anything about the table may have changed: columns, policies,
/// rights. The server also announces a table at its first change on each connection, because something may have changed
/// before the connection.
public struct CatalogMarks {
    /// Tables without a mark in the log yet. Zero stands for any table.
    private(set) var waiting: [UInt32] = []
    /// Tables announced inside streamed transactions, which are stored at their commit.
    private var streamed: [UInt32: Set<UInt32>] = [:]

    /// Maximum number of waiting tables; beyond it, they are replaced by a mark for any table.
    private static let maximum = 64
    private static let definitionsPrefix = Array("rt:ddl".utf8)

    /// True if the message reports changed definitions (`sql/050_ddl_messages.sql`).
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

    /// Adds a mark for everything, independent of the transactions that readers have seen.
    mutating func addEverything() {
        if !waiting.contains(CatalogMarks.everything) { waiting.append(CatalogMarks.everything) }
    }

    /// Mark for everything, which is no table's number. The mark belongs to no transaction.
    public static let everything = UInt32.max

    /// Moves the marks of a streamed transaction to the waiting ones. A rollback moves them too, because the server
    /// does not announce the tables again.
    mutating func streamEnded(_ xid: UInt32) {
        for table in streamed.removeValue(forKey: xid) ?? [] { add(table) }
    }

    /// Removes all waiting marks, because the log has them.
    mutating func said() { waiting.removeAll(keepingCapacity: true) }
}
