import Bytes
import Diagnostics
import System

/// Writer of a durable, ordered log of entries with checksums.
///
/// The writer does not interpret entries. One thread uses it; readers on any thread follow `end`. Nothing is published
/// before it is durable. If the disk fails, the caller has to wait but no entries are lost: see `flush`.
public final class EventLogWriter {
    public let options: EventLogOptions
    /// Current source of the entries. Only `beginEpoch` changes it.
    public private(set) var source: UInt64
    /// Durable end of the log, which readers in this process follow.
    public let end: EventLogEnd
    /// Findings from opening the log.
    public let recovery: EventLogRecovery

    let directory: any StorageDirectory
    private let lock: any StorageLock
    /// Summaries of the sealed segments, oldest first.
    var sealed: [SegmentSummary]
    private var active: ActiveSegment
    private var spare: SpareSegment?
    /// Time at which the current segment was begun, as monotonic time in nanoseconds.
    private var segmentBegan: UInt64
    /// Clock that does not follow changes of the wall clock; nil if there is no monotonic clock.
    let steadyClock: SteadyClock?
    /// Times of `steadyClock` at which this process sealed segments, by the segments' numbers.
    var sealedAt: [UInt64: Int64] = [:]
    /// True while a renamed file's name may not be durable yet.
    private var directoryNeedsSync = false

    /// Opens the log in the directory, or creates one. The writer holds the directory's lock for as long as it exists.
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

    // MARK: - Position

    /// LSN of the last whole durable transaction. The source may discard everything up to it.
    public var durableLSN: UInt64 { end.state.lsn }
    /// LSN of the last appended entry, whether durable or not.
    public var appendedLSN: UInt64 { active.index.all.lastLSN }
    /// Offset of the next change.
    public var nextOffset: UInt64 { active.index.all.endOffset }
    public var epoch: UInt64 { active.header.epoch }
    public var segmentSequence: UInt64 { active.header.sequence }
    /// Number of appended bytes that are not durable yet.
    public var pendingBytes: Int { active.pendingBytes }
    public var isInsideTransaction: Bool { active.isInsideTransaction }
    /// True if the current segment has no entries yet, so that schemas must be written to it.
    public var isAtSegmentStart: Bool { active.index.all.isEmpty }

    /// Summaries of all segments, oldest first. That of the active one covers only its durable part.
    public var segments: [SegmentSummary] { sealed + [active.published] }

    // MARK: - Appending

    /// Adds an entry in memory. Returns the offset of its first change.
    ///
    /// If `continued` is true, the transaction continues in the next entry. Readers see no part of a transaction before
    /// its last part is durable. If the memory is full, its content is made durable first; if that fails, the entry is
    /// not added.
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

