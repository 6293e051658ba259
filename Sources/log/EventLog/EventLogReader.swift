import Bytes
import Diagnostics
import System

/// Place in the log at which a reader starts.
public enum EventLogStart: Sendable, Equatable {
    case oldest
    /// The transaction that contains the change with this offset. If there is none, the first entry after all smaller
    /// offsets.
    case offset(UInt64)
    /// The first transaction with which the log reaches this LSN, in the newest epoch that begins before it.
    case lsn(UInt64)
    /// The first transaction with this time (microseconds since 1970) or a later one. Commit times are not in order, so
    /// entries with earlier times may follow.
    case time(Int64)
    /// The end of the log. The reader shows only entries that are written later.
    case end
    /// The first segment after the one with this number, for readers that cannot read the rest of that segment.
    case behindSegment(UInt64)
}

/// Facts about one entry: its header and its place in the log.
public struct EventLogEntry: Sendable, Equatable {
    public var header: EntryHeader
    public var epoch: UInt64
    public var segment: UInt64
    /// Byte position of the entry in its segment.
    public var position: UInt64
    /// True for a schema entry from before the start, which the reader shows because later entries need it.
    public var precedesStart: Bool

    public var kind: EntryKind { header.kind }
    public var offset: UInt64 { header.offset }
    public var lsn: UInt64 { header.lsn }
    public var time: Int64 { header.time }
    public var changeCount: UInt32 { header.changeCount }
    public var isContinued: Bool { header.isContinued }
}

/// Schema entries that a reader shows before its start.
private struct Prelude {
    var relations: ArraySlice<IndexPoint> = []
    /// Point at which the reader continues after the schema entries.
    var start: IndexPoint?
}

/// Reader that shows the log's entries in order, from a start on. Old and new entries take the same path through the
/// code.
///
/// A reader shows whole transactions only. It reads all parts of a transaction before it shows the first, so that it
/// finds damage in any part early. With the writer's `end`, it stops at the last durable entry. Without `end` (in
/// another process, or if there is no writer), it stops at the last whole transaction in the files. A reader never
/// writes. One thread uses it at a time.
///
/// After an error the reader keeps its place. If the kernel refused the read only for now, the caller repeats the call.
public struct EventLogReader: ~Copyable, Sendable {
    let files: SegmentFiles
    let end: EventLogEnd?
    /// Keys that are searched. The reader skips sealed segments and stretches that certainly have none of them. If
    /// empty, the reader shows all entries.
    public private(set) var keys: [UInt64]

    var scanner: SegmentScanner
    /// True if nothing more is written to the current segment.
    var isSealed: Bool
    /// Byte position up to which all parts of transactions have been read.
    var wholeEnd: UInt64
    /// Byte position of unreadable bytes that turned out to be only an unfinished write.
    var unfinishedAt: UInt64
    private var prelude: Prelude
    /// Stretches (parts between two index points) of the current segment that must be read; nil if the whole segment is
    /// read.
    private var wanted: Optional<WantedStretches>
    /// Byte position at which the reader asks `wanted` for the next stretch.
    private var asksAt: UInt64

    /// Entry that the last call of `next` has shown.
    public private(set) var entry: EventLogEntry

    /// Opens the log at a place. If `key` is given, the reader skips segments and stretches that certainly do not have
    /// the key. It also shows other entries near those with the key.
    public init(
        directory: any StorageDirectory, end: EventLogEnd? = nil, from start: EventLogStart = .oldest,
        matchingKey key: UInt64? = nil
    ) throws(EventLogError) {
        try self.init(directory: directory, end: end, from: start, matchingAnyOf: key.map { [$0] } ?? [])
    }

    /// Opens the log at a place and searches entries that have any of these keys. A segment that begins an epoch is
    /// never skipped, because its gap concerns every reader.
    public init(
        directory: any StorageDirectory, end: EventLogEnd? = nil, from start: EventLogStart = .oldest,
        matchingAnyOf keys: [UInt64]
    ) throws(EventLogError) {
        let files = SegmentFiles(directory: directory)
        var attempts = 3
        while true {
            do {
                self = try Self.opened(files, end, start, keys)
                return
            } catch .outsideRetention(let oldest) {
                // Retention may delete the oldest segment while it is being opened. A reader that asked for no
                // particular offset then starts at the next segment.
                attempts -= 1
                if case .offset = start { throw .outsideRetention(oldest: oldest) }
                if attempts == 0 { throw .outsideRetention(oldest: oldest) }
            }
        }
    }

