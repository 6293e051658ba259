import Bytes
import Policy

/// Store of all subscriptions: tables, nodes, the keys and ranges by which a row finds nodes, and the members of nodes.
struct NodeStore: ~Copyable {
    var tables = Pool<SubscribedTable>()
    private var freeTables = Pool<UInt32>()
    var nodes = Slab<Node>()
    /// Predicates of the nodes whose match a key alone does not decide.
    var predicates = Slab<Trial>()
    /// Meter of the work for filters that are evaluated one by one.
    var ledger: FilterWorkMeter
    /// Numbers of the nodes, by the hash of what their members want.
    private(set) var identities = HashSlots()
    var groups = Slab<KeyGroup>()
    var keys = KeyTable()
    var stretches: StretchTable
    /// Nodes whose ranges contain a value of the current row.
    var ranged = Pool<UInt32>()
    private(set) var handles = Slab<Place>()
    /// Number of the current change, with which the nodes that it has reached are marked.
    var stamp: UInt32 = 0
    /// Secret seed of all hashes. A client that knew it could choose values with equal hashes.
    private let seed: UInt64

    /// Place of a member: its node and its position in the node's list.
    struct Place: BitwiseCopyable {
        var node: UInt32
        var position: UInt32
        var account: UInt32
    }

    /// Predicate of a node, with the account that is charged for evaluating it. The account is that of one of the
    /// node's members.
    ///
    /// The type is not copyable, so that evaluating a row never copies a predicate and what it refers to.
    struct Trial: ~Copyable {
        var predicate: Predicate
        var account: UInt32

        func effort(on row: borrowing RowImage) -> Int { predicate.effort.on(row) }
        func verdict(on row: borrowing RowImage) -> Verdict { predicate.verdict(on: row) }
        func isOf(_ wish: Wish) -> Bool { predicate == wish.predicate }
    }

    init(seed: UInt64, _ allowance: Allowance) {
        self.seed = seed
        ledger = FilterWorkMeter(allowance)
        stretches = StretchTable(seed: seed)
    }

    deinit {
        for number in 0..<nodes.limit {
            var members = nodes[UInt32(number)].members
            members.free()
        }
    }

    var memberCount: Int { handles.count }

    // MARK: Tables

    mutating func addTable(oid: UInt32, columns: [String]) -> UInt32 {
        let table = SubscribedTable(oid: oid, columns: columns)
        guard !freeTables.isEmpty else {
            tables.append(table)
            return UInt32(tables.count - 1)
        }
        let number = freeTables.removeLast()
        tables[Int(number)] = table
        return number
    }

    /// Retires a table that another version replaces. Changes match its nodes no more. The table is removed with its
    /// last node.
    mutating func retire(_ table: UInt32) {
        precondition(!tables[Int(table)].isReplaced, "a table is retired once")
        tables[Int(table)].isReplaced = true
        freeIfUnused(table)
    }

    private mutating func freeIfUnused(_ table: UInt32) {
        guard tables[Int(table)].isReplaced, tables[Int(table)].nodeCount == 0 else { return }
        // Another table will get this number. Its rows must not match nodes that are left of this one.
        precondition(tables[Int(table)].isUnused, "a table that something still leads to")
        tables[Int(table)] = SubscribedTable(oid: 0, columns: [])
        freeTables.append(table)
    }

    // MARK: Members

    mutating func add(_ member: UInt32, _ wish: Wish, account: UInt32) -> UInt32 {
        precondition(!tables[Int(wish.table)].isReplaced, "nobody subscribes to a table that is gone")
        let identity = wish.identity(seed: seed)
        let node = find(wish, identity) ?? insert(wish, identity, account)
        let handle = handles.insert(Place(node: node, position: 0, account: account))
        handles[handle].position = nodes[node].members.append(member, handle)
        assert(nodes[node].members[handles[handle].position] == (member, handle), "a member stands elsewhere")
        noteSoleMember(of: node)
        return handle
    }

    mutating func remove(_ handle: UInt32) {
        let place = handles[handle]
        precondition(place.node != .none, "a subscription is removed once")
        if let moved = nodes[place.node].members.remove(at: place.position) {
            handles[moved].position = place.position
        }
        handles[handle].node = .none
        handles.remove(handle)
        if nodes[place.node].members.count == 0 { return removeNode(place.node) }
        noteSoleMember(of: place.node)
        passOn(place.node, from: place.account)
    }

    /// Charges the node's evaluation to another member's account, if the charged member has left.
    private mutating func passOn(_ node: UInt32, from account: UInt32) {
        let predicate = nodes[node].predicate
        guard predicate != .none, predicates[predicate].account == account else { return }
        assert(handles[nodes[node].members[0].handle].node == node, "another node's member answers for it")
        predicates[predicate].account = handles[nodes[node].members[0].handle].account
    }

    private mutating func noteSoleMember(of number: UInt32) {
        guard nodes[number].access == .settled, nodes[number].members.count <= 2 else { return }
        let sole = nodes[number].members.count == 1 ? nodes[number].members[0].member : .none
        keys.note(soleMember: sole, of: number, at: nodes[number].place)
    }

