import Bytes
import Change
import Policy

/// Index that finds the subscriptions that want a change.
///
/// The caller adds subscriptions with their predicates, and passes changes. The index returns the matching
/// subscriptions, grouped into nodes whose subscriptions want the same. The cost of a change depends on how many nodes
/// it matches, not on the number of subscriptions.
///
/// One thread owns an index and shares nothing of it.
public struct PredicateIndex: ~Copyable {
    /// Handle with which the caller removes a subscription.
    public struct Handle: Sendable, Hashable, BitwiseCopyable {
        let number: UInt32
    }

    /// Reason why the index stopped reading changes.
    public enum Outcome: Sendable, Hashable {
        /// The batch's changes were matched. If the batch is empty, the transaction part has no further changes.
        case judged
        /// The index does not know the schema of the next change. The caller adds it with `noteRelation` and calls
        /// again.
        case unknownRelation(UInt64)
    }

    /// Version of a changed row that the index evaluates.
    public enum Judged: Sendable, Hashable {
        /// The row after the change, or the deleted row.
        case new
        /// The row before the change. If an update does not contain it, PostgreSQL must decide every predicate that has
        /// to be evaluated, and no other node matches. An insert matches nothing.
        case old
        /// The row before the change, as far as the change contains it. That may be only the identity's columns. If an
        /// update does not contain their old values, they did not change. An insert matches nothing.
        case oldAsKnown
    }

    /// Value of `now()` for evaluating predicates, in microseconds since 2000-01-01 UTC.
    public var moment: Int64?
    /// Time of the commit of the changes that are evaluated, in microseconds since 2000-01-01 UTC.
    public var committed: Int64?
    var store: NodeStore
    private let judged: Judged
    private var relations: RelationBook
    private var reader = ImageReader()
    private var batch = Batch()
    private var tables: [UInt32: UInt32] = [:]

    /// Creates an index. When it knows `maximumRelations` schemas, it discards all of them and asks for them again.
    public init(
        judging judged: Judged = .new, maximumRelations: Int, allowance: Allowance = .unlimited,
        seed: UInt64 = .random(in: .min ... .max)
    ) {
        self.judged = judged
        relations = RelationBook(limit: maximumRelations)
        store = NodeStore(seed: seed, allowance)
    }

    /// Number of subscriptions.
    public var count: Int { store.memberCount }

    // MARK: Tables and relations

    /// Sets the columns of a table. Predicates refer to a column by its slot, which is its index in `columns`. A second
    /// call for the same table replaces the first. Subscriptions of the replaced table match nothing any more, but the
    /// caller must still remove them.
    public mutating func declare(table oid: UInt32, columns: [String]) {
        forget(table: oid)
        precondition(2 * columns.count < UInt16.max, "more columns than a slot can number")
        tables[oid] = store.addTable(oid: oid, columns: columns)
    }

    /// Removes a table without replacing it. Its subscriptions match nothing any more.
    public mutating func forget(table oid: UInt32) {
        if let old = tables.removeValue(forKey: oid) { store.retire(old) }
        relations.remove(table: oid)
    }

    public func isDeclared(table oid: UInt32) -> Bool { tables[oid] != nil }

    /// Adds the schema that has this fingerprint. `foreign` has the indices of columns whose type differs from the type
    /// for which predicates are made; their values are not read.
    public mutating func noteRelation(_ fingerprint: UInt64, _ relation: Relation, foreign: Set<Int> = []) {
        let table = tables[relation.oid]
        let slots = table.map { store.tables[Int($0)].slots } ?? [:]
        relations.insert(
            fingerprint, RelationMap(table: table, relation: relation, slots: slots, foreign: foreign))
    }

    /// Discards all schemas, so that the index asks for them again.
    public mutating func forgetRelations() { relations.removeAll() }

    // MARK: Subscriptions

