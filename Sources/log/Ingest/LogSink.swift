import Bytes
import Change
import Diagnostics
import EventLog
import Replication
import System

/// Sink that writes transactions as entries of the event log. In each segment it writes schemas before the changes that
/// need them.
///
/// The ingest thread owns the sink. Other threads see only the published end of the log.
public final class LogSink: TransactionSink {
    private let directory: any StorageDirectory
    private let options: EventLogOptions
    private var writer: EventLogWriter?
    /// Fingerprints of the schemas that the current segment has.
    private var written: Set<UInt64> = []
    /// Number of the segment for which `written` is valid.
    private var writtenIn: UInt64 = 0
    /// LSN after the last whole transaction that was appended.
    public private(set) var position: LSN = .zero
    /// True until the log has begun.
    public private(set) var isNew = true
    /// History of the database that the log follows; nil if it is unknown.
    public private(set) var lineage: Lineage?
    public private(set) var isLineageDamaged = false
    /// Slot with which a new log is about to begin; nil if there is none.
    private var beginning: String?
    /// Publication of the database messages, with the point from which the log has all of them; nil if the log lacks
    /// some.
    public private(set) var messages: FollowedPublication?
    /// Queues of notes to write into the log; nil if no notes are recorded.
    private let notes: WaitingNotes?
    private let upkeep: LogUpkeep?
    /// Number of bytes that other notes than deliveries may still use in the log.
    private var allowance = LedgerAllowance()
    /// Number of bytes that recorded deliveries may still use in the log. It is separate, so that deliveries do not use
    /// up the allowance of other notes.
    private var bulkAllowance = LedgerAllowance(bytesPerSecond: Limits.deliveryBytesPerSecond)
    private let metrics: ProjectMetrics
    private let time: any TimeSource
    /// Commit times of transactions that are appended but not durable yet, in microseconds since 1970.
    private var waitingCommitTimes: [Int64] = []
    /// Monotonic time in nanoseconds at which retention was last enforced.
    private var lastRetention: UInt64 = 0
    private var retentionClock: RetentionClock
    private var isRetentionBehind = false
    private var disk = DiskOutlook()
    private let epochs = EpochSource()
    private let opened: (EventLogEnd) -> Void
    private let followed: (FollowedPublication?) -> Void

    /// Opens the log if it exists. Otherwise `begin` creates it when the source is known.
    ///
    /// - Parameter opened: receives the end of the log, once, when the log is open.
    public convenience init(
        directory: any StorageDirectory, options: EventLogOptions, time: any TimeSource = KernelTime(),
        opened: @escaping (EventLogEnd) -> Void = { _ in }
    ) throws(EventLogError) {
        try self.init(
            directory: directory, options: options, time: time, metrics: ProjectMetrics(), notes: nil, opened: opened
        )
    }

    init(
        directory: any StorageDirectory, options: EventLogOptions, time: any TimeSource = KernelTime(),
        metrics: ProjectMetrics, notes: WaitingNotes?, upkeep: LogUpkeep? = nil,
        followed: @escaping (FollowedPublication?) -> Void = { _ in }, opened: @escaping (EventLogEnd) -> Void
    ) throws(EventLogError) {
        self.directory = directory
        var options = options
        options.monotonic = { time.monotonicNanoseconds() }
        let (epochs, newEpoch) = (epochs, options.newEpoch)
        options.newEpoch = { epochs.take() ?? newEpoch() }
        self.options = options
        self.metrics = metrics
        self.notes = notes
        self.upkeep = upkeep
        self.time = time
        retentionClock = RetentionClock(
            known: nil, wall: time.unixMicroseconds(), monotonic: time.monotonicNanoseconds())
        self.followed = followed
        self.opened = opened
        try readLineage()
        if let last = try LogSink.newestSegment(directory) {
            options.source = last.header.source
            try take(EventLogWriter(directory: directory, options: options))
            // A crash came after the log was created and before it had begun.
            isNew = position == .zero
            if !isNew { BeginningFile(directory: directory).remove() }
            messages = try Self.opening { () throws(SystemError) in try MessagesFile(directory: directory).read() }
            followed(messages)
        }
        if isNew {
            beginning = try Self.opening { () throws(SystemError) in try BeginningFile(directory: directory).read() }
        }
    }

