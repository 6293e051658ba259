import Bytes
import Diagnostics
import Glibc
import System

/// Scanner that reads one segment entry by entry. It checks checksums and the order of offsets and LSNs. Bytes on a
/// disk may have any value. No value can crash the scanner or make it allocate more memory than the file's size
/// requires.
public struct SegmentScanner: ~Copyable, Sendable {
    public enum Step: Equatable, Sendable {
        case entry
        /// No entry has been written at this place: it has zeros, or is the end of the file or of the allowed range.
        case end
        /// The bytes at this place are not an entry of this segment. The text is a fixed phrase that gives the reason.
        case invalid(String)
    }

    public let file: any StorageFile
    public let header: SegmentHeader
    /// Entry that was read by the last step.
    public private(set) var entry: EntryHeader
    /// Byte position in the segment of the entry that was read by the last step.
    public private(set) var position: UInt64
    /// Byte position of the next entry.
    public private(set) var next: UInt64
    /// End of the range that the scanner may read.
    var limit: UInt64

    private var buffer: ReadBuffer
    private var window: Int
    private let largestWindow: Int
    private var expectedOffset: UInt64
    private var reachedLSN: UInt64
    /// LSN that the log had reached before the current entry.
    private var lsnBefore: UInt64

    /// Creates a scanner at the segment's first entry, or at a point from an index.
    public init(
        _ file: any StorageFile, _ header: SegmentHeader, from point: IndexPoint? = nil, limit: UInt64 = .max,
        readBytes: Int = Limits.logScanBytes
    ) {
        self.file = file
        self.header = header
        self.limit = limit
        let start = point ?? IndexPoint(startOf: header)
        next = start.position
        position = start.position
        expectedOffset = start.offset
        reachedLSN = start.lsn
        lsnBefore = start.lsn
        entry = EntryHeader(
            payloadBytes: 0, kind: EntryKind(rawValue: 0), isContinued: false, changeCount: 0, offset: start.offset,
            lsn: start.lsn, time: 0, publishedBytes: 0)
        buffer = ReadBuffer(capacity: readBytes)
        largestWindow = readBytes
        window = min(readBytes, Self.smallestWindow)
    }

    /// Size of the first read in bytes. A reader at the end of the log reads only little at a time. During a long scan
    /// the size doubles with each read.
    private static let smallestWindow = 64 << 10

    /// Index point for the next entry, with which the scanner can return to it.
    public var nextPoint: IndexPoint {
        IndexPoint(position: next, offset: expectedOffset, lsn: reachedLSN, time: .min)
    }

    /// Index point for the current entry, with which the scanner can read it again.
    var startOfEntry: IndexPoint {
        IndexPoint(position: position, offset: entry.offset, lsn: lsnBefore, time: .min)
    }

    /// Moves to a point at which an entry begins.
    mutating func move(to point: IndexPoint) {
        next = point.position
        expectedOffset = point.offset
        reachedLSN = point.lsn
    }

    /// Discards buffered bytes, because another process may have changed the file.
    mutating func refresh() {
        buffer.forget()
        window = min(largestWindow, Self.smallestWindow)
    }

    public var payload: RawSpan {
        @_lifetime(borrow self)
        get { buffer.bytes(entry.payloadBytes, at: position + UInt64(EntryHeader.byteCount)) }
    }

    /// Moves to the next entry. If the result is not `.entry`, the scanner keeps its place.
    public mutating func step() throws(SystemError) -> Step {
        guard try load(EntryHeader.byteCount) else { return try shortEnd() }
        switch buffer.sighting(at: next) {
        case .unwritten: return .end
        case .implausible: return .invalid("bytes that are no entry")
        case .entry(let found, let checksum): return try accept(found, checksum)
        }
    }

    private mutating func accept(_ found: EntryHeader, _ checksum: UInt32) throws(SystemError) -> Step {
        guard try load(found.byteCount) else { return .invalid("an entry longer than the file") }
        guard EntryHeader.checksum(of: buffer.bytes(found.byteCount, at: next), seed: header.checksum) == checksum
        else { return .invalid("a checksum that does not match") }
        guard found.offset == expectedOffset, found.lsn >= reachedLSN, found.publishedBytes <= next else {
            return .invalid("an entry out of order")
        }
        guard found.offset.addingReportingOverflow(UInt64(found.changeCount)).overflow == false else {
            return .invalid("an offset out of range")
        }
        position = next
        entry = found
        next += UInt64(found.byteCount)
        expectedOffset = found.endOffset
        lsnBefore = reachedLSN
        reachedLSN = found.lsn
        return .entry
    }

    /// Ensures that the buffer has `count` bytes from `next` on. Returns false if the file has fewer.
    @inline(__always)
    private mutating func load(_ count: Int) throws(SystemError) -> Bool {
        if buffer.holds(count, at: next) { return true }
        return try refill(count)
    }

    private mutating func refill(_ count: Int) throws(SystemError) -> Bool {
        // A damaged length must not cause a huge allocation. So an entry larger than the buffer must really fit into
        // the file.
        if count > largestWindow {
            let end = min(limit, try file.size())
            guard end > next, end - next >= UInt64(count) else { return false }
        }
        try buffer.fill(from: file, at: next, wanted: max(count, window), limit: limit)
        window = min(window * 2, largestWindow)
        return buffer.holds(count, at: next)
    }

    /// Returns the result for a rest of the file that is shorter than a header.
    private func shortEnd() throws(SystemError) -> Step {
        let rest = buffer.bytes(buffer.available(at: next), at: next)
        return rest.isZero ? .end : .invalid("a header cut off by the end of the file")
    }
}

extension RawSpan {
    var isZero: Bool {
        guard byteCount > 0 else { return true }
        // SAFETY: both ranges lie inside the buffer. If each byte equals the next one and the first is zero, all are
        // zero.
        return unsafe withUnsafeBytes { bytes in
            guard let base = bytes.baseAddress else { return true }
            return unsafe bytes[0] == 0 && memcmp(base, base + 1, bytes.count - 1) == 0
        }
    }
}
