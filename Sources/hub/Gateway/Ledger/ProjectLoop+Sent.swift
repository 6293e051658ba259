import Bytes
import Change
import Channels
import Delivery
import Diagnostics
import Net
import System

/// Record of each delivery, for ledgers that keep them all (`ledger = full`). The followers note the receivers of each
/// change by seat. The loop writes these down at a turn's end, and hands them to the log in blocks.
extension ProjectLoop {
    /// Returns the number under which deliveries to the channel are recorded. No other channel gets it before this one
    /// has ended.
    func seat(of channel: Channel) -> UInt32 {
        guard recordsEach else { return Recipient.unrecorded }
        if let known = channel.ledger.seat { return known }
        let seat = ledgerRecorder.seat(session: ledgerNumber(of: channel.session), channel: channel.id.incarnation)
        channel.ledger.seat = seat
        return seat
    }

    /// True if the ledger records each delivery.
    var recordsEach: Bool { project.ledger?.keeps(.delivered) == true }

    /// Records that a database message was sent to these channels.
    func recordSent(message offset: UInt64, to members: some Sequence<UInt32>) {
        guard recordsEach else { return }
        let seats = members.compactMap { channels[$0].map(seat(of:)) }
        guard !seats.isEmpty else { return }
        ledgerRecorder.beginTurn(at: loop.time.unixMicroseconds(), changes: 1)
        ledgerRecorder.deliver(offset, to: seats.span)
        timeSentRecord()
    }

    /// Hands the channel's deliveries over and frees its seat. The caller does this before it notes the channel's end:
    /// readers of that note may assume that no delivery is missing.
    func leaveSeat(of channel: Channel) {
        guard let seat = channel.ledger.seat else { return }
        recordSent()
        handSentRecordOver()
        ledgerRecorder.leave(seat)
        channel.ledger.seat = nil
    }

    /// Records the deliveries since the last call.
    func recordSent() {
        var now: Int64?
        for follower in followers where follower.pipeline.sentCount > 0 {
            let time = now ?? loop.time.unixMicroseconds()
            now = time
            ledgerRecorder.beginTurn(at: time, changes: follower.pipeline.sentCount)
            follower.pipeline.router.takeSent { ledgerRecorder.deliver($0, to: $1) }
        }
        guard now != nil else { return }
        timeSentRecord()
    }

    private func timeSentRecord() {
        if ledgerRecorder.isFull { handSentRecordOver() }
        guard ledgerRecorder.beginWait() else { return }
        loop.after(
            nanoseconds: Limits.deliveryBlockInterval.wholeNanoseconds, token: TimerToken.sentRecord(place).rawValue)
    }

    func sentRecordIsDue() {
        ledgerRecorder.waitIsOver()
        handSentRecordOver()
    }

    private func handSentRecordOver() {
        guard let ledger = project.ledger else { return }
        ledgerRecorder.handOver(to: ledger, at: loop.time.unixMicroseconds())
    }
}
