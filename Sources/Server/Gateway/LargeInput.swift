import Diagnostics
import Net

/// Large messages of clients take milliseconds to read: a loop reads as many in a turn as it may, and the others wait for
/// theirs, in the order in which they came, while small messages and deliveries go on.
struct LargeInput {
    private var spent = 0
    private var waiting: [ConnectionID] = []
    /// Of those that wait, how many have had their turn.
    private var next = 0
    /// Whose turn it is, whatever others send meanwhile.
    private var admitted: ConnectionID?

    /// As much was read as one turn may take.
    var isSpent: Bool { spent >= Limits.turnLargeMessageBytes }
    var someWait: Bool { next < waiting.count }

    /// Whether what a connection sends has to wait for another turn. `held` is what there is of its message, which may
    /// become larger where it is compressed.
    mutating func mustWait(_ connection: ConnectionID, holding held: Int, mayGrow: Bool) -> Bool {
        if connection == admitted {
            admitted = nil
            return false
        }
        guard isSpent, mayGrow || held >= Limits.largeMessageBytes else { return false }
        waiting.append(connection)
        return true
    }

    /// A message was read.
    mutating func note(_ byteCount: Int) {
        if byteCount >= Limits.largeMessageBytes { spent += byteCount }
    }

    /// A join was, with so many bindings.
    mutating func note(bindings: Int) { spent += bindings * Limits.bindingReadingBytes }

    mutating func beginTurn() { spent = 0 }

    /// The next of those that wait. It may be gone.
    mutating func takeNext() -> ConnectionID? {
        guard next < waiting.count else { return nil }
        let connection = waiting[next]
        next += 1
        // All are read, or so many that moving the others is cheap for each.
        if next == waiting.count || next >= 1024 {
            waiting.removeFirst(next)
            next = 0
        }
        admitted = connection
        return connection
    }
}
