import Diagnostics

/// Questions that recently took too long. The caller treats them differently until their penalty is over.
///
/// If the set is full, a further question gets no penalty. It is asked as before and may take too long again.
public struct Penalties<Key: Hashable & Sendable>: Sendable {
    private struct Penalty {
        var until: UInt64
        var count = 1
    }

    private let limit: Int
    private let duration: UInt64
    private var penalties: [Key: Penalty] = [:]
    /// Time at which the last penalty ends, as monotonic time in nanoseconds. All penalties have the same duration.
    private var lastUntil: UInt64 = 0

    public init(limit: Int, each duration: Duration) {
        precondition(limit > 0 && duration > .zero, "somebody can be penalised, and for some time")
        self.limit = limit
        self.duration = duration.wholeNanoseconds
    }

    /// True if any question has a penalty at `now`.
    public func isActive(at now: UInt64) -> Bool { now < lastUntil }

    /// Returns the number of consecutive penalties that the question has got. A penalty is consecutive if it begins
    /// before the last one ends.
    public func count(_ key: Key, at now: UInt64) -> Int {
        guard isActive(at: now), let penalty = penalties[key], now < penalty.until else { return 0 }
        return penalty.count
    }

    public func contains(_ key: Key, at now: UInt64) -> Bool { count(key, at: now) > 0 }

    public mutating func add(_ key: Key, at now: UInt64) {
        let count = count(key, at: now)
        makeRoom(at: now)
        guard penalties[key] != nil || penalties.count < limit else { return }
        penalties[key] = Penalty(until: now + duration, count: count + 1)
        lastUntil = max(lastUntil, now + duration)
        assert(penalties.count <= limit && contains(key, at: now), "what is penalised is known, within the limit")
    }

    /// Removes expired penalties if the set is full, and all penalties if none is active.
    private mutating func makeRoom(at now: UInt64) {
        if !isActive(at: now) { penalties.removeAll(keepingCapacity: true) }
        if penalties.count >= limit { penalties = penalties.filter { $0.value.until > now } }
    }
}
