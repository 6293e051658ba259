/// Members of one node, each with the handle by which the caller removes it.
///
/// A single member is stored in the node itself, which is the case for most nodes. Several members are stored in an
/// allocation: first all members without gaps, so that they can be passed on as a span, then their handles.
///
/// A list is a plain value inside a slab's element and does not free itself. Removing the last member frees the
/// allocation, and the index frees all lists when it ends.
@safe
struct MemberList: BitwiseCopyable {
    /// A single member in the lower half with its handle in the upper half; otherwise the address of the allocation.
    private var content: UInt64 = 0
    private(set) var count: UInt32 = 0
    /// Number of members for which the allocation has room; 0 if there is no allocation.
    private var room: UInt32 = 0

    private var allocation: UnsafeMutablePointer<UInt32> {
        precondition(room > 0, "a list of one has no allocation")
        // SAFETY: with room there is an allocation, and `content` is its address.
        return unsafe UnsafeMutablePointer(bitPattern: UInt(content)).unsafelyUnwrapped
    }

    /// Returns the members of a list. The list must not move while the buffer is used.
    @inline(__always)
    @unsafe static func members(_ list: UnsafePointer<MemberList>) -> UnsafeBufferPointer<UInt32> {
        // SAFETY: the allocation holds `count` members; without one, the lower half of `content`, which on a
        // little-endian machine comes first, is the only member.
        if unsafe list.pointee.room > 0 {
            return unsafe UnsafeBufferPointer(start: list.pointee.allocation, count: Int(list.pointee.count))
        }
        let start = unsafe UnsafeRawPointer(list).assumingMemoryBound(to: UInt32.self)
        return unsafe UnsafeBufferPointer(start: start, count: Int(list.pointee.count))
    }

    subscript(position: UInt32) -> (member: UInt32, handle: UInt32) {
        get {
            precondition(position < count, "a member outside the list")
            if room == 0 { return (UInt32(truncatingIfNeeded: content), UInt32(content >> 32)) }
            // SAFETY: the allocation has `room` members and as many handles, and `position` is below `count`.
            return unsafe (allocation[Int(position)], allocation[Int(room + position)])
        }
        set {
            precondition(position < count, "a member outside the list")
            if room == 0 {
                content = UInt64(newValue.member) | UInt64(newValue.handle) << 32
                return
            }
            // SAFETY: as above.
            unsafe allocation[Int(position)] = newValue.member
            unsafe allocation[Int(room + position)] = newValue.handle
        }
    }

    /// Adds a member. Returns its position, which is valid until another member is removed.
    mutating func append(_ member: UInt32, _ handle: UInt32) -> UInt32 {
        if count == max(room, 1) { move(toRoomFor: count * 2 + 2) }
        count += 1
        self[count - 1] = (member, handle)
        return count - 1
    }

    /// Removes a member and moves the last one to its place. Returns the handle of the moved member, so that the caller
    /// can update its position; nil if no member moved.
    mutating func remove(at position: UInt32) -> UInt32? {
        let last = self[count - 1]
        self[position] = last
        let isLast = position == count - 1
        count -= 1
        if room > 0, count <= 1 || count < room / 4 { move(toRoomFor: count <= 1 ? 0 : room / 2) }
        return isLast ? nil : last.handle
    }

    /// Frees the allocation, if there is one.
    mutating func free() {
        // SAFETY: the allocation is this list's own; afterwards the list does not know it any more.
        if room > 0 { unsafe allocation.deallocate() }
        self = MemberList()
    }

    private mutating func move(toRoomFor room: UInt32) {
        var moved = MemberList()
        if room > 0 {
            // SAFETY: freed by `free` or by the next move; UInt32 needs no initialisation beyond the writes below.
            let memory = UnsafeMutablePointer<UInt32>.allocate(capacity: Int(room) * 2)
            unsafe memory.initialize(repeating: 0, count: Int(room) * 2)
            moved.content = UInt64(UInt(bitPattern: memory))
            moved.room = room
        }
        moved.count = count
        for position in 0..<count { moved[position] = self[position] }
        free()
        self = moved
    }
}
