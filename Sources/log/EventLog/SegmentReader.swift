import Bytes
import Diagnostics
import System

/// Reader of one segment, entry by entry, from its beginning or from any place, up to a position that the writer called
/// durable.
///
/// For callers that keep their own index of places. One thread uses it.
public struct SegmentReader: ~Copyable {
    private let files: SegmentFiles
    private let isSealed: Bool
    private var scanner: SegmentScanner

    /// Opens the segment with this number; nil if it does not exist (any more). `limit` is the end of its whole
    /// transactions, from the writer's `EventLogEnd`; nil for a sealed segment.
    public init?(
        directory: any StorageDirectory, segment: UInt64, limit: UInt64?
    ) throws(EventLogError) {
        let files = SegmentFiles(directory: directory)
        guard let (file, header) = try files.open(segment) else { return nil }
        self.files = files
        isSealed = limit == nil
        scanner = SegmentScanner(file, header, limit: limit ?? .max, readBytes: Limits.logReadBytes)
    }

    public var header: SegmentHeader { scanner.header }

    /// True if the segment may have this key. Reads the index beside the segment; always true for a segment that is
    /// still being written.
    public func mayContain(_ key: UInt64) -> Bool {
        guard isSealed, let map = files.sidecar(of: scanner.file, scanner.header) else { return true }
        return map.filter.mayContain(key)
    }

    /// Start of the next entry, and its offset.
    public var place: (position: UInt64, offset: UInt64) {
        let point = scanner.nextPoint
        return (point.position, point.offset)
    }

    /// Moves to a place at which an entry with that offset begins.
    public mutating func move(to position: UInt64, offset: UInt64) {
        scanner.move(to: IndexPoint(position: position, offset: offset, lsn: 0, time: .min))
        // Places are far apart, so little is read at each.
        scanner.refresh()
    }

    /// Moves to the next entry; returns false if there is none for now.
    public mutating func next() throws(EventLogError) -> Bool {
        switch try reading({ () throws(SystemError) in try scanner.step() }) {
        case .entry: return true
        case .end: return false
        case let step: throw files.damage(header.sequence, at: scanner.next, step.words)
        }
    }

    public var entry: EntryHeader { scanner.entry }

    public var payload: RawSpan {
        @_lifetime(borrow self)
        get { scanner.payload }
    }
}
