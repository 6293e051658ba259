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
        if let known = channel.ledgerSeat { return known }
        let seat = sentRecord.seat(session: ledgerNumber(of: channel.session), channel: channel.id.incarnation)
        channel.ledgerSeat = seat
        return seat
    }

    /// True if the ledger records each delivery.
    var recordsEach: Bool { project.ledger?.keeps(.delivered) == true }

    /// Records that a database message was sent to these channels.
    func recordSent(message offset: UInt64, to members: some Sequence<UInt32>) {
        guard recordsEach else { return }
        let seats = members.compactMap { channels[$0].map(seat(of:)) }
        guard !seats.isEmpty else { return }
        sentRecord.beginTurn(at: loop.time.unixMicroseconds(), changes: 1)
        sentRecord.append(offset, to: seats.span)
        timeSentRecord()
    }

    /// Hands the channel's deliveries over and frees its seat. The caller does this before it notes the channel's end:
    /// readers of that note may assume that no delivery is missing.
    func leaveSeat(of channel: Channel) {
        guard let seat = channel.ledgerSeat else { return }
        recordSent()
        handSentRecordOver()
        let isHandedOver = sentRecord.isEmpty
        assert(isHandedOver, "a seat is free when its deliveries are handed over")
        sentRecord.leave(seat)
        channel.ledgerSeat = nil
    }

    /// Records the deliveries since the last call.
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
            let isTaken = sentRecord.isEmpty
            assert(isTaken, "a delivery is handed over once")
            if !ledger.record(note) { unrecorded = unrecorded.map { $0.union(offsets) } ?? offsets }
        }
        noteUnrecorded(ledger)
    }

    /// Notes the range of lost records, and retries until the log has the note. Otherwise readers would take the lost
    /// deliveries for not sent.
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
