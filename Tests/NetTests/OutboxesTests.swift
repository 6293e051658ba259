import Bytes
import Diagnostics
import TestSupport
import Testing

@testable import Net

/// Tests of queued and blocked output, without a socket.
@Suite(.within(minutes: 1)) struct OutboxesTests {
    private let outboxes = Outboxes()
    private let table = ConnectionTable(capacity: 10)

    private func newSeat() throws -> Int { try #require(table.take(descriptor: -1, stage: .open, now: 0)) }

    private func piece(_ bytes: [UInt8]) -> UInt32 { outboxes.arena.add(bytes.span.bytes).index }

    private func queue(_ piece: UInt32, _ seat: Int, continues: Bool = false) {
        outboxes.queue(piece, for: seat, &table[seat], continues: continues)
    }

    private func takeList(_ seat: Int) throws -> UInt32 {
        let list = table[seat].takeOutbox()
        return try #require(list)
    }

    private func bytes(of list: UInt32) -> [UInt8] {
        let writer = outboxes.bytes(of: list)
        // SAFETY: the writer outlives the call.
        return unsafe writer.bytes.withUnsafeBytes { Array($0) }
    }

    @Test func `each connection gets its pieces in their order, and comes up once`() throws {
        let (first, second) = (try newSeat(), try newSeat())
        let shared = piece([1, 2])
        queue(shared, first)
        queue(piece([3]), second)
        queue(piece([4, 5]), first, continues: true)
        queue(shared, second)
        #expect(outboxes.takeNext() == first)
        let list = try takeList(first)
        #expect(bytes(of: list) == [1, 2, 4, 5])
        #expect(outboxes.frameCount(of: list) == 1)
        #expect(outboxes.takeNext() == second)
        let other = try takeList(second)
        #expect(bytes(of: other) == [3, 1, 2])
        #expect(outboxes.frameCount(of: other) == 2)
        #expect(outboxes.takeNext() == nil)
        #expect(outboxes.largestBytes == 4)
        outboxes.finishFlush()
        #expect(outboxes.isEmpty)
        #expect(outboxes.endTurn() == 4)
        #expect(outboxes.largestBytes == 0)
    }

    @Test func `a connection that is queued during a flush is flushed too`() throws {
        let seat = try newSeat()
        queue(piece([1]), seat)
        #expect(outboxes.takeNext() == seat)
        _ = table[seat].takeOutbox()
        queue(piece([2]), seat)
        #expect(outboxes.takeNext() == seat)
        #expect(bytes(of: try takeList(seat)) == [2])
    }

    @Test func `a connection that has ended sends nothing`() throws {
        let seat = try newSeat()
        queue(piece([1]), seat)
        table[seat].end(.byPeer)
        let list = table[seat].takeOutbox()
        #expect(list == nil)
    }

    @Test func `lists are equal if their pieces are, to the end`() throws {
        let seats = try (0..<4).map { _ in try newSeat() }
        let (one, two) = (piece([1]), piece([1]))
        for seat in seats { queue(one, seat) }
        queue(one, seats[1])
        queue(one, seats[2])
        queue(two, seats[3])
        let lists = seats.map { table[$0].outbox.first }
        #expect(outboxes.areEqual(lists[1], lists[2]))
        #expect(!outboxes.areEqual(lists[0], lists[1]))
        #expect(!outboxes.areEqual(lists[1], lists[0]))
        #expect(!outboxes.areEqual(lists[1], lists[3]))
    }

    @Test func `those that were sent something are known, also ended ones, and those of before the recording`() throws {
        let (first, second, third) = (try newSeat(), try newSeat(), try newSeat())
        queue(piece([1]), first)
        outboxes.recordSent(table)
        #expect(outboxes.takeSent(table) == [table.id(of: first)])
        _ = table[first].takeOutbox()
        for seat in [first, second, third, second] { queue(piece([2]), seat) }
        table[second].end(.byPeer)
        table[third].end(.byPeer)
        table.giveBack(third)
        #expect(outboxes.takeSent(table) == [table.id(of: first), table.id(of: second)])
        #expect(outboxes.takeSent(table) == [])
    }

    @Test func `who is sent more in the turn in which it was taken is known again`() throws {
        let seat = try newSeat()
        outboxes.recordSent(table)
        queue(piece([1]), seat)
        #expect(outboxes.takeSent(table) == [table.id(of: seat)])
        queue(piece([2]), seat)
        #expect(outboxes.takeSent(table) == [table.id(of: seat)])
        #expect(outboxes.takeSent(table) == [])
    }

    @Test func `a position moves over whole pieces`() throws {
        let seat = try newSeat()
        for bytes in [[1, 2, 3], [], [4, 5]] as [[UInt8]] { queue(piece(bytes), seat) }
        var link = table[seat].outbox.first
        var offset = 0
        outboxes.skip(&link, &offset, 2)
        #expect(link == table[seat].outbox.first && offset == 2)
        outboxes.skip(&link, &offset, 2)
        #expect(bytes(of: link) == [4, 5] && offset == 1)
        outboxes.skip(&link, &offset, 1)
        #expect(link == 0)
    }

    // MARK: Backlogs

    private func settings(_ change: (inout SocketSettings) -> Void = { _ in }) -> SocketSettings {
        var settings = SocketSettings(host: "*", port: 0, loopCount: 1)
        change(&settings)
        return settings
    }

    @Test func `a backlog keeps what was not sent beyond the turn`() throws {
        let seat = try newSeat()
        queue(piece([1, 2, 3]), seat)
        queue(piece([4, 5]), seat)
        queue(piece([6]), seat, continues: true)
        queue(piece([7]), seat)
        var backlogs = Backlogs(settings())
        let index = backlogs.take(seat: seat, committed: 0, at: 50)
        let backlog = backlogs[index]
        outboxes.move(try takeList(seat), skipping: 4, to: backlog)
        _ = outboxes.endTurn()
        #expect(backlog.byteCount == 3 && backlog.seat == seat)
        let batch = Gather(ranges: 10, scratchBytes: 1000)
        backlog.fill(batch, outboxes.arena)
        #expect(batch.byteCount == 3)
        // Part of the frame of 4, 5 and 6 is already sent, so the rest must be sent, too.
        #expect(backlogs.drop(index, outboxes.arena) == 3)
        #expect(backlog.byteCount == 2)
        backlogs.release(index, outboxes.arena)
        #expect(backlogs.count == 0 && backlogs.inUse.isEmpty)
        backlogs.release(0, outboxes.arena)
        #expect(backlogs.take(seat: 9, committed: 0, at: 60) == index)
    }

    @Test func `bytes that TLS has committed are not dropped`() throws {
        let seat = try newSeat()
        queue(piece([1, 2]), seat)
        queue(piece([3]), seat)
        queue(piece([4]), seat)
        var backlogs = Backlogs(settings())
        let index = backlogs.take(seat: seat, committed: 1, at: 50)
        outboxes.move(try takeList(seat), skipping: 0, to: backlogs[index])
        backlogs[index].commit(3)
        _ = backlogs.drop(index, outboxes.arena)
        #expect(backlogs[index].byteCount == 3)
    }

    private func addBacklog(_ bytes: Int, to backlogs: inout Backlogs) throws -> Backlog {
        let seat = try newSeat()
        queue(piece([UInt8](repeating: 1, count: bytes)), seat)
        let index = backlogs.take(seat: seat, committed: 0, at: 50)
        let backlog = backlogs[index]
        outboxes.move(try takeList(seat), skipping: 0, to: backlog)
        return backlog
    }

    @Test func `a backlog has a size, which shrinks when many are blocked`() throws {
        let settings = settings {
            $0.outboxBytes = 1 << 20
            $0.outboxTotalBytes = 512 << 10
        }
        var backlogs = Backlogs(settings)
        let middle = try addBacklog(100 << 10, to: &backlogs)
        let large = try addBacklog((1 << 20) + 1, to: &backlogs)
        #expect(backlogs.size(of: large) == .tooLarge)
        #expect(backlogs.size(of: try addBacklog(10, to: &backlogs)) == .small)
        // With three backlogs, each may use a twelfth of the limit.
        #expect(backlogs.size(of: middle) == .filled)
        var few = Backlogs(settings)
        #expect(few.size(of: try addBacklog(100 << 10, to: &few)) == .small)
    }

    @Test func `a backlog is too old when nothing was taken for its age`() throws {
        var backlogs = Backlogs(settings { $0.outboxAge = .nanoseconds(100) })
        let backlog = try addBacklog(10, to: &backlogs)
        #expect(backlogs.dueTime(of: backlog) == 150)
        backlog.take(at: 70)
        #expect(backlogs.dueTime(of: backlog) == 170)
        let patient = Backlogs(settings { $0.outboxAge = .seconds(Int64.max) })
        #expect(patient.dueTime(of: backlog) == .max)
    }

    @Test func `memory goes back when much was freed, and counting starts again`() throws {
        var backlogs = Backlogs(settings())
        let bytes = 1 << 20
        for number in 1...Limits.memoryReturnThresholdBytes / bytes {
            #expect(!backlogs.haveFreedMuch, "after \(number - 1)")
            let seat = try newSeat()
            queue(piece([UInt8](repeating: 1, count: bytes)), seat)
            let index = backlogs.take(seat: seat, committed: 0, at: 50)
            outboxes.move(try takeList(seat), skipping: 0, to: backlogs[index])
            backlogs.release(index, outboxes.arena)
        }
        #expect(backlogs.haveFreedMuch)
        let isMuch = backlogs.takeFreed()
        #expect(isMuch)
        #expect(!backlogs.haveFreedMuch)
    }
}
