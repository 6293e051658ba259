import Bytes
import Catalog
import Diagnostics
import Matching
import Policy
import Protocol

/// A binding that is to be found by changes of its table.
public struct PlacementRequest {
    let binding: TableBinding
    /// What its holder may see of the table, where that is not for the privileges alone to say.
    let policy: ActivePolicy?
    let listener: UInt32
    /// Among the listener's bindings.
    let place: Int
    let wantsMoves: Bool
    /// As whom generated columns of the table are computed for it, among others.
    let role: String
    /// Who answers for what its filter takes.
    let account: UInt32

    public init(
        _ binding: TableBinding, _ policy: ActivePolicy?, of listener: UInt32, at place: Int, wantsMoves: Bool,
        as role: String, account: UInt32
    ) {
        self.binding = binding
        self.policy = policy
        self.listener = listener
        self.place = place
        self.wantsMoves = wantsMoves
        self.role = role
        self.account = account
    }
}

/// A binding on a table, where deliveries find it.
public struct Placement {
    /// Without its filter, which the index has, unless it may have to be placed again.
    public fileprivate(set) var binding: TableBinding
    public let policy: ActivePolicy?
    /// As what the table stood in the index then.
    fileprivate let declaration: UInt64
    fileprivate let account: UInt32
    fileprivate let wantsMoves: Bool
    fileprivate let member: UInt32
    fileprivate let view: UInt32
    fileprivate var handle: PredicateIndex.Handle?
    /// Among those who hear of rows that move out of their view.
    fileprivate var departure: PredicateIndex.Handle?
    fileprivate var openDeletes: OpenDeletes?
    /// Changes that name the row that was by its key only are judged on what it was.
    fileprivate var isRecalled = false
    /// … and for who wants to hear of rows that updates take away.
    fileprivate var recallsDepartures = false
    /// The role by which generated columns of the table are computed for it, among others.
    fileprivate var computedAs: String?
}

/// Deletes that are told whoever may have seen the row.
private struct OpenDeletes {
    let member: UInt32
    let view: UInt32
    let handle: PredicateIndex.Handle
}

/// Where bindings are found by changes.
extension Pipeline {
    public mutating func place(_ request: PlacementRequest) -> Placement {
        let (binding, policy) = (request.binding, request.policy)
        precondition(request.place < BindingSet.bitWidth, "a binding has a place in its channel's set")
        precondition(policy.map { $0.binding.table == binding.table.oid } ?? true, "a policy is its own table's")
        let declaration = declare(binding.table)
        let view = router.views.take(binding.viewKey)
        // Who may see every row may see every old one.
        let judged = policy.flatMap { $0.predicate == .always ? nil : $0.number }
        let member = router.audience.add(
            Member(
                listener: request.listener, view: view, policy: judged ?? Member.noPolicy,
                binding: UInt8(request.place)))
        var placement = Placement(
            binding: binding, policy: policy, declaration: declaration, account: request.account,
            wantsMoves: request.wantsMoves, member: member, view: view)
        if !binding.table.computed.isEmpty {
            watchGenerated(binding.table.oid, as: request.role)
            placement.computedAs = request.role
        }
        enlist(&placement)
        // The index has it. Only where a policy changes is it placed again, and there are as many filters as clients.
        if policy == nil { placement.binding.predicate = nil }
        if policy != nil, !binding.isKeptSecret, !deletesAreStrict, binding.operations.contains(.delete) {
            placement.openDeletes = placeOpenDeletes(request)
        }
        return placement
    }

    /// Whether it is found by changes, and as it should be.
    public func stands(_ placement: Placement, as binding: TableBinding, _ policy: ActivePolicy?) -> Bool {
        placement.policy === policy && placement.binding.isSame(as: binding)
            && holds(placement.declaration, of: binding.table)
    }

    /// Its policy is another for the holder: it is found by other keys. Where its table is another by now, for whose columns
    /// it was not made, it stays as it is: it is placed anew before anything is read.
    public mutating func judgeAnew(_ placement: inout Placement) {
        guard let policy = placement.policy, holds(placement.declaration, of: placement.binding.table) else { return }
        delist(placement)
        router.audience.judge(placement.member, by: policy.predicate == .always ? Member.noPolicy : policy.number)
        placement.departure = nil
        placement.isRecalled = false
        placement.recallsDepartures = false
        enlist(&placement)
    }

    public mutating func remove(_ placement: Placement) {
        delist(placement)
        if let role = placement.computedAs { leaveGenerated(placement.binding.table.oid, as: role) }
        router.audience.removeMember(placement.member)
        router.views.release(placement.view)
        guard let open = placement.openDeletes else { return }
        needs?.remove(open.member)
        router.index.remove(open.handle)
        router.audience.removeMember(open.member)
        router.views.release(open.view)
    }

    /// Puts it where changes find it.
    private mutating func enlist(_ placement: inout Placement) {
        let binding = placement.binding
        var operations = OperationSet(binding.operations)
        // As the reference has it, everybody who asked for deletes hears of all of them.
        if placement.policy != nil, !deletesAreStrict { operations.remove(.delete) }
        let filter = binding.predicate ?? .always
        var predicate = placement.policy.map { Predicate.both(filter, $0.predicate ?? .never) } ?? filter
        if binding.isKeptSecret { predicate = .never }
        // A predicate says what it says by the places of the columns that it was made for.
        if !holds(placement.declaration, of: binding.table) {
            Impossible.happened("a binding is placed in the index of its own table", in: .delivery)
            predicate = .never
        }
        needs?.add(placement.member, binding.table, predicate)
        placement.handle = router.index.add(
            table: binding.table.oid, operations: operations, predicate: predicate, member: placement.member,
            account: placement.account)
        if let policy = placement.policy, policy.predicate != .always, deletesAreStrict,
            !operations.isDisjoint(with: [.update, .delete]), binding.access == .readable, binding.table.isRecallable
        {
            placement.isRecalled = true
            router.recall.watch(binding.table.oid)
        }
        if placement.wantsMoves, binding.hearsOfMoves { enlistDepartures(&placement, predicate) }
    }

