import Change
import Diagnostics

/// Recorder of one loop's notes and deliveries for the ledger.
///
/// The log may have no room for a note. Then the recorder says what is missing before it records any other note: readers
/// assume that the notes before a note are complete.
struct LedgerRecorder: ~Copyable {
    private var numbers: LedgerNumbers
    /// Deliveries that are still to be handed to the log.
    private var deliveries = DeliveryBlockWriter()
    /// Changes whose recorded deliveries were lost, until the log has a note about that.
    private var unrecorded: ClosedRange<UInt64>?
    /// Number of other notes lost, until the log has a note about that.
    private(set) var missed = MissedNotes()
    /// Refusals that were noted lately.
    var refusals = RefusalMemory()
    /// Highest offset noted as sent to all channels.
    private var reachNoted: UInt64 = 0
    /// True while a timer runs, at whose end the deliveries are handed over.
    private var isTimed = false

    init(loop: Int) { numbers = LedgerNumbers(loop: loop) }

    /// Number of the loop, as the notes contain it.
    var loop: UInt64 { numbers.loop }

    mutating func number(at time: Int64) -> UInt64 { numbers.next(at: time) }

    // MARK: Notes

    /// Records a note. Returns false if the log has no room for it; the caller then says which kind of note was missed.
    mutating func record(_ note: LedgerNote, in ledger: ChannelLedger, at time: Int64) -> Bool {
        saysWhatIsMissing(in: ledger, at: time) && ledger.record(note)
    }

    /// Counts a note that was missed about a channel that the ledger knows.
    mutating func missKnown() { missed.ofKnown += 1 }
    /// Counts a channel or request that the ledger does not know at all.
    mutating func missStranger() { missed.strangers += 1 }

    /// Records that notes are missing. Returns false if there is no room for that.
    mutating func saysWhatIsMissing(in ledger: ChannelLedger, at time: Int64) -> Bool {
        noteUnrecorded(in: ledger, at: time)
        guard unrecorded == nil else { return false }
        guard !missed.isEmpty else { return true }
        let note = LedgerNote(
            .missed, time: time, session: 0, channel: UInt32(loop), offset: missed.ofKnown, received: missed.strangers)
        guard ledger.record(note) else { return false }
        missed.areSaid()
        return true
    }

    /// True if the log has no note yet that says that all channels were sent everything before the offset.
    func isNews(reach offset: UInt64) -> Bool { offset > reachNoted }

    /// Notes that all channels were sent everything before the offset.
    ///
    /// - Parameters:
    ///   - began: time at which the check of the channels started.
    ///   - time: time of now.
    mutating func noteReach(_ offset: UInt64, from began: Int64, in ledger: ChannelLedger, at time: Int64) {
        handOver(to: ledger, at: time)
        guard saysWhatIsMissing(in: ledger, at: time) else { return }
        reachNoted = offset
        _ = ledger.record(LedgerNote(.reached, time: began, session: 0, channel: UInt32(loop), offset: offset))
    }

    // MARK: Deliveries

    /// Begins to wait for more deliveries. Returns true if the caller must start the timer.
    mutating func beginWait() -> Bool {
        guard !isHandedOver, !isTimed else { return false }
        isTimed = true
        return true
    }

    mutating func waitIsOver() { isTimed = false }

    /// True if no delivery waits to be handed to the log.
    var isHandedOver: Bool { deliveries.isEmpty }
    /// True if the waiting deliveries are as many as the log takes at once.
    var isFull: Bool { deliveries.byteCount >= Limits.deliveryBlockBytes && !deliveries.isMostlyNames }

    /// Returns a number under which deliveries to a channel are recorded. No other channel gets it before this one has
    /// left it.
    mutating func seat(session: UInt64, channel: UInt32) -> UInt32 {
        deliveries.seat(session: session, channel: channel)
    }

    /// Frees the number of a channel that has ended, whose deliveries were handed over.
    mutating func leave(_ seat: UInt32) {
        let isFree = isHandedOver
        assert(isFree, "a seat is free when its deliveries are handed over")
        deliveries.leave(seat)
    }

    /// Begins to record deliveries that were made at the same time.
    mutating func beginTurn(at time: Int64, changes: Int) { deliveries.beginTurn(at: time, changes: changes) }

    mutating func deliver(_ offset: UInt64, to seats: Span<UInt32>) { deliveries.append(offset, to: seats) }

    /// Hands the deliveries to the log. If it has no room for them, it is owed a note about their range.
    mutating func handOver(to ledger: ChannelLedger, at time: Int64) {
        if !deliveries.isEmpty {
            let offsets = deliveries.offsets
            var note = LedgerNote(
                .delivered, time: deliveries.began, session: 0, channel: UInt32(loop), offset: offsets.lowerBound,
                received: offsets.upperBound + 1)
            note.deliveries = deliveries.take()
            let isTaken = isHandedOver
            assert(isTaken, "a delivery is handed over once")
            if !ledger.record(note) { unrecorded = unrecorded.map { $0.union(offsets) } ?? offsets }
        }
        noteUnrecorded(in: ledger, at: time)
    }

    /// Notes the range of lost records, and retries until the log has the note. Otherwise readers would take the lost
    /// deliveries for not sent.
    private mutating func noteUnrecorded(in ledger: ChannelLedger, at time: Int64) {
        guard let missing = unrecorded else { return }
        let note = LedgerNote(
            .unrecorded, time: time, session: 0, channel: UInt32(loop), offset: missing.lowerBound,
            received: missing.upperBound + 1)
        if ledger.record(note) { unrecorded = nil }
    }
}

extension ClosedRange<UInt64> {
    fileprivate func union(_ other: Self) -> Self {
        Swift.min(lowerBound, other.lowerBound)...Swift.max(upperBound, other.upperBound)
    }
}