    /// Runs a read of one of the log's files. A failed read is an error; only a missing file counts as missing.
    private static func opening<T>(_ body: () throws(SystemError) -> T) throws(EventLogError) -> T {
        do throws(SystemError) {
            return try body()
        } catch {
            throw .failure(EventLogFailure(operation: error.operation, path: error.subject, code: error.code))
        }
    }

    private func readLineage() throws(EventLogError) {
        let content = try Self.opening { () throws(SystemError) in try LineageFile(directory: directory).read() }
        switch content {
        case .none: break
        case .whole(let known): lineage = known
        case .damaged(let reason):
            isLineageDamaged = true
            Log.shared.error(
                "cannot read which database history the event log follows: the hub will record a gap",
                [.path("\(directory.path)/\(LineageFile.name)"), .reason(reason)])
        }
    }

    private static func newestSegment(_ directory: any StorageDirectory) throws(EventLogError) -> SegmentSummary? {
        do throws(EventLogError) {
            return try EventLogReader.segments(in: directory).last
        } catch {
            if case .missing = error { return nil }
            throw error
        }
    }

    private func take(_ writer: EventLogWriter) {
        assert(self.writer == nil, "a log is opened once")
        self.writer = writer
        position = LSN(writer.appendedLSN)
        writtenIn = writer.segmentSequence
        // The clock must be set before the first entry with the current time is written.
        retentionClock = RetentionClock(
            known: writer.segments.last.map(\.latest), wall: time.unixMicroseconds(),
            monotonic: time.monotonicNanoseconds())
        if writer.recovery.hasUnfinishedErasure {
            Log.shared.warning(
                "an interrupted 'tidewire log forget' is still unfinished: the next start, or the next such command, finishes it",
                [.path(directory.path)])
        }
        if let cut = writer.recovery.cutAt {
            Log.shared.warning(
                "cut off an unfinished write at the event log's end; the database sends it again",
                [
                    .path(directory.path), .segment(writer.segmentSequence), .count(writer.recovery.cutBytes),
                    .offset(cut),
                ])
        }
        opened(writer.end)
    }

    public var systemIdentifier: UInt64 { isNew ? 0 : writer?.source ?? 0 }
    /// LSN up to which everything is durable. It is never beyond `position`. After a gap that goes back and is not
    /// durable yet, the writer still reports the old end.
    public var durablePosition: LSN { min(unflushedGapEnd ?? position, LSN(writer?.durableLSN ?? 0)) }
    /// LSN at which the newest gap ends, until the gap is durable; then nil. If the gap goes back, later transactions
    /// have lower LSNs than the old end, although none of them is durable yet.
    private var unflushedGapEnd: LSN?
    public var pendingBytes: Int { writer?.pendingBytes ?? 0 }
    public var lastTime: Int64? { writer?.segments.last.flatMap { $0.isEmpty ? $0.header.created : $0.maximumTime } }
    public var segments: [SegmentSummary] { writer?.segments ?? [] }

    // MARK: The sink

    public func isBeginning(with slot: String) -> Bool { isNew && beginning == slot }

    public func prepare(for slot: String) throws {
        assert(isNew, "only a new log begins with a new slot")
        do throws(SystemError) {
            try BeginningFile(directory: directory).write(slot)
        } catch {
            throw LogSink.stall(EventLogFailure(operation: error.operation, path: error.subject, code: error.code))
        }
        beginning = slot
    }

    public func begin(systemIdentifier: UInt64, at position: LSN, after gap: Gap?) throws {
        assert(isNew, "a log begins once")
        try create(systemIdentifier, options)
        if let gap {
            try recordGap(gap, systemIdentifier: systemIdentifier)
        } else {
            try advance(to: position)
            try flush()
        }
        isNew = false
        // From now on, a slot without a log means that changes were lost.
        beginning = nil
        BeginningFile(directory: directory).remove()
    }

