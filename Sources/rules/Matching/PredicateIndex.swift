import Bytes
import Change
import Policy

/// Finds the subscriptions that want a change.
///
/// In: the predicates of subscriptions, and one change after the other. Out: the subscriptions that want it, grouped
/// into nodes that wanted the same. What a change costs grows with what it matches, not with what is subscribed.
///
/// It belongs to one thread, and shares nothing.
public struct PredicateIndex: ~Copyable {
    /// A member of a node, to be removed by.
    public struct Handle: Sendable, Hashable, BitwiseCopyable {
        let number: UInt32
    }

    /// The reason why the index stopped reading.
    public enum Outcome: Sendable, Hashable {
        /// The changes were judged; none of them when the part has no more.
        case judged
        /// The schema that the next change's row had was not told: `noteRelation`, and go on.
        case unknownRelation(UInt64)
    }

    /// The image of a row that is judged.
    public enum Judged: Sendable, Hashable {
        /// The row as it is afterwards.
        case new
        /// The row as it was. Of an update that does not say, nothing is known: who has to try it is asked, and nobody
        /// else is met. An insert meets nobody.
        case old
        /// The known part of the row as it was, though it be the columns of its identity alone: an update that does not
        /// say left those as they were. An insert meets nobody.
        case oldAsKnown
    }

    /// The value of `now()` for the rows that are judged next: microseconds since 2000-01-01 in UTC.
    public var moment: Int64?
    var store: NodeStore
    private let judged: Judged
    private var relations: RelationBook
    private var reader = ImageReader()
    private var batch = Batch()
    private var tables: [UInt32: UInt32] = [:]

    /// `maximumRelations`: how many schemas are remembered before all are forgotten and asked for again.
    public init(
        judging judged: Judged = .new, maximumRelations: Int, allowance: Allowance = .unlimited,
        seed: UInt64 = .random(in: .min ... .max)
    ) {
        self.judged = judged
        relations = RelationBook(limit: maximumRelations)
        store = NodeStore(seed: seed, allowance)
    }

    /// The number of subscriptions.
    public var count: Int { store.memberCount }

    // MARK: Tables and relations

    /// The columns of a table, by slot. A table that is declared again is another one: what was subscribed to the old
    /// one matches nothing any more, and is still to be removed.
    public mutating func declare(table oid: UInt32, columns: [String]) {
        forget(table: oid)
        precondition(columns.count < UInt16.max, "more columns than a slot can number")
        tables[oid] = store.addTable(oid: oid, columns: columns)
    }

    /// Forgets a table, without a successor.
    public mutating func forget(table oid: UInt32) {
        if let old = tables.removeValue(forKey: oid) { store.retire(old) }
        relations.remove(table: oid)
    }

    public func isDeclared(table oid: UInt32) -> Bool { tables[oid] != nil }

    /// The schema that changes with this fingerprint had. `foreign` are the places of columns that had another type then than
    /// predicates are made for: their values are not looked at.
    public mutating func noteRelation(_ fingerprint: UInt64, _ relation: Relation, foreign: Set<Int> = []) {
        let table = tables[relation.oid]
        let slots = table.map { store.tables[Int($0)].slots } ?? [:]
        relations.insert(
            fingerprint, RelationMap(table: table, relation: relation, slots: slots, foreign: foreign))
    }

    /// Forgets all relations, whose columns are described again.
    public mutating func forgetRelations() { relations.removeAll() }

    // MARK: Subscriptions

    /// `member` is the caller's number for the subscription. The table must be declared, and the predicate made for its
    /// columns as they were declared. `account`: whose the subscription is, where somebody has to answer for what it takes to
    /// try it.
    public mutating func add(
        table oid: UInt32, operations: OperationSet, predicate: Predicate, member: UInt32, account: UInt32? = nil
    ) -> Handle {
        guard let table = tables[oid] else { preconditionFailure("a table is declared before it is subscribed to") }
        let wish = Wish(table: table, operations: operations, predicate: predicate)
        return Handle(number: store.add(member, wish, account: account ?? .none))
    }

    public mutating func remove(_ handle: Handle) { store.remove(handle.number) }

    /// Whether the index is whole: for tests.
    func checkInvariants() { store.checkInvariants() }

    // MARK: Who takes how much

    /// Time has gone by: nanoseconds of any clock.
    public mutating func fillPurse(_ now: UInt64) { store.ledger.fill(now) }

    /// The accounts that were stopped since this was asked last.
    public mutating func takeStopped() -> [UInt32] { store.ledger.takeStopped() }

    // MARK: Matches

    /// Judges some of the part's next changes and passes over them. A part whose bytes are wrong is refused; then
    /// nothing that was matched of these changes counts.
    ///
    /// What an image lacks is not known, so whoever looks at it has to be asked. With `leavingPartial` changes of which that
    /// is so are left to be completed first, and meet nobody.
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

