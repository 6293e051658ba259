import Change
import Settings
import Synchronization
import TestSupport
import Testing

@testable import Gateway

/// Log that has room for some notes only.
private final class ScarceLog: Sendable {
    private let state = Mutex((room: Int.max, notes: [LedgerNote]()))

    var room: Int {
        get { state.withLock { $0.room } }
        set { state.withLock { $0.room = newValue } }
    }

    var events: [LedgerNote.Event] { state.withLock { $0.notes.map(\.event) } }
    var last: LedgerNote? { state.withLock { $0.notes.last } }

    var ledger: ChannelLedger {
        ChannelLedger(.full, claims: []) { note in
            self.state.withLock { state in
                guard state.room > 0 else { return false }
                state.room -= 1
                state.notes.append(note)
                return true
            }
        }
    }
}

/// Recorder in an object, so that an expectation can change it.
private final class Recorder {
    var recorder = LedgerRecorder(loop: 3)
    let log = ScarceLog()
    private(set) lazy var seat = recorder.seat(session: 9, channel: 1)

    /// Records a note while the log has room for `room` notes.
    func record(_ event: LedgerNote.Event, room: Int) -> Bool {
        log.room = room
        return recorder.record(LedgerNote(event, time: 1, session: 1, channel: 1), in: log.ledger, at: 1)
    }

    func deliver(_ offset: UInt64) {
        recorder.beginTurn(at: 5, changes: 1)
        recorder.deliver(offset, to: [seat].span)
    }

    func handOver(room: Int) {
        log.room = room
        recorder.handOver(to: log.ledger, at: 6)
    }

    func noteReach(_ offset: UInt64, room: Int) {
        log.room = room
        recorder.noteReach(offset, from: 1, in: log.ledger, at: 2)
    }

    func isNews(reach offset: UInt64) -> Bool { recorder.isNews(reach: offset) }
    func missStranger() { recorder.missStranger() }
    func missKnown() { recorder.missKnown() }
    var times: UInt32 { recorder.missed.times }
    var isHandedOver: Bool { recorder.isHandedOver }
}

@Suite(.within(minutes: 1)) struct LedgerRecorderTests {
    private let loop = Recorder()
    private var log: ScarceLog { loop.log }

    @Test func `what is missing is said before any other note`() {
        #expect(!loop.record(.joined, room: 0))
        loop.missStranger()
        #expect(!loop.record(.told, room: 0))
        loop.missKnown()
        #expect(!loop.record(.left, room: 1), "there is room for what is missing only")
        #expect(log.last.map { $0.event == .missed && $0.offset == 1 && $0.received == 1 } == true)
        #expect(loop.times == 1, "channels that are known must be noted again")
        loop.missKnown()
        #expect(loop.record(.left, room: 2))
        #expect(log.events == [.missed, .missed, .left])
    }

    @Test func `deliveries that the log did not take are owed a note about their range`() {
        for offset: UInt64 in [4, 7] { loop.deliver(offset) }
        #expect(!loop.isHandedOver)
        loop.handOver(room: 0)
        #expect(loop.isHandedOver)
        loop.deliver(9)
        loop.handOver(room: 0)
        #expect(!loop.record(.left, room: 0))
        #expect(loop.record(.left, room: 2))
        #expect(log.events == [.unrecorded, .left])
        loop.deliver(12)
        loop.handOver(room: 1)
        #expect(log.last.map { $0.event == .delivered && $0.offset == 12 && $0.received == 13 } == true)
    }

    @Test func `a reach is noted once, and not before what is missing`() {
        loop.missStranger()
        loop.noteReach(7, room: 0)
        #expect(loop.isNews(reach: 7))
        loop.noteReach(7, room: 2)
        #expect(log.events == [.missed, .reached] && !loop.isNews(reach: 7) && loop.isNews(reach: 8))
    }
}
