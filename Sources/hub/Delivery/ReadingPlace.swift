import EventLog

/// Place of one reader in the event log: what it has passed, the epoch there, and where it opens the log next time.
struct ReadingPlace {
    /// Position at which reading begins; nil for the live follower at the log's end.
    let start: EventLogPosition?
    /// Offset of the first change after those that are done.
    private(set) var passed: UInt64 = 0
    /// Epoch of history at `passed`. Where history has a gap, another epoch begins at the same offset. Nil until the
    /// epoch is known.
    private(set) var epoch: UInt64?
    /// Epoch of the position at which the log was opened; nil until then.
    private var epochAtOpening: UInt64?
    /// Offset of the entry that is read and not done; nil between entries.
    private(set) var entryAt: UInt64?
    /// Number of changes of that entry that are done.
    private(set) var done: UInt32 = 0
    /// Offset before which messages to topics have been told.
    private(set) var gathered: UInt64 = 0
    /// True if the log had not begun at the first attempt to open it.
    private var isEarly = false
    /// Place where the reader continues, if the log no longer has the next entry or does not read there.
    private var lost: LostPlace?
    /// End of the log at the first attempt to read it, if the log could not be opened.
    private var refusedAt: EventLogPosition?

    init(from start: EventLogPosition?) { self.start = start }

    /// True for a reader of a past, which somebody waits for.
    var isOfPast: Bool { start != nil }

    /// Epoch of what was read last, or of the position from which the reader begins. A gap behind that position is
    /// still to be read.
    var epochReached: UInt64? { epoch ?? epochAtOpening }

    // MARK: Opening

    /// Position at which the log is opened. A reader that was too slow for the log's retention continues at the log's
    /// end.
    var beginning: EventLogStart {
        switch lost {
        case .end: .end
        case .segment(let sequence): .behindSegment(sequence)
        case nil: known.map { .offset($0.offset) } ?? (isEarly ? .oldest : .end)
        }
    }

    /// Position that the reader must reach again; nil if it begins where the log does, or at its end.
    private var known: EventLogPosition? { start ?? refusedAt }

    /// Segment behind which the log must have another one before it can be opened; nil if it can be opened now.
    func segmentAwaited(newest: UInt64) -> UInt64? {
        if case .segment(let sequence) = lost, newest <= sequence { sequence } else { nil }
    }

    /// Notes that the log has not begun.
    mutating func logIsMissing() { isEarly = true }

    /// Notes that the log was opened at `first`, while its end was at `end`. Returns what clients must be told.
    ///
    /// It is told only now, because what came into the log until now is left out, too.
    mutating func opened(at first: EventLogPosition, end: EventLogPosition) -> [String] {
        let wanted = lost == nil ? known : nil
        let place = wanted ?? (beginning == .end ? end : first)
        passed = place.offset
        epochAtOpening = place.epoch
        // The epochs can differ if a gap lies between the noted position and the log: then the next entry shows the
        // epoch.
        epoch = wanted == nil || first.epoch == place.epoch ? place.epoch : nil
        // Progress on an entry of an earlier opening does not apply to the entries of this one.
        (entryAt, done) = (nil, 0)
        defer { (isEarly, lost) = (false, nil) }
        return (isEarly ? [Pipeline.logHasBegun] : []) + (lost.map { [$0.reason] } ?? [])
    }

    /// Notes that the log could not be opened. What is committed from now on is not left out.
    mutating func isRefused(end: EventLogPosition) {
        guard start == nil, lost == nil, !isEarly, refusedAt == nil else { return }
        refusedAt = end
    }

    /// Notes that the reader cannot go on where it is.
    mutating func lose(_ place: LostPlace) { lost = place }

    // MARK: Reading

    /// Begins an entry.
    mutating func begin(_ entry: EventLogEntry) { entryAt = entry.offset }

    /// Notes that one more change of the entry is done.
    mutating func passChange() { done += 1 }

    /// Notes that the messages of the entry have been told, which comes before its changes.
    mutating func gather(_ entry: EventLogEntry) { gathered = entry.header.endOffset }

    /// Ends an entry. A reader first gets the schemas of its rows, which are further back in the log.
    mutating func finish(_ entry: EventLogEntry) {
        passed = max(passed, entry.header.endOffset)
        epoch = entry.epoch
        (entryAt, done) = (nil, 0)
    }

    /// Passes over everything before the position.
    mutating func passOver(to position: EventLogPosition) {
        assert(entryAt == nil, "a segment is passed over between entries")
        assert(position.offset >= passed, "what is passed over lies ahead")
        passed = max(passed, position.offset)
    }

    /// Enters an epoch. Returns true if the gap before it is missing. A gap takes no offset, so retention may have
    /// deleted the gap and nothing else that was to come.
    mutating func enter(_ newer: UInt64) -> Bool {
        guard let before = epoch, before != newer else { return false }
        epoch = newer
        return true
    }

    /// True if the reader's clients know of the gap: they begin after it.
    func beginsBehind(gap: EventLogEntry) -> Bool {
        known.map { gap.offset <= $0.offset && gap.epoch == $0.epoch } ?? false
    }

    /// Offset before which every change has been delivered or waits for an answer. No later change has.
    var frontier: UInt64 { max(passed, entryAt.map { $0 + UInt64(done) } ?? 0) }
}
