import Bytes
import Diagnostics
import System

/// Where a reader starts.
public enum EventLogStart: Sendable, Equatable {
    case oldest
    /// The transaction that holds this change, from its first entry on; or what comes after all smaller offsets.
    case offset(UInt64)
    /// The first transaction that takes the log to this LSN or beyond (in the newest epoch that begins before it).
    case lsn(UInt64)
    /// The first transaction with this time or a later one. Commit times do not come in order: earlier ones may follow.
    case time(Int64)
    /// What is written from now on.
    case end
    /// First segment behind the one of this number, whose rest cannot be read.
    case behindSegment(UInt64)
}

/// What the log says of one entry.
public struct EventLogEntry: Sendable, Equatable {
    public var header: EntryHeader
    public var epoch: UInt64
    public var segment: UInt64
    /// Where it begins in its segment.
    public var position: UInt64
    /// A schema entry that lies before the start that was asked for, given because later entries need it.
    public var precedesStart: Bool

    public var kind: EntryKind { header.kind }
    public var offset: UInt64 { header.offset }
    public var lsn: UInt64 { header.lsn }
    public var time: Int64 { header.time }
    public var changeCount: UInt32 { header.changeCount }
    public var isContinued: Bool { header.isContinued }
}

/// What is shown before the start that was asked for.
private struct Prelude {
    var relations: ArraySlice<IndexPoint> = []
    /// Where to go on after them.
    var start: IndexPoint?
}

/// A position in; the entries from there on out, in order: old ones and live ones by the same code.
///
/// It shows whole transactions only: of one with several parts nothing is shown before all of them have been read, so that
/// damage in the last is met before the first is given. With the writer's `end` it stops at what is durable; without
/// (another process, or no writer at all) at the last whole transaction in the files. It never writes. One thread uses it
/// at a time.
///
/// The reader keeps its place after an error. If the kernel refuses only for now, repeat the same call.
public struct EventLogReader: ~Copyable, Sendable {
    let files: SegmentFiles
    let end: EventLogEnd?
    /// Sealed segments, and stretches of them, that certainly have none of these are passed over; without any, all are read.
    public private(set) var keys: [UInt64]

    var scanner: SegmentScanner
    /// No more is written to the present segment.
    var isSealed: Bool
    /// Entries before this belong to whole transactions, every part of which was read.
    var wholeEnd: UInt64
    /// Odd bytes here were looked into and are only a write that is not finished.
    var unfinishedAt: UInt64
    private var prelude: Prelude
    /// Of the present segment; nil where it is read whole.
    private var wanted: Optional<WantedStretches>
    /// From there on it is asked which stretch comes next.
    private var asksAt: UInt64

    /// The entry that `next` came to.
    public private(set) var entry: EventLogEntry

    /// Opens the log at a place. `matchingKey` passes over segments, and stretches of them, that certainly do not have the
    /// key; of what lies around it some is given too.
    public init(
        directory: any StorageDirectory, end: EventLogEnd? = nil, from start: EventLogStart = .oldest,
        matchingKey key: UInt64? = nil
    ) throws(EventLogError) {
        try self.init(directory: directory, end: end, from: start, matchingAnyOf: key.map { [$0] } ?? [])
    }

    /// The same with several keys, of which one is enough. A segment that begins an epoch is never passed over, since
    /// it begins with a gap, which concerns everyone.
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
                // Retention may take the oldest segment while it is being opened; who asked for no particular entry
                // then starts at the next.
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

    /// The header of the segment that `entry` lies in.
    public var segmentHeader: SegmentHeader { scanner.header }

    /// Another reader, which goes on after the entry that this one stands on.
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

    /// From the next stretch on, this key is looked for too.
    public mutating func alsoMatch(_ key: UInt64) {
        if !keys.isEmpty, !keys.contains(key) { keys.append(key) }
    }

    /// What a client gives back to go on after the entry it has.
    public var position: EventLogPosition {
        EventLogPosition(epoch: scanner.header.epoch, offset: (prelude.start ?? scanner.nextPoint).offset)
    }

    /// What a step came to.
    public enum Step: Sendable {
        case entry
        /// There is none yet: ask again later, the reader stays where it is.
        case none
        /// Behind a sealed segment of which nothing was shown.
        case passedOver
    }

    /// Moves to the next entry; false if there is none yet. Ask again later: the reader stays where it is.
    public mutating func next() throws(EventLogError) -> Bool {
        if case .entry = try step(passes: false, { _ in false }) { true } else { false }
    }

    /// The same, passing over whole sealed segments of which that says so, one at a time. A segment that begins an epoch is
    /// never passed over, nor is one in which the reader has begun.
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

    /// Reads the transaction whose first part it stands on to its end, and comes back to that part. If it does not read,
    /// the reader stays before it.
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