    /// Creates the log's first segment, unless an earlier attempt did.
    private func create(_ systemIdentifier: UInt64, _ options: EventLogOptions) throws {
        guard writer == nil else { return }
        var options = options
        options.source = systemIdentifier
        do throws(EventLogError) {
            try take(EventLogWriter(directory: directory, options: options))
        } catch {
            if case .failure(let failure) = error { throw LogSink.stall(failure) }
            throw error
        }
    }

    // MARK: In a cluster

    /// Position behind everything that was appended; nil before the log begins.
    var appended: EventLogPosition? {
        writer.map { EventLogPosition(epoch: $0.epoch, offset: $0.nextOffset) }
    }
    var isInsideTransaction: Bool { writer?.isInsideTransaction ?? false }
    /// Slot with which a new log is about to begin; nil if there is none.
    var beginningSlot: String? { isNew ? beginning : nil }

    /// True if the log has a segment of this epoch.
    func has(epoch: UInt64) -> Bool { writer?.segments.contains { $0.epoch == epoch } ?? false }

    /// Makes the next epochs that begin have these numbers, which another node has chosen.
    func choose(epochs chosen: UInt64...) { epochs.choose(chosen) }

    /// Begins a new log at a place of a log that other nodes have.
    func begin(systemIdentifier: UInt64, at place: EventLogPosition, position: LSN) throws {
        assert(isNew, "a log begins once")
        var options = options
        options.firstOffset = place.offset
        options.firstLSN = position.rawValue
        choose(epochs: place.epoch)
        try create(systemIdentifier, options)
        self.position = position
        isNew = false
        beginning = nil
        BeginningFile(directory: directory).remove()
    }

    /// Records the publication of database messages as another node has recorded it, with its offset.
    func keep(_ publication: FollowedPublication?) throws {
        do throws(SystemError) {
            try MessagesFile(directory: directory).write(publication)
        } catch {
            throw LogSink.stall(EventLogFailure(operation: error.operation, path: error.subject, code: error.code))
        }
        messages = publication
        followed(publication)
    }

    // MARK: Changes

    public func append(_ part: borrowing StorablePart) throws {
        let writer = open()
        assert(writer.appendedLSN == position.rawValue, "the sink stands where its log ends")
        try stalling {
            if !writer.isInsideTransaction { try roll(writer, adding: part.payload.byteCount) }
            try appendSchemas(part.schemas, writer, time: part.info.commitTime)
            try appendMarks(part.marks, writer, part.info)
            // A part that is not the last does not complete a transaction, so the LSN stays unchanged.
            let lsn = part.isLast ? part.info.endLSN : position
            try writer.append(
                kind: .transaction, continued: !part.isLast, changeCount: part.changeCount, lsn: lsn.rawValue,
                time: part.info.commitTime, payload: part.payload, keys: part.keys.span)
        }
        assert(writer.segmentSequence == writtenIn, "schemas lie in the same segment as their changes")
        metrics.entriesAppended.add()
        metrics.bytesAppended.add(part.payload.byteCount)
        guard part.isLast else { return }
        position = part.info.endLSN
        if waitingCommitTimes.count < LogSink.timedCommits { waitingCommitTimes.append(part.info.commitTime) }
    }

    /// Maximum number of commits in a batch for which the time until they are durable is measured.
    private static let timedCommits = 1024

    private func open() -> EventLogWriter {
        guard let writer else { preconditionFailure("nothing is appended before the log begins") }
        return writer
    }

    private func roll(_ writer: EventLogWriter, adding bytes: Int) throws(EventLogFailure) {
        guard writer.willRoll(adding: bytes) else { return }
        try writer.roll()
        Log.shared.info(
            "began a segment of the event log",
            [.segment(writer.segmentSequence), .offset(writer.nextOffset), .lsn(position)])
    }

