import Bytes

/// Tables whose catalog entries may have changed, until the log was told.
///
/// The server announces a table before its next change whenever anything about it may have changed: columns, policies,
/// rights. It also does so the first time on each connection: something may have happened meanwhile.
public struct CatalogMarks {
    /// Zero stands for any table.
    private(set) var waiting: [UInt32] = []
    /// What was said inside streamed transactions, which are stored when they commit.
    private var streamed: [UInt32: Set<UInt32>] = [:]

    /// More tables than this at once are any table.
    private static let maximum = 64
    private static let definitionsPrefix = Array("rt:ddl".utf8)

    /// Whether a message is one that tells of changed definitions (`sql/050_ddl_messages.sql`).
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
    }

    /// Whatever transactions readers have seen.
    mutating func addEverything() {
        if !waiting.contains(CatalogMarks.everything) { waiting.append(CatalogMarks.everything) }
    }

    /// No table's number: the mark is of no transaction either.
    public static let everything = UInt32.max

    /// Also where it was rolled back: what it was told of is not told again.
    mutating func streamEnded(_ xid: UInt32) {
        for table in streamed.removeValue(forKey: xid) ?? [] { add(table) }
    }

    /// The log has them.
    mutating func said() { waiting.removeAll(keepingCapacity: true) }
}
