import Bytes
import Change

/// Relation that PostgreSQL has announced, with values that are computed once and used for every row.
public final class Schema: Sendable {
    public let relation: Relation
    /// Stored form of the relation. The log stores it before the first change that refers to it.
    public let encoded: [UInt8]
    public let fingerprint: UInt64
    let tableKey: UInt64
    /// Key of the messages table if the relation is that table or one of its partitions; zero for other tables.
    let messagesKey: UInt64
    let rows: RowPlan

    public init(_ relation: Relation) {
        var writer = ByteWriter()
        RelationCodec.encode(relation, to: &writer)
        self.relation = relation
        encoded = writer.copied()
        fingerprint = RelationCodec.fingerprint(of: writer.bytes)
        tableKey = RowKey.table(schema: relation.schema, name: relation.name)
        messagesKey = MessageTable.holds(relation) ? MessageTable.key : 0
        rows = RowPlan(relation, fingerprint: fingerprint, tableKey: tableKey)
    }
}

/// Values of a schema that are needed for every row, as plain numbers. A copy needs no reference counting.
struct RowPlan: BitwiseCopyable {
    let fingerprint: UInt64
    let tableKey: UInt64
    let unkeyedKey: UInt64
    /// Columns of the key: bit n is set if column n is part of it.
    private let keyColumns: UInt64
    /// Number of columns in a row image.
    let width: Int

    init(_ relation: Relation, fingerprint: UInt64, tableKey: UInt64) {
        self.fingerprint = fingerprint
        self.tableKey = tableKey
        unkeyedKey = RowKey.unkeyed(table: tableKey)
        width = relation.columns.count
        let columns = relation.keyColumns
        assert(columns.allSatisfy { $0 < relation.columns.count }, "key columns are columns of the row")
        // Rows with key columns beyond the first 64 are not indexed; they count as rows without a key.
        keyColumns = columns.allSatisfy { $0 < 64 } ? columns.reduce(0) { $0 | 1 << UInt64($1) } : 0
    }

    /// Returns the key of the row after a change; zero if there is none. A truncate has the key for changes of unknown
    /// rows.
    func newKey(_ operation: Operation, _ new: RawSpan) -> UInt64 {
        if new.byteCount > 0 { return key(of: new) }
        return operation == .truncate ? unkeyedKey : 0
    }

    /// Returns the key of the row before a change; zero if the server sent no old image.
    func oldKey(_ old: RawSpan) -> UInt64 { old.byteCount > 0 ? key(of: old) : 0 }

    /// Returns the key of the row; the table's key for rows without one if the image lacks a key column.
    func key(of image: RawSpan) -> UInt64 {
        guard keyColumns != 0 else { return unkeyedKey }
        var hash = RowKey.row(table: tableKey)
        var columns = TupleColumns(image)
        var left = keyColumns
        while left != 0 {
            guard let value = try? columns.next() else { return unkeyedKey }
            if left & 1 != 0 {
                guard case .text(let text) = value else { return unkeyedKey }
                hash.combine(text)
            }
            left >>= 1
        }
        return hash.value
    }
}

/// Schemas that PostgreSQL has announced on this connection, by OID.
///
/// Inside a streamed transaction, PostgreSQL may announce a schema that only this transaction uses. The schema is
/// stored separately until the commit, as pgoutput itself does. After the commit it applies to all transactions, unless
/// PostgreSQL has announced the relation again later: the last announcement counts.
struct SchemaBook {
    enum Refusal: Error { case unknownRelation(UInt32), tooMany }

    private struct Announcement {
        var schema: Schema
        var number: UInt64
    }

    private var schemas: [UInt32: Announcement] = [:]
    private var streamed: [UInt32: [UInt32: Announcement]] = [:]
    private var typeNames: [UInt32: String] = [:]
    /// OID of the last lookup, which is cached because consecutive rows mostly belong to one table.
    private var lastOID: UInt32 = 0
    private var lastStream: UInt32?
    private var last: Schema?
    private var lastRows: RowPlan?
    private var announcements: UInt64 = 0
    private let maximum: Int

    init(maximum: Int) { self.maximum = maximum }

    /// Stores the name of a type. Above the maximum, a type is not stored, and its OID serves as its name.
    mutating func typeAnnounced(_ oid: UInt32, _ name: String) {
        guard typeNames.count < maximum || typeNames[oid] != nil else { return }
        typeNames[oid] = name
        assert(typeNames.count <= maximum, "the number of stored type names is bounded")
    }

    mutating func announced(
        _ message: RelationMessage, primaryKey: Set<String>, inStream xid: UInt32?
    ) throws(Refusal) {
        let known = xid.map { streamed[$0]?[message.oid] } ?? schemas[message.oid]
        guard known != nil || count < maximum else { throw .tooMany }
        let relation = relation(message, primaryKey)
        // PostgreSQL announces a schema repeatedly (with every partition also its root table). Equal schemas share one
        // object.
        let schema = known.flatMap { $0.schema.relation == relation ? $0.schema : nil } ?? Schema(relation)
        announcements += 1
        let announcement = Announcement(schema: schema, number: announcements)
        forgetLast()
        if let xid {
            streamed[xid, default: [:]][message.oid] = announcement
        } else {
            schemas[message.oid] = announcement
        }
        assert(count <= maximum, "the number of schemas is bounded")
    }

    private mutating func forgetLast() {
        last = nil
        lastRows = nil
    }

    private var count: Int { streamed.values.reduce(schemas.count) { $0 + $1.count } }

    mutating func schema(_ oid: UInt32, inStream xid: UInt32?) throws(Refusal) -> Schema {
        if oid == lastOID, xid == lastStream, let last { return last }
        let announcement = xid.map { streamed[$0]?[oid] } ?? schemas[oid]
        guard let announcement else { throw .unknownRelation(oid) }
        assert(announcement.schema.relation.oid == oid, "a schema is found by its own relation")
        lastOID = oid
        lastStream = xid
        last = announcement.schema
        lastRows = announcement.schema.rows
        return announcement.schema
    }

    /// Returns the values of a relation that are needed for each of its rows. For consecutive rows of one table, the
    /// schema object is not accessed.
    @inline(__always)
    mutating func rows(_ oid: UInt32, inStream xid: UInt32?) throws(Refusal) -> RowPlan {
        if oid == lastOID, xid == lastStream, let lastRows { return lastRows }
        return try schema(oid, inStream: xid).rows
    }

    mutating func streamCommitted(_ xid: UInt32) {
        guard let announced = streamed.removeValue(forKey: xid) else { return }
        schemas.merge(announced) { known, new in
            assert(known.number != new.number, "each announcement has its own number")
            return known.number > new.number ? known : new
        }
        forgetLast()
    }

    mutating func streamAborted(_ xid: UInt32) {
        streamed[xid] = nil
        forgetLast()
    }

    private func relation(_ message: RelationMessage, _ primaryKey: Set<String>) -> Relation {
        Relation(
            oid: message.oid, schema: message.schema, name: message.name, identity: message.identity,
            columns: message.columns.map { column in
                Column(
                    name: column.name, typeOID: column.typeOID, typeModifier: column.typeModifier,
                    typeName: BuiltInType.name(of: column.typeOID) ?? typeNames[column.typeOID]
                        ?? String(column.typeOID),
                    isIdentity: column.isIdentity, isPrimaryKey: primaryKey.contains(column.name))
            })
    }
}
