import Diagnostics

/// Backlogs of one loop's blocked connections, and their limits. Index 0 means "no backlog".
struct Backlogs {
    private let settings: SocketSettings
    private var all = [Backlog()]
    private var free: [UInt32] = []
    /// Number of connections that have a backlog now.
    private(set) var count = 0
    /// Number of bytes in backlogs that were freed since the loop last returned memory to the system.
    private var freedBytes = 0

    init(_ settings: SocketSettings) { self.settings = settings }

    subscript(index: UInt32) -> Backlog { all[Int(index)] }

    /// Assigns a free backlog to the connection in a seat. Returns the backlog's index.
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

    /// Empties a backlog and makes it free for another connection.
    mutating func release(_ index: UInt32, _ arena: PieceArena) {
        guard index != 0 else { return }
        assert(all[Int(index)].seat != nil, "a backlog is released once")
        freedBytes += all[Int(index)].byteCount
        all[Int(index)].end(arena)
        free.append(index)
        count -= 1
    }

    /// Drops those frames of a backlog of which no byte was sent. Returns the number of bytes that the backlog held
    /// before.
    mutating func drop(_ index: UInt32, _ arena: PieceArena) -> Int {
        let bytes = all[Int(index)].byteCount
        all[Int(index)].dropUnsentFrames(arena)
        freedBytes += bytes
        return bytes
    }

    /// Backlogs that some connection uses now.
    var inUse: [Backlog] { all.filter { $0.seat != nil } }

    // MARK: Limits

    /// Classes of a backlog's size, by the limits in `SocketSettings`.
    enum Size { case small, filled, tooLarge }

    func size(of backlog: Backlog) -> Size {
        if backlog.byteCount > settings.outboxBytes { return .tooLarge }
        return backlog.byteCount > filledBytes ? .filled : .small
    }

    /// Number of bytes above which a backlog counts as filled. The number falls as more connections are blocked, so
    /// that all backlogs together hold little memory.
    private var filledBytes: Int {
        let share = settings.outboxTotalBytes / 4 / max(1, count)
        return min(settings.filledBytes, max(share, Limits.leastFilledBytes))
    }

    /// Returns the monotonic time, in nanoseconds, at which a connection has taken nothing for `outboxAge`; `.max` for
    /// never.
    func dueTime(of backlog: Backlog) -> UInt64 {
        let (due, isNever) = backlog.takenAt.addingReportingOverflow(settings.outboxAge.nanoseconds)
        return isNever ? .max : due
    }

    // MARK: Memory that slow connections held

    /// True if the freed backlogs were so large that the process should return memory to the system.
    var haveFreedMuch: Bool { freedBytes >= Limits.memoryReturnThresholdBytes }

    /// True if the caller should return memory to the system now. Counting then starts again at zero.
    mutating func takeFreed() -> Bool {
        defer { if haveFreedMuch { freedBytes = 0 } }
        return haveFreedMuch
    }
}
