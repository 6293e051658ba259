import Bytes
import Change
import Synchronization

/// Finder of the keys in stored transactions. They equal the keys that were computed when the transactions arrived. The
/// finder rebuilds an index from entries after a crash.
///
/// The caller passes entries in their order. The finder remembers the schemas among them.
public final class StoredKeys: Sendable {
    private let schemas = Mutex<[UInt64: Schema]>([:])

    public init() {}

    public func relation(_ payload: RawSpan) {
        guard let relation = try? RelationCodec.decode(payload) else { return }
        let schema = Schema(relation)
        schemas.withLock { $0[schema.fingerprint] = schema }
    }

    /// Returns the keys of one part. Returns nil if a schema is missing or the part is damaged, because an incomplete
    /// set of keys would hide rows from searches.
    public func keys(ofTransaction payload: RawSpan) -> [UInt64]? {
        let schemas = schemas.withLock { $0 }
        var keys: Set<UInt64> = []
        do throws(ByteError) {
            var part = try TransactionPart(payload)
            keys.insert(RowKey.transaction(xid: part.info.xid))
            while let change = try part.next() {
                if change.operation == .message { continue }
                guard let schema = schemas[change.relation] else { return nil }
                Self.add(change, schema, to: &keys)
            }
        } catch { return nil }
        return Array(keys)
    }

    private static func add(_ change: borrowing Change, _ schema: Schema, to keys: inout Set<UInt64>) {
        keys.insert(schema.tableKey)
        if schema.messagesKey != 0 { keys.insert(schema.messagesKey) }
        if change.operation == .truncate { keys.insert(schema.rows.unkeyedKey) }
        if let new = change.new { keys.insert(schema.rows.key(of: new.bytes)) }
        if let old = change.old { keys.insert(schema.rows.key(of: old.bytes)) }
    }
}
