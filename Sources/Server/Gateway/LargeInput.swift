import Diagnostics
import Net

/// Large messages of clients take milliseconds to read: a loop reads as many in a turn as it may, and the others wait for
/// theirs, in the order in which they came, while small messages and deliveries go on.
struct LargeInput {
    private var spent = 0
    private var waiting: [ConnectionID] = []
    /// Of those that wait, how many have had their turn.
    private var next = 0

    /// Whether what a connection holds has to wait for another turn. `held` is what there is of its message.
    mutating func mustWait(_ connection: ConnectionID, holding held: Int) -> Bool {
        guard held >= Limits.largeMessageBytes, spent >= Limits.turnLargeMessageBytes else { return false }
        waiting.append(connection)
        return true
    }

    /// A message was read.
    mutating func note(_ byteCount: Int) {
        if byteCount >= Limits.largeMessageBytes { spent += byteCount }
    }

    /// Another turn begins: whose message is read in it.
    mutating func beginTurn() -> ConnectionID? {
        spent = 0
        guard next < waiting.count else { return nil }
        let connection = waiting[next]
        next += 1
        // All are read, or so many that moving the others is cheap for each.
        if next == waiting.count || next >= 1024 {
            waiting.removeFirst(next)
            next = 0
        }
        return connection
    }
}
