import Bytes
import Catalog
import Diagnostics
import Matching
import Policy
import Protocol

/// Request to place a binding in the indexes, so that changes of its table find it.
public struct PlacementRequest {
    let binding: TableBinding
    /// Policy that limits the rows that the holder may see; nil if only privileges limit them.
    let policy: ActivePolicy?
    let listener: UInt32
    /// Index of the binding among its channel's bindings.
    let place: Int
    let wantsMoves: Bool
    /// True if the channel gets the existing rows of the binding's table before changes.
    let beginsWithRows: Bool
    /// Role with which PostgreSQL computes the table's generated columns for this binding.
    let role: String
    /// Account to which the work of the binding's filter is charged.
    let account: UInt32

    public init(
        _ binding: TableBinding, _ policy: ActivePolicy?, of listener: UInt32, at place: Int, wantsMoves: Bool,
        beginsWithRows: Bool = false, as role: String, account: UInt32
    ) {
        self.binding = binding
        self.policy = policy
        self.listener = listener
        self.place = place
        self.wantsMoves = wantsMoves
        self.beginsWithRows = beginsWithRows
        self.role = role
        self.account = account
    }
}

/// Binding that was placed in the indexes, so that changes of its table find it.
public struct Placement {
    /// Binding, normally without its filter, which the index holds. The filter is kept if the binding may be placed
    /// again.
    public fileprivate(set) var binding: TableBinding
    public let policy: ActivePolicy?
    /// Number of the table's declaration in the index at the time when the binding was placed. A later declaration has
    /// another number and makes the placement useless.
    fileprivate let declaration: UInt64
    fileprivate let account: UInt32
    fileprivate let wantsMoves: Bool
    fileprivate let member: UInt32
    fileprivate let view: UInt32
    fileprivate var handle: PredicateIndex.Handle?
    /// Handle of the binding in the index for updates that move rows out of a view; nil if the client did not ask for
    /// these.
    fileprivate var departure: PredicateIndex.Handle?
    /// Placement for deletes that the hub sends to every client that asked for deletes; nil if there is none.
    fileprivate var openDeletes: OpenDeletes?
    /// True if the hub looks for the whole old row of changes that contain only its key.
    fileprivate var isRecalled = false
    /// True if the hub also looks for old rows: to find updates that move rows out of the client's view, or because the
    /// filter reads the row before the change.
    fileprivate var recallsOldRows = false
    /// True if the filter in the index reads the row before the change.
    fileprivate var readsOldRow = false
    /// Role with which PostgreSQL computes the table's generated columns for this binding; nil if the table has none.
    fileprivate var computedAs: String?
}

/// Placement of a binding for deletes that the hub sends to every client that asked for deletes.
private struct OpenDeletes {
    let member: UInt32
    let view: UInt32
    let handle: PredicateIndex.Handle
}

// MARK: Placing

extension Pipeline {
    public mutating func place(_ request: PlacementRequest) -> Placement {
        let table = request.binding.table
        let declaration = schemas.declare(table, &router)
        if !table.computed.isEmpty { values.watch(table.oid, as: request.role) }
        return router.place(request, declaration, schemas)
    }

    /// Offset before which all decisions about changes are final. Changes that wait for answers, and the ones after
    /// them, may still be decided differently.
    public var judgedUpTo: UInt64 { min(frontier, router.firstHeld ?? frontier) }

    /// True if no change before the pipeline's frontier was meant for the listener: its offset is at or after the
    /// frontier.
    public func hasMissedNothing(_ listener: UInt32) -> Bool { router.since(listener).map { $0 >= frontier } ?? false }

    /// True if the placement is still valid in the index and serves this binding and policy too.
    public func stands(_ placement: Placement, as binding: TableBinding, _ policy: ActivePolicy?) -> Bool {
        placement.policy === policy && placement.binding.isSame(as: binding)
            && schemas.holds(placement.declaration, of: binding.table)
    }

    /// Places the binding again with its policy's new predicate, after the policy's membership keys changed. If the
    /// table's columns have changed, does nothing: the caller replaces such a placement before it reads on.
    public mutating func judgeAnew(_ placement: inout Placement) { router.judgeAnew(&placement, schemas) }

    public mutating func remove(_ placement: Placement) {
        if let role = placement.computedAs { values.leave(placement.binding.table.oid, as: role) }
        router.remove(placement)
    }
}

extension ChangeRouter {
    fileprivate mutating func place(
        _ request: PlacementRequest, _ declaration: UInt64, _ schemas: SchemaRegistry
    ) -> Placement {
        let placement = bindings.place(request, declaration, schemas)
        recall.watch(for: placement)
        return placement
    }

    fileprivate mutating func judgeAnew(_ placement: inout Placement, _ schemas: SchemaRegistry) {
        recall.leave(for: placement)
        bindings.judgeAnew(&placement, schemas)
        recall.watch(for: placement)
    }

