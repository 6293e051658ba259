import Bytes
import Change
import Diagnostics
import System

/// Assembler of stored transactions from `pgoutput` messages: the changes between Begin and Commit, in order, as a
/// whole or in parts of limited size. The assembler skips transactions that the log already has.
///
/// Except for the files of streamed transactions, its results depend only on the messages: it uses no connection and no
/// clock.
public struct TransactionAssembler: ~Copyable {
    enum Refusal: Error { case unexpected(StaticString) }

    private var decoder = PgOutputDecoder()
    private var schemas: SchemaBook
    private var part = PartBuilder()
    private var spool: TransactionSpool
    private var streamedBlock: SpooledTransaction?
    private var isSkipping = false
    private var tally = ChangeTally()
    private var marks = CatalogMarks()
    private let metrics: ProjectMetrics
    private let primaryKey: (UInt32) throws -> Set<String>
    private let betweenParts: () throws -> Void
    private let now: () -> Int64

    /// Creates an assembler.
    ///
    /// - Parameters:
    ///   - primaryKey: returns the primary-key columns of a table; called when the table is announced.
    ///   - betweenParts: called after each part of a large transaction except the last. Storing a streamed transaction
    ///     can take longer than PostgreSQL waits for a status message.
    ///   - now: returns the time for a message outside transactions, because PostgreSQL does not send one.
    init(
        spool: consuming TransactionSpool, maximumSchemas: Int, primaryKey: @escaping (UInt32) throws -> Set<String>,
        metrics: ProjectMetrics,
        betweenParts: @escaping () throws -> Void = {}, now: @escaping () -> Int64 = { Clock.unixMicroseconds() }
    ) {
        self.spool = spool
        self.primaryKey = primaryKey
        self.metrics = metrics
        self.betweenParts = betweenParts
        self.now = now
        schemas = SchemaBook(maximum: maximumSchemas)
    }

    /// Creates an assembler without a session, for captured bytes, in measurements and fuzz tests.
    public init(
        spoolDirectory: any StorageDirectory, primaryKey: @escaping (UInt32) throws -> Set<String> = { _ in [] }
    ) {
        self.init(
            spool: TransactionSpool(directory: spoolDirectory, maximum: Limits.maximumStreamedTransactions),
            maximumSchemas: Limits.maximumCachedRelations, primaryKey: primaryKey, metrics: ProjectMetrics())
    }

    /// Makes readers of the log check the whole catalog again before they process the next stored part.
    mutating func markEverything() { marks.addEverything() }

    /// True between Begin and Commit. During this time, a keep-alive message must not advance the position.
    var isInTransaction: Bool { part.isOpen }

    /// Processes one message. While the disk fails, calls `whileStalled` between attempts. That function waits, or
    /// throws to give up.
    public mutating func receive(
        _ bytes: RawSpan, into sink: some TransactionSink, whileStalled: (StorageStall) throws -> Void
    ) throws {
        switch try decoder.decode(bytes) {
        case .insert(let oid, let new, let xid):
            try add(.insert, oid, .none, RawSpan(), new, xid, sink, whileStalled)
        case .update(let oid, let oldImage, let old, let new, let xid):
            try add(.update, oid, oldImage, old, new, xid, sink, whileStalled)
        case .delete(let oid, let oldImage, let old, let xid):
            try add(.delete, oid, oldImage, old, RawSpan(), xid, sink, whileStalled)
        case .begin(let commitLSN, let time, let xid):
            try begin(TransactionInfo(xid: xid, commitLSN: commitLSN, endLSN: .zero, commitTime: time), sink)
        case .commit(let commitLSN, let endLSN, _):
            try commit(commitLSN, endLSN, sink, whileStalled)
        case .relation(let message, let xid):
            let keyNames = try primaryKey(message.oid)
            try schemas.announced(message, primaryKey: keyNames, inStream: xid == nil ? nil : streamedBlock?.xid)
            marks.add(message.oid, inStream: xid == nil ? nil : streamedBlock?.xid)
        case .type(let oid, let name, _):
            schemas.typeAnnounced(oid, name.text)
        case .origin(let name): try setOrigin(name.text)
        case .truncate(let relations, let options, let xid):
            for oid in relations {
                try add(.truncate, oid, .none, RawSpan(), RawSpan(), xid, options: options, sink, whileStalled)
            }
        case .message(let isTransactional, let lsn, let prefix, let content, let xid):
            try message(isTransactional, lsn, prefix, content, xid, sink, whileStalled)
        case .streamStart(let xid, let isFirst): try beginBlock(xid, isFirst)
        case .streamStop: try endBlock(whileStalled)
        case .streamCommit(let xid, let commitLSN, let endLSN, let time):
            let info = TransactionInfo(xid: xid, commitLSN: commitLSN, endLSN: endLSN, commitTime: time)
            try commitStreamed(info, sink, whileStalled)
        case .streamAbort(let xid, let subtransaction): try abortStreamed(xid, subtransaction)
        }
    }