    // MARK: Nodes

    private func find(_ wish: Wish, _ identity: UInt32) -> UInt32? {
        var place = identities.start(identity)
        while let number = identities.next(identity, from: &place) {
            if isSame(nodes[number], wish) { return number }
        }
        return nil
    }

    private func isSame(_ node: Node, _ wish: Wish) -> Bool {
        guard node.table == wish.table, node.operations == wish.operations, node.access == wish.access else {
            return false
        }
        guard node.access == .settled else { return predicates[node.predicate].isOf(wish) }
        let key = wish.keys[0]
        guard let group = group(of: key, in: wish.table) else { return false }
        return keys.isKey(of: node.place, group: group, key.bytes.rawBytes)
    }

    private mutating func insert(_ wish: Wish, _ identity: UInt32, _ account: UInt32) -> UInt32 {
        precondition(
            wish.access.hasKeys != wish.keys.isEmpty, "a node that is found by keys has some, and no other has")
        assert(
            wish.access != .settled || wish.predicate.slots == [Int(wish.keys[0].slot)], "a key that does not say all")
        // A key that decides the match alone needs no predicate.
        let predicate =
            wish.access == .settled ? .none : predicates.insert(Trial(predicate: wish.predicate, account: account))
        let number = nodes.insert(
            Node(
                predicate: predicate, table: wish.table, identity: identity, operations: wish.operations,
                access: wish.access))
        identities.insert(identity, number)
        enlist(number)
        for key in wish.keys { link(number, key, in: wish.table) }
        for slot in wish.slots { tables[Int(wish.table)].use.add(slot) }
        tables[Int(wish.table)].nodeCount += 1
        return number
    }

    private mutating func removeNode(_ number: UInt32) {
        let node = nodes[number]
        precondition(node.members.count == 0, "a node that somebody holds")
        let range = range(of: node)
        let table = Int(node.table)
        if node.access == .settled {
            tables[table].use.remove(groups[keys[keys.link(node.place).key].group].slot)
        } else {
            if node.access.looksAtRows {
                for slot in predicates[node.predicate].predicate.slots { tables[table].use.remove(slot) }
            }
            // The slab keeps a removed element, so the predicate's memory is released here.
            predicates[node.predicate].predicate = .never
            predicates.remove(node.predicate)
        }
        if node.access.hasKeys { unlink(node) } else { delist(node, range) }
        identities.remove(node.identity, number)
        nodes.remove(number)
        tables[table].nodeCount -= 1
        freeIfUnused(node.table)
    }

    private mutating func enlist(_ number: UInt32) {
        let node = nodes[number]
        switch node.access {
        case .always: nodes[number].place = tables[Int(node.table)].always.append(number, node.operations)
        case .scan: nodes[number].place = tables[Int(node.table)].scan.append(number, node.operations)
        case .ranged: stretch(number)
        case .never, .settled, .keyed, .keyedThenJudged: break
        }
    }

    private mutating func delist(_ node: Node, _ range: ValueRange?) {
        let moved: UInt32? =
            switch node.access {
            case .always: tables[Int(node.table)].always.remove(at: node.place, node.operations)
            case .scan: tables[Int(node.table)].scan.remove(at: node.place, node.operations)
            case .ranged, .never, .settled, .keyed, .keyedThenJudged: nil
            }
        if let moved { nodes[moved].place = node.place }
        if let range { unstretch(node, range) }
    }

    // MARK: Ranges

    private func range(of node: Node) -> ValueRange? {
        guard node.access == .ranged, case .within(let range) = predicates[node.predicate].predicate.access else {
            return nil
        }
        return range
    }

    private func group(of range: ValueRange, in table: UInt32) -> Int? {
        for index in 0..<tables[Int(table)].ranges.count {
            let group = tables[Int(table)].ranges[index]
            if group.slot == range.slot, group.form == range.form { return index }
        }
        return nil
    }

    private mutating func stretch(_ number: UInt32) {
        let node = nodes[number]
        guard let range = range(of: node) else { preconditionFailure("a range of a node that has none") }
        let table = Int(node.table)
        let known = group(of: range, in: node.table)
        if known == nil { tables[table].ranges.append(StretchGroup(slot: range.slot, form: range.form)) }
        let index = known ?? tables[table].ranges.count - 1
        let (place, root) = stretches.insert(range, number, node.operations, at: tables[table].ranges[index].root)
        tables[table].ranges[index].root = root
        nodes[number].place = place
    }

    private mutating func unstretch(_ node: Node, _ range: ValueRange) {
        let table = Int(node.table)
        guard let index = group(of: range, in: node.table) else { preconditionFailure("a range of an unknown column") }
        let root = stretches.remove(node.place, from: tables[table].ranges[index].root)
        tables[table].ranges[index].root = root
        if root == .none { tables[table].ranges.swapRemove(at: index) }
    }

    // MARK: Keys

