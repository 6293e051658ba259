import Bytes
import Diagnostics
import System

/// Entries in; a durable, ordered, checksummed log out.
///
/// It knows nothing of what entries mean. One thread uses it; readers follow `end` from any thread. Nothing is
/// published before it is durable, and a disk that fails costs waiting, never entries: see `flush`.
public final class EventLogWriter {
    public let options: EventLogOptions
    /// Where the entries come from now; another only after `beginEpoch`.
    public private(set) var source: UInt64
    /// What readers in this process follow.
    public let end: EventLogEnd
    /// What opening the log came upon.
    public let recovery: EventLogRecovery

    let directory: any StorageDirectory
    private let lock: any StorageLock
    var sealed: [SegmentSummary]
    private var active: ActiveSegment
    private var spare: SpareSegment?
    /// Time at which the present segment began, on the monotonic clock.
    private var segmentBegan: UInt64
    /// Clock by which no segment ages faster than time passes; nil without a monotonic clock.
    let steadyClock: SteadyClock?
    /// Times at which this process sealed segments, by that clock.
    var sealedAt: [UInt64: Int64] = [:]
    /// A rename that is not known to be durable yet.
    private var directoryNeedsSync = false

    /// Opens the log in the directory, or makes one. Takes the directory's lock for its whole life.
    public init(directory: any StorageDirectory, options: EventLogOptions) throws(EventLogError) {
        var opening = LogOpening(directory: directory, options: options)
        lock = try opening.takeLock()
        let (file, index) = try opening.open()
        self.directory = directory
        self.options = options
        source = options.source
        recovery = opening.report
        sealed = opening.sealed
        segmentBegan = Clock.monotonicNanoseconds()
        steadyClock = options.monotonic.map { SteadyClock(wall: options.now(), $0) }
        active = ActiveSegment(file: file, index: index)
        end = EventLogEnd(Self.state(index.whole))
    }

    deinit { _ = spare?.take() }

    private static func state(_ summary: SegmentSummary) -> EventLogEnd.State {
        EventLogEnd.State(
            position: EventLogPosition(epoch: summary.epoch, offset: summary.endOffset), lsn: summary.lastLSN,
            segment: summary.sequence, segmentBytes: summary.bytes)
    }

    // MARK: - Where it stands

    /// The LSN of the last whole transaction that is durable: this far the source may forget.
    public var durableLSN: UInt64 { end.state.lsn }
    /// The LSN of the last entry that was taken, durable or not.
    public var appendedLSN: UInt64 { active.index.all.lastLSN }
    /// The offset the next change gets.
    public var nextOffset: UInt64 { active.index.all.endOffset }
    public var epoch: UInt64 { active.header.epoch }
    public var segmentSequence: UInt64 { active.header.sequence }
    /// Bytes taken and not durable yet.
    public var pendingBytes: Int { active.pendingBytes }
    public var isInsideTransaction: Bool { active.isInsideTransaction }
    /// Nothing was written to the present segment yet, so its schema entries are still to come.
    public var isAtSegmentStart: Bool { active.index.all.isEmpty }

    /// All segments, oldest first; numbers of the last one as far as they are durable.
    public var segments: [SegmentSummary] { sealed + [active.published] }

    // MARK: - Appending

    /// Takes one entry into memory and answers the offset of its first change.
    ///
    /// `continued` says that the transaction goes on in the next entry; nobody sees a part of it before the last one is
    /// durable. When memory is full, what is there is written through first; if that fails, the entry was not taken.
    @discardableResult
    public func append(
        kind: EntryKind, continued: Bool = false, changeCount: UInt32 = 0, lsn: UInt64, time: Int64,
        payload: RawSpan, keys: Span<UInt64>
    ) throws(EventLogFailure) -> UInt64 {
        try Self.append(
            to: &active,
            EntryHeader(
                payloadBytes: payload.byteCount, kind: kind, isContinued: continued, changeCount: changeCount,
                offset: 0, lsn: lsn, time: time, publishedBytes: 0),
            payload: payload, keys: keys)
    }

    @discardableResult
    public func append(
        kind: EntryKind, continued: Bool = false, changeCount: UInt32 = 0, lsn: UInt64, time: Int64,
        payload: RawSpan
    ) throws(EventLogFailure) -> UInt64 {
        try append(
            kind: kind, continued: continued, changeCount: changeCount, lsn: lsn, time: time, payload: payload,
            keys: Span())
    }

    // `inout`, so that the class's exclusivity check is paid once an entry and not once a field.
    private static func append(
        to active: inout ActiveSegment, _ wanted: EntryHeader, payload: RawSpan, keys: Span<UInt64>
    ) throws(EventLogFailure) -> UInt64 {
        precondition(payload.byteCount <= Limits.maximumEntryPayloadBytes, "an entry's payload has a largest size")
        precondition(wanted.kind.rawValue != 0, "kind 0 is no kind")
        precondition(
            wanted.changeCount == 0 || wanted.kind == .transaction, "only transactions move the offset")
        precondition(wanted.lsn >= active.index.all.lastLSN, "the log's LSN goes back only in a new epoch")
        var entry = wanted
        entry.offset = active.index.all.endOffset
        entry.publishedBytes = active.published.bytes
        try active.append(entry, payload: payload, keys: keys)
        return entry.offset
    }

