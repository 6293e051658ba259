import Bytes
import Diagnostics
import System

/// The log from a place backwards: segments, the newest first, and of each its stretches of whole transactions, the last
/// one first. Within a stretch entries come in their order.
///
/// For who looks for the last word on something; usually that is not far back. One thread uses it.
public struct LogLookback: ~Copyable {
    private let outlines: SegmentOutlines
    private var outline: SegmentOutline
    private var scanner: SegmentScanner
    /// Where the stretch begins that was entered last: what lies before it has not been shown.
    private var start: UInt64
    /// What was read of files up to now.
    public private(set) var bytesRead: UInt64

    /// Everything before `end`, a place in the segment where an entry ends. It must be durable.
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

    /// The segment before; false if there is none.
    public mutating func enterOlderSegment() throws(EventLogError) -> Bool {
        guard segment.sequence > 1, let (file, header) = try outlines.files.open(segment.sequence - 1) else {
            return false
        }
        outline = try outlines.outline(of: file, header, before: .max, &bytesRead)
        scanner = SegmentScanner(file, header, readBytes: Limits.logReadBytes)
        start = outline.end
        return true
    }

    /// Whether the segment may have this key.
    public func mayContain(_ key: UInt64) -> Bool { outline.filter.mayContain(key) }

    /// The payloads of the segment's schema entries, as far as it is looked at: all that its rows need.
    public var relations: [[UInt8]] { outline.relations }

    /// The stretch before the one entered last, or the segment's last; false if there is none.
    public mutating func enterStretch() -> Bool {
        let end = start
        guard let first = outline.points.first, first.position < end else { return false }
        let point = outline.points.last { $0.position + Limits.lookbackStretchBytes <= end } ?? first
        scanner.limit = end
        scanner.move(to: point)
        start = point.position
        bytesRead += end - start
        return true
    }

    /// Moves to the stretch's next entry; false at its end.
    public mutating func next() throws(EventLogError) -> Bool {
        switch try reading({ () throws(SystemError) in try scanner.step() }) {
        case .entry: return true
        case .end where scanner.next >= scanner.limit: return false
        case let step: throw outlines.files.damage(segment.sequence, at: scanner.next, step.words)
        }
    }

    public var entry: EntryHeader { scanner.entry }
    /// Where the entry begins.
    public var position: UInt64 { scanner.position }

    public var payload: RawSpan {
        @_lifetime(borrow self)
        get { scanner.payload }
    }
}
