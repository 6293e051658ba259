import Bytes
import Change
import Channels
import Delivery
import Diagnostics
import Net
import System

/// Each delivery of a change, where the ledger keeps them all (`ledger = full`): noted by the data plane as the seats of those
/// whom a change was sent to, written down at a turn's end, and handed to the log as blocks.
extension ProjectLoop {
    /// Under which it is recorded what is sent to the channel; nobody else has it before the channel has ended.
    func seat(of channel: Channel) -> UInt32 {
        guard recordsEach else { return Recipient.unrecorded }
        if let known = channel.ledgerSeat { return known }
        let seat = sentRecord.seat(session: ledgerNumber(of: channel.session), channel: channel.id.incarnation)
        channel.ledgerSeat = seat
        return seat
    }

    /// Each delivery is recorded.
    var recordsEach: Bool { project.ledger?.keeps(.delivered) == true }

    /// A message that the log has was sent to these channels.
    func recordSent(message offset: UInt64, to members: some Sequence<UInt32>) {
        guard recordsEach else { return }
        let seats = members.compactMap { channels[$0].map(seat(of:)) }
        guard !seats.isEmpty else { return }
        sentRecord.beginTurn(at: loop.time.unixMicroseconds(), changes: 1)
        sentRecord.append(offset, to: seats.span)
        timeSentRecord()
    }

    /// Before its end is noted: whoever reads that knows that nothing is missing.
    func leaveSeat(of channel: Channel) {
        guard let seat = channel.ledgerSeat else { return }
        recordSent()
        handSentRecordOver()
        sentRecord.leave(seat)
        channel.ledgerSeat = nil
    }

    /// What was sent since the last time.
    func recordSent() {
        var now: Int64?
        for follower in followers where follower.pipeline.sentCount > 0 {
            let time = now ?? loop.time.unixMicroseconds()
            now = time
            sentRecord.beginTurn(at: time, changes: follower.pipeline.sentCount)
            follower.pipeline.takeSent { sentRecord.append($0, to: $1) }
        }
        guard now != nil else { return }
        timeSentRecord()
    }

    private func timeSentRecord() {
        if sentRecord.byteCount >= Limits.deliveryBlockBytes, !sentRecord.isMostlyNames { handSentRecordOver() }
        guard !sentRecord.isEmpty, !isSentRecordTimed else { return }
        isSentRecordTimed = true
        loop.after(
            nanoseconds: Limits.deliveryBlockInterval.wholeNanoseconds, token: TimerToken.sentRecord(place).rawValue)
    }

    func sentRecordIsDue() {
        isSentRecordTimed = false
        handSentRecordOver()
    }

    func handSentRecordOver() {
        guard let ledger = project.ledger else { return }
        if !sentRecord.isEmpty {
            let offsets = sentRecord.offsets
            var note = LedgerNote(
                .delivered, time: sentRecord.began, session: 0, channel: UInt32(ledgerNumbers.loop),
                offset: offsets.lowerBound, received: offsets.upperBound + 1)
            note.deliveries = sentRecord.take()
            if !ledger.record(note) { unrecorded = unrecorded.map { $0.union(offsets) } ?? offsets }
        }
        noteUnrecorded(ledger)
    }

    /// Until the log has it: what is not in it must not be taken for not sent.
    func noteUnrecorded(_ ledger: ChannelLedger) {
        guard let missing = unrecorded else { return }
        let note = LedgerNote(
            .unrecorded, time: loop.time.unixMicroseconds(), session: 0, channel: UInt32(ledgerNumbers.loop),
            offset: missing.lowerBound, received: missing.upperBound + 1)
        if ledger.record(note) { unrecorded = nil }
    }
}

extension ClosedRange<UInt64> {
    fileprivate func union(_ other: Self) -> Self {
        Swift.min(lowerBound, other.lowerBound)...Swift.max(upperBound, other.upperBound)
    }
}
