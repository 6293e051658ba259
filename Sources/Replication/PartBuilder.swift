import Bytes
import Change
import Diagnostics

/// Collects the changes of one transaction into parts of bounded size.
struct PartBuilder: ~Copyable {
    private var payload = ByteWriter(capacity: 64 << 10)
    private var schemas: [Schema] = []
    private var keys: [UInt64] = []
    private var changeCount: UInt32 = 0
    private var nextIndex: UInt32 = 0
    private(set) var info: TransactionInfo?

    var isOpen: Bool { info != nil }
    /// Changes since the transaction began, in all parts.
    var totalChanges: UInt32 { nextIndex }
    var isFull: Bool { payload.count >= Limits.transactionPartTargetBytes }

    mutating func begin(_ info: TransactionInfo) {
        nextIndex = 0
        open(info)
    }

    private mutating func open(_ info: TransactionInfo) {
        self.info = info
        payload.removeAll()
        payload.shrink(to: 4 * Limits.transactionPartTargetBytes)
        schemas.removeAll(keepingCapacity: true)
        keys.removeAll(keepingCapacity: true)
        changeCount = 0
        TransactionCodec.begin(info, firstIndex: nextIndex, to: &payload)
    }

    mutating func forget() {
        info = nil
        payload.removeAll()
    }

    /// The transaction came here by replication; known before its first change.
    mutating func setOrigin(_ name: String) {
        guard var info, changeCount == 0, !name.isEmpty else { return }
        info.origin = name
        open(info)
    }

    mutating func add(
        _ operation: Operation, _ schema: Schema, oldImage: OldImage, old: RawSpan, new: RawSpan, options: UInt8 = 0
    ) {
        use(schema)
        find(newKey: schema.newKey(operation, new), oldKey: schema.oldKey(old))
        count(1)
        TransactionCodec.append(
            operation, relation: schema.fingerprint, oldImage: oldImage, old: old, new: new, options: options,
            to: &payload)
    }

    mutating func addMessage(isTransactional: Bool, prefix: RawSpan, content: RawSpan) {
        count(1)
        TransactionCodec.append(
            .message, relation: 0, oldImage: .none, old: prefix, new: content, options: isTransactional ? 1 : 0,
            to: &payload)
    }

    /// A change in its stored form already: one that was spooled.
    mutating func addStored(_ change: RawSpan, _ schema: Schema?, newKey: UInt64, oldKey: UInt64) {
        if let schema { use(schema) }
        find(newKey: newKey, oldKey: oldKey)
        count(1)
        payload.append(change)
    }

    private mutating func find(newKey: UInt64, oldKey: UInt64) {
        if newKey != 0 { keys.append(newKey) }
        if oldKey != 0, oldKey != newKey { keys.append(oldKey) }
    }

    private mutating func count(_ changes: UInt32) {
        changeCount += changes
        nextIndex += changes
    }

    private mutating func use(_ schema: Schema) {
        if let last = schemas.last, last === schema { return }
        // Not by identity: a schema that changed and changed back is another object.
        if schemas.contains(where: { $0.fingerprint == schema.fingerprint }) { return }
        schemas.append(schema)
        keys.append(schema.tableKey)
    }

    /// Hands the part over. When `deliver` throws nothing has changed and it can be called again; when it returns, the
    /// next part is open, or the transaction closed if this was the last.
    mutating func hand(
        isLast: Bool, endLSN: LSN, _ deliver: (borrowing StorablePart) throws -> Void
    ) throws {
        guard var info else { preconditionFailure("a part is handed over inside a transaction") }
        info.endLSN = endLSN
        TransactionCodec.finish(endLSN: endLSN, changeCount: changeCount, in: &payload)
        try deliver(
            StorablePart(
                info: info, isLast: isLast, changeCount: changeCount, payload: payload.bytes, schemas: schemas,
                keys: keys))
        if isLast { forget() } else { open(info) }
    }
}