    private func appendMarks(
        _ tables: [UInt32], _ writer: EventLogWriter, _ info: TransactionInfo
    ) throws(EventLogFailure) {
        for table in tables {
            var payload = ByteWriter(capacity: 16)
            let isEverything = table == CatalogMarks.everything
            CatalogMarkCodec.encode(
                CatalogMark(xid: isEverything ? 0 : info.xid, table: isEverything ? 0 : table), to: &payload)
            try writer.append(
                kind: .catalogMark, continued: writer.isInsideTransaction, lsn: position.rawValue,
                time: info.commitTime, payload: payload.bytes, keys: [RowKey.catalog].span)
        }
    }

    private func appendSchemas(_ schemas: [Schema], _ writer: EventLogWriter, time: Int64) throws(EventLogFailure) {
        if writer.segmentSequence != writtenIn {
            written.removeAll(keepingCapacity: true)
            writtenIn = writer.segmentSequence
        }
        for schema in schemas where !written.contains(schema.fingerprint) {
            let encoded = schema.encoded
            try writer.append(
                kind: .relation, continued: writer.isInsideTransaction, lsn: position.rawValue, time: time,
                payload: encoded.rawBytes)
            written.insert(schema.fingerprint)
        }
    }

    public func abandon() throws {
        writer?.abandonTransaction()
        // Schemas that were written within the transaction have been removed with it.
        written.removeAll(keepingCapacity: true)
    }

    public func advance(to position: LSN) throws {
        guard position > self.position else { return }
        let writer = open()
        assert(!writer.isInsideTransaction, "the position moves only between transactions")
        _ = try stalling {
            try writer.append(
                kind: .progress, lsn: position.rawValue, time: time.unixMicroseconds(), payload: RawSpan())
        }
        self.position = position
    }

    public func flush() throws {
        guard let writer else { return }
        try appendNotes(writer)
        try sealWhenAsked(writer)
        try rollWhenUnreadable(writer)
        guard writer.pendingBytes > 0 || unflushedGapEnd != nil else { return }
        let began = time.monotonicNanoseconds()
        try stalling { try writer.flush() }
        unflushedGapEnd = nil
        let ended = time.monotonicNanoseconds()
        metrics.fsyncs.add()
        metrics.fsyncSeconds.record(ended - began)
        noteDurable()
        try rollWhenOld(writer)
        try retain(writer, now: ended)
    }

    // MARK: Notes

    /// True if the ingest thread should call `flush` even without changes, for notes or to begin a new segment.
    public var hasNotes: Bool {
        !isNew && (notes?.isEmpty == false || upkeep?.wish != nil || writer?.end.isSegmentWanted == true)
    }

    /// Writes the queued notes, if no transaction is unfinished. Notes change neither the offset nor the position.
    private func appendNotes(_ writer: EventLogWriter) throws {
        guard hasNotes, let notes, !writer.isInsideTransaction else { return }
        try append(notes.rows, as: .keptRows, writer)
        // Marks follow the rows to which they may refer.
        try append(notes.marks, as: .operatorMark, writer)
        try append(notes.presence, as: .presence, writer)
        // Without an allowance, clients that join again and again could make retention delete entries that other
        // clients need to resume.
        let now = time.monotonicNanoseconds()
        allowance.refill(at: now)
        bulkAllowance.refill(at: now)
        try appendWithin(allowance: notes.catalogs, as: .catalogRecord, writer)
        try appendWithin(allowance: notes.ledger, as: .ledger, writer)
    }

    private func appendWithin<Note>(
        allowance queue: NoteQueue<Note>, as kind: EntryKind, _ writer: EventLogWriter
    ) throws {
        guard allowance.isLeft, bulkAllowance.isLeft else { return }
        let written = try append(
            queue, as: kind, writer, atMost: allowance.bytes, ofBulk: bulkAllowance.bytes)
        allowance.spend(written.bytes - written.bulk)
        bulkAllowance.spend(written.bulk)
    }

