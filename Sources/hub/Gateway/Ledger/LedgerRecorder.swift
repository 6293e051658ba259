import Change
import Diagnostics

/// Recorder of one loop's notes and deliveries for the ledger.
///
/// The log may have no room for a note. Then the recorder must write that notes are missing before it writes any other
/// note, because readers assume that all notes before a note are complete.
struct LedgerRecorder: ~Copyable {
    private var numbers: LedgerNumbers
    /// Deliveries that have not been passed to the log yet.
    private var deliveries = DeliveryBlockWriter()
    /// Offsets of changes whose recorded deliveries were lost, from the first to the last. Nil if the log reports all
    /// such losses.
    private var unrecorded: ClosedRange<UInt64>?
    /// Counts of lost notes that are not reported in the log yet.
    private(set) var missed = MissedNotes()
    /// Refusals that the ledger has recorded recently, so that it does not repeat them.
    var refusals = RefusalMemory()
    /// Highest offset of which a note says that everything before it was sent to all channels.
    private var reachNoted: UInt64 = 0
    /// True while a timer runs, at the end of which the deliveries are passed to the log.
    private var isTimed = false

    init(loop: Int) { numbers = LedgerNumbers(loop: loop) }

    /// Number of this loop, as ledger notes contain it.
    var loop: UInt64 { numbers.loop }

    mutating func number(at time: Int64) -> UInt64 { numbers.next(at: time) }

    // MARK: Notes

    /// Writes a note to the log. Returns false if the log has no room; the caller then counts the kind of note that is
    /// missing.
    mutating func record(_ note: LedgerNote, in ledger: ChannelLedger, at time: Int64) -> Bool {
        saysWhatIsMissing(in: ledger, at: time) && ledger.record(note)
    }

    /// Counts a lost note about a channel that the ledger lists.
    mutating func missKnown() { missed.ofKnown += 1 }
    /// Counts a channel or request of which the ledger has no note, because the note was lost.
    mutating func missStranger() { missed.strangers += 1 }

    /// Writes to the log that notes are missing, if any are. Returns false if the log has no room for that.
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

    /// True if no note says yet that everything before this offset was sent to all channels.
    func isNews(reach offset: UInt64) -> Bool { offset > reachNoted }

    /// Writes to the log that everything before the offset was sent to all channels.
    ///
    /// - Parameters:
    ///   - began: Unix time in microseconds at which the check of the channels began.
    ///   - time: current Unix time in microseconds.
    mutating func noteReach(_ offset: UInt64, from began: Int64, in ledger: ChannelLedger, at time: Int64) {
        handOver(to: ledger, at: time)
        guard saysWhatIsMissing(in: ledger, at: time) else { return }
        reachNoted = offset
        _ = ledger.record(LedgerNote(.reached, time: began, session: 0, channel: UInt32(loop), offset: offset))
    }

    // MARK: Deliveries

    /// Begins to collect deliveries until a timer ends. Returns true if the caller must start that timer.
    mutating func beginWait() -> Bool {
        guard !isHandedOver, !isTimed else { return false }
        isTimed = true
        return true
    }

    mutating func waitIsOver() { isTimed = false }

    /// True if all recorded deliveries have been passed to the log.
    var isHandedOver: Bool { deliveries.isEmpty }
    /// True if as many deliveries wait as the log takes in one block.
    var isFull: Bool { deliveries.byteCount >= Limits.deliveryBlockBytes && !deliveries.isMostlyNames }

    /// Returns an index under which deliveries to a channel are recorded. It is not reused before the channel calls
    /// `leave`.
    mutating func seat(session: UInt64, channel: UInt32) -> UInt32 {
        deliveries.seat(session: session, channel: channel)
    }

    /// Frees the index of a channel that has ended. Its deliveries must have been passed to the log.
    mutating func leave(_ seat: UInt32) {
        let isFree = isHandedOver
        assert(isFree, "a seat is free when its deliveries are handed over")
        deliveries.leave(seat)
    }

    /// Begins to record the deliveries of one turn, which all get the same time.
    mutating func beginTurn(at time: Int64, changes: Int) { deliveries.beginTurn(at: time, changes: changes) }

    mutating func deliver(_ offset: UInt64, to seats: Span<UInt32>) { deliveries.append(offset, to: seats) }

    /// Passes the recorded deliveries to the log. If the log has no room, records the range of their changes as lost.
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

    /// Writes to the log which changes have lost deliveries; tries again at each call until the log has room. Otherwise
    /// readers would believe that the changes were not sent.
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
