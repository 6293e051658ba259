/// Backlogs of one loop's blocked connections. Index 0 stands for none.
struct Backlogs {
    private var all = [Backlog()]
    private var free: [UInt32] = []
    /// Number of connections that have a backlog.
    private(set) var count = 0

    subscript(index: UInt32) -> Backlog { all[Int(index)] }

    /// Gives a connection a backlog. Returns its index.
    mutating func take(seat: Int, committed: Int, at now: UInt64) -> UInt32 {
        if free.isEmpty {
            free.append(UInt32(all.count))
            all.append(Backlog())
        }
        let index = free.removeLast()
        all[Int(index)].seat = seat
        all[Int(index)].committed = committed
        all[Int(index)].takenAt = now
        count += 1
        return index
    }

    /// Empties a backlog, which another connection may have then. Returns the bytes that were in it.
    mutating func release(_ index: UInt32, _ arena: PieceArena) -> Int {
        assert(all[Int(index)].seat != nil, "a backlog is released once")
        let bytes = all[Int(index)].byteCount
        all[Int(index)].removeAll(arena)
        all[Int(index)].seat = nil
        free.append(index)
        count -= 1
        return bytes
    }

    /// Backlogs of connections.
    var inUse: [Backlog] { all.filter { $0.seat != nil } }
}