    fileprivate mutating func remove(_ placement: Placement) {
        recall.leave(for: placement)
        bindings.remove(placement)
    }
}

extension RowRecall {
    fileprivate mutating func watch(for placement: Placement) {
        let table = placement.binding.table.oid
        if placement.isRecalled { watch(table) }
        if placement.recallsOldRows { watchOldRows(table) }
    }

    fileprivate mutating func leave(for placement: Placement) {
        let table = placement.binding.table.oid
        if placement.isRecalled { leave(table) }
        if placement.recallsOldRows { leaveOldRows(table) }
    }
}

/// Changes to the indexes when bindings are placed and removed.
extension PlacedBindings {
    fileprivate mutating func place(
        _ request: PlacementRequest, _ declaration: UInt64, _ schemas: SchemaRegistry
    ) -> Placement {
        let (binding, policy) = (request.binding, request.policy)
        precondition(request.place < BindingSet.bitWidth, "a binding has a place in its channel's set")
        precondition(policy.map { $0.binding.table == binding.table.oid } ?? true, "a policy is its own table's")
        let view = views.take(binding.viewKey)
        // A holder that may see every row may see every old row.
        let judged = policy.flatMap { $0.predicate == .always ? nil : $0.number }
        let member = audience.add(
            Member(
                listener: request.listener, view: view, policy: judged ?? Member.noPolicy,
                binding: UInt8(request.place), beginsWithRows: request.beginsWithRows))
        var placement = Placement(
            binding: binding, policy: policy, declaration: declaration, account: request.account,
            wantsMoves: request.wantsMoves, member: member, view: view)
        if !binding.table.computed.isEmpty { placement.computedAs = request.role }
        enlist(&placement, schemas)
        // The index has the filter, and there can be as many filters as clients. A second copy is kept only if a
        // changed policy may place the binding again.
        if policy == nil { placement.binding.predicate = nil }
        if policy != nil, !binding.isKeptSecret, !deletesAreStrict, binding.operations.contains(.delete) {
            placement.openDeletes = placeOpenDeletes(request)
        }
        return placement
    }

    fileprivate mutating func judgeAnew(_ placement: inout Placement, _ schemas: SchemaRegistry) {
        guard let policy = placement.policy, schemas.holds(placement.declaration, of: placement.binding.table) else {
            return
        }
        delist(placement)
        audience.judge(placement.member, by: policy.predicate == .always ? Member.noPolicy : policy.number)
        placement.departure = nil
        placement.isRecalled = false
        placement.recallsOldRows = false
        placement.readsOldRow = false
        enlist(&placement, schemas)
    }

    fileprivate mutating func remove(_ placement: Placement) {
        delist(placement)
        audience.removeMember(placement.member)
        views.release(placement.view)
        guard let open = placement.openDeletes else { return }
        needs?.remove(open.member)
        index.remove(open.handle)
        audience.removeMember(open.member)
        views.release(open.view)
    }

    /// Adds the placed binding to the indexes.
    private mutating func enlist(_ placement: inout Placement, _ schemas: SchemaRegistry) {
        let binding = placement.binding
        var operations = OperationSet(binding.operations)
        // As in the reference server, every client that asked for deletes gets all of them.
        if placement.policy != nil, !deletesAreStrict { operations.remove(.delete) }
        let filter = binding.predicate ?? .always
        var predicate = placement.policy.map { Predicate.both(filter, $0.predicate ?? .never) } ?? filter
        if binding.isKeptSecret { predicate = .never }
        // A predicate refers to columns by their indices in the table for which it was made.
        if !schemas.holds(placement.declaration, of: binding.table) {
            Impossible.happened("a binding is placed in the index of its own table", in: .delivery)
            predicate = .never
        }
        needs?.add(placement.member, binding.table, predicate)
        placement.handle = index.add(
            table: binding.table.oid, operations: operations, predicate: predicate, member: placement.member,
            account: placement.account)
        if let policy = placement.policy, policy.predicate != .always, deletesAreStrict,
            !operations.isDisjoint(with: [.update, .delete]), binding.access == .readable, binding.table.isRecallable
        {
            placement.isRecalled = true
        }
        if placement.wantsMoves, binding.hearsOfMoves { enlistDepartures(&placement, predicate) }
        if predicate.readsOldRow {
            placement.readsOldRow = true
            oldRowReaders += 1
            // The present replica identity does not matter: changes not yet read may have been made under another.
            if operations.contains(.update), binding.table.isRecallable { placement.recallsOldRows = true }
        }
    }

    private mutating func enlistDepartures(_ placement: inout Placement, _ predicate: Predicate) {
        let table = placement.binding.table
        placement.departure = leavingRows.add(
            table: table.oid, operations: .update, predicate: predicate, member: placement.member,
            account: placement.account)
        // The present replica identity does not matter: changes not yet read may have been made under another.
        placement.recallsOldRows = table.isRecallable
    }

