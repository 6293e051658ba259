import EventLog

/// Place of one reader in the log: how far it has read, in which epoch, and where it opens the log next time.
struct ReadingPlace {
    /// Position at which reading begins; nil for the live follower at the log's end.
    let start: EventLogPosition?
    /// Offset in the log before which the reader is done with all entries.
    private(set) var passed: UInt64 = 0
    /// Epoch of the log at `passed`; nil until it is known. After a gap another epoch begins at the same offset.
    private(set) var epoch: UInt64?
    /// Epoch of the position at which the log was opened; nil before the log was opened.
    private var epochAtOpening: UInt64?
    /// Offset of the entry that the reader is working on; nil between entries.
    private(set) var entryAt: UInt64?
    /// Number of changes of the current entry that are done.
    private(set) var done: UInt32 = 0
    /// Offset before which all messages to topics have been gathered for delivery.
    private(set) var gathered: UInt64 = 0
    /// True if the log did not exist yet at the first attempt to open it.
    private var isEarly = false
    /// Place where the reader continues if it cannot read its own place; nil if it can read that.
    private var lost: LostPlace?
    /// End of the log at the first attempt to open it, if that attempt failed.
    private var refusedAt: EventLogPosition?

    init(from start: EventLogPosition?) { self.start = start }

    /// True for a catch-up, which begins at an earlier position than the log's end.
    var isOfPast: Bool { start != nil }

    /// Epoch of the last entry that was read; before the first one, epoch of the position where reading begins. The
    /// next entry may be a gap, after which another epoch begins.
    var epochReached: UInt64? { epoch ?? epochAtOpening }

    // MARK: Opening

    /// Position at which the log is opened. A reader whose next entry was deleted by retention continues at the log's
    /// end.
    var beginning: EventLogStart {
        switch lost {
        case .end: .end
        case .segment(let sequence): .behindSegment(sequence)
        case nil: known.map { .offset($0.offset) } ?? (isEarly ? .oldest : .end)
        }
    }

    /// Position after which the reader must not miss any entry; nil if it begins at the log's first entry or at its
    /// end.
    private var known: EventLogPosition? { start ?? refusedAt }

    /// Returns the number of a damaged segment if the log can be opened only once it has a later segment; nil if it can
    /// be opened now.
    func segmentAwaited(newest: UInt64) -> UInt64? {
        if case .segment(let sequence) = lost, newest <= sequence { sequence } else { nil }
    }

    /// Records that the log does not exist yet.
    mutating func logIsMissing() { isEarly = true }

    /// Records that the log was opened at `first`, while its end was at `end`. Returns reasons for losses that clients
    /// must be told.
    ///
    /// A loss is reported only here and not when it was found, because entries written until now are skipped too.
    mutating func opened(at first: EventLogPosition, end: EventLogPosition) -> [String] {
        let wanted = lost == nil ? known : nil
        let place = wanted ?? (beginning == .end ? end : first)
        passed = place.offset
        epochAtOpening = place.epoch
        // If a gap lies between the known position and the log, the epochs differ. The next entry then shows the epoch.
        epoch = wanted == nil || first.epoch == place.epoch ? place.epoch : nil
        // Progress on an entry of an earlier opening does not apply to the entries of this one.
        (entryAt, done) = (nil, 0)
        defer { (isEarly, lost) = (false, nil) }
        return (isEarly ? [Pipeline.logHasBegun] : []) + (lost.map { [$0.reason] } ?? [])
    }

    /// Records that the log could not be opened while its end was at `end`. The reader must not miss what is committed
    /// from now on.
    mutating func isRefused(end: EventLogPosition) {
        guard start == nil, lost == nil, !isEarly, refusedAt == nil else { return }
        refusedAt = end
    }

    /// Records that the reader cannot continue where it is, and the place where it continues instead.
    mutating func lose(_ place: LostPlace) { lost = place }

    // MARK: Reading

    /// Records that the reader begins to work on a log entry.
    mutating func begin(_ entry: EventLogEntry) { entryAt = entry.offset }

    /// Records that one more change of the current entry is done.
    mutating func passChange() { done += 1 }

    /// Records that the messages to topics in the entry have been gathered. This happens before its changes are
    /// delivered.
    mutating func gather(_ entry: EventLogEntry) { gathered = entry.header.endOffset }

    /// Ends a log entry. `passed` never decreases, although a reader first gets the schemas of its rows, which are
    /// stored earlier in the log.
    mutating func finish(_ entry: EventLogEntry) {
        passed = max(passed, entry.header.endOffset)
        epoch = entry.epoch
        (entryAt, done) = (nil, 0)
    }

    /// Moves the reader to the position, which is the end of a skipped segment.
    mutating func passOver(to position: EventLogPosition) {
        assert(entryAt == nil, "a segment is passed over between entries")
        assert(position.offset >= passed, "what is passed over lies ahead")
        passed = max(passed, position.offset)
    }

    /// Enters the epoch of a log entry. Returns true if the gap before it is missing from the log. A gap takes no
    /// offset, so retention can delete it alone.
    mutating func enter(_ newer: UInt64) -> Bool {
        guard let before = epoch, before != newer else { return false }
        epoch = newer
        return true
    }

    /// True if the reader's clients know of the gap, because the reader began after it.
    func beginsBehind(gap: EventLogEntry) -> Bool {
        known.map { gap.offset <= $0.offset && gap.epoch == $0.epoch } ?? false
    }

    /// Offset before which every change has been delivered or waits for an answer. No change from it on has been
    /// delivered.
    var frontier: UInt64 { max(passed, entryAt.map { $0 + UInt64(done) } ?? 0) }
}
