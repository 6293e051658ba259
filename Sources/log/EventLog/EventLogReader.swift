import Bytes
import Diagnostics
import System

/// Starting point of a reader.
public enum EventLogStart: Sendable, Equatable {
    case oldest
    /// The transaction that contains this change, from its first entry on; or the first entry after all smaller
    /// offsets.
    case offset(UInt64)
    /// The first transaction that takes the log to this LSN or beyond (in the newest epoch that begins before it).
    case lsn(UInt64)
    /// The first transaction with this time or a later one. Commit times are not in order, so earlier ones may follow.
    case time(Int64)
    /// The end of the log: the reader shows only entries written from now on.
    case end
    /// The first segment after the one with this number. For readers that cannot read the rest of that segment.
    case behindSegment(UInt64)
}

/// Facts of one entry: its header and its place in the log.
public struct EventLogEntry: Sendable, Equatable {
    public var header: EntryHeader
    public var epoch: UInt64
    public var segment: UInt64
    /// Position of the entry in its segment.
    public var position: UInt64
    /// True for a schema entry that lies before the requested start and is shown because later entries need it.
    public var precedesStart: Bool

    public var kind: EntryKind { header.kind }
    public var offset: UInt64 { header.offset }
    public var lsn: UInt64 { header.lsn }
    public var time: Int64 { header.time }
    public var changeCount: UInt32 { header.changeCount }
    public var isContinued: Bool { header.isContinued }
}

/// Schema entries to show before the requested start.
private struct Prelude {
    var relations: ArraySlice<IndexPoint> = []
    /// Point at which to continue after the schema entries.
    var start: IndexPoint?
}

/// Reader that starts at a position and shows the entries from there on, in order. Old and live entries take the same
/// code.
///
/// The reader shows whole transactions only. The reader first reads all parts of a transaction and then shows them, so
/// that damage in the last part is found first. With the writer's `end`, the reader stops at the last durable entry.
/// Without `end` (in another process, or without a writer), it stops at the last whole transaction in the files. The
/// reader never writes. One thread uses it at a time.
///
/// The reader keeps its place after an error. If the kernel refuses a read only for now, repeat the same call.
public struct EventLogReader: ~Copyable, Sendable {
    let files: SegmentFiles
    let end: EventLogEnd?
    /// Keys to look for. The reader skips sealed segments and stretches that certainly have none of them. Without keys,
    /// the reader shows all entries.
    public private(set) var keys: [UInt64]

    var scanner: SegmentScanner
    /// True if nothing more is written to the present segment.
    var isSealed: Bool
    /// End of the whole transactions found so far: every part of them was read.
    var wholeEnd: UInt64
    /// Position of unreadable bytes that were examined and found to be only an unfinished write.
    var unfinishedAt: UInt64
    private var prelude: Prelude
    /// Stretches of the present segment to read; nil if the segment is read whole.
    private var wanted: Optional<WantedStretches>
    /// Position at which the reader next asks `wanted` for the next stretch.
    private var asksAt: UInt64

    /// Entry at which the reader stands after `next`.
    public private(set) var entry: EventLogEntry

    /// Opens the log at a place. With `matchingKey`, the reader skips segments and stretches that certainly do not have
    /// the key. The reader also shows some entries around the key.
    public init(
        directory: any StorageDirectory, end: EventLogEnd? = nil, from start: EventLogStart = .oldest,
        matchingKey key: UInt64? = nil
    ) throws(EventLogError) {
        try self.init(directory: directory, end: end, from: start, matchingAnyOf: key.map { [$0] } ?? [])
    }

    /// Opens the log at a place and looks for several keys; one of them is enough. A segment that begins an epoch is
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
                // particular entry then starts at the next segment.
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

    /// Header of the segment that `entry` lies in.
    public var segmentHeader: SegmentHeader { scanner.header }

    /// Returns another reader, which continues after the entry on which this reader stands.
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

    /// Adds a key to look for, from the next stretch on.
    public mutating func alsoMatch(_ key: UInt64) {
        if !keys.isEmpty, !keys.contains(key) { keys.append(key) }
    }

