import Channels
import Diagnostics

/// Replica of the project's presence on one loop, with what the other loops are still to be told.
struct PresenceReplica: ~Copyable {
    var book = PresenceBook(.ofProjects)
    private var refs: PresenceRefs
    private var lastTracker: UInt64 = 0
    private let loop: UInt16
    /// Changes of this turn, for the other loops.
    private var changes: [PresenceChange] = []

    init(loop: Int) {
        self.loop = UInt16(loop)
        refs = PresenceRefs(loop: self.loop)
    }

    mutating func nextRef(at milliseconds: UInt64) -> PresenceRef { refs.next(at: milliseconds) }

    mutating func newTracker() -> PresenceTracker {
        lastTracker += 1
        return PresenceTracker(loop: loop, channel: lastTracker)
    }

    mutating func note(_ change: PresenceChange) { changes.append(change) }

    /// Returns the changes since the last call.
    mutating func takeChanges() -> [PresenceChange] {
        defer { changes = [] }
        return changes
    }
}
