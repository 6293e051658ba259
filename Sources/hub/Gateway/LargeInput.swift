import Diagnostics
import Net

/// Large messages of clients take long to read: a loop reads them for a part of a turn. Joins with many bindings take
/// longest, and work of other threads and of the database follows from them: none is read again before some
/// times as long has gone by as the last ones took. Others wait for their turn, in the order in which they came, while small messages and deliveries go on.
struct LargeInput {
    /// Nanoseconds that were read for in this turn …
    private var spent: UInt64 = 0
    /// … and of these, for joins.
    private var joined: UInt64 = 0
    /// Until then none is read.
    private var restsUntil: UInt64 = 0
    private var isResting = false
    /// Somebody is told when the rest is over.
    private var isTimed = false
    private var waiting: [ConnectionID] = []
    /// Of those that wait, how many have had their turn.
    private var next = 0
    /// Whose turn it is, whatever others send meanwhile.
    private var admitted: ConnectionID?

    /// As much was read as one turn may take.
    var isSpent: Bool { isResting || spent >= Self.share }
    /// The next of those that wait can be taken at once, in the next turn.
    var someAreDue: Bool { next < waiting.count && !isSpent }

    private static let share = Limits.turnLargeInput.wholeNanoseconds

    /// Whether what a connection sends has to wait for another turn. `held` is what there is of its message, which may
    /// become larger where it is compressed.
    mutating func mustWait(_ connection: ConnectionID, holding held: Int, mayGrow: Bool) -> Bool {
        if connection == admitted {
            admitted = nil
            return false
        }
        guard isSpent, mayGrow || Self.isLarge(held) else { return false }
        waiting.append(connection)
        return true
    }

    static func isLarge(_ byteCount: Int) -> Bool { byteCount >= Limits.largeMessageBytes }

    /// A large message was read, for so many nanoseconds.
    mutating func note(_ nanoseconds: UInt64) { spent += nanoseconds }

    /// It was a join.
    mutating func note(join nanoseconds: UInt64) { joined += nanoseconds }

    /// How long until somebody who waits may be read, where that has to be waited for and nobody was told yet.
    mutating func beginTurn(_ now: UInt64) -> UInt64? {
        if joined >= Self.share {
            restsUntil =
                now + min(joined * UInt64(Limits.largeInputRests), Limits.maximumLargeInputRest.wholeNanoseconds)
        }
        (spent, joined) = (0, 0)
        isResting = now < restsUntil
        guard isResting, next < waiting.count, !isTimed else { return nil }
        isTimed = true
        return restsUntil - now
    }

    mutating func restIsOver() { isTimed = false }

    /// The next of those that wait. It may be gone.
    mutating func takeNext() -> ConnectionID? {
        guard someAreDue else { return nil }
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
