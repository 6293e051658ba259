import Diagnostics

/// Place in a segment at which a transaction begins, with bounds for all entries before it.
public struct IndexPoint: Sendable, Equatable {
    /// Byte position in the segment.
    public var position: UInt64
    /// Offset of the next change. All earlier changes have smaller offsets.
    public var offset: UInt64
    /// Upper bound of the LSNs of all earlier entries.
    public var lsn: UInt64
    /// Upper bound of the times of all earlier entries, in microseconds since 1970.
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

/// Counts and bounds of the entries in a segment. An unfinished transaction is included only where that is stated.
public struct SegmentSummary: Sendable, Equatable {
    public var header: SegmentHeader
    public var isSealed = false
    /// Byte position at which the last whole transaction ends. In a sealed segment, the size of the file.
    public var bytes: UInt64
    public var entries: UInt64 = 0
    /// Log offset that follows the segment's last change.
    public var endOffset: UInt64
    /// LSN that the log reaches with the last entry.
    public var lastLSN: UInt64
    /// Earliest time of an entry, in microseconds since 1970. Commit times are not in order.
    public var minimumTime: Int64 = .max
    /// Latest time of an entry, in microseconds since 1970.
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

/// Index of one segment, which grows while entries are appended or read. When the segment is sealed, it is stored in a
/// file.
struct SegmentIndex: Sendable {
    /// Summary of all added entries, including an unfinished transaction.
    private(set) var all: SegmentSummary
    /// Summary of all whole transactions.
    private(set) var whole: SegmentSummary
    private(set) var points: [IndexPoint]
    /// Number of entry keys before each point of the index.
    private var keysBefore = [0]
    /// Places of the schema entries.
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

    /// Adds an entry with its keys. The entry must begin where the entries added so far end.
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

    /// Records that the keys of some entry are unknown, so that the index matches every key.
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

    /// Removes the entries of the unfinished transaction.
    mutating func abandonTransaction() {
        assert(
            whole.bytes <= all.bytes && wholeRelations <= relations.count,
            "an unfinished transaction lies behind the last whole one")
        all = whole
        relations.removeSubrange(wholeRelations...)
        keys.returnTo(wholeKeys)
        isInsideTransaction = false
        // An index point of the removed transaction may stay, because it is where the next transaction begins.
    }
}

/// Index of a segment in the form that readers use, from an index file or from reading the segment.
struct SegmentMap: Sendable {
    var summary: SegmentSummary
    var points: [IndexPoint]
    var relations: [IndexPoint]
    var filter: KeyFilter
    /// Version of the rules by which entries have keys; see `EventLogOptions.keyScheme`.
    var keyScheme: UInt32 = 0
    /// Key filters of the stretches, if the segment was just sealed and does not have too many keys. For other
    /// segments, they are read from a file when needed.
    var stretches: KeyStretches?
}

extension SegmentIndex {
    /// Returns the index in the form that readers use. Filters are made only if the segment is sealed.
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