    // MARK: Transactions sent at their commit

    private mutating func begin(_ info: TransactionInfo, _ sink: some TransactionSink) throws {
        try expectOutside("Begin inside a transaction")
        // Commit records do not overlap. So if one begins before the stored position, it also ends at or before it.
        isSkipping = info.commitLSN < sink.position
        part.begin(info)
    }

    /// Sets the origin. PostgreSQL sends it directly after a transaction's Begin, or after its first Stream Start.
    private mutating func setOrigin(_ name: String) throws(Refusal) {
        if let block = streamedBlock { return block.setOrigin(name) }
        guard part.isOpen else { throw .unexpected("an origin outside a transaction") }
        part.setOrigin(name)
    }

    private mutating func add(
        _ operation: Operation, _ oid: UInt32, _ oldImage: OldImage, _ old: RawSpan, _ new: RawSpan, _ xid: UInt32?,
        options: UInt8 = 0, _ sink: some TransactionSink, _ whileStalled: (StorageStall) throws -> Void
    ) throws {
        if let xid {
            return try spoolChange(operation, oid, oldImage, old, new, xid, options, whileStalled)
        }
        guard part.isOpen else { throw Refusal.unexpected("a change outside a transaction") }
        if isSkipping { return }
        let rows = try schemas.rows(oid, inStream: nil)
        try Self.checkWidth(rows, old, new)
        try makeRoom(sink, whileStalled)
        if part.needs(rows.fingerprint) { part.use(try schemas.schema(oid, inStream: nil)) }
        tally.count(operation)
        part.add(operation, rows, oldImage: oldImage, old: old, new: new, options: options)
    }

    /// Checks the number of columns in a row image. If it differs from the schema's, values would be assigned to wrong
    /// columns.
    private static func checkWidth(_ rows: RowPlan, _ old: RawSpan, _ new: RawSpan) throws(ByteError) {
        if old.byteCount > 0, Tuple(old).columnCount != rows.width {
            throw ByteError(expected: "an old row image as wide as its table", offset: 0)
        }
        if new.byteCount > 0, Tuple(new).columnCount != rows.width {
            throw ByteError(expected: "a new row image as wide as its table", offset: 0)
        }
    }

    private mutating func commit(
        _ commitLSN: LSN, _ endLSN: LSN, _ sink: some TransactionSink, _ whileStalled: (StorageStall) throws -> Void
    ) throws {
        guard let begun = part.info else { throw Refusal.unexpected("Commit outside a transaction") }
        guard begun.commitLSN == commitLSN else { throw Refusal.unexpected("the Commit of another transaction") }
        try Self.expectOrder(commitLSN, endLSN)
        if isSkipping {
            let changes = part.totalChanges
            assert(changes == 0, "nothing of a skipped transaction is kept")
            part.forget()
            metrics.transactionsSkipped.add()
        } else {
            try finish(endLSN, sink, whileStalled)
        }
    }

    private mutating func finish(
        _ endLSN: LSN, _ sink: some TransactionSink, _ whileStalled: (StorageStall) throws -> Void
    ) throws {
        if part.totalChanges > 0 {
            try hand(isLast: true, endLSN, sink, whileStalled)
            metrics.transactionsIngested.add()
            tally.publish(in: metrics.changesIngested)
        } else {
            part.forget()
            try Self.retrying(whileStalled) { try sink.advance(to: endLSN) }
        }
        let isOpen = part.isOpen
        assert(!isOpen, "a finished transaction is closed")
    }

