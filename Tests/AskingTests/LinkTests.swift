import Diagnostics
import Postgres
import TestSupport
import Testing

@testable import Asking

@Suite(.within(minutes: 2)) struct LinkTests {
    private let second: UInt64 = 1_000_000_000
    private let connected = Gauge()

    private func link(quickRetries: Int = 0, idleLimit: Duration? = nil) -> Link<Int> {
        Link(.every(.seconds(1)), quickRetries: quickRetries, idleLimit: idleLimit, connected: connected)
    }

    @Test func `a session is counted while there is one`() {
        var link = link()
        #expect(link.mayTry(at: 0))
        link.opened(7, at: 0)
        #expect(link.session == 7 && connected.value == 1 && !link.mayTry(at: 0))
        link.drop()
        link.drop()
        #expect(link.session == nil && connected.value == 0 && link.mayTry(at: 0))
    }

    @Test func `after a failure nothing is tried for a while`() {
        var link = link()
        link.opened(7, at: 0)
        let delay = link.failed(at: 5)
        #expect(delay == .seconds(1) && link.session == nil && connected.value == 0)
        #expect(!link.mayTry(at: 4 + second) && link.mayTry(at: 5 + second))
        #expect(link.nextTry(at: 5) == 5 + second)
    }

    @Test func `a lost session is made again at once so often, until there was an answer`() {
        var link = link(quickRetries: 2)
        var delays = [link.failed(at: 0)]
        #expect(link.mayTry(at: 0))
        for session in 1...2 {
            link.opened(session, at: 0)
            delays.append(link.failed(at: 0))
        }
        link.opened(3, at: second)
        link.answered()
        delays.append(link.failed(at: second))
        #expect(delays == [nil, nil, .seconds(1), nil])
    }

    @Test func `a session that nobody uses is dropped`() {
        var link = link(idleLimit: .seconds(2))
        #expect(link.idleEnd == .max)
        link.opened(7, at: 0)
        link.used(at: second)
        #expect(link.idleEnd == 3 * second && link.idleTime(at: 2 * second) == .seconds(1))
        link.dropIfIdle(at: 3 * second - 1)
        #expect(link.session == 7)
        link.dropIfIdle(at: 3 * second)
        #expect(link.session == nil && link.mayTry(at: 3 * second))
    }

    @Test func `waits get longer, and end when somebody else reaches the database`() throws {
        let database = Reachability()
        var (link, other) = (
            Link<Int>(.backingOff(Backoff(database)), connected: connected),
            Link<Int>(.backingOff(Backoff(database)), connected: connected)
        )
        let delays = (0..<4).compactMap { _ in link.failed(at: 0) }
        #expect(delays.count == 4 && delays[3] > delays[0] * 3)
        _ = other.failed(at: 0)
        #expect(!link.mayTry(at: 0))
        // PostgreSQL does not report this, so the link checks at intervals.
        #expect(link.nextTry(at: 0) == Limits.recoveryInterval.wholeNanoseconds)
        other.opened(1, at: 0)
        #expect(link.mayTry(at: 0))
        link.opened(2, at: 0)
        link.answered()
        let delay = link.failed(at: 0)
        #expect(try #require(delay) <= Limits.reconnectBackoffInitial * 1.2)
    }

    @Test func `a server that is of no use was reached, and rests`() {
        let database = Reachability()
        var (link, other) = (
            Link<Int>(.backingOff(Backoff(database)), connected: connected),
            Link<Int>(.backingOff(Backoff(database)), connected: connected)
        )
        _ = (link.failed(at: 0), other.failed(at: 0))
        link.refused(for: .seconds(5), at: 0)
        #expect(other.mayTry(at: 0))
        #expect(!link.mayTry(at: 4 * second) && link.mayTry(at: 5 * second))
    }
}