    func group(of key: EqualityKey, in table: UInt32) -> UInt32? {
        for index in 0..<tables[Int(table)].groups.count {
            let group = tables[Int(table)].groups[index]
            if groups[group].holds(key) { return group }
        }
        return nil
    }

    private mutating func link(_ number: UInt32, _ key: EqualityKey, in table: UInt32) {
        let group = group(of: key, in: table) ?? addGroup(of: key, in: table)
        let bytes = key.bytes.rawBytes
        let before = keys.count
        nodes[number].place = keys.link(
            number, nodes[number], group: group, hash: groups[group].hash(bytes), bytes)
        groups[group].keyCount += keys.count - before
        assert(keys.isKey(of: nodes[number].place, group: group, bytes), "a node linked to another key")
    }

    private mutating func addGroup(of key: EqualityKey, in table: UInt32) -> UInt32 {
        let group = groups.insert(KeyGroup(table: table, key, seed: seed))
        tables[Int(table)].groups.append(group)
        return group
    }

    private mutating func unlink(_ node: Node) {
        var next = node.place
        while next != .none {
            let link = next
            next = keys.link(link).nextOfNode
            guard let group = keys.unlink(link) else { continue }
            precondition(groups[group].table == node.table && groups[group].keyCount > 0, "another table's key")
            groups[group].keyCount -= 1
            if groups[group].keyCount == 0 { removeGroup(group) }
        }
    }

    private mutating func removeGroup(_ group: UInt32) {
        let table = Int(groups[group].table)
        for index in 0..<tables[table].groups.count where tables[table].groups[index] == group {
            tables[table].groups.swapRemove(at: index)
            break
        }
        groups.remove(group)
    }
}

/// Group of keys: values of one column that are looked up in the same form.
struct KeyGroup {
    let table: UInt32
    let slot: Int
    let form: KeyForm
    let part: EqualityKey.Part
    /// Number of bytes at the beginning of a value that are looked up; 0 unless the keys are prefixes.
    let prefix: Int
    var keyCount = 0
    private let seed: UInt64

    init(table: UInt32, _ key: EqualityKey, seed: UInt64) {
        self.table = table
        slot = key.slot
        form = key.form
        part = key.part
        prefix = key.part == .prefix ? key.bytes.count : 0
        // The seed makes the hashes of the same value in two columns unrelated.
        self.seed =
            seed ^ UInt64(table) << 32 ^ UInt64(slot) << 8 ^ UInt64(form.rawValue) ^ UInt64(part.rawValue) << 6
            ^ UInt64(prefix) << 24
    }

    func holds(_ key: EqualityKey) -> Bool {
        slot == key.slot && form == key.form && part == key.part && (part != .prefix || prefix == key.bytes.count)
    }

    /// Returns the hash of a value that is in its canonical form.
    @inline(__always)
    func hash(_ canonical: RawSpan) -> UInt32 {
        var hash = KeyHash(seed: seed)
        hash.combine(canonical)
        return UInt32(truncatingIfNeeded: hash.value)
    }
}

/// Description of what a subscription wants, without its member. It is the same for all members of a node.
struct Wish {
    let table: UInt32
    let operations: OperationSet
    let predicate: Predicate
    let access: Node.Access
    /// Keys by which the node is found; empty if it is found otherwise.
    let keys: [EqualityKey]

    init(table: UInt32, operations: OperationSet, predicate: Predicate) {
        self.table = table
        self.operations = operations
        self.predicate = predicate
        access = operations.isEmpty ? .never : Node.Access(predicate)
        if access.hasKeys, case .anyOf(let keys) = predicate.access { self.keys = keys } else { keys = [] }
    }

    /// Column slots that must be read for the subscription.
    var slots: [Int] { access.looksAtRows ? predicate.slots : [] }

    func identity(seed: UInt64) -> UInt32 {
        var hash = KeyHash(seed: seed)
        hash.combine(UInt64(table) << 8 | UInt64(operations.rawValue))
        if access == .settled {
            let key = keys[0]
            hash.combine(UInt64(key.slot) << 8 | UInt64(key.form.rawValue))
            hash.combine(key.bytes.rawBytes)
        } else {
            predicate.combine(into: &hash)
        }
        return UInt32(truncatingIfNeeded: hash.value)
    }
}

extension Node.Access {
    init(_ predicate: Predicate) {
        switch predicate.access {
        case .never: self = .never
        // A predicate on a column is not true for a row that lacks the column, so it must be evaluated.
        case .always: self = predicate.slots.isEmpty ? .always : .scan
        case .scan: self = .scan
        case .within: self = .ranged
        case .anyOf(let keys):
            if !predicate.isDecidedByAccess {
                self = .keyedThenJudged
            } else {
                // An array may contain an element twice but matches a node only once. A settled node has only its key
                // and no predicate, so the predicate may read no other column.
                let isSettled = keys.count == 1 && keys[0].part != .element && predicate.slots.count == 1
                self = isSettled ? .settled : .keyed
            }
        }
    }
}
