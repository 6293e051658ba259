import Diagnostics
import Net

/// Limiter of large client messages, which take long to read. A loop reads large messages for a part of each turn only.
/// Joins with many bindings take longest, and cause work for other threads and for the database. After such joins the
/// loop reads no large message for a multiple of the time that they took. Other large messages wait in the order of
/// arrival, while small messages and deliveries go on.
struct LargeInput {
    /// Nanoseconds that this turn has spent on large messages.
    private var spent: UInt64 = 0
    /// Nanoseconds that this turn has spent on large joins.
    private var joined: UInt64 = 0
    /// Monotonic time in nanoseconds until which the loop reads no large message.
    private var restsUntil: UInt64 = 0
    private var isResting = false
    /// True if a timer is set for the end of the rest.
    private var isTimed = false
    private var waiting: [ConnectionID] = []
    /// Index of the next waiting connection.
    private var next = 0
    /// Connection whose next large message is read, even if this turn's time is spent.
    private var admitted: ConnectionID?

    /// True if the loop may read no more large messages in this turn.
    var isSpent: Bool { isResting || spent >= Self.share }
    /// True if a connection waits and the loop may read large messages now.
    var someAreDue: Bool { next < waiting.count && !isSpent }

    private static let share = Limits.turnLargeInput.wholeNanoseconds

    /// Returns true if the connection's bytes have to wait for another turn. `held` is the size of its message so far,
    /// which may grow if it is compressed.
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

    /// Adds the time spent on a large message.
    mutating func note(_ nanoseconds: UInt64) { spent += nanoseconds }

    /// Adds the time spent on a large join.
    mutating func note(join nanoseconds: UInt64) { joined += nanoseconds }

    /// Begins a turn. Returns the nanoseconds until waiting connections may be read, if a timer must be set for that.
    mutating func beginTurn(_ now: UInt64) -> UInt64? {
        if joined >= Self.share {
            restsUntil =
                now + min(joined * UInt64(Limits.largeJoinPauseFactor), Limits.maximumLargeInputRest.wholeNanoseconds)
        }
        (spent, joined) = (0, 0)
        isResting = now < restsUntil
        guard isResting, next < waiting.count, !isTimed else { return nil }
        isTimed = true
        return restsUntil - now
    }

    mutating func restIsOver() { isTimed = false }

    /// Removes and returns the next waiting connection, which may be closed already.
    mutating func takeNext() -> ConnectionID? {
        guard someAreDue else { return nil }
        let connection = waiting[next]
        next += 1
        // The array is compacted when all connections were read, or when moving the rest costs little per connection.
        if next == waiting.count || next >= 1024 {
            waiting.removeFirst(next)
            next = 0
        }
        assert(next <= waiting.count && next < 1024, "connections that were read do not stay in the queue")
        admitted = connection
        return connection
    }
}
