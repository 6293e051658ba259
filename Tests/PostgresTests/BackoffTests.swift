import Diagnostics
import TestSupport
import Testing

@testable import Postgres

@Suite(.within(minutes: 5)) struct BackoffTests {
    @Test func `doubles from short to long and stays there`() {
        var backoff = Backoff()
        var expected = Limits.reconnectBackoffInitial
        for _ in 0..<20 {
            let delay = backoff.next()
            #expect(delay >= expected * 0.8 && delay <= min(expected * 1.2, Limits.reconnectBackoffMaximum))
            expected = min(expected * 2, Limits.reconnectBackoffMaximum)
        }
        #expect(expected == Limits.reconnectBackoffMaximum)
    }

    @Test func `begins with short waits again after a reset`() {
        var backoff = Backoff()
        for _ in 0..<10 { _ = backoff.next() }
        backoff.reset()
        #expect(backoff.next() <= Limits.reconnectBackoffInitial * 1.2)
    }

    @Test func `does not let every hub knock at once`() {
        let first = (0..<50).map { _ in
            var backoff = Backoff()
            return backoff.next()
        }
        #expect(Set(first).count > 1)
    }

    @Test func `who reaches the database first ends the waits of the others, once`() {
        let database = Reachability()
        var (first, second) = (Backoff(database), Backoff(database))
        for _ in 0..<10 { _ = (first.next(), second.next()) }
        #expect(!second.isCutShort)
        first.reached()
        #expect(second.isCutShort)
        #expect(second.left(until: .max) == nil)
        #expect(second.next() <= Limits.reconnectBackoffInitial * 1.2)
        #expect(first.left(until: .max) ?? .zero > .seconds(3600))
        #expect(second.left(until: .max) ?? .zero <= Limits.recoveryInterval * 2)
        // A connection that was working already does not end the pauses of other connections.
        first.reached()
        #expect(!second.isCutShort)
        #expect(second.left(until: .max) != nil)
    }
}