    /// Reads changes until there are enough.
    @_lifetime(part: copy part)
    private mutating func gather(
        _ part: inout TransactionPart, _ leavingPartial: Bool
    ) throws(ByteError) -> Outcome {
        while !batch.isFull {
            let mark = part.mark
            guard let change = try part.next() else { break }
            var subject = Subject()
            subject.operation = OperationSet(change.operation)
            // Of what was forgotten nothing is known, and nobody can be asked: who wants to know of that looks for it himself.
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

    /// Adds what the changes met, in their order. Rows are read again where a predicate has to see them: what they were
    /// looked up by does not show it.
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
                    subject, first..<lookup, change, judged, moment, relations, &store, &reader, batch, &matches)
            } else if subject.table != .none {
                store.addSettled(subject, first..<lookup, of: batch, into: &matches)
            }
            matches.endChange(isLeft: subject.isLeft)
        }
        precondition(lookup == batch.lookups.count, "a lookup of no change")
    }

    private static func judge(
        _ subject: Subject, _ lookups: Range<Int>, _ change: borrowing Change, _ judged: Judged, _ moment: Int64?,
        _ relations: borrowing RelationBook, _ store: inout NodeStore, _ reader: inout ImageReader,
        _ batch: borrowing Batch, _ matches: inout MatchBatch
    ) throws(ByteError) {
        try reader.read(judged, change, relations.maps[Int(subject.relation)], store.tables[Int(subject.table)].use)
        let image = RowImage(bytes: change.images, places: reader.places.span, moment: moment)
        store.addAll(subject, lookups, of: batch, image, into: &matches)
        if subject.isPartial { store.addUnreachable(subject, image, into: &matches) }
    }

    /// The members of one of the nodes of a batch.
    @inlinable
    @_lifetime(borrow self, copy nodes)
    public func members(of nodes: Span<MatchedNode>, at index: Int) -> Span<UInt32> {
        let node = nodes[index]
        return node.soleMember == .max ? members(of: node) : Self.soleMember(of: nodes.extracting(index...index))
    }

    @usableFromInline
    @_lifetime(borrow self)
    func members(of node: MatchedNode) -> Span<UInt32> { store.members(of: node.number) }

    /// The member's own place in the batch, as a span of one.
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

    /// The values of some of a change's columns, as predicates see them. Columns that no predicate looks at are absent.
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

    /// The verdict of a predicate on the row as it was before a change: `.ask` where the change does not hold all of it.
    /// The predicate's columns are such as some node of the table looks at.
    public mutating func verdict(
        of predicate: Predicate, onOldImageOf change: borrowing Change
    ) throws(ByteError) -> Verdict {
        guard change.oldImage == .full else { return predicate.isAlways ? .yes : .ask }
        return try verdict(of: predicate, on: change, .old)
    }

    /// The verdict of a predicate on what is known of the row as it was, though it be its key alone: `.ask` where that
    /// does not decide.
    public mutating func verdict(
        of predicate: Predicate, onKnownOldImageOf change: borrowing Change
    ) throws(ByteError) -> Verdict {
        try verdict(of: predicate, on: change, .oldAsKnown)
    }

    /// The verdict of a predicate on the row that is judged: as it is after an insert or update, as it was before a
    /// delete.
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
        return try Self.verdict(of: predicate, on: change, judged, moment, relations, relation, store, table, &reader)
    }

    /// The verdict of the filter of a node's predicate, by itself, on the row that the index judges.
    public mutating func filterVerdict(of node: MatchedNode, on change: borrowing Change) throws(ByteError) -> Verdict {
        guard let relation = relations.find(change.relation), let table = relations.maps[Int(relation)].table,
            let predicate = store.predicate(of: node.number)
        else { return .ask }
        Self.plan(&relations.maps[Int(relation)], table, store)
        return try Self.filterVerdict(
            of: predicate, on: change, judged, moment, relations, relation, store, table, &reader)
    }

    private static func filterVerdict(
        of predicate: Predicate, on change: borrowing Change, _ judged: Judged, _ moment: Int64?,
        _ relations: borrowing RelationBook, _ relation: UInt32, _ store: borrowing NodeStore, _ table: UInt32,
        _ reader: inout ImageReader
    ) throws(ByteError) -> Verdict {
        try reader.read(judged, change, relations.maps[Int(relation)], store.tables[Int(table)].use)
        return predicate.filterVerdict(
            on: RowImage(bytes: change.images, places: reader.places.span, moment: moment))
    }

    private static func verdict(
        of predicate: Predicate, on change: borrowing Change, _ judged: Judged, _ moment: Int64?,
        _ relations: borrowing RelationBook, _ relation: UInt32, _ store: borrowing NodeStore, _ table: UInt32,
        _ reader: inout ImageReader
    ) throws(ByteError) -> Verdict {
        for slot in predicate.slots where !store.tables[Int(table)].use.isUsed(slot) { return .ask }
        try reader.read(judged, change, relations.maps[Int(relation)], store.tables[Int(table)].use)
        let image = RowImage(bytes: change.images, places: reader.places.span, moment: moment)
        return predicate.verdict(on: image)
    }

    /// The question for PostgreSQL where a node's filter could not be decided.
    public func question(of node: MatchedNode) -> Question? { store.question(of: node.number) }

    /// True if the node's members have a filter.
    public func hasFilter(_ node: MatchedNode) -> Bool { store.predicate(of: node.number)?.hasFilter ?? true }

}