    /// Adds a subscription. `member` is the caller's number for it. The table must be declared, and the predicate must
    /// be made for the declared columns. If `account` is given, it is charged for evaluating the predicate.
    public mutating func add(
        table oid: UInt32, operations: OperationSet, predicate: Predicate, member: UInt32, account: UInt32? = nil
    ) -> Handle {
        guard let table = tables[oid] else { preconditionFailure("a table is declared before it is subscribed to") }
        let columnCount = store.tables[Int(table)].use.columnCount
        precondition(
            predicate.oldRowStart.map { $0 == columnCount && judged == .new } ?? true,
            "a filter on what changed is of its own table, and reads the row after the change too")
        let wish = Wish(table: table, operations: operations, predicate: predicate)
        return Handle(number: store.add(member, wish, account: account ?? .none))
    }

    public mutating func remove(_ handle: Handle) { store.remove(handle.number) }

    /// Checks that the index is consistent. Tests use it.
    func checkInvariants() { store.checkInvariants() }

    // MARK: Allowance for filters

    /// Refills the reserve of work for filters. `now` is in nanoseconds, of any clock.
    public mutating func refillReserve(_ now: UInt64) { store.ledger.fill(now) }

    /// Returns the accounts of which a filter was skipped since the last call.
    public mutating func takeStopped() -> [UInt32] { store.ledger.takeStopped() }

    // MARK: Matches

    /// Matches a batch of the part's next changes and moves past them. Throws if the bytes are malformed; the matches
    /// are then invalid.
    ///
    /// If a row lacks a value, PostgreSQL must decide the predicates that read it. If `leavingPartial` is true, changes
    /// with such a row match nothing instead, and the caller completes them first.
    @_lifetime(part: copy part)
    public mutating func match(
        _ part: inout TransactionPart, into matches: inout MatchBatch, leavingPartial: Bool = false
    ) throws(ByteError) -> Outcome {
        matches.removeAll()
        batch.removeAll()
        let again = part
        let outcome = try gather(&part, leavingPartial)
        store.find(part.bytes, &batch)
        try add(again, to: &matches)
        precondition(matches.changeCount == batch.subjects.count, "what a change met is another one's")
        return outcome
    }

    /// Reads changes into the batch until it is full.
    @_lifetime(part: copy part)
    private mutating func gather(
        _ part: inout TransactionPart, _ leavingPartial: Bool
    ) throws(ByteError) -> Outcome {
        while !batch.isFull {
            let mark = part.mark
            guard let change = try part.next() else { break }
            var subject = Subject()
            subject.operation = OperationSet(change.operation)
            // A row whose values were erased from the log is unknown to everyone. A caller that needs it searches for
            // it.
            if change.isForgotten || judged != .new && change.operation == .insert { subject.operation = [] }
            if !subject.operation.isEmpty {
                guard let relation = relations.find(change.relation) else {
                    part.rewind(to: mark)
                    return .unknownRelation(change.relation)
                }
                subject.relation = relation
                try Self.look(
                    at: change, &subject, &relations.maps[Int(relation)], part.bytes, store, judged, leavingPartial,
                    &reader, &batch)
            }
            batch.subjects.append(subject)
        }
        return .judged
    }

    @inline(__always)
    private static func look(
        at change: borrowing Change, _ subject: inout Subject, _ relation: inout RelationMap, _ bytes: RawSpan,
        _ store: borrowing NodeStore, _ judged: Judged, _ leavingPartial: Bool, _ reader: inout ImageReader,
        _ batch: inout Batch
    ) throws(ByteError) {
        guard let table = relation.table, store.tables[Int(table)].nodeCount > 0 else { return }
        precondition(store.tables[Int(table)].oid == relation.oid, "rows of one table read as another one's")
        subject.table = table
        subject.needsImage = store.isScanned(table)
        relation.plan(store.tables[Int(table)].use)
        if try !reader.read(judged, change, relation, store.tables[Int(table)].use) {
            mark(&subject, leavingPartial)
            if subject.isLeft { return }
        }
        let image = RowImage(bytes: change.images, places: reader.places.span)
        store.note(table, image, of: bytes, change: batch.subjects.count, into: &batch.lookups)
    }

    @inline(never)
    private static func mark(_ subject: inout Subject, _ leavingPartial: Bool) {
        if leavingPartial {
            subject.isLeft = true
            subject.needsImage = false
            subject.table = .none
        } else {
            subject.isPartial = true
            subject.needsImage = true
        }
    }

