import Bytes
import Diagnostics
import System

/// Reader that goes backwards from a position: from segment to older segment, and in each segment from its last stretch
/// to its first. A stretch consists of whole transactions, and its entries are shown in their order.
///
/// It serves searches for the newest entry about something, which is usually near the end. One thread uses it.
public struct LogLookback: ~Copyable {
    private let outlines: SegmentOutlines
    private var outline: SegmentOutline
    private var scanner: SegmentScanner
    /// Byte position at which the current stretch begins. No entry before it has been shown.
    private var start: UInt64
    /// Number of bytes that were read from files so far.
    public private(set) var bytesRead: UInt64

    /// Prepares to read everything before `end`, the position in the segment at which an entry ends. The bytes before
    /// it must be durable.
    public init(
        _ outlines: SegmentOutlines, segment: UInt64, before end: UInt64
    ) throws(EventLogError) {
        guard let (file, header) = try outlines.files.open(segment) else {
            throw try EventLogReader.lost(outlines.files)
        }
        var bytesRead: UInt64 = 0
        let outline = try outlines.outline(of: file, header, before: end, &bytesRead)
        self.outlines = outlines
        self.outline = outline
        scanner = SegmentScanner(file, header, readBytes: Limits.logReadBytes)
        start = end
        self.bytesRead = bytesRead
    }

    public var segment: SegmentHeader { scanner.header }

    /// Moves to the previous segment. Returns false if there is none.
    public mutating func enterOlderSegment() throws(EventLogError) -> Bool {
        guard segment.sequence > 1, let (file, header) = try outlines.files.open(segment.sequence - 1) else {
            return false
        }
        outline = try outlines.outline(of: file, header, before: .max, &bytesRead)
        scanner = SegmentScanner(file, header, readBytes: Limits.logReadBytes)
        start = outline.end
        return true
    }

    /// True if the segment may have entries with this key.
    public func mayContain(_ key: UInt64) -> Bool { outline.filter.mayContain(key) }

    /// Payloads of the schema entries in the part of the segment that the lookback reads. All rows of that part have
    /// one of these schemas.
    public var relations: [[UInt8]] { outline.relations }

    /// Moves to the stretch before the current one; at first, to the last one of the segment. Returns false if there is
    /// none.
    public mutating func enterStretch() -> Bool {
        let end = start
        guard let first = outline.points.first, first.position < end else { return false }
        let point = outline.points.last { $0.position + Limits.lookbackStretchBytes <= end } ?? first
        scanner.limit = end
        scanner.move(to: point)
        start = point.position
        assert(start < end, "each stretch lies before the one that was entered last")
        bytesRead += end - start
        return true
    }

    /// Moves to the next entry of the current stretch. Returns false at the stretch's end.
    public mutating func next() throws(EventLogError) -> Bool {
        switch try reading({ () throws(SystemError) in try scanner.step() }) {
        case .entry: return true
        case .end where scanner.next >= scanner.limit: return false
        case let step: throw outlines.files.damage(segment.sequence, at: scanner.next, step.words)
        }
    }

    public var entry: EntryHeader { scanner.entry }
    /// Byte position at which the entry begins in its segment.
    public var position: UInt64 { scanner.position }

    public var payload: RawSpan {
        @_lifetime(borrow self)
        get { scanner.payload }
    }
}
