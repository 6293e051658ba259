import Diagnostics

/// A place in a segment where an entry (the first of its transaction) begins, and what lies before it.
public struct IndexPoint: Sendable, Equatable {
    public var position: UInt64
    /// The offset of the next change; all before are smaller.
    public var offset: UInt64
    /// All entries before have at most this LSN.
    public var lsn: UInt64
    /// All entries before have at most this time.
    public var time: Int64

    init(position: UInt64, offset: UInt64, lsn: UInt64, time: Int64) {
        self.position = position
        self.offset = offset
        self.lsn = lsn
        self.time = time
    }

    init(startOf header: SegmentHeader) {
        self.init(
            position: UInt64(SegmentHeader.byteCount), offset: header.baseOffset, lsn: header.baseLSN, time: .min)
    }
}

/// What a segment holds, in numbers: whole transactions only.
public struct SegmentSummary: Sendable, Equatable {
    public var header: SegmentHeader
    public var isSealed = false
    /// The end of the last whole transaction; the size of the file once it is sealed.
    public var bytes: UInt64
    public var entries: UInt64 = 0
    public var endOffset: UInt64
    public var lastLSN: UInt64
    /// Smallest and largest time of an entry; commit times do not come in order.
    public var minimumTime: Int64 = .max
    public var maximumTime: Int64 = .min
    var kinds = EntryKinds.none

    init(_ header: SegmentHeader) {
        self.header = header
        bytes = UInt64(SegmentHeader.byteCount)
        endOffset = header.baseOffset
        lastLSN = header.baseLSN
    }

    public var sequence: UInt64 { header.sequence }
    public var epoch: UInt64 { header.epoch }
    public var firstOffset: UInt64 { header.baseOffset }
    public var changes: UInt64 { endOffset - header.baseOffset }
    public var isEmpty: Bool { entries == 0 }

    mutating func add(_ entry: EntryHeader) {
        bytes += UInt64(entry.byteCount)
        entries += 1
        endOffset = entry.endOffset
        lastLSN = entry.lsn
        kinds.insert(entry.kind)
        minimumTime = min(minimumTime, entry.time)
        maximumTime = max(maximumTime, entry.time)
    }
}

/// Where things are in one segment. Built as entries are appended or scanned; kept beside a sealed segment.
struct SegmentIndex: Sendable {
    /// Everything that was added, an unfinished transaction too.
    private(set) var all: SegmentSummary
    /// Up to the last whole transaction.
    private(set) var whole: SegmentSummary
    private(set) var points: [IndexPoint]
    /// How many keys came before each of them.
    private var keysBefore = [0]
    /// Where the schema entries begin.
    private(set) var relations: [IndexPoint] = []
    private(set) var keys = KeyCollector()
    private(set) var isInsideTransaction = false

    private var wholeRelations = 0
    private var wholeKeys = KeyCollector.Mark()

    init(_ header: SegmentHeader) {
        all = SegmentSummary(header)
        whole = all
        points = [IndexPoint(startOf: header)]
    }

    /// Adds the entry that begins at the end of what was added so far, and has these keys.
    @inline(__always)
    mutating func add(_ entry: EntryHeader, keys added: Span<UInt64> = Span()) {
        if !isInsideTransaction { beginTransaction() }
        if added.count > 0 { keys.add(added) }
        if entry.kind == .relation {
            relations.append(IndexPoint(position: all.bytes, offset: all.endOffset, lsn: all.lastLSN, time: .min))
        }
        all.add(entry)
        isInsideTransaction = entry.isContinued
        if !entry.isContinued { endTransaction() }
    }

    /// The keys of some entry are not known.
    mutating func giveUpKeys() { keys.giveUp() }

    private mutating func beginTransaction() {
        if all.bytes - points[points.count - 1].position >= Limits.indexStride {
            points.append(
                IndexPoint(position: all.bytes, offset: all.endOffset, lsn: all.lastLSN, time: all.maximumTime))
            keysBefore.append(keys.count)
        }
    }

    private mutating func endTransaction() {
        whole = all
        wholeRelations = relations.count
        wholeKeys = keys.mark
    }

    /// Forgets the entries since the last whole transaction.
    mutating func abandonTransaction() {
        all = whole
        relations.removeSubrange(wholeRelations...)
        keys.returnTo(wholeKeys)
        isInsideTransaction = false
        // Its point stays if it got one: it stands at the end of the last whole transaction, where the next begins.
    }
}

/// How a reader finds its place, whether the index came from a sidecar or from a scan.
struct SegmentMap: Sendable {
    var summary: SegmentSummary
    var points: [IndexPoint]
    var relations: [IndexPoint]
    var filter: KeyFilter
    /// Which keys the filter knows of; see `EventLogOptions.keyScheme`.
    var keyScheme: UInt32 = 0
    /// Of a segment that was just sealed, unless it has more keys than are remembered; else it is read when it is needed.
    var stretches: KeyStretches?
}

extension SegmentIndex {
    /// The index as it is kept; filters are made when a segment is sealed.
    func map(sealed: Bool, keyScheme: UInt32 = 0) -> SegmentMap {
        var summary = whole
        summary.isSealed = sealed
        return SegmentMap(
            summary: summary, points: points, relations: Array(relations.prefix(wholeRelations)),
            filter: sealed ? keys.filter() : .everything, keyScheme: keyScheme,
            stretches: sealed ? keys.stretches(from: keysBefore) : nil)
    }
}
