import Bytes
import Change
import Replication

/// Stored change as a plain value.
public struct RecordedChange: Sendable, Hashable {
    public var operation: Operation
    public var oldImage = OldImage.none
    public var options: UInt8 = 0
    /// Fingerprint of the schema of the change's row; zero for a message.
    public var relation: UInt64
    public var table: String
    public var old: [Cell]?
    public var new: [Cell]?
    public var prefix = ""
    public var content: [UInt8] = []
}

/// Part that the sink received, decoded from its stored form.
public struct RecordedPart: Sendable {
    public var info: TransactionInfo
    public var isLast: Bool
    public var firstIndex: UInt32
    public var changes: [RecordedChange]
    public var schemas: [Relation]
    public var fingerprints: [UInt64]
    public var keys: [UInt64]
    /// Bytes in their stored form.
    public var payload: [UInt8]

    public var payloadBytes: Int { payload.count }
}

/// Transaction with its parts joined.
public struct RecordedTransaction: Sendable {
    public var info: TransactionInfo
    public var parts: [RecordedPart]

    public var changes: [RecordedChange] { parts.flatMap(\.changes) }
    public var keys: Set<UInt64> { Set(parts.flatMap(\.keys)) }
}

/// Sink that keeps its input as a log would, and records every call that breaks the contract of a log.
public final class RecordingSink: TransactionSink {
    public private(set) var systemIdentifier: UInt64 = 0
    public private(set) var position: LSN
    public private(set) var durablePosition: LSN
    public private(set) var pendingBytes = 0
    public private(set) var isNew: Bool

    /// Finished transactions, in the order in which the sink received them.
    public private(set) var transactions: [RecordedTransaction] = []
    public private(set) var unfinished: [RecordedPart] = []
    public private(set) var advances: [LSN] = []
    public private(set) var gaps: [Gap] = []
    public private(set) var abandonments = 0
    /// Descriptions of calls that a log must never receive.
    public private(set) var breaches: [String] = []
    /// Number of calls that the sink refuses before it accepts one.
    public var refusals = 0

    public init(at position: LSN = .zero, isNew: Bool = false) {
        self.position = position
        durablePosition = position
        self.isNew = isNew
    }

    public var changes: [RecordedChange] { transactions.flatMap(\.changes) }

    public func begin(systemIdentifier: UInt64, at position: LSN, after gap: Gap?) throws {
        try refuseIfAsked("begin")
        check(isNew, "a log begins once")
        self.systemIdentifier = systemIdentifier
        self.position = position
        if let gap { gaps.append(gap) }
        isNew = false
    }

    public func append(_ part: borrowing StorablePart) throws {
        try refuseIfAsked("append")
        let recorded = try record(part)
        checkContinuation(recorded)
        check(part.changeCount == UInt32(recorded.changes.count), "the part counts its changes wrong")
        checkSchemas(recorded)
        unfinished.append(recorded)
        pendingBytes += recorded.payloadBytes
        if part.isLast { finish(recorded.info) }
    }

    public func abandon() throws {
        try refuseIfAsked("abandon")
        unfinished = []
        abandonments += 1
    }

    public func advance(to position: LSN) throws {
        try refuseIfAsked("advance")
        check(unfinished.isEmpty, "the position was moved on inside a transaction")
        check(position >= self.position, "the position was moved back")
        self.position = position
        advances.append(position)
    }

    public func flush() throws {
        try refuseIfAsked("flush")
        durablePosition = position
        pendingBytes = 0
    }

    public func recordGap(_ gap: Gap, systemIdentifier: UInt64) throws {
        try refuseIfAsked("recordGap")
        check(unfinished.isEmpty, "a gap was recorded inside a transaction")
        gaps.append(gap)
        self.systemIdentifier = systemIdentifier
        position = gap.to
    }

    // MARK: The contract

    private func refuseIfAsked(_ operation: String) throws {
        guard refusals > 0 else { return }
        refusals -= 1
        throw StorageStall(operation: operation, path: "memory", reason: "refused by the test", hint: "try again")
    }

    private func check(_ holds: Bool, _ breach: String) {
        if !holds { breaches.append(breach) }
    }

    private func checkContinuation(_ part: RecordedPart) {
        guard let first = unfinished.first else {
            check(part.firstIndex == 0, "a transaction began with change \(part.firstIndex)")
            check(part.info.commitLSN >= position || part.info.xid == 0, "a transaction came that was stored before")
            return
        }
        let expected = unfinished.reduce(0) { $0 + $1.changes.count }
        check(first.info.xid == part.info.xid, "transaction \(part.info.xid) came inside \(first.info.xid)")
        check(first.info.commitLSN == part.info.commitLSN, "a part has another commit LSN than its transaction")
        check(Int(part.firstIndex) == expected, "a part began with change \(part.firstIndex), not \(expected)")
    }

    private func checkSchemas(_ part: RecordedPart) {
        check(!part.changes.isEmpty, "a part held nothing")
        check(Set(part.fingerprints).count == part.fingerprints.count, "a schema came twice in one part")
        for change in part.changes where change.operation != .message {
            check(part.fingerprints.contains(change.relation), "a change came without its schema")
        }
    }

    private func finish(_ info: TransactionInfo) {
        check(info.endLSN >= position, "a transaction moved the position back")
        check(info.endLSN >= info.commitLSN, "a transaction ended before it began to commit")
        transactions.append(RecordedTransaction(info: info, parts: unfinished))
        unfinished = []
        position = info.endLSN
    }

    // MARK: Reading back

    private func record(_ part: borrowing StorablePart) throws(ByteError) -> RecordedPart {
        var tables: [UInt64: String] = [:]
        for schema in part.schemas { tables[schema.fingerprint] = schema.relation.description }
        var stored = try TransactionPart(part.payload)
        check(stored.info == part.info, "the stored header differs from what was said of the part")
        check(stored.changeCount == part.changeCount, "the stored count differs from what was said of the part")
        var changes: [RecordedChange] = []
        while let change = try stored.next() {
            changes.append(try Self.plain(change, tables[change.relation] ?? ""))
        }
        return RecordedPart(
            info: stored.info, isLast: part.isLast, firstIndex: stored.firstIndex, changes: changes,
            schemas: part.schemas.map(\.relation), fingerprints: part.schemas.map(\.fingerprint), keys: part.keys,
            payload: part.payload.copied())
    }

    private static func plain(_ change: borrowing Change, _ table: String) throws(ByteError) -> RecordedChange {
        var plain = RecordedChange(
            operation: change.operation, oldImage: change.oldImage, options: change.options,
            relation: change.relation, table: table)
        if change.operation == .message {
            plain.prefix = change.messagePrefix.text
            plain.content = change.messageContent.copied()
            return plain
        }
        if let old = change.old { plain.old = try Cell.row(old) }
        if let new = change.new { plain.new = try Cell.row(new) }
        return plain
    }
}