    private static func opened(
        _ files: SegmentFiles, _ end: EventLogEnd?, _ start: EventLogStart, _ keys: [UInt64]
    ) throws(EventLogError) -> EventLogReader {
        let sequence = try SegmentChoice(files: files, end: end).sequence(for: start)
        guard let (file, header) = try files.open(sequence) else { throw try lost(files) }
        var reader = EventLogReader(files, end, keys, file, header)
        try reader.noteWhetherSealed()
        try reader.find(start)
        let readsFirst = try reader.mayBeginEpoch()
        if let end = reader.chooseStretches(readsFirst: readsFirst) { reader.setPrelude([], then: end) }
        return reader
    }

    private init(
        _ files: SegmentFiles, _ end: EventLogEnd?, _ keys: [UInt64], _ file: any StorageFile, _ header: SegmentHeader
    ) {
        self.files = files
        self.end = end
        self.keys = keys
        isSealed = false
        wanted = nil
        asksAt = .max
        wholeEnd = 0
        unfinishedAt = 0
        prelude = Prelude()
        scanner = SegmentScanner(file, header, readBytes: Limits.logReadBytes)
        entry = EventLogEntry(
            header: scanner.entry, epoch: header.epoch, segment: header.sequence, position: 0, precedesStart: false)
    }

    public var payload: RawSpan {
        @_lifetime(borrow self)
        get { scanner.payload }
    }

    /// Header of the segment that contains `entry`.
    public var segmentHeader: SegmentHeader { scanner.header }

    /// Returns another reader that continues after the current entry.
    public func ahead() -> EventLogReader {
        var reader = EventLogReader(files, end, keys, scanner.file, scanner.header)
        reader.scanner.limit = scanner.limit
        reader.scanner.move(to: scanner.nextPoint)
        reader.isSealed = isSealed
        reader.wholeEnd = wholeEnd
        reader.prelude = prelude
        reader.wanted = wanted
        reader.asksAt = asksAt
        return reader
    }

    /// Adds a key to search, from the next stretch on.
    public mutating func alsoMatch(_ key: UInt64) {
        if !keys.isEmpty, !keys.contains(key) { keys.append(key) }
    }

    /// Position after the current entry. A client stores it and sends it back to resume.
    public var position: EventLogPosition {
        EventLogPosition(epoch: scanner.header.epoch, offset: (prelude.start ?? scanner.nextPoint).offset)
    }

    /// Result of a call of `next(passingOver:)`.
    public enum Step: Sendable {
        case entry
        /// No next entry exists yet. The reader keeps its place; the caller asks again later.
        case none
        /// The reader skipped a sealed segment without showing any of its entries.
        case passedOver
    }

    /// Moves to the next entry. Returns false if there is none yet; the reader keeps its place, and the caller asks
    /// again later.
    public mutating func next() throws(EventLogError) -> Bool {
        if case .entry = try step(passes: false, { _ in false }) { true } else { false }
    }

    /// Moves to the next entry, or skips one whole sealed segment for which `isUseless` returns true. It never skips a
    /// segment that begins an epoch, or of which it has already read a part.
    public mutating func next(
        passingOver isUseless: (SealedSegment) -> Bool
    ) throws(EventLogError) -> Step {
        try step(passes: true, isUseless)
    }

    private mutating func step(
        passes: Bool, _ isUseless: (SealedSegment) -> Bool
    ) throws(EventLogError) -> Step {
        if let point = prelude.relations.first {
            try showPrelude(point)
            prelude.relations.removeFirst()
            return .entry
        }
        if let point = prelude.start {
            scanner.move(to: point)
            prelude.start = nil
        }
        while true {
            if scanner.next >= asksAt, passStretches() {
                return try step(passes: passes, isUseless)
            }
            if !isSealed, end == nil, scanner.next >= wholeEnd {
                switch try findWholeTransaction() {
                case .none: return .none
                case .ahead: break
                case .here:
                    show(precedesStart: false)
                    return .entry
                }
            }
            if !isSealed, end != nil, scanner.next >= scanner.limit {
                if try !noteLiveEnd() { return .none }
            }
            switch try reading({ () throws(SystemError) in try scanner.step() }) {
            case .entry:
                if scanner.entry.isContinued, scanner.position >= wholeEnd { try requireWholeTransaction() }
                show(precedesStart: false)
                return .entry
            case .end where isSealed:
                if try enterNextSegment(passes, isUseless) == .passedOver { return .passedOver }
            case let step:
                throw files.damage(scanner.header.sequence, at: scanner.next, step.words)
            }
        }
    }

    /// Reads the current transaction from its first part to its end and returns to the first part. If a part cannot be
    /// read, the reader stays before the transaction.
    private mutating func requireWholeTransaction() throws(EventLogError) {
        let first = scanner.startOfEntry
        do throws(EventLogError) {
            while scanner.entry.isContinued { try requireEntry() }
            wholeEnd = scanner.next
            scanner.move(to: first)
            try requireEntry()
        } catch {
            scanner.move(to: first)
            throw error
        }
    }

