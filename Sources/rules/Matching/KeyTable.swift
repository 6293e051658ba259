import Bytes

/// Table of the column values for which subscriptions wait. Each value leads to the nodes that want it.
struct KeyTable: ~Copyable {
    private(set) var slots = HashSlots()
    private(set) var keys = Slab<Key>()
    private(set) var links = Slab<Link>()

    deinit {
        for number in 0..<keys.limit {
            var key = keys[UInt32(number)]
            key.free()
        }
    }

    var count: Int { keys.count }

    subscript(key: UInt32) -> Key {
        @inline(__always)
        unsafeAddress {
            // SAFETY: the slab checks the place; its memory stays where it is while it is borrowed.
            unsafe keys.address(of: key)
        }
    }

    @inline(__always)
    func prefetchSlot(_ hash: UInt32) { slots.prefetch(hash) }

    /// Returns the first key with this hash, which is probably the wanted one, and prefetches it. Nil if there is none.
    @inline(__always)
    func candidate(_ hash: UInt32) -> UInt32? {
        var place = slots.start(hash)
        guard let number = slots.next(hash, from: &place) else { return nil }
        // SAFETY: the key is not read, only asked for.
        unsafe Prefetch.line(at: keys.address(of: number))
        return number
    }

    @inline(__always)
    func prefetchContent(of candidate: UInt32) { keys[candidate].prefetchContent() }

    /// Returns the key of a group (column) with exactly these bytes; nil if there is none. The key `candidate` is tried
    /// first.
    @inline(__always)
    func find(_ hash: UInt32, group: UInt32, _ bytes: RawSpan, candidate: UInt32) -> UInt32? {
        if keys[candidate].group == group, equals(candidate, bytes) { return candidate }
        return find(hash, group: group, bytes)
    }

    /// Returns the key of a group (column) with exactly these bytes; nil if there is none.
    @inline(__always)
    func find(_ hash: UInt32, group: UInt32, _ bytes: RawSpan) -> UInt32? {
        var place = slots.start(hash)
        while let number = slots.next(hash, from: &place) {
            if keys[number].group == group, equals(number, bytes) { return number }
        }
        return nil
    }

    @inline(__always)
    private func equals(_ number: UInt32, _ bytes: RawSpan) -> Bool {
        // SAFETY: the key stays where it is while the slab is borrowed.
        unsafe Key.equals(keys.address(of: number), bytes)
    }

    /// Links a node to a key, and creates the key if it does not exist. Returns the number of the link.
    mutating func link(_ number: UInt32, _ node: Node, group: UInt32, hash: UInt32, _ bytes: RawSpan) -> UInt32 {
        let key = find(hash, group: group, bytes) ?? insert(hash, group, bytes)
        let first = keys[key].first
        let link = links.insert(
            Link(
                key: key, node: number, next: first, previous: .none, nextOfNode: node.place,
                operations: node.operations, access: node.access))
        if first != .none { links[first].previous = link }
        keys[key].first = link
        settle(key)
        return link
    }

    private mutating func insert(_ hash: UInt32, _ group: UInt32, _ bytes: RawSpan) -> UInt32 {
        let number = keys.insert(Key(hash: hash, group: group, bytes))
        slots.insert(hash, number)
        return number
    }

    /// Removes a link. If it was the last link of its key, removes the key too and returns the key's group; otherwise
    /// nil.
    mutating func unlink(_ number: UInt32) -> UInt32? {
        let link = links[number]
        if link.previous != .none { links[link.previous].next = link.next } else { keys[link.key].first = link.next }
        if link.next != .none { links[link.next].previous = link.previous }
        links.remove(number)
        guard keys[link.key].first == .none else {
            settle(link.key)
            return nil
        }
        let group = keys[link.key].group
        slots.remove(keys[link.key].hash, link.key)
        keys[link.key].free()
        keys.remove(link.key)
        return group
    }

    /// Stores in the key the node of its only link, if the key alone decides the match for that node.
    private mutating func settle(_ key: UInt32) {
        let only = links[keys[key].first]
        precondition(only.key == key && only.previous == .none, "a key that begins with another one's link")
        let isSettled = only.next == .none && only.access == .settled
        keys[key].settled = isSettled ? only.node : .none
        keys[key].settledOperations = isSettled ? only.operations : []
        keys[key].soleMember = .none
    }

    /// Stores the only member of the node in the link's key. The caller passes `none` if the node has several members.
    mutating func note(soleMember: UInt32, of node: UInt32, at link: UInt32) {
        let key = links[link].key
        if keys[key].settled == node { keys[key].soleMember = soleMember }
    }

    func link(_ number: UInt32) -> Link { links[number] }

    /// True if the key of the link belongs to this group and has these bytes.
    func isKey(of link: UInt32, group: UInt32, _ bytes: RawSpan) -> Bool {
        let key = links[link].key
        return keys[key].group == group && equals(key, bytes)
    }
}

// Members for tests.
extension KeyTable {
    var linkCount: Int { links.count }

    func keyCount(of group: UInt32) -> Int {
        var count = 0
        for key in keys.numbers where keys[key].group == group { count += 1 }
        return count
    }

    func checkInvariants() {
        slots.checkInvariants()
        precondition(slots.count == keys.count, "keys that are not found")
        var count = 0
        for key in keys.numbers { count += checkLinks(of: key) }
        precondition(count == links.count, "links without a key")
    }

    private func checkLinks(of key: UInt32) -> Int {
        var count = 0
        var previous = UInt32.none
        var next = keys[key].first
        precondition(next != .none, "a key without nodes")
        while next != .none {
            precondition(links[next].key == key && links[next].previous == previous, "a link that stands elsewhere")
            previous = next
            next = links[next].next
            count += 1
        }
        let isSettled = count == 1 && links[keys[key].first].access == .settled
        precondition(isSettled == (keys[key].settled != .none), "a key that is settled wrongly")
        return count
    }
}