    private mutating func delist(_ placement: Placement) {
        assert(placement.handle != nil, "what is taken out was put in")
        if placement.readsOldRow {
            assert(oldRowReaders > 0, "what is taken out was put in")
            oldRowReaders -= 1
        }
        needs?.remove(placement.member)
        if let handle = placement.handle { index.remove(handle) }
        if let departure = placement.departure { leavingRows.remove(departure) }
    }

    private mutating func placeOpenDeletes(_ request: PlacementRequest) -> OpenDeletes {
        let binding = request.binding
        let view = views.take(ViewKey(table: binding.table, delivered: binding.delivered, shape: .maskedDeletes))
        let member = audience.add(
            Member(
                listener: request.listener, view: view, binding: UInt8(request.place),
                beginsWithRows: request.beginsWithRows))
        let predicate = binding.predicate ?? .always
        needs?.add(member, binding.table, predicate)
        let handle = index.add(
            table: binding.table.oid, operations: .delete, predicate: predicate, member: member,
            account: request.account)
        return OpenDeletes(member: member, view: view, handle: handle)
    }
}

// MARK: Policies

extension ChangeRouter {
    /// Adds a policy for a holder. `sets` are the membership sets that the policy reads; PostgreSQL may not have filled
    /// them yet.
    public mutating func hold(
        _ policy: PolicyBinding, _ residual: Residual, of table: CatalogTable, _ holder: Holder, _ sets: [MembershipSet]
    ) -> ActivePolicy {
        assert(residual.memberships.count == sets.count, "each membership has its set")
        let number = bindings.policies.add(PolicyEntry(.never, policy, of: table, holder.subject))
        if policy.rowPolicy.isSteady { bindings.policies.sampling.add(number, of: policy.table) }
        let held = ActivePolicy(policy, residual, sets, number: number)
        for set in sets { set.use(by: held) }
        return held
    }

    public mutating func replace(_ predicate: Predicate, of held: ActivePolicy) {
        bindings.policies.replace(predicate, of: held.number)
    }

    fileprivate mutating func letGo(of held: ActivePolicy) {
        bindings.policies.sampling.remove(held.number, of: held.binding.table)
        bindings.policies.remove(held.number)
    }
}

extension Pipeline {
    public mutating func letGo(of held: ActivePolicy) {
        assert(held.isRetired && held.places.isEmpty, "a policy goes with its last binding")
        for set in held.sets {
            set.letGo(of: held)
            memberships.release(set)
        }
        router.letGo(of: held)
    }
}

extension TableBinding {
    /// True if the binding's entry in the index also serves the other binding.
    ///
    /// Filters are not compared: a channel's binding keeps its filter, which means the same on the same table.
    func isSame(as other: TableBinding) -> Bool {
        table === other.table && delivered == other.delivered
            && operations == other.operations && access == other.access && policy == other.policy
    }

    /// True if the client can receive departures. The hub sends them as deletes, so the binding must include updates
    /// and deletes. A filter on what changed selects events: rows do not enter or leave it.
    public var hearsOfMoves: Bool {
        operations.isSuperset(of: [.update, .delete]) && access == .readable && !readsOldRow
    }

    fileprivate var viewKey: ViewKey {
        let shape: ViewKey.Shape =
            switch access {
            case .readable: .rows
            case .unauthorized: .refused(.unauthorized)
            case .noPrimaryKey: .refused(.noPrimaryKey)
            }
        return ViewKey(table: table, delivered: delivered, shape: shape)
    }
}

extension OperationSet {
    fileprivate init(_ operations: RowOperations) { self.init(rawValue: operations.rawValue) }
}

// MARK: States that the gateway reads

/// State of the pipeline's parts. Each property reads one field, because reading a whole part from another module would
/// copy it.
extension Pipeline {
    /// True if a rule of the program was broken, so that the pipeline delivers nothing more.
    public var hasFailed: Bool { wait.hasFailed }
    public var isHeldByPolicies: Bool { wait.isHeldByPolicies }
    public var isHeldByTables: Bool { wait.isHeldByTables }
    /// True if a delivery to some listener waits for PostgreSQL.
    public var holdsAnybody: Bool { router.holdsAnybody }
    /// Number of changes whose recipients were recorded since the last `takeSent`.
    public var sentCount: Int { router.sentCount }

    /// Returns the index of the listener's channel among the loop's channels.
    public func channel(of listener: UInt32) -> UInt32? { router.channel(of: listener) }
    public func isHeld(_ listener: UInt32) -> Bool { router.isHeld(listener) }
    public func firstHeld(_ listener: UInt32) -> UInt64? { router.firstHeld(listener) }
    public func toldAt(_ listener: UInt32) -> UInt64? { router.toldAt(listener) }
    public func share(_ listener: UInt32) -> FeedShare? { router.share(listener) }
}