    /// Writes queued notes until they have about `most` bytes, or bulk notes about `mostBulk`. Returns the bytes
    /// written, of all notes and of bulk notes.
    @discardableResult
    private func append<Note>(
        _ queue: NoteQueue<Note>, as kind: EntryKind, _ writer: EventLogWriter, atMost most: Int = .max,
        ofBulk mostBulk: Int = .max
    ) throws -> (bytes: Int, bulk: Int) {
        assert(!writer.isInsideTransaction, "notes lie between transactions")
        var (written, bulk) = (0, 0)
        while written - bulk < most, bulk < mostBulk {
            let notes = queue.next()
            if notes.isEmpty { break }
            var payload = ByteWriter(capacity: Limits.noteEntryBytes)
            Note.encode(notes, to: &payload)
            let bytes = payload.count
            let keys = Array(Set(notes.flatMap(\.keys)))
            try stalling {
                try roll(writer, adding: bytes)
                try writer.append(
                    kind: kind, lsn: position.rawValue, time: time.unixMicroseconds(), payload: payload.bytes,
                    keys: keys.span)
            }
            queue.taken(notes.count)
            written += bytes
            bulk += notes.reduce(0) { $0 + ($1.isBulk ? $1.byteCount : 0) }
        }
        assert(bulk <= written, "bulk notes are a part of what was written")
        return (written, bulk)
    }

    private func noteDurable() {
        assert((writer?.pendingBytes ?? 0) == 0, "what counts as durable was flushed")
        let now = time.unixMicroseconds()
        for time in waitingCommitTimes {
            metrics.commitToDurableSeconds.record(UInt64(max(0, now - time)) * 1000)
        }
        waitingCommitTimes.removeAll(keepingCapacity: true)
        if let writer { metrics.logEndOffset.set(writer.nextOffset) }
    }

    public func recordGap(_ gap: Gap, systemIdentifier: UInt64) throws {
        let writer = open()
        // Database messages may have been lost in the gap too, so the log does not have all of them any more.
        if messages != nil { try followMessages(nil) }
        var payload = ByteWriter()
        GapCodec.encode(gap, to: &payload)
        try stalling {
            try writer.beginEpoch(
                source: systemIdentifier, lsn: gap.to.rawValue, time: time.unixMicroseconds(), payload: payload.bytes)
        }
        position = gap.to
        unflushedGapEnd = gap.to
        assert(writer.appendedLSN == position.rawValue && !writer.isInsideTransaction, "a gap leads to its end")
        // The gap is now recorded. Only waiting for its durability can still fail.
        try stalling { try writer.flush() }
        unflushedGapEnd = nil
    }

    public func follow(_ lineage: Lineage) throws {
        do throws(SystemError) {
            try LineageFile(directory: directory).write(lineage)
        } catch {
            throw LogSink.stall(EventLogFailure(operation: error.operation, path: error.subject, code: error.code))
        }
        self.lineage = lineage
        isLineageDamaged = false
    }

    public func followMessages(_ publication: FollowedPublication?) throws {
        var publication = publication
        publication?.offset = writer?.nextOffset ?? 0
        try keep(publication)
    }

    // MARK: Retention

    private static let retentionInterval: UInt64 = 10_000_000_000

    /// Begins a new segment if the current one is old. Retention deletes only whole segments, and a quiet log would
    /// need months to fill one.
    private func rollWhenOld(_ writer: EventLogWriter) throws {
        guard let age = options.retentionAge, !writer.isInsideTransaction, let active = writer.segments.last,
            !active.isEmpty
        else { return }
        let limit = age.components.seconds * 1_000_000 / LogSink.segmentsPerRetention
        guard options.now() - active.header.created > limit else { return }
        try stalling { try writer.roll() }
    }

    /// Number of segments in the retention age. With four, an entry of a quiet log is kept at most a quarter of
    /// `retention_age` too long.
    private static let segmentsPerRetention: Int64 = 4

    /// Seals the current segment if another thread has asked for that and no transaction is unfinished. Nothing is
    /// appended to the segment after that.
    private func sealWhenAsked(_ writer: EventLogWriter) throws {
        guard let upkeep, let wish = upkeep.wish, !writer.isInsideTransaction else { return }
        try stalling {
            try writer.flush()
            if !writer.isAtSegmentStart { try writer.roll() }
        }
        assert(writer.isAtSegmentStart, "all entries lie in sealed segments")
        noteDurable()
        upkeep.answer(wish)
    }