    /// Delivers a full part, but only when another change is about to be added. So the last part of a transaction is
    /// never empty.
    private mutating func makeRoom(
        _ sink: some TransactionSink, _ whileStalled: (StorageStall) throws -> Void
    ) throws {
        if part.isFull { try hand(isLast: false, .zero, sink, whileStalled) }
    }

    private mutating func hand(
        isLast: Bool, _ endLSN: LSN, _ sink: some TransactionSink, _ whileStalled: (StorageStall) throws -> Void
    ) throws {
        assert(streamedBlock == nil, "nothing is handed over inside a streamed block")
        while true {
            do {
                try part.hand(isLast: isLast, endLSN: endLSN, marks: marks.waiting) { try sink.append($0) }
                marks.said()
                break
            } catch let stall as StorageStall {
                try whileStalled(stall)
            }
        }
        let isOpen = part.isOpen
        assert(isOpen != isLast, "the last part, and no other, closes the transaction")
        if !isLast { try betweenParts() }
    }

    private static func retrying(
        _ whileStalled: (StorageStall) throws -> Void, _ body: () throws -> Void
    ) throws {
        while true {
            do { return try body() } catch let stall as StorageStall { try whileStalled(stall) }
        }
    }

    // MARK: Checks of the server's messages

    private func expectOutside(_ what: StaticString) throws(Refusal) {
        guard !part.isOpen, streamedBlock == nil else { throw .unexpected(what) }
    }

    /// Checks that a commit record ends after its beginning. The sink relies on this, because its position must never
    /// move back.
    private static func expectOrder(_ commitLSN: LSN, _ endLSN: LSN) throws(Refusal) {
        guard endLSN > commitLSN else { throw .unexpected("a commit that ends where it begins, or before") }
    }

    // MARK: Messages

    private mutating func message(
        _ isTransactional: Bool, _ lsn: LSN, _ prefix: RawSpan, _ content: RawSpan, _ xid: UInt32?,
        _ sink: some TransactionSink, _ whileStalled: (StorageStall) throws -> Void
    ) throws {
        if !isTransactional {
            return try messageAlone(lsn, prefix, content, sink, whileStalled)
        }
        if CatalogMarks.isOfDefinitions(prefix) { marks.add(0, inStream: xid == nil ? nil : streamedBlock?.xid) }
        if let xid {
            guard let block = streamedBlock else { throw Refusal.unexpected("a streamed message outside a block") }
            spool.add(to: block, subtransaction: xid, newKey: 0, oldKey: 0) { writer in
                TransactionCodec.append(
                    .message, relation: 0, oldImage: .none, old: prefix, new: content, options: 1, to: &writer)
            }
            return try flushIfFull(block, whileStalled)
        }
        guard part.isOpen else { throw Refusal.unexpected("a transactional message outside a transaction") }
        if isSkipping { return }
        try makeRoom(sink, whileStalled)
        tally.count(.message)
        part.addMessage(isTransactional: true, prefix: prefix, content: content)
    }

    /// Stores a message that is outside of transactions. Its position is the end of its WAL record.
    private mutating func messageAlone(
        _ lsn: LSN, _ prefix: RawSpan, _ content: RawSpan, _ sink: some TransactionSink,
        _ whileStalled: (StorageStall) throws -> Void
    ) throws {
        try expectOutside("a message of its own inside a transaction")
        if lsn <= sink.position { return }
        part.begin(TransactionInfo(xid: 0, commitLSN: lsn, endLSN: lsn, commitTime: now()))
        part.addMessage(isTransactional: false, prefix: prefix, content: content)
        tally.count(.message)
        try finish(lsn, sink, whileStalled)
    }

    // MARK: Transactions streamed while they run

    private mutating func beginBlock(_ xid: UInt32, _ isFirst: Bool) throws {
        try expectOutside("a streamed block inside a transaction")
        // If the first block were missing, the transaction would be stored without its first changes.
        guard isFirst == (spool.transaction(xid) == nil) else {
            throw Refusal.unexpected("the first block of a transaction in another place than the first")
        }
        streamedBlock = try spool.begin(xid)
        assert(streamedBlock?.xid == xid, "a block belongs to its own transaction")
    }

