import Bytes

/// Open-addressing part of a hash table. It maps hashes to the numbers of entries that are stored elsewhere.
///
/// A slot of the table has eight bytes, the 32-bit hash (`tag`) and the entry's number, so a cache line has eight
/// slots. A search reads an entry only if all 32 bits are equal. Removing an entry leaves no mark: later entries move
/// up. So a table that is used for days stays as fast as a new one.
struct HashSlots: ~Copyable {
    struct Slot: BitwiseCopyable {
        var tag: UInt32
        var number: UInt32
        static let empty = Slot(tag: 0, number: .max)
        var isEmpty: Bool { number == .max }
    }

    private var slots = Pool<Slot>()
    private(set) var count = 0
    private var mask = 0

    init() { slots.resize(to: 8, filling: .empty); mask = 7 }

    var capacity: Int { slots.count }

    /// Returns the index of the slot where a search for a hash begins. The low bits of the hash determine it.
    @inline(__always)
    func start(_ tag: UInt32) -> Int { Int(tag) & mask }

    /// Prefetches the slots where a search for this hash begins.
    @inline(__always)
    func prefetch(_ tag: UInt32) {
        // SAFETY: the slots are not read, only asked for.
        unsafe Prefetch.line(at: slots.address(of: start(tag)))
    }

    /// Returns the number of the next entry with the hash `tag`, searching from slot `place`, and moves `place` past
    /// it. Nil if there is no other.
    @inline(__always)
    func next(_ tag: UInt32, from place: inout Int) -> UInt32? {
        while true {
            let slot = slots[place]
            if slot.isEmpty { return nil }
            place = (place &+ 1) & mask
            if slot.tag == tag { return slot.number }
        }
    }

    /// Adds an entry's number under its hash. The number must not be in the table yet.
    mutating func insert(_ tag: UInt32, _ number: UInt32) {
        precondition(number != .max, "the number that marks an empty slot")
        if (count + 1) * 4 > slots.count * 3 { resize(to: slots.count * 2) }
        place(Slot(tag: tag, number: number))
        count += 1
    }

    mutating func remove(_ tag: UInt32, _ number: UInt32) {
        var hole = start(tag)
        while slots[hole].number != number || slots[hole].tag != tag {
            precondition(!slots[hole].isEmpty, "only what is in the table is removed")
            hole = (hole &+ 1) & mask
        }
        close(hole)
        count -= 1
        if slots.count > 8, count * 8 < slots.count { resize(to: slots.count / 2) }
    }

    /// Moves up the entries that were placed further on because the slot, which is now empty, was in use.
    private mutating func close(_ removed: Int) {
        var hole = removed
        var place = (hole &+ 1) & mask
        while !slots[place].isEmpty {
            let home = start(slots[place].tag)
            // The entry may move unless its own start lies between the hole and the entry, counted in a circle.
            if (place &- home) & mask >= (place &- hole) & mask {
                slots[hole] = slots[place]
                hole = place
            }
            place = (place &+ 1) & mask
        }
        slots[hole] = .empty
    }

    private mutating func place(_ slot: Slot) {
        var place = start(slot.tag)
        while !slots[place].isEmpty { place = (place &+ 1) & mask }
        slots[place] = slot
    }

    private mutating func resize(to capacity: Int) {
        var old = Pool<Slot>(capacity: capacity)
        old.resize(to: capacity, filling: .empty)
        swap(&old, &slots)
        mask = capacity - 1
        for index in 0..<old.count where !old[index].isEmpty { place(old[index]) }
    }

    /// Checks that a search from each entry's hash finds the entry. Tests use it.
    func checkInvariants() {
        var found = 0
        for index in 0..<slots.count where !slots[index].isEmpty {
            found += 1
            var place = start(slots[index].tag)
            while place != index {
                precondition(!slots[place].isEmpty, "a hole between an entry and its home")
                place = (place &+ 1) & mask
            }
        }
        precondition(found == count, "entries were lost")
    }
}