    /// Of the entry that is appended next nobody can name the keys: the segment may hold any.
    public func giveUpKeys() { active.giveUpKeys() }

    /// Makes everything taken so far durable with one write and one sync, and publishes the whole transactions in it.
    ///
    /// After a failure (full disk, failed sync) nothing was published and nothing is lost: all of it is still in
    /// memory and the next call writes all of it again.
    public func flush() throws(EventLogFailure) {
        // A segment whose name a power cut could take away again holds nothing durable.
        if directoryNeedsSync {
            try storage { () throws(SystemError) in try directory.sync() }
            directoryNeedsSync = false
        }
        defer { end.publish(Self.state(active.published)) }
        try active.makeDurable()
        if spare == nil, active.end > options.segmentBytes / 2 { prepareSpare() }
    }

    /// Drops the parts of a transaction whose end will not come (the connection to the source was lost).
    public func abandonTransaction() {
        guard active.isInsideTransaction else { return }
        active.abandonTransaction()
    }

    // MARK: - Segments

    /// Whether an entry of this size (with what else belongs to its transaction) should begin a new segment.
    public func willRoll(adding bytes: Int) -> Bool {
        !active.isInsideTransaction && !active.index.all.isEmpty
            && active.end + UInt64(bytes + EntryHeader.byteCount) > options.segmentBytes
    }

    /// Seals the segment and begins the next if `willRoll` says so; then the caller writes its schema entries again.
    /// When it throws, the present segment is still the one that is written to.
    @discardableResult
    public func rollIfNeeded(adding bytes: Int) throws(EventLogFailure) -> Bool {
        guard willRoll(adding: bytes) else { return false }
        try roll()
        return true
    }

    public func roll() throws(EventLogFailure) {
        precondition(!active.isInsideTransaction, "a transaction does not span segments")
        let last = active.index.whole
        try replaceActive(epoch: last.epoch, baseLSN: last.lastLSN, firstEntry: nil)
    }

    /// Marks that changes were lost, or that the source went back or is another: a new epoch, beginning with a gap entry;
    /// there is never one without the other. Offsets go on; the LSN may go back. Parts of an unfinished transaction are
    /// dropped.
    ///
    /// When it throws, nothing has changed: call it again. When it returns the epoch has begun, and the next `flush` that
    /// succeeds (it tries one itself) makes it durable and publishes it.
    public func beginEpoch(
        source newSource: UInt64? = nil, lsn: UInt64, time: Int64, payload: RawSpan
    ) throws(EventLogFailure) {
        abandonTransaction()
        var entry = ByteWriter(capacity: EntryHeader.byteCount + payload.byteCount)
        entry.append(payload)
        var epoch = options.newEpoch()
        while epoch == self.epoch { epoch = options.newEpoch() }
        let before = source
        source = newSource ?? source
        do {
            try replaceActive(epoch: epoch, baseLSN: lsn, firstEntry: FirstEntry(time: time, payload: entry))
        } catch {
            // Nothing has changed unless the new segment stands already.
            if self.epoch != epoch { source = before }
            throw error
        }
    }

    private func replaceActive(
        epoch: UInt64, baseLSN: UInt64, firstEntry: consuming FirstEntry?
    ) throws(EventLogFailure) {
        try flush()
        try seal()
        let last = active.index.whole
        let header = SegmentHeader(
            epoch: epoch, sequence: last.sequence + 1, baseOffset: last.endOffset, baseLSN: baseLSN,
            created: options.now(), source: source)
        let ready = spare?.take()
        spare = nil
        let made = try SegmentMaker(directory: directory, bytes: options.segmentBytes)
            .make(header, on: ready, gap: firstEntry)
        // From the rename on there is no way back: the next segment exists, whether or not that is durable yet.
        directoryNeedsSync = true
        var summary = last
        summary.isSealed = true
        sealed.append(summary)
        sealedAt[summary.sequence] = steadyClock?.now
        active = ActiveSegment(file: made.file, index: made.index)
        segmentBegan = Clock.monotonicNanoseconds()
        // If this fails the new segment is there all the same, and the caller's next flush says why it is not durable.
        try? flush()
    }

    /// The index beside the segment, then the segment cut to its size. Repeated without harm if it fails half-way.
    private func seal() throws(EventLogFailure) {
        let map = active.index.map(sealed: true, keyScheme: options.keyScheme)
        do {
            try map.write(to: directory)
            try active.file.truncate(to: map.summary.bytes)
            try active.file.sync()
        } catch { throw EventLogFailure(error) }
    }

    /// Begins when half of the segment is full: an idle log needs no spare, and how long that half took says whether the
    /// disk has time for zeros.
    private func prepareSpare() {
        guard options.preparesSegments else { return }
        let isCalm = Clock.monotonicNanoseconds() - segmentBegan > Limits.calmFill.wholeNanoseconds / 2
        spare = SpareSegment.prepare(in: directory, bytes: options.segmentBytes, withZeros: isCalm)
    }
}