    private mutating func spoolChange(
        _ operation: Operation, _ oid: UInt32, _ oldImage: OldImage, _ old: RawSpan, _ new: RawSpan,
        _ subtransaction: UInt32, _ options: UInt8, _ whileStalled: (StorageStall) throws -> Void
    ) throws {
        guard let block = streamedBlock else { throw Refusal.unexpected("a streamed change outside a block") }
        let isOpen = part.isOpen
        assert(!isOpen, "no other transaction is open inside a streamed block")
        let schema = try schemas.schema(oid, inStream: block.xid)
        try Self.checkWidth(schema.rows, old, new)
        block.uses(schema)
        let newKey = schema.rows.newKey(operation, new)
        let oldKey = schema.rows.oldKey(old)
        spool.add(to: block, subtransaction: subtransaction, newKey: newKey, oldKey: oldKey) { writer in
            TransactionCodec.append(
                operation, relation: schema.fingerprint, oldImage: oldImage, old: old, new: new, options: options,
                to: &writer)
        }
        try flushIfFull(block, whileStalled)
    }

    private mutating func flushIfFull(
        _ block: SpooledTransaction, _ whileStalled: (StorageStall) throws -> Void
    ) throws {
        if spool.isFull { try flush(block, whileStalled) }
    }

    private mutating func flush(_ block: SpooledTransaction, _ whileStalled: (StorageStall) throws -> Void) throws {
        try Self.retrying(whileStalled) { try spool.flush(block) }
    }

    private mutating func endBlock(_ whileStalled: (StorageStall) throws -> Void) throws {
        guard let block = streamedBlock else { throw Refusal.unexpected("the end of a block that never began") }
        try flush(block, whileStalled)
        streamedBlock = nil
    }

    private mutating func abortStreamed(_ xid: UInt32, _ subtransaction: UInt32) throws {
        try expectOutside("a rollback inside a transaction")
        guard xid == subtransaction else {
            spool.transaction(xid)?.abort(subtransaction)
            return
        }
        schemas.streamAborted(xid)
        marks.streamEnded(xid)
        try spool.end(xid)
    }

    private mutating func commitStreamed(
        _ info: TransactionInfo, _ sink: some TransactionSink, _ whileStalled: (StorageStall) throws -> Void
    ) throws {
        try expectOutside("a streamed commit inside a transaction")
        guard let transaction = spool.transaction(info.xid) else {
            throw Refusal.unexpected("the commit of a transaction that was not streamed")
        }
        try Self.expectOrder(info.commitLSN, info.endLSN)
        schemas.streamCommitted(info.xid)
        marks.streamEnded(info.xid)
        if info.commitLSN < sink.position {
            metrics.transactionsSkipped.add()
        } else {
            try store(transaction, info, sink, whileStalled)
        }
        try spool.end(info.xid)
        let isLeft = spool.transaction(info.xid) != nil
        assert(!isLeft, "a committed transaction leaves nothing in the spool")
    }

    private mutating func store(
        _ transaction: SpooledTransaction, _ info: TransactionInfo, _ sink: some TransactionSink,
        _ whileStalled: (StorageStall) throws -> Void
    ) throws {
        part.begin(info)
        part.setOrigin(transaction.origin)
        try transaction.replay { change, schema, newKey, oldKey in
            try makeRoom(sink, whileStalled)
            tally.count(stored: change)
            part.addStored(change, schema, newKey: newKey, oldKey: oldKey)
        }
        try finish(info.endLSN, sink, whileStalled)
    }
}

/// Counter of changes by kind. Its numbers are added to the metrics once for each transaction.
struct ChangeTally {
    private var inserts: UInt64 = 0
    private var updates: UInt64 = 0
    private var deletes: UInt64 = 0
    private var truncates: UInt64 = 0
    private var messages: UInt64 = 0

    mutating func count(_ operation: Operation) {
        switch operation {
        case .insert: inserts += 1
        case .update: updates += 1
        case .delete: deletes += 1
        case .truncate: truncates += 1
        case .message: messages += 1
        }
    }

    mutating func count(stored change: RawSpan) {
        if let operation = Operation(rawValue: change.byte(4)) { count(operation) }
    }

    mutating func publish(in family: CounterFamily<ProjectMetrics.Operation>) {
        if inserts > 0 { family[.insert].add(inserts) }
        if updates > 0 { family[.update].add(updates) }
        if deletes > 0 { family[.delete].add(deletes) }
        if truncates > 0 { family[.truncate].add(truncates) }
        if messages > 0 { family[.message].add(messages) }
        self = ChangeTally()
    }
}