    /// Adds the nodes that the changes match, in the order of the changes. Lookups do not contain the row, so it is
    /// read again if a predicate must be evaluated.
    private mutating func add(_ part: TransactionPart, to matches: inout MatchBatch) throws(ByteError) {
        var part = part
        var lookup = 0
        for index in 0..<batch.subjects.count {
            let change = try part.next()
            let subject = batch.subjects[index]
            let first = lookup
            while lookup < batch.lookups.count, batch.lookups[lookup].change == index { lookup += 1 }
            if subject.needsImage, let change {
                try Self.judge(
                    subject, first..<lookup, change, judged, moment, committed, relations, &store, &reader, batch,
                    &matches)
            } else if subject.table != .none {
                store.addSettled(subject, first..<lookup, of: batch, into: &matches)
            }
            matches.endChange(isLeft: subject.isLeft)
        }
        precondition(lookup == batch.lookups.count, "a lookup of no change")
    }

    private static func judge(
        _ subject: Subject, _ lookups: Range<Int>, _ change: borrowing Change, _ judged: Judged, _ moment: Int64?,
        _ committed: Int64?,
        _ relations: borrowing RelationBook, _ store: inout NodeStore, _ reader: inout ImageReader,
        _ batch: borrowing Batch, _ matches: inout MatchBatch
    ) throws(ByteError) {
        try reader.read(judged, change, relations.maps[Int(subject.relation)], store.tables[Int(subject.table)].use)
        let image = RowImage(
            bytes: change.images, places: reader.places.span, moment: moment, committed: committed,
            oldRow: .of(change.operation))
        store.addAll(subject, lookups, of: batch, image, into: &matches)
        if subject.isPartial { store.addUnreachable(subject, image, into: &matches) }
    }

    /// Returns the members of one of a batch's nodes.
    @inlinable
    @_lifetime(borrow self, copy nodes)
    public func members(of nodes: Span<MatchedNode>, at index: Int) -> Span<UInt32> {
        let node = nodes[index]
        return node.soleMember == .max ? members(of: node) : Self.soleMember(of: nodes.extracting(index...index))
    }

    @usableFromInline
    @_lifetime(borrow self)
    func members(of node: MatchedNode) -> Span<UInt32> { store.members(of: node.number) }

    /// Returns the only member, which the matched node itself contains, as a span of one.
    @inlinable
    @_lifetime(copy node)
    static func soleMember(of node: Span<MatchedNode>) -> Span<UInt32> {
        // SAFETY: the member is the first field of the only element, which lives for as long as the span does.
        let member = unsafe node.withUnsafeBufferPointer { node in
            unsafe UnsafeRawPointer(node.baseAddress.unsafelyUnwrapped).assumingMemoryBound(to: UInt32.self)
        }
        let span = unsafe Span(_unsafeStart: member, count: 1)
        return unsafe _overrideLifetime(span, copying: node)
    }

    /// Returns the values of some columns in a change, as predicates read them. A column that no predicate reads is
    /// absent.
    public mutating func texts(
        of slots: [Int], in change: borrowing Change, image judged: Judged = .new
    ) throws(ByteError) -> [ColumnText] {
        guard let relation = relations.find(change.relation), let table = relations.maps[Int(relation)].table else {
            return slots.map { _ in .absent }
        }
        Self.plan(&relations.maps[Int(relation)], table, store)
        return try Self.texts(of: slots, in: change, judged, relations, relation, store, table, &reader)
    }

    private static func plan(_ relation: inout RelationMap, _ table: UInt32, _ store: borrowing NodeStore) {
        relation.plan(store.tables[Int(table)].use)
    }

    private static func texts(
        of slots: [Int], in change: borrowing Change, _ judged: Judged, _ relations: borrowing RelationBook,
        _ relation: UInt32, _ store: borrowing NodeStore, _ table: UInt32, _ reader: inout ImageReader
    ) throws(ByteError) -> [ColumnText] {
        try reader.read(judged, change, relations.maps[Int(relation)], store.tables[Int(table)].use)
        let image = RowImage(bytes: change.images, places: reader.places.span)
        var texts: [ColumnText] = []
        for slot in slots {
            texts.append(store.tables[Int(table)].use.isUsed(slot) ? image.value(slot) : .absent)
        }
        return texts
    }

    // MARK: Single predicates

