import Bytes
import Change

/// A relation as it was announced, with all that is computed once for it and used for every row.
public final class Schema: Sendable {
    public let relation: Relation
    /// The stored form, written to the log before the first change that needs it.
    public let encoded: [UInt8]
    public let fingerprint: UInt64
    let tableKey: UInt64
    let unkeyedKey: UInt64
    let keyColumns: [Int]
    /// How many columns a row image has.
    let width: Int

    public init(_ relation: Relation) {
        var writer = ByteWriter()
        RelationCodec.encode(relation, to: &writer)
        self.relation = relation
        encoded = writer.copied()
        fingerprint = RelationCodec.fingerprint(of: writer.bytes)
        tableKey = RowKey.table(schema: relation.schema, name: relation.name)
        unkeyedKey = RowKey.unkeyed(table: tableKey)
        keyColumns = relation.keyColumns
        width = relation.columns.count
    }

    /// What the row after a change is found by; zero when the change has none. A truncate is a change of every row.
    func newKey(_ operation: Operation, _ new: RawSpan) -> UInt64 {
        if new.byteCount > 0 { return key(of: new) }
        return operation == .truncate ? unkeyedKey : 0
    }

    /// What the row before a change is found by; zero when nothing of it was sent.
    func oldKey(_ old: RawSpan) -> UInt64 { old.byteCount > 0 ? key(of: old) : 0 }

    /// The row's hash, or the table's "unkeyed" one when the image does not tell the whole key.
    func key(of image: RawSpan) -> UInt64 {
        guard !keyColumns.isEmpty else { return unkeyedKey }
        var hash = RowKey.row(table: tableKey)
        var columns = TupleColumns(image)
        var index = 0
        for keyColumn in keyColumns {
            while index < keyColumn {
                guard (try? columns.next()) != nil else { return unkeyedKey }
                index += 1
            }
            guard let value = try? columns.next(), case .text(let text) = value else { return unkeyedKey }
            hash.combine(text)
            index += 1
        }
        return hash.value
    }
}

/// The schemas the server has announced on this connection, by OID.
///
/// A streamed transaction may announce a schema that only it has seen; it is kept apart until the transaction
/// commits, just as pgoutput remembers on its side what it sent in which streamed transaction. It then counts for all,
/// unless the server has announced the relation anew in the meantime: what was said last holds.
struct SchemaBook {
    enum Refusal: Error { case unknownRelation(UInt32), tooMany }

    private struct Announcement {
        var schema: Schema
        var number: UInt64
    }

    private var schemas: [UInt32: Announcement] = [:]
    private var streamed: [UInt32: [UInt32: Announcement]] = [:]
    private var typeNames: [UInt32: String] = [:]
    /// Rows come many of one table in a row.
    private var lastOID: UInt32 = 0
    private var lastStream: UInt32?
    private var last: Schema?
    private var announcements: UInt64 = 0
    private let maximum: Int

    init(maximum: Int) { self.maximum = maximum }

    /// A type too many is not remembered and will be named by its number.
    mutating func typeAnnounced(_ oid: UInt32, _ name: String) {
        guard typeNames.count < maximum || typeNames[oid] != nil else { return }
        typeNames[oid] = name
    }

    mutating func announced(
        _ message: RelationMessage, primaryKey: Set<String>, inStream xid: UInt32?
    ) throws(Refusal) {
        let known = xid.map { streamed[$0]?[message.oid] } ?? schemas[message.oid]
        guard known != nil || count < maximum else { throw .tooMany }
        let relation = relation(message, primaryKey)
        // The server repeats itself, with every partition its root: one object for one schema.
        let schema = known.flatMap { $0.schema.relation == relation ? $0.schema : nil } ?? Schema(relation)
        announcements += 1
        let announcement = Announcement(schema: schema, number: announcements)
        last = nil
        if let xid {
            streamed[xid, default: [:]][message.oid] = announcement
        } else {
            schemas[message.oid] = announcement
        }
    }

    private var count: Int { streamed.values.reduce(schemas.count) { $0 + $1.count } }

    mutating func schema(_ oid: UInt32, inStream xid: UInt32?) throws(Refusal) -> Schema {
        if oid == lastOID, xid == lastStream, let last { return last }
        let announcement = xid.map { streamed[$0]?[oid] } ?? schemas[oid]
        guard let announcement else { throw .unknownRelation(oid) }
        lastOID = oid
        lastStream = xid
        last = announcement.schema
        return announcement.schema
    }

    mutating func streamCommitted(_ xid: UInt32) {
        guard let announced = streamed.removeValue(forKey: xid) else { return }
        schemas.merge(announced) { $0.number > $1.number ? $0 : $1 }
        last = nil
    }

    mutating func streamAborted(_ xid: UInt32) {
        streamed[xid] = nil
        last = nil
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
