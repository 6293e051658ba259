import System
import TestSupport
import Testing

@testable import Net

/// Tests of a connection's record: its stages, its events, and the findings of a sweep.
@Suite(.within(minutes: 1)) struct ConnectionTests {
    private func connection(at now: UInt64 = 1000) -> Connection {
        Connection(descriptor: 5, generation: 1, stage: .open, now: now)
    }

    @Test func `a sweep finds nothing about a connection without limits`() {
        var connection = connection()
        #expect(connection.sweep(at: .max - 1, unfinishedLimit: 10) == .nothing(before: .max))
    }

    @Test func `a deadline counts before everything else`() {
        var connection = connection()
        _ = connection.activity.setIdleLimit(nanoseconds: 1)
        connection.startClosing(.closedHere, deadline: 5_000_000)
        #expect(connection.sweep(at: 4_999_999, unfinishedLimit: 10) == .nothing(before: 5_000_000))
        #expect(connection.sweep(at: 5_000_000, unfinishedLimit: 10) == .deadlineIsPast)
        #expect(connection.end == .closedHere)
    }

    @Test func `an incomplete message is overdue, but for a connection that closes`() {
        var connection = connection()
        connection.input.hold(1, restarting: false, now: 1000)
        #expect(connection.sweep(at: 1009, unfinishedLimit: 10) == .nothing(before: 1010))
        #expect(connection.sweep(at: 1010, unfinishedLimit: 10) == .inputIsOverdue)
        connection.startClosing(.closedHere, deadline: 2000)
        #expect(connection.sweep(at: 1010, unfinishedLimit: 10) == .nothing(before: 2000))
    }

    @Test func `silence is found again after each idle limit`() {
        var connection = connection(at: 0)
        // The limit is rounded up to 3 milliseconds.
        #expect(connection.activity.setIdleLimit(nanoseconds: 2_000_001) == 3_000_000)
        #expect(connection.sweep(at: 2_999_999, unfinishedLimit: 10) == .nothing(before: 3_000_000))
        #expect(connection.sweep(at: 3_000_000, unfinishedLimit: 10) == .silence(next: 6_000_000))
        connection.activity.receive(at: 5_000_000, lookedAt: 4_000_000, fillsRoom: false)
        #expect(connection.sweep(at: 6_000_000, unfinishedLimit: 10) == .nothing(before: 8_000_000))
        #expect(connection.activity.setIdleLimit(nanoseconds: 0) == 0)
        #expect(connection.sweep(at: 100_000_000, unfinishedLimit: 10) == .nothing(before: .max))
    }

    @Test func `input that may have waited does not show when the peer lived`() {
        var activity = PeerActivity(now: 0)
        activity.receive(at: 10, lookedAt: 8, fillsRoom: true)
        #expect(activity.certainlySentAfter == 8)
        activity.receive(at: 20, lookedAt: 18, fillsRoom: false)
        #expect(activity.certainlySentAfter == 8)
        activity.receive(at: 30, lookedAt: 28, fillsRoom: false)
        #expect(activity.certainlySentAfter == 28)
        activity.leaveInput()
        activity.receive(at: 40, lookedAt: 38, fillsRoom: false)
        #expect(activity.certainlySentAfter == 28)
    }

    @Test func `each stage waits for the events that it needs`() {
        var connection = connection()
        let input: Epoll.Events = [.readable, .peerFinished]
        #expect(connection.wantedEvents == input)
        connection.block(by: 3)
        #expect(connection.wantedEvents == input.union(.writable))
        #expect(connection.set(.readingIsPaused) == true)
        #expect(connection.wantedEvents == .writable)
        connection.startClosing(.closedHere, deadline: 10)
        #expect(connection.wantedEvents == .writable)
        #expect(connection.takeBacklog() == 3)
        #expect(connection.wantedEvents == Epoll.Events())
        connection.startLingering()
        #expect(connection.wantedEvents == input)
        connection.end(.byPeer)
        #expect(connection.wantedEvents == nil)
        #expect(!connection.hasSocket)
    }

    @Test func `the same events are watched once`() {
        var connection = connection()
        #expect(connection.isNewlyWatched(for: .readable) == true)
        #expect(connection.isNewlyWatched(for: .readable) == false)
        #expect(connection.isNewlyWatched(for: .writable) == true)
    }

    @Test func `an old id does not find the seat's next connection`() throws {
        let table = ConnectionTable(capacity: 1)
        let seat = try #require(table.take(descriptor: -1, stage: .open, now: 0))
        let id = table.id(of: seat)
        #expect(table.take(descriptor: -1, stage: .open, now: 0) == nil)
        table[seat].end(.byPeer)
        #expect(table.seat(of: id) == nil)
        table.giveBack(seat)
        #expect(table.take(descriptor: -1, stage: .open, now: 0) == seat)
        #expect(table.seat(of: id) == nil)
        #expect(table.seat(of: table.id(of: seat)) == seat)
    }
}