    // MARK: - The end of what may be shown

    /// Takes over how far the writer has come; false if that is no further than here.
    private mutating func noteLiveEnd() throws(EventLogError) -> Bool {
        try noteWhetherSealed()
        return isSealed || scanner.next < scanner.limit
    }

    /// Live: the writer says so. Otherwise the next segment's existence does.
    private mutating func noteWhetherSealed() throws(EventLogError) {
        (isSealed, scanner.limit) = try extent(of: scanner.header.sequence)
    }

    private func extent(of sequence: UInt64) throws(EventLogError) -> (isSealed: Bool, limit: UInt64) {
        guard let state = end?.state else { return (try files.open(sequence + 1) != nil, .max) }
        return state.segment > sequence ? (true, .max) : (false, state.segmentBytes)
    }

    private enum WholeTransaction {
        case none
        /// It begins where the scanner stands.
        case ahead
        /// It is the one entry that the scanner stepped on.
        case here
    }

    /// Without a writer's word: the next transaction counts when its last entry is there.
    private mutating func findWholeTransaction() throws(EventLogError) -> WholeTransaction {
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
                if scanner.position == start.position { return .here }
                scanner.move(to: start)
                // Its first parts may have been read before an abandoned transaction was overwritten by this one. Now
                // that the last part is there, so are all.
                scanner.refresh()
                return .ahead
            }
            let stop = scanner.next
            scanner.move(to: start)
            // Bytes in memory may be older than the file by now.
            scanner.refresh()
            return try isFinished(stop, step) ? .ahead : .none
        }
    }

    /// At the end of the last segment, as far as one can see: is it sealed by now? Is it an end, or damage?
    private mutating func isFinished(_ stop: UInt64, _ step: SegmentScanner.Step) throws(EventLogError) -> Bool {
        try noteWhetherSealed()
        // Sealed: what was written between our look at its end and its sealing is still to be read.
        if isSealed { return true }
        if step != .end, unfinishedAt != stop { try lookInto(stop) }
        guard try files.sequences().last ?? 0 > scanner.header.sequence else { return false }
        // Later segments are there. The next one may have come since we asked; if it is gone again, we are too late.
        try noteWhetherSealed()
        if isSealed { return true }
        throw try Self.lost(files)
    }

    /// Odd bytes in the file: a write under way, a torn tail that the next writer will cut, or damage?
    private mutating func lookInto(_ stop: UInt64) throws(EventLogError) {
        let (file, header) = (scanner.file, scanner.header)
        let tail = try reading { () throws(SystemError) in try SegmentTail.of(file, header, after: stop) }
        // A writer may have finished it, and more behind it, while we searched: only what still does not read is damage.
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
            // Everything that may fail is done before the segment is entered.
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

    /// The end of a sealed segment that is to be passed over.
    private func uselessEnd(
        of file: any StorageFile, _ header: SegmentHeader, _ isUseless: (SealedSegment) -> Bool
    ) throws(EventLogError) -> IndexPoint? {
        guard let map = files.sidecar(of: file, header) else { return nil }
        let outline = try reading { () throws(SystemError) in try SegmentOutlines.outline(map, file, header) }
        // All of its schemas could be read, or it has to be read itself.
        guard outline.relations.count == map.relations.count, isUseless(SealedSegment(map, outline)) else { return nil }
        return map.summary.end
    }

    /// Whether the segment may begin with a gap, as far as one can tell from outside.
    private func mayBeginEpoch() throws(EventLogError) -> Bool {
        guard scanner.header.sequence > 1 else { return false }
        do {
            return try files.open(scanner.header.sequence - 1)?.header.epoch != scanner.header.epoch
        } catch .damaged {
            return true
        }
    }

    /// The end of a sealed segment that certainly has none of the keys; of others it is noted where they may be.
    private mutating func chooseStretches(readsFirst: Bool) -> IndexPoint? {
        guard isSealed, !keys.isEmpty, let map = files.sidecar(of: scanner.file, scanner.header) else { return nil }
        guard readsFirst || keys.contains(where: map.filter.mayContain) else { return map.summary.end }
        wanted = files.stretches(of: map).map { WantedStretches(map, $0, readsFirst: readsFirst) }
        asksAt = wanted?.nextQuestion ?? .max
        return nil
    }

    /// Goes to the next stretch that may have a key; false if that begins here, or it stands within one.
    private mutating func passStretches() -> Bool {
        let detour = wanted?.detour(from: scanner.next, for: keys)
        asksAt = wanted?.nextQuestion ?? .max
        guard let detour else { return false }
        setPrelude(detour.relations, then: detour.point)
        // What is wanted lies far apart: a little is read at each place.
        scanner.refresh()
        return true
    }

    /// What to say when a segment that should be there is not.
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
