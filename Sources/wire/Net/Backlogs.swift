import Diagnostics

/// Backlogs of one loop's blocked connections, and their limits. Index 0 stands for none.
struct Backlogs {
    private let settings: SocketSettings
    private var all = [Backlog()]
    private var free: [UInt32] = []
    /// Number of connections that have a backlog.
    private(set) var count = 0
    /// Bytes of backlogs freed since memory was last given back to the system.
    private var freedBytes = 0

    init(_ settings: SocketSettings) { self.settings = settings }

    subscript(index: UInt32) -> Backlog { all[Int(index)] }

    /// Gives a connection a backlog. Returns its index.
    mutating func take(seat: Int, committed: Int, at now: UInt64) -> UInt32 {
        if free.isEmpty {
            free.append(UInt32(all.count))
            all.append(Backlog())
        }
        let index = free.removeLast()
        all[Int(index)].start(seat: seat, committed: committed, at: now)
        count += 1
        return index
    }

    /// Empties a backlog, which another connection may have then.
    mutating func release(_ index: UInt32, _ arena: PieceArena) {
        guard index != 0 else { return }
        assert(all[Int(index)].seat != nil, "a backlog is released once")
        freedBytes += all[Int(index)].byteCount
        all[Int(index)].end(arena)
        free.append(index)
        count -= 1
    }

    /// Drops the frames of a backlog that have not begun. Returns the bytes that were in it before.
    mutating func drop(_ index: UInt32, _ arena: PieceArena) -> Int {
        let bytes = all[Int(index)].byteCount
        all[Int(index)].dropWhatWasNotBegun(arena)
        freedBytes += bytes
        return bytes
    }

    /// Backlogs of connections.
    var inUse: [Backlog] { all.filter { $0.seat != nil } }

    // MARK: Limits

    /// Size of a backlog compared with the limits.
    enum Size { case small, filled, tooLarge }

    func size(of backlog: Backlog) -> Size {
        if backlog.byteCount > settings.outboxBytes { return .tooLarge }
        return backlog.byteCount > filledBytes ? .filled : .small
    }

    /// Size of a backlog above which a connection counts as filled. The more connections are blocked, the lower the
    /// size, so that together they hold little.
    private var filledBytes: Int {
        let share = settings.outboxTotalBytes / 4 / max(1, count)
        return min(settings.filledBytes, max(share, Limits.leastFilledBytes))
    }

    /// Returns the time at which a connection has taken nothing of its backlog for too long; `.max` for never.
    func dueTime(of backlog: Backlog) -> UInt64 {
        let (due, isNever) = backlog.takenAt.addingReportingOverflow(settings.outboxAge.nanoseconds)
        return isNever ? .max : due
    }

    // MARK: Memory that slow connections held

    /// True if so much was freed that it should go back to the system, because slow connections are few.
    var haveFreedMuch: Bool { freedBytes >= Limits.givenBackBytes }

    /// True if much was freed. The caller gives it back, and counting starts again.
    mutating func takeFreed() -> Bool {
        defer { if haveFreedMuch { freedBytes = 0 } }
        return haveFreedMuch
    }
}