    /// Begins the next segment if a reader cannot read the current one. Otherwise clients would not get further
    /// changes.
    private func rollWhenUnreadable(_ writer: EventLogWriter) throws {
        guard writer.end.isSegmentWanted, !writer.isInsideTransaction else { return }
        try stalling {
            try writer.flush()
            try writer.roll()
        }
        noteDurable()
        Log.shared.warning(
            "cannot read a segment of the event log: the hub begins the next segment",
            [.path(directory.path), .segment(writer.segmentSequence)])
    }

    private func retain(_ writer: EventLogWriter, now: UInt64) throws {
        guard now - lastRetention > LogSink.retentionInterval else { return }
        lastRetention = now
        let moment = retentionTime(monotonic: now)
        let removed = try stalling { try writer.enforceRetention(now: moment) }
        for segment in removed {
            metrics.segmentsRemoved.add()
            Log.shared.info(
                "retention removed a segment of the event log",
                [.segment(segment.sequence), .fromOffset(segment.firstOffset), .toOffset(segment.endOffset)])
        }
        let segments = writer.segments
        metrics.logFirstOffset.set(segments.first?.firstOffset ?? 0)
        let size = segments.reduce(0) { $0 + $1.bytes }
        metrics.logSizeBytes.set(size)
        guard let free = try? directory.freeBytes() else { return }
        metrics.dataFreeBytes.set(free)
        watch(
            DiskOutlook.Sample(free: free, log: size, retention: options.retentionBytes, segment: options.segmentBytes))
    }

    private func watch(_ sample: DiskOutlook.Sample) {
        let before = disk.level
        guard let level = disk.take(sample) else { return }
        let fields: [LogField] = [
            .path(directory.path), .bytes(sample.free),
            .hint(
                "make room, or lower retention_size; while the disk is full, no change is lost, but none reaches clients"
            ),
        ]
        switch level {
        case .well: Log.shared.info("the disk of the event log has room again", Array(fields.prefix(2)))
        // The disk still has some room.
        case .tight where before == .well:
            Log.shared.warning("retention_size allows more than the disk of the event log has room for", fields)
        case .tight: break
        case .short: Log.shared.error("the disk of the event log is nearly full", fields)
        }
    }

    private func retentionTime(monotonic: UInt64) -> Int64 {
        let wall = time.unixMicroseconds()
        let moment = retentionClock.now(wall: wall, monotonic: monotonic)
        let lag = retentionClock.lag(wall: wall)
        let isBehind = options.retentionAge != nil && lag > LogSink.warningLag
        if isBehind, !isRetentionBehind {
            Log.shared.warning(
                "the clock is far ahead of the event log's last entry, or jumped forward: retention by age follows it slowly",
                [.path(directory.path), .duration(lag)])
        }
        isRetentionBehind = isBehind
        return moment
    }

    /// Lead of the wall clock over the retention clock above which the hub logs a warning.
    private static let warningLag = Duration.seconds(3600)

    /// Runs a call and converts a failure of the disk to a `StorageStall`.
    private func stalling<T>(_ body: () throws -> T) throws -> T {
        do {
            return try body()
        } catch let failure as EventLogFailure {
            throw LogSink.stall(failure)
        }
    }

    private static func stall(_ failure: EventLogFailure) -> StorageStall {
        StorageStall(
            operation: failure.operation, path: failure.path,
            reason: SystemError(operation: "", subject: "", code: failure.code).reason, hint: failure.hint)
    }
}

/// Source of epochs: random numbers, unless the next one was chosen. The thread of its log uses it.
private final class EpochSource: @unchecked Sendable {
    // The log's options need a sendable closure, but only the thread that owns the log calls it.
    private var chosen: [UInt64] = []

    func choose(_ epochs: [UInt64]) { chosen = epochs }

    func take() -> UInt64? { chosen.isEmpty ? nil : chosen.removeFirst() }
}

extension SegmentSummary {
    /// Time that had certainly passed when the segment was written, in microseconds since 1970.
    fileprivate var latest: Int64 { isEmpty ? header.created : max(header.created, maximumTime) }
}
