import Bytes
import Diagnostics
import System

/// Writer of a durable, ordered log of entries with checksums.
///
/// The writer never interprets entries. One thread uses the writer; readers follow `end` from any thread. Nothing is
/// published before it is durable. A failing disk costs waiting time but no entries: see `flush`.
public final class EventLogWriter {
    public let options: EventLogOptions
    /// Present source of the entries; only `beginEpoch` changes it.
    public private(set) var source: UInt64
    /// Durable end of the log, which readers in this process follow.
    public let end: EventLogEnd
    /// Findings from the opening of the log.
    public let recovery: EventLogRecovery

    let directory: any StorageDirectory
    private let lock: any StorageLock
    var sealed: [SegmentSummary]
    private var active: ActiveSegment
    private var spare: SpareSegment?
    /// Start of the present segment, on the monotonic clock.
    private var segmentBegan: UInt64
    /// Clock that is independent of steps of the wall clock; nil without a monotonic clock.
    let steadyClock: SteadyClock?
    /// Times at which this process sealed segments, by `steadyClock`.
    var sealedAt: [UInt64: Int64] = [:]
    /// True while a rename may not be durable yet.
    private var directoryNeedsSync = false

    /// Opens the log in the directory, or creates one. Holds the directory's lock for the writer's whole life.
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
    /// LSN of the last appended entry, durable or not.
    public var appendedLSN: UInt64 { active.index.all.lastLSN }
    /// Offset of the next change.
    public var nextOffset: UInt64 { active.index.all.endOffset }
    public var epoch: UInt64 { active.header.epoch }
    public var segmentSequence: UInt64 { active.header.sequence }
    /// Number of appended bytes that are not durable yet.
    public var pendingBytes: Int { active.pendingBytes }
    public var isInsideTransaction: Bool { active.isInsideTransaction }
    /// True if the present segment has no entries yet, so its schema entries are still to be written.
    public var isAtSegmentStart: Bool { active.index.all.isEmpty }

    /// All segments, oldest first. The numbers of the last one cover only its durable part.
    public var segments: [SegmentSummary] { sealed + [active.published] }

    // MARK: - Appending

    /// Adds one entry to memory and returns the offset of its first change.
    ///
    /// `continued` means that the transaction goes on in the next entry. Readers see no part of a transaction before
    /// its last part is durable. If memory is full, its content is first made durable; if that fails, the entry is not
    /// added.
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

    // With `inout`, the class's exclusivity check runs once per entry, not once per field.
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

    /// Marks that the keys of the next appended entry are unknown. The segment then may hold any key.
    public func giveUpKeys() { active.giveUpKeys() }

    /// Makes all appended entries durable with one write and one sync, and publishes the whole transactions among them.
    ///
    /// After a failure (full disk, failed sync), nothing was published and nothing is lost: the entries are still in
    /// memory, and the next call writes all of them again.
    public func flush() throws(EventLogFailure) {
        // Data in a segment is not durable while a power cut could still remove the segment's name.
        if directoryNeedsSync {
            try storage { () throws(SystemError) in try directory.sync() }
            directoryNeedsSync = false
        }
        defer { end.publish(Self.state(active.published)) }
        try active.makeDurable()
        assert(active.pendingBytes == 0, "a flush leaves nothing in memory")
        if spare == nil, active.end > options.segmentBytes / 2 { prepareSpare() }
    }

    /// Removes the parts of a transaction whose end will not come, because the connection to the source was lost.
    public func abandonTransaction() {
        guard active.isInsideTransaction else { return }
        active.abandonTransaction()
    }

    // MARK: - Segments

    /// True if an entry of this size (with the rest of its transaction) should begin a new segment.
    public func willRoll(adding bytes: Int) -> Bool {
        !active.isInsideTransaction && !active.index.all.isEmpty
            && active.end + UInt64(bytes + EntryHeader.byteCount) > options.segmentBytes
    }

    /// Seals the segment and begins the next one if `willRoll` says so; then the caller writes its schema entries
    /// again. After an error, the present segment is still the active one.
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

    /// Begins a new epoch with a gap entry, because changes were lost or the source went back or was replaced. An epoch
    /// never begins without a gap, and a gap always begins an epoch. Offsets continue; the LSN may go back. Parts of an
    /// unfinished transaction are dropped.
    ///
    /// After an error, nothing has changed; repeat the call. On return, the epoch has begun. The method itself tries a
    /// flush; the next `flush` that succeeds makes the epoch durable and publishes it.
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
            // Nothing has changed unless the new segment already exists.
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
        // After the rename there is no way back: the next segment exists, durable or not.
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

    /// Writes the segment's index files, then cuts the segment to its size. The call can be repeated after a failure.
    private func seal() throws(EventLogFailure) {
        let map = active.index.map(sealed: true, keyScheme: options.keyScheme)
        do {
            try map.write(to: directory)
            try active.file.truncate(to: map.summary.bytes)
            try active.file.sync()
        } catch { throw EventLogFailure(error) }
    }

    /// Starts to prepare the next segment. `flush` calls it when half of the segment is full, so an idle log needs no
    /// spare. The time for that half shows whether the disk has time for zeros.
    private func prepareSpare() {
        guard options.preparesSegments else { return }
        assert(spare == nil, "one spare is prepared at a time")
        let isCalm = Clock.monotonicNanoseconds() - segmentBegan > Limits.calmFill.wholeNanoseconds / 2
        spare = SpareSegment.prepare(in: directory, bytes: options.segmentBytes, withZeros: isCalm)
    }
}