    // As an `inout` argument, the segment is checked for exclusive access once for each entry, not for each field.
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
        let start = active.end
        assert(entry.publishedBytes <= start, "an entry vouches only for bytes before it")
        try active.append(entry, payload: payload, keys: keys)
        return entry.offset
    }

    /// Records that the keys of the next entry are unknown, so that the segment's index matches every key.
    public func giveUpKeys() { active.giveUpKeys() }

    /// Makes all appended entries durable with one write and one sync, and publishes the whole transactions among them.
    ///
    /// After a failure (such as a full disk), nothing was published and nothing is lost. The entries are still in
    /// memory, and the next call writes all of them again.
    public func flush() throws(EventLogFailure) {
        // Data in a segment are not durable while a power failure could still remove the segment's name.
        if directoryNeedsSync {
            try storage { () throws(SystemError) in try directory.sync() }
            directoryNeedsSync = false
        }
        defer { end.publish(Self.state(active.published)) }
        try active.makeDurable()
        assert(active.pendingBytes == 0, "a flush leaves nothing in memory")
        if spare == nil, active.end > options.segmentBytes / 2 { prepareSpare() }
    }

    /// Removes the parts of an unfinished transaction whose rest will not arrive, because the connection to the source
    /// was lost.
    public func abandonTransaction() {
        guard active.isInsideTransaction else { return }
        active.abandonTransaction()
    }

    // MARK: - Segments

    /// True if an entry with a payload of this size (and the rest of its transaction) should begin a new segment.
    public func willRoll(adding bytes: Int) -> Bool {
        !active.isInsideTransaction && !active.index.all.isEmpty
            && active.end + UInt64(bytes + EntryHeader.byteCount) > options.segmentBytes
    }

    /// Seals the segment and begins the next one if `willRoll` is true. If the method returns true, the caller must
    /// write schemas again. After an error, the same segment is still active.
    @discardableResult
    public func rollIfNeeded(adding bytes: Int) throws(EventLogFailure) -> Bool {
        guard willRoll(adding: bytes) else { return false }
        try roll()
        return true
    }

    /// Seals the segment and begins the next one.
    public func roll() throws(EventLogFailure) {
        precondition(!active.isInsideTransaction, "a transaction does not span segments")
        let last = active.index.whole
        try replaceActive(epoch: last.epoch, baseLSN: last.lastLSN, firstEntry: nil)
    }

    /// Begins a new epoch with a gap entry, because changes were lost, or the source went back or was replaced. An
    /// epoch always begins with a gap, and a gap always begins an epoch. Offsets continue; the LSN may be lower than
    /// before. Parts of an unfinished transaction are removed.
    ///
    /// After an error nothing has changed, and the caller repeats the call. After a return, the epoch has begun. It
    /// becomes durable and is published with the next successful `flush`; the method itself tries one.
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
            // Nothing has changed unless the new segment exists already.
            if self.epoch != epoch { source = before }
            throw error
        }
        assert(self.epoch == epoch && !isAtSegmentStart, "an epoch begins with its gap")
    }

    private func replaceActive(
        epoch: UInt64, baseLSN: UInt64, firstEntry: consuming FirstEntry?
    ) throws(EventLogFailure) {
        try flush()
        assert(!active.isInsideTransaction && active.pendingBytes == 0, "a sealed segment is whole and durable")
        try seal()
        let last = active.index.whole
        assert(
            sealed.last.map { $0.sequence + 1 == last.sequence && $0.endOffset == last.firstOffset } ?? true,
            "each segment goes on where the segment before ends")
        let header = SegmentHeader(
            epoch: epoch, sequence: last.sequence + 1, baseOffset: last.endOffset, baseLSN: baseLSN,
            created: options.now(), source: source)
        let ready = spare?.take()
        spare = nil
        let made = try SegmentMaker(directory: directory, bytes: options.segmentBytes)
            .make(header, on: ready, gap: firstEntry)
        // After the rename, the next segment exists, durable or not, so it must become the active one.
        directoryNeedsSync = true
        var summary = last
        summary.isSealed = true
        sealed.append(summary)
        sealedAt[summary.sequence] = steadyClock?.now
        active = ActiveSegment(file: made.file, index: made.index)
        segmentBegan = Clock.monotonicNanoseconds()
        // If this flush fails, the new segment exists all the same. The caller's next flush reports the error.
        try? flush()
    }

    /// Writes the segment's index and truncates the file to its used size. The call can be repeated after a failure.
    private func seal() throws(EventLogFailure) {
        let map = active.index.map(sealed: true, keyScheme: options.keyScheme)
        do {
            try map.write(to: directory)
            try active.file.truncate(to: map.summary.bytes)
            try active.file.sync()
        } catch { throw EventLogFailure(error) }
    }

    /// Starts to prepare the next segment. `flush` calls it when half of the segment is full, so an idle log needs no
    /// spare. How long that half took shows if the disk has time to write zeros.
    private func prepareSpare() {
        guard options.preparesSegments else { return }
        assert(spare == nil, "one spare is prepared at a time")
        let isCalm = Clock.monotonicNanoseconds() - segmentBegan > Limits.calmFill.wholeNanoseconds / 2
        spare = SpareSegment.prepare(in: directory, bytes: options.segmentBytes, withZeros: isCalm)
    }
}
