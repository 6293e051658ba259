import Diagnostics

/// Place in a segment at which a transaction's first entry begins, with limits for all entries before it.
public struct IndexPoint: Sendable, Equatable {
    public var position: UInt64
    /// Offset of the next change; all earlier ones are smaller.
    public var offset: UInt64
    /// Highest LSN that any earlier entry can have.
    public var lsn: UInt64
    /// Latest time that any earlier entry can have.
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

/// Counts and limits of the entries of a segment; whole transactions only.
public struct SegmentSummary: Sendable, Equatable {
    public var header: SegmentHeader
    public var isSealed = false
    /// End of the last whole transaction; the size of the file once the segment is sealed.
    public var bytes: UInt64
    public var entries: UInt64 = 0
    public var endOffset: UInt64
    public var lastLSN: UInt64
    /// Smallest and largest time of an entry; commit times are not in order.
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

/// Index of one segment, which grows as entries are appended or scanned. It is stored beside a sealed segment.
struct SegmentIndex: Sendable {
    /// Summary of all added entries, including an unfinished transaction.
    private(set) var all: SegmentSummary
    /// Summary up to the last whole transaction.
    private(set) var whole: SegmentSummary
    private(set) var points: [IndexPoint]
    /// Number of keys before each point.
    private var keysBefore = [0]
    /// Starts of the schema entries.
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

    /// Adds an entry with these keys. The entry begins at the end of the entries added so far.
    @inline(__always)
    mutating func add(_ entry: EntryHeader, keys added: Span<UInt64> = Span()) {
        assert(entry.offset == all.endOffset && entry.lsn >= all.lastLSN, "an entry goes on where the one before ends")
        if !isInsideTransaction { beginTransaction() }
        if added.count > 0 { keys.add(added) }
        if entry.kind == .relation {
            relations.append(IndexPoint(position: all.bytes, offset: all.endOffset, lsn: all.lastLSN, time: .min))
        }
        all.add(entry)
        isInsideTransaction = entry.isContinued
        if !entry.isContinued { endTransaction() }
    }

    /// Marks that the keys of some entry are unknown.
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

    /// Removes the entries added since the last whole transaction.
    mutating func abandonTransaction() {
        assert(
            whole.bytes <= all.bytes && wholeRelations <= relations.count,
            "an unfinished transaction lies behind the last whole one")
        all = whole
        relations.removeSubrange(wholeRelations...)
        keys.returnTo(wholeKeys)
        isInsideTransaction = false
        // The transaction's index point may stay: it is the end of the last whole transaction, where the next one
        // begins.
    }
}

/// Index of a segment as readers use it, from a sidecar or from a scan.
struct SegmentMap: Sendable {
    var summary: SegmentSummary
    var points: [IndexPoint]
    var relations: [IndexPoint]
    var filter: KeyFilter
    /// Version of the set of keys that the filter contains; see `EventLogOptions.keyScheme`.
    var keyScheme: UInt32 = 0
    /// Key filters of the stretches, for a segment that was just sealed; nil if it has too many keys. For other
    /// segments they are read on demand.
    var stretches: KeyStretches?
}

extension SegmentIndex {
    /// Returns the index in its stored form. Filters are made only for a sealed segment.
    func map(sealed: Bool, keyScheme: UInt32 = 0) -> SegmentMap {
        assert(points.count == keysBefore.count, "the number of keys before each point is known")
        var summary = whole
        summary.isSealed = sealed
        return SegmentMap(
            summary: summary, points: points, relations: Array(relations.prefix(wholeRelations)),
            filter: sealed ? keys.filter() : .everything, keyScheme: keyScheme,
            stretches: sealed ? keys.stretches(from: keysBefore) : nil)
    }
}