    private mutating func enlistDepartures(_ placement: inout Placement, _ predicate: Predicate) {
        let table = placement.binding.table
        placement.departure = router.departures.add(
            table: table.oid, operations: .update, predicate: predicate, member: placement.member,
            account: placement.account)
        // Whatever its identity is now: changes on their way may be of another.
        guard table.isRecallable else { return }
        placement.recallsDepartures = true
        router.recall.watchDepartures(table.oid)
    }

    private mutating func delist(_ placement: Placement) {
        let table = placement.binding.table.oid
        assert(placement.handle != nil, "what is taken out was put in")
        needs?.remove(placement.member)
        if let handle = placement.handle { router.index.remove(handle) }
        if let departure = placement.departure { router.departures.remove(departure) }
        if placement.isRecalled { router.recall.leave(table) }
        if placement.recallsDepartures { router.recall.leaveDepartures(table) }
    }

    private mutating func placeOpenDeletes(_ request: PlacementRequest) -> OpenDeletes {
        let binding = request.binding
        let view = router.views.take(
            ViewKey(table: binding.table, delivered: binding.delivered, shape: .maskedDeletes))
        let member = router.audience.add(
            Member(listener: request.listener, view: view, binding: UInt8(request.place)))
        let predicate = binding.predicate ?? .always
        needs?.add(member, binding.table, predicate)
        let handle = router.index.add(
            table: binding.table.oid, operations: .delete, predicate: predicate, member: member,
            account: request.account)
        return OpenDeletes(member: member, view: view, handle: handle)
    }
}

// MARK: Who listens

extension Pipeline {
    /// - Parameter share: of a feed.
    public mutating func add(_ listener: Listener, _ recipient: Recipient, _ share: FeedShare? = nil) -> UInt32 {
        precondition((recipient.manner == .feed) == (share != nil), "a feed has its share, and nobody else has one")
        let index = router.audience.add(listener, recipient)
        if let share { router.audience.feeds[index] = share }
        return index
    }

    /// Nil of who is no feed.
    public func share(_ listener: UInt32) -> FeedShare? { router.share(listener) }

    /// A channel is gone: nothing waits for it any more.
    public mutating func forget(_ listener: UInt32) { router.forget(listener) }

    /// The channel's place among the loop's channels.
    public func channel(of listener: UInt32) -> UInt32? { router.audience.listeners[listener]?.channel }

    /// Something of it waits for an answer.
    public func isHeld(_ listener: UInt32) -> Bool { router.isHeld(listener) }

    /// The offset of the first change that waits for it.
    public func firstHeld(_ listener: UInt32) -> UInt64? { router.firstHeld(listener) }

    /// From there on changes may still be judged: those that wait for answers, and those behind them.
    public var judgedUpTo: UInt64 { min(frontier, router.firstHeld ?? frontier) }

    /// The position that the listener's client was told last.
    public func toldAt(_ listener: UInt32) -> UInt64? { router.toldAt(listener) }

    /// It has what was seen there, and is not told of it.
    public mutating func leaveOut(_ seen: SeenTransactions, for listener: UInt32) {
        router.leaveOut(seen, for: listener)
    }

    /// The change that was passed last is not for the listener.
    public func hasMissedNothing(_ listener: UInt32) -> Bool { router.since(listener).map { $0 >= frontier } ?? false }

    /// Somebody waits for PostgreSQL's answers.
    public var holdsAnybody: Bool { router.holdsAnybody }

    /// What waits was judged for somebody else; true when there was anything.
    public mutating func dropWaiting(_ listener: UInt32) -> Bool { router.dropWaiting(listener) }

    /// More waits for answers than should.
    public mutating func isCrowded(_ now: UInt64) -> Bool { router.isCrowded(now) }
}

// MARK: Policies

extension Pipeline {
    /// A policy as it is for a holder whose memberships are the sets, which need not be filled yet.
    public mutating func hold(
        _ policy: PolicyBinding, _ residual: Residual, of table: CatalogTable, _ holder: Holder, _ sets: [LiveSet]
    ) -> ActivePolicy {
        assert(residual.memberships.count == sets.count, "each membership has its set")
        let number = router.policies.add(PolicyEntry(.never, policy, of: table, holder.claimant))
        if policy.rowPolicy.isSteady { router.policies.sampling.add(number, of: policy.table) }
        let held = ActivePolicy(policy, residual, sets, number: number)
        for set in sets { set.users[held.number] = held }
        return held
    }

    public mutating func replace(_ predicate: Predicate, of held: ActivePolicy) {
        router.policies.replace(predicate, of: held.number)
    }

    public mutating func letGo(of held: ActivePolicy) {
        assert(held.isRetired && held.places.isEmpty, "a policy goes with its last binding")
        for set in held.sets {
            set.users[held.number] = nil
            memberships.release(set)
        }
        router.policies.sampling.remove(held.number, of: held.binding.table)
        router.policies.remove(held.number)
    }
}

extension TableBinding {
    /// Whether it stands in the index as it is.
    ///
    /// A channel's binding has one filter for ever, which on the same table means the same.
    func isSame(as other: TableBinding) -> Bool {
        table === other.table && delivered == other.delivered
            && operations == other.operations && access == other.access && policy == other.policy
    }

    /// Who asks for rows that updates take away may be told of them: as deletes.
    public var hearsOfMoves: Bool { operations.isSuperset(of: [.update, .delete]) && access == .readable }

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
