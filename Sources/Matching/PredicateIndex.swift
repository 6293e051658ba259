import Bytes
import Change
import Policy

/// Which subscriptions want a change.
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

    /// What became of a change.
    public enum Outcome: Sendable {
        case judged
        /// The schema the row had was not told: `noteRelation`, and again.
        case unknownRelation
    }

    var store: NodeStore
    private var relations: RelationBook
    private var reader = ImageReader()
    private var tables: [UInt32: UInt32] = [:]

    /// `maximumRelations`: how many schemas are remembered before all are forgotten and asked for again.
    public init(maximumRelations: Int, seed: UInt64 = .random(in: .min ... .max)) {
        relations = RelationBook(limit: maximumRelations)
        store = NodeStore(seed: seed)
    }

    /// How many subscriptions there are.
    public var count: Int { store.memberCount }

    // MARK: Tables and relations

    /// The columns of a table, by slot. A table that is declared again is another one: what was subscribed to the old
    /// one matches nothing any more, and is still to be removed.
    public mutating func declare(table oid: UInt32, columns: [String]) {
        forget(table: oid)
        tables[oid] = store.addTable(oid: oid, columns: columns)
    }

    /// The same without a successor.
    public mutating func forget(table oid: UInt32) {
        if let old = tables.removeValue(forKey: oid) { store.retire(old) }
        relations.remove(table: oid)
    }

    public func isDeclared(table oid: UInt32) -> Bool { tables[oid] != nil }

    /// The schema that changes with this fingerprint had.
    public mutating func noteRelation(_ fingerprint: UInt64, _ relation: Relation) {
        let table = tables[relation.oid]
        let slots = table.map { store.tables[Int($0)].slots } ?? [:]
        relations.insert(fingerprint, RelationMap(table: table, relation: relation, slots: slots))
    }

    // MARK: Subscriptions

    /// `member` is the caller's number for the subscription. The table must be declared, and the predicate made for its
    /// columns as they were declared.
    public mutating func add(
        table oid: UInt32, operations: OperationSet, predicate: Predicate, member: UInt32
    ) -> Handle {
        guard let table = tables[oid] else { preconditionFailure("a table is declared before it is subscribed to") }
        return Handle(number: store.add(member, Wish(table: table, operations: operations, predicate: predicate)))
    }

    public mutating func remove(_ handle: Handle) { store.remove(handle.number) }

    // MARK: Matches

    /// Fills the list with what wants the change.
    public mutating func match(
        _ change: borrowing Change, into list: inout MatchList
    ) throws(ByteError) -> Outcome {
        list.removeAll()
        let operation = OperationSet(change.operation)
        guard !operation.isEmpty else { return .judged }
        guard let relation = relations.find(change.relation) else { return .unknownRelation }
        guard let table = relations.maps[Int(relation)].table, store.tables[Int(table)].nodeCount > 0 else {
            return .judged
        }
        try Self.read(change, &relations.maps[Int(relation)], store, table, with: &reader)
        Self.collect(table, operation, change, reader, &store, into: &list)
        return .judged
    }

    @inline(__always)
    private static func read(
        _ change: borrowing Change, _ relation: inout RelationMap, _ store: borrowing NodeStore, _ table: UInt32,
        with reader: inout ImageReader
    ) throws(ByteError) {
        relation.plan(store.tables[Int(table)].use)
        try reader.read(change, relation, store.tables[Int(table)].use)
    }

    @inline(__always)
    private static func collect(
        _ table: UInt32, _ operation: OperationSet, _ change: borrowing Change, _ reader: borrowing ImageReader,
        _ store: inout NodeStore, into list: inout MatchList
    ) {
        let image = RowImage(bytes: change.images, places: reader.places.span)
        store.collect(table, operation, image, into: &list)
    }

    /// Those who share a node.
    @_lifetime(borrow self)
    public func members(of node: MatchedNode) -> Span<UInt32> { store.members(of: node.number) }

    /// What to ask of PostgreSQL where a node's predicate could not be decided.
    public func question(of node: MatchedNode) -> Question? { store.question(of: node.number) }
}
