import Channels
import Diagnostics

/// Replica of the project's presence on one loop, with the changes that the other loops must receive.
struct PresenceReplica: ~Copyable {
    var book = PresenceBook(.ofProjects)
    private var refs: PresenceRefs
    private var lastTracker: UInt64 = 0
    private let loop: UInt16
    /// Presence changes of this turn that the other loops must receive.
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

    /// Removes and returns the presence changes since the last call.
    mutating func takeChanges() -> [PresenceChange] {
        defer { changes = [] }
        return changes
    }
}
