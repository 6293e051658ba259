import Bytes

/// The values that columns are compared with, by column and value: each leads to the nodes that want it.
struct KeyTable: ~Copyable {
    private var slots = HashSlots()
    private var keys = Slab<Key>()
    private var links = Slab<Link>()

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

    /// The key of a group with exactly these bytes.
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

    /// Links a node to a key, which is made when it is new.
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

    /// Removes a link, and its key with the last one. The group whose key is gone, if it is.
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

    /// Notes in the key what its links say, when that is simple.
    private mutating func settle(_ key: UInt32) {
        let only = links[keys[key].first]
        let isSettled = only.next == .none && only.access == .settled
        keys[key].settled = isSettled ? only.node : .none
        keys[key].settledOperations = isSettled ? only.operations : []
    }

    func link(_ number: UInt32) -> Link { links[number] }

    /// Whether a link's key is this one.
    func isKey(of link: UInt32, group: UInt32, _ bytes: RawSpan) -> Bool {
        let key = links[link].key
        return keys[key].group == group && equals(key, bytes)
    }
}