    private mutating func requireEntry() throws(EventLogError) {
        let step = try reading { () throws(SystemError) in try scanner.step() }
        guard step == .entry else { throw files.damage(scanner.header.sequence, at: scanner.next, step.words) }
    }

    private mutating func show(precedesStart: Bool) {
        entry = EventLogEntry(
            header: scanner.entry, epoch: scanner.header.epoch, segment: scanner.header.sequence,
            position: scanner.position, precedesStart: precedesStart)
    }

    private mutating func showPrelude(_ point: IndexPoint) throws(EventLogError) {
        scanner.move(to: point)
        let step = try reading { () throws(SystemError) in try scanner.step() }
        guard step == .entry, scanner.entry.kind == .relation else {
            throw files.damage(scanner.header.sequence, at: point.position, step.words)
        }
        show(precedesStart: true)
    }

    mutating func setPrelude(_ relations: [IndexPoint], then point: IndexPoint) {
        prelude = Prelude(relations: relations[...], start: point)
    }

    // MARK: - End of the visible entries

    /// Reads the end that the writer has published. Returns false if there is nothing new to read.
    private mutating func noteLiveEnd() throws(EventLogError) -> Bool {
        try noteWhetherSealed()
        return isSealed || scanner.next < scanner.limit
    }

    /// Finds out if the segment is sealed: with `end` from the writer, otherwise from the existence of the next
    /// segment.
    private mutating func noteWhetherSealed() throws(EventLogError) {
        (isSealed, scanner.limit) = try extent(of: scanner.header.sequence)
    }

    private func extent(of sequence: UInt64) throws(EventLogError) -> (isSealed: Bool, limit: UInt64) {
        guard let state = end?.state else { return (try files.open(sequence + 1) != nil, .max) }
        assert(sequence <= state.segment, "a reader with an end enters only segments that the writer announced")
        return state.segment > sequence ? (true, .max) : (false, state.segmentBytes)
    }

    private enum WholeTransaction {
        case none
        /// The transaction begins at the scanner's next entry.
        case ahead
        /// The transaction is a single entry, the scanner's current one.
        case here
    }

    /// Searches the next whole transaction in the files, if there is no writer's `end`. A transaction is whole if its
    /// last entry can be read.
    private mutating func findWholeTransaction() throws(EventLogError) -> WholeTransaction {
        assert(end == nil && !isSealed, "only a reader without an end searches the segment that is being written")
        let start = scanner.nextPoint
        while true {
            let step: SegmentScanner.Step
            do throws(EventLogError) {
                step = try reading { () throws(SystemError) in try scanner.step() }
            } catch {
                scanner.move(to: start)
                throw error
            }
            if step == .entry {
                if scanner.entry.isContinued { continue }
                wholeEnd = scanner.next
                assert(wholeEnd > start.position, "a whole transaction ends behind its start")
                if scanner.position == start.position { return .here }
                scanner.move(to: start)
                // The buffered first parts may be those of an abandoned transaction, which this one has overwritten.
                // The last part has been read, so all parts are in the file now.
                scanner.refresh()
                return .ahead
            }
            let stop = scanner.next
            scanner.move(to: start)
            // The buffered bytes may be older than the file.
            scanner.refresh()
            return try isFinished(stop, step) ? .ahead : .none
        }
    }

    /// Decides what to do at the end of the readable entries. Returns true if the segment has been sealed since, false
    /// if more entries may follow. Throws if the segment is damaged.
    private mutating func isFinished(_ stop: UInt64, _ step: SegmentScanner.Step) throws(EventLogError) -> Bool {
        try noteWhetherSealed()
        // Entries that were written between the last read and the sealing have not been read yet.
        if isSealed { return true }
        if step != .end, unfinishedAt != stop { try lookInto(stop) }
        guard try files.sequences().last ?? 0 > scanner.header.sequence else { return false }
        // Later segments exist. The next one may have been created after the check above. If retention has already
        // deleted it, this reader is too late.
        try noteWhetherSealed()
        if isSealed { return true }
        throw try Self.lost(files)
    }

    /// Examines unreadable bytes. They are a write in progress, an unfinished write that the next writer cuts off, or
    /// damage.
    private mutating func lookInto(_ stop: UInt64) throws(EventLogError) {
        let (file, header) = (scanner.file, scanner.header)
        let tail = try reading { () throws(SystemError) in try SegmentTail.of(file, header, after: stop) }
        // The writer may have finished this write and later ones during the search. The bytes are damaged only if they
        // still cannot be read.
        if tail == .damaged, let finding = try stillUnreadable(stop) {
            throw files.damage(header.sequence, at: stop, finding)
        }
        unfinishedAt = stop
    }

