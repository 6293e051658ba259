import Bytes
import Diagnostics
import System

/// One segment, entry by entry from its beginning or from any place in it, up to a place that its writer called durable.
///
/// For who keeps an index of places of its own. One thread uses it.
public struct SegmentReader: ~Copyable {
    private let files: SegmentFiles
    private let isSealed: Bool
    private var scanner: SegmentScanner

    /// The segment of that number; nil if it is not there (any more). `limit` is where its whole transactions end, as the
    /// writer's `EventLogEnd` says; nil of one that was sealed.
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

    /// Whether it may have this key; of one that is still written to nobody knows. The index beside the segment is read
    /// for it.
    public func mayContain(_ key: UInt64) -> Bool {
        guard isSealed, let map = files.sidecar(of: scanner.file, scanner.header) else { return true }
        return map.filter.mayContain(key)
    }

    /// Where the next entry begins, and the offset it has.
    public var place: (position: UInt64, offset: UInt64) {
        let point = scanner.nextPoint
        return (point.position, point.offset)
    }

    /// Goes to a place where an entry of that offset begins.
    public mutating func move(to position: UInt64, offset: UInt64) {
        scanner.move(to: IndexPoint(position: position, offset: offset, lsn: 0, time: .min))
        // Places are far apart: a little is read at each.
        scanner.refresh()
    }

    /// Moves to the next entry; false where there is none for now.
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
