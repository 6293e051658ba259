import Bytes
import Change
import Diagnostics

/// Collector of one transaction's changes. It divides them into parts of limited size.
struct PartBuilder: ~Copyable {
    private var payload = ByteWriter(capacity: 64 << 10)
    private var schemas: [Schema] = []
    private var keys: [UInt64] = []
    private var changeCount: UInt32 = 0
    private var nextIndex: UInt32 = 0
    /// Fingerprint of the schema of the previous change; nil if there is none.
    private var lastUsed: UInt64?
    private(set) var info: TransactionInfo?

    var isOpen: Bool { info != nil }
    /// Number of changes in all parts of the transaction so far.
    var totalChanges: UInt32 { nextIndex }
    var isFull: Bool { payload.count >= Limits.transactionPartTargetBytes }

    mutating func begin(_ info: TransactionInfo) {
        assert(!isOpen, "a transaction begins after the end of the one before")
        nextIndex = 0
        open(info)
    }

    private mutating func open(_ info: TransactionInfo) {
        self.info = info
        payload.removeAll()
        payload.shrink(to: 4 * Limits.transactionPartTargetBytes)
        schemas.removeAll(keepingCapacity: true)
        keys.removeAll(keepingCapacity: true)
        keys.append(RowKey.transaction(xid: info.xid))
        changeCount = 0
        lastUsed = nil
        TransactionCodec.begin(info, firstIndex: nextIndex, to: &payload)
    }

    mutating func forget() {
        info = nil
        payload.removeAll()
    }

    /// Sets the node on which a replicated transaction was first committed. Must be called before the first change is
    /// added.
    mutating func setOrigin(_ name: String) {
        guard var info, changeCount == 0, !name.isEmpty else { return }
        info.origin = name
        open(info)
    }

    /// True if the caller must call `use` with this schema before it adds a change of that schema.
    func needs(_ fingerprint: UInt64) -> Bool { lastUsed != fingerprint }

    mutating func use(_ schema: Schema) {
        lastUsed = schema.fingerprint
        // Schemas are compared by fingerprint. A schema that changed and changed back is a different object.
        if schemas.contains(where: { $0.fingerprint == schema.fingerprint }) { return }
        schemas.append(schema)
        keys.append(schema.tableKey)
        if schema.messagesKey != 0 { keys.append(schema.messagesKey) }
    }

    /// Adds a change of the schema that was last passed to `use`.
    mutating func add(
        _ operation: Operation, _ rows: RowPlan, oldImage: OldImage, old: RawSpan, new: RawSpan, options: UInt8 = 0
    ) {
        precondition(lastUsed == rows.fingerprint, "a change belongs to the schema in use")
        find(newKey: rows.newKey(operation, new), oldKey: rows.oldKey(old))
        count(1)
        TransactionCodec.append(
            operation, relation: rows.fingerprint, oldImage: oldImage, old: old, new: new, options: options,
            to: &payload)
    }

    mutating func addMessage(isTransactional: Bool, prefix: RawSpan, content: RawSpan) {
        count(1)
        TransactionCodec.append(
            .message, relation: 0, oldImage: .none, old: prefix, new: content, options: isTransactional ? 1 : 0,
            to: &payload)
    }

    /// Adds a change from the spool, which is already in its stored form.
    mutating func addStored(_ change: RawSpan, _ schema: Schema?, newKey: UInt64, oldKey: UInt64) {
        if let schema, needs(schema.fingerprint) { use(schema) }
        find(newKey: newKey, oldKey: oldKey)
        count(1)
        payload.append(change)
    }

    private mutating func find(newKey: UInt64, oldKey: UInt64) {
        if newKey != 0 { keys.append(newKey) }
        if oldKey != 0, oldKey != newKey { keys.append(oldKey) }
    }

    private mutating func count(_ changes: UInt32) {
        assert(isOpen, "a change lies inside a transaction")
        changeCount += changes
        nextIndex += changes
        assert(changeCount <= nextIndex, "a part has no more changes than its transaction")
    }

    /// Passes the part to `deliver`. If `deliver` throws, nothing has changed, and the call can be repeated. Otherwise
    /// the next part begins, or the transaction ends if this was its last part.
    mutating func hand(
        isLast: Bool, endLSN: LSN, marks: [UInt32] = [], _ deliver: (borrowing StorablePart) throws -> Void
    ) throws {
        guard var info else { preconditionFailure("a part is handed over inside a transaction") }
        assert(changeCount > 0, "no part is empty")
        assert(!isLast || endLSN >= info.commitLSN, "a transaction ends behind the start of its commit record")
        info.endLSN = endLSN
        TransactionCodec.finish(endLSN: endLSN, changeCount: changeCount, in: &payload)
        try deliver(
            StorablePart(
                info: info, isLast: isLast, changeCount: changeCount, payload: payload.bytes, schemas: schemas,
                keys: keys, marks: marks))
        if isLast { forget() } else { open(info) }
    }
}
