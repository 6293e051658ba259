import Bytes
import Diagnostics
import System

/// Reader of the entries in one segment, from its beginning or from any place, up to a position that the writer has
/// published as durable.
///
/// It serves callers that have an index of their own. One thread uses it.
public struct SegmentReader: ~Copyable {
    private let files: SegmentFiles
    private let isSealed: Bool
    private var scanner: SegmentScanner

    /// Opens the segment; nil if it does not exist or has been deleted. `limit` is the end of its whole transactions,
    /// from the writer's `EventLogEnd`. For a sealed segment it is nil.
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

    /// True if the segment may have entries with this key. The method reads the segment's index. Always true for a
    /// segment that is not sealed.
    public func mayContain(_ key: UInt64) -> Bool {
        guard isSealed, let map = files.sidecar(of: scanner.file, scanner.header) else { return true }
        return map.filter.mayContain(key)
    }

    /// Byte position and offset of the next entry.
    public var place: (position: UInt64, offset: UInt64) {
        let point = scanner.nextPoint
        return (point.position, point.offset)
    }

    /// Moves to a position at which an entry with this offset begins.
    public mutating func move(to position: UInt64, offset: UInt64) {
        scanner.move(to: IndexPoint(position: position, offset: offset, lsn: 0, time: .min))
        // The places are far apart, so the reader reads only little at each.
        scanner.refresh()
    }

    /// Moves to the next entry. Returns false if there is none yet.
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
