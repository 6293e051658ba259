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

    public init(_ relation: Relation) {
        var writer = ByteWriter()
        RelationCodec.encode(relation, to: &writer)
        self.relation = relation
        encoded = writer.copied()
        fingerprint = RelationCodec.fingerprint(of: writer.bytes)
        tableKey = RowKey.table(schema: relation.schema, name: relation.name)
        unkeyedKey = RowKey.unkeyed(table: tableKey)
        keyColumns = relation.keyColumns
    }

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
/// commits, just as pgoutput remembers on its side what it sent in which streamed transaction.
struct SchemaBook {
    enum Refusal: Error { case unknownRelation(UInt32), tooMany }

    private var schemas: [UInt32: Schema] = [:]
    private var streamed: [UInt32: [UInt32: Schema]] = [:]
    private var typeNames: [UInt32: String] = [:]
    private var lastOID: UInt32 = 0
    private var last: Schema?
    private let maximum: Int

    init(maximum: Int) { self.maximum = maximum }

    mutating func typeAnnounced(_ oid: UInt32, _ name: String) { typeNames[oid] = name }

    mutating func announced(
        _ message: RelationMessage, primaryKey: Set<String>, inStream xid: UInt32?
    ) throws(Refusal) -> Schema {
        let schema = Schema(relation(message, primaryKey))
        last = nil
        if let xid {
            streamed[xid, default: [:]][message.oid] = schema
        } else {
            guard schemas.count < maximum || schemas[message.oid] != nil else { throw .tooMany }
            schemas[message.oid] = schema
        }
        return schema
    }

    mutating func schema(_ oid: UInt32, inStream xid: UInt32?) throws(Refusal) -> Schema {
        if let xid {
            guard let schema = streamed[xid]?[oid] else { throw .unknownRelation(oid) }
            return schema
        }
        if oid == lastOID, let last { return last }
        guard let schema = schemas[oid] else { throw .unknownRelation(oid) }
        lastOID = oid
        last = schema
        return schema
    }

    mutating func streamCommitted(_ xid: UInt32) {
        guard let announced = streamed.removeValue(forKey: xid) else { return }
        schemas.merge(announced) { _, new in new }
        last = nil
    }

    mutating func streamAborted(_ xid: UInt32) { streamed[xid] = nil }

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