    /// Returns the predicate's verdict on the row before a change. `.ask` if the change does not contain the whole row,
    /// or if no node of the table reads the predicate's columns.
    public mutating func verdict(
        of predicate: Predicate, onOldImageOf change: borrowing Change
    ) throws(ByteError) -> Verdict {
        guard change.oldImage == .full else { return predicate.isAlways ? .yes : .ask }
        return try verdict(of: predicate, on: change, .old)
    }

    /// Returns the predicate's verdict on the known part of the row before a change, which may be only the identity's
    /// columns. `.ask` if that part does not suffice.
    public mutating func verdict(
        of predicate: Predicate, onKnownOldImageOf change: borrowing Change
    ) throws(ByteError) -> Verdict {
        try verdict(of: predicate, on: change, .oldAsKnown)
    }

    /// Returns the predicate's verdict on the row after an insert or update, or on the row before a delete.
    public mutating func verdict(of predicate: Predicate, on change: borrowing Change) throws(ByteError) -> Verdict {
        try verdict(of: predicate, on: change, .new)
    }

    private mutating func verdict(
        of predicate: Predicate, on change: borrowing Change, _ judged: Judged
    ) throws(ByteError) -> Verdict {
        if predicate.isAlways { return .yes }
        guard let relation = relations.find(change.relation), let table = relations.maps[Int(relation)].table else {
            return .ask
        }
        Self.plan(&relations.maps[Int(relation)], table, store)
        return try Self.verdict(
            of: predicate, on: change, judged, moment, committed, relations, relation, store, table, &reader)
    }

    /// Returns the verdict of a node's filter, without its policy, on the row that the index evaluates.
    public mutating func filterVerdict(of node: MatchedNode, on change: borrowing Change) throws(ByteError) -> Verdict {
        guard let relation = relations.find(change.relation), let table = relations.maps[Int(relation)].table,
            let predicate = store.predicate(of: node.number)
        else { return .ask }
        Self.plan(&relations.maps[Int(relation)], table, store)
        return try Self.filterVerdict(
            of: predicate, on: change, judged, moment, committed, relations, relation, store, table, &reader)
    }

    private static func filterVerdict(
        of predicate: Predicate, on change: borrowing Change, _ judged: Judged, _ moment: Int64?, _ committed: Int64?,
        _ relations: borrowing RelationBook, _ relation: UInt32, _ store: borrowing NodeStore, _ table: UInt32,
        _ reader: inout ImageReader
    ) throws(ByteError) -> Verdict {
        try reader.read(judged, change, relations.maps[Int(relation)], store.tables[Int(table)].use)
        return predicate.filterVerdict(
            on: RowImage(
                bytes: change.images, places: reader.places.span, moment: moment, committed: committed,
                oldRow: .of(change.operation)))
    }

    private static func verdict(
        of predicate: Predicate, on change: borrowing Change, _ judged: Judged, _ moment: Int64?, _ committed: Int64?,
        _ relations: borrowing RelationBook, _ relation: UInt32, _ store: borrowing NodeStore, _ table: UInt32,
        _ reader: inout ImageReader
    ) throws(ByteError) -> Verdict {
        for slot in predicate.slots where !store.tables[Int(table)].use.isUsed(slot) { return .ask }
        try reader.read(judged, change, relations.maps[Int(relation)], store.tables[Int(table)].use)
        let image = RowImage(
            bytes: change.images, places: reader.places.span, moment: moment, committed: committed,
            oldRow: .of(change.operation))
        return predicate.verdict(on: image)
    }

    /// Returns the question that PostgreSQL must answer if it alone can decide the node's filter; nil if there is none.
    public func question(of node: MatchedNode) -> Question? { store.question(of: node.number) }

    /// True if the subscriptions of the node have a filter.
    public func hasFilter(_ node: MatchedNode) -> Bool { store.predicate(of: node.number)?.hasFilter ?? true }

}

extension RowImage.OldRow {
    /// Returns what a change with this operation has of the row before it.
    fileprivate static func of(_ operation: Operation) -> RowImage.OldRow {
        switch operation {
        case .update: .known
        case .delete: .deleted
        case .insert, .truncate, .message: .none
        }
    }
}