    private mutating func stillUnreadable(_ stop: UInt64) throws(EventLogError) -> String? {
        let start = scanner.nextPoint
        scanner.refresh()
        defer {
            scanner.move(to: start)
            scanner.refresh()
        }
        while true {
            let step = try reading { () throws(SystemError) in try scanner.step() }
            if scanner.next > stop { return nil }
            if step != .entry { return step.words }
        }
    }

    // MARK: - From segment to segment

    private enum Entrance { case entered, passedOver }

    private mutating func enterNextSegment(
        _ passes: Bool, _ isUseless: (SealedSegment) -> Bool
    ) throws(EventLogError) -> Entrance {
        assert(isSealed, "a reader leaves a segment only after the writer")
        let file = scanner.file
        let size = try reading { () throws(SystemError) in try file.size() }
        guard scanner.next == size else {
            throw files.damage(scanner.header.sequence, at: scanner.next, SegmentScanner.Step.end.words)
        }
        var expected = scanner.nextPoint.offset
        let epoch = scanner.header.epoch
        while true {
            guard let (file, header) = try files.open(scanner.header.sequence + 1) else { throw try Self.lost(files) }
            guard header.baseOffset == expected else {
                throw files.damage(header.sequence, at: 32, "it does not go on where the segment before ends")
            }
            // All calls that can fail precede the change to the next segment.
            let extent = try extent(of: header.sequence)
            let isPassable = passes && header.epoch == epoch && extent.isSealed
            let uselessEnd = isPassable ? try uselessEnd(of: file, header, isUseless) : nil
            scanner = SegmentScanner(file, header, readBytes: Limits.logReadBytes)
            (isSealed, scanner.limit) = extent
            wholeEnd = 0
            unfinishedAt = 0
            wanted = nil
            asksAt = .max
            guard header.epoch == epoch else {
                _ = chooseStretches(readsFirst: true)
                return .entered
            }
            if let uselessEnd {
                setPrelude([], then: uselessEnd)
                return .passedOver
            }
            guard let end = chooseStretches(readsFirst: false) else { return .entered }
            expected = end.offset
        }
    }

    /// Returns the end of a sealed segment that may be skipped; nil if the segment must be read.
    private func uselessEnd(
        of file: any StorageFile, _ header: SegmentHeader, _ isUseless: (SealedSegment) -> Bool
    ) throws(EventLogError) -> IndexPoint? {
        guard let map = files.sidecar(of: file, header) else { return nil }
        let outline = try reading { () throws(SystemError) in try SegmentOutlines.outline(map, file, header) }
        // If a schema entry cannot be read, the segment itself must be read.
        guard outline.relations.count == map.relations.count, isUseless(SealedSegment(map, outline)) else { return nil }
        return map.summary.end
    }

    /// True if this segment may begin an epoch, because the segment before it has another epoch or cannot be read.
    private func mayBeginEpoch() throws(EventLogError) -> Bool {
        guard scanner.header.sequence > 1 else { return false }
        do {
            return try files.open(scanner.header.sequence - 1)?.header.epoch != scanner.header.epoch
        } catch .damaged {
            return true
        }
    }

    /// Returns the end of a sealed segment that certainly has none of the keys. For other segments it returns nil and
    /// selects the stretches to read.
    private mutating func chooseStretches(readsFirst: Bool) -> IndexPoint? {
        guard isSealed, !keys.isEmpty, let map = files.sidecar(of: scanner.file, scanner.header) else { return nil }
        guard readsFirst || keys.contains(where: map.filter.mayContain) else { return map.summary.end }
        wanted = files.stretches(of: map).map { WantedStretches(map, $0, readsFirst: readsFirst) }
        asksAt = wanted?.nextQuestion ?? .max
        return nil
    }

    /// Moves to the next stretch that may have one of the keys. Returns false if the reader is already at such a
    /// stretch.
    private mutating func passStretches() -> Bool {
        let detour = wanted?.detour(from: scanner.next, for: keys)
        asksAt = wanted?.nextQuestion ?? .max
        guard let detour else { return false }
        setPrelude(detour.relations, then: detour.point)
        // Wanted stretches are far apart, so the reader reads only little at each.
        scanner.refresh()
        return true
    }

    /// Returns the error for a missing segment: retention has deleted it, or there is no log.
    static func lost(_ files: SegmentFiles) throws(EventLogError) -> EventLogError {
        for sequence in try files.sequences() {
            if let (_, header) = try files.open(sequence) { return .outsideRetention(oldest: header.baseOffset) }
        }
        return .missing(path: files.directory.path)
    }
}

extension SegmentSummary {
    var end: IndexPoint {
        IndexPoint(position: bytes, offset: endOffset, lsn: lastLSN, time: maximumTime)
    }
}