    /// Position after the present entry, which a client stores and sends back to resume.
    public var position: EventLogPosition {
        EventLogPosition(epoch: scanner.header.epoch, offset: (prelude.start ?? scanner.nextPoint).offset)
    }

    /// Result of a step.
    public enum Step: Sendable {
        case entry
        /// No next entry exists yet. The reader keeps its place; ask again later.
        case none
        /// The reader skipped a sealed segment without showing any of its entries.
        case passedOver
    }

    /// Moves to the next entry; returns false if there is none yet. The reader then keeps its place; ask again later.
    public mutating func next() throws(EventLogError) -> Bool {
        if case .entry = try step(passes: false, { _ in false }) { true } else { false }
    }

    /// Moves to the next entry, and skips whole sealed segments for which `isUseless` returns true, one per call. It
    /// never skips a segment that begins an epoch or that the reader has already begun.
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

    /// Reads the present transaction from its first part to its end, and returns to that part. If a part cannot be
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

    /// Reads the end published by the writer; returns false if there is nothing new to read.
    private mutating func noteLiveEnd() throws(EventLogError) -> Bool {
        try noteWhetherSealed()
        return isSealed || scanner.next < scanner.limit
    }

    /// Records whether the segment is sealed. With `end` the writer says so; otherwise the existence of the next
    /// segment does.
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
        /// The transaction is the one entry on which the scanner stands.
        case here
    }

    /// Looks for the next whole transaction in the files, without a writer's `end`: its last entry must be there.
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
                // The first parts may have been read before this transaction overwrote an abandoned one. The last part
                // is there now, so all parts are.
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

    /// Decides at the end of the last visible segment: returns true if the segment is sealed by now, false if more may
    /// come. Throws an error on damage.
    private mutating func isFinished(_ stop: UInt64, _ step: SegmentScanner.Step) throws(EventLogError) -> Bool {
        try noteWhetherSealed()
        // Entries written between the last read and the sealing are still unread.
        if isSealed { return true }
        if step != .end, unfinishedAt != stop { try lookInto(stop) }
        guard try files.sequences().last ?? 0 > scanner.header.sequence else { return false }
        // Later segments exist. The next one may have appeared after the check. If it is already deleted, this reader
        // is too late.
        try noteWhetherSealed()
        if isSealed { return true }
        throw try Self.lost(files)
    }

    /// Examines unreadable bytes: a write in progress, a torn tail that the next writer will cut, or damage.
    private mutating func lookInto(_ stop: UInt64) throws(EventLogError) {
        let (file, header) = (scanner.file, scanner.header)
        let tail = try reading { () throws(SystemError) in try SegmentTail.of(file, header, after: stop) }
        // A writer may have finished this write and later ones during the search. Only bytes that are still unreadable
        // are damage.
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
            // All calls that may fail come before the change of segment.
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

    /// Returns the end of a sealed segment that is to be skipped; nil if it must be read.
    private func uselessEnd(
        of file: any StorageFile, _ header: SegmentHeader, _ isUseless: (SealedSegment) -> Bool
    ) throws(EventLogError) -> IndexPoint? {
        guard let map = files.sidecar(of: file, header) else { return nil }
        let outline = try reading { () throws(SystemError) in try SegmentOutlines.outline(map, file, header) }
        // If any schema entry cannot be read, the segment itself has to be read.
        guard outline.relations.count == map.relations.count, isUseless(SealedSegment(map, outline)) else { return nil }
        return map.summary.end
    }

    /// True if the segment may begin with a gap, judged by the segment before.
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

    /// Moves to the next stretch that may have a key; returns false if the reader already stands in such a stretch.
    private mutating func passStretches() -> Bool {
        let detour = wanted?.detour(from: scanner.next, for: keys)
        asksAt = wanted?.nextQuestion ?? .max
        guard let detour else { return false }
        setPrelude(detour.relations, then: detour.point)
        // Wanted stretches lie far apart, so little is read at each.
        scanner.refresh()
        return true
    }

    /// Returns the error for a missing segment: deleted by retention, or no log at all.
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
