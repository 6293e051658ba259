import Bytes
import Diagnostics
import Glibc
import System

/// Scanner that walks over one segment, entry by entry, and checks checksums and the order of offsets and LSNs. Bytes
/// from a disk may have any value. None can crash the scanner or make it ask for more memory than the file's size
/// justifies.
public struct SegmentScanner: ~Copyable, Sendable {
    public enum Step: Equatable, Sendable {
        case entry
        /// No bytes were ever written here: zeros, or the end of the file or of the allowed range.
        case end
        /// The bytes here are no entry of this segment; a fixed phrase gives the reason.
        case invalid(String)
    }

    public let file: any StorageFile
    public let header: SegmentHeader
    /// Entry of the last step; `position` is its start.
    public private(set) var entry: EntryHeader
    public private(set) var position: UInt64
    /// Start of the next entry.
    public private(set) var next: UInt64
    /// End of the range that the scanner may read.
    var limit: UInt64

    private var buffer: ReadBuffer
    private var window: Int
    private let largestWindow: Int
    private var expectedOffset: UInt64
    private var reachedLSN: UInt64
    /// LSN before the entry of the last step.
    private var lsnBefore: UInt64

    /// Starts at the first entry, or at a point from an index, where an entry begins.
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

    /// Size of the first read. A follower at the end of the log reads little at a time; a long scan soon reads much.
    private static let smallestWindow = 64 << 10

    /// State for a later return: an index point for the next entry.
    public var nextPoint: IndexPoint {
        IndexPoint(position: next, offset: expectedOffset, lsn: reachedLSN, time: .min)
    }

    /// Start of the entry of the last step, for another step on it.
    var startOfEntry: IndexPoint {
        IndexPoint(position: position, offset: entry.offset, lsn: lsnBefore, time: .min)
    }

    /// Moves back or forward to a place at which an entry begins.
    mutating func move(to point: IndexPoint) {
        next = point.position
        expectedOffset = point.offset
        reachedLSN = point.lsn
    }

    /// Drops buffered bytes, which another process may have changed since.
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

    /// Loads `count` bytes from `next` on into the buffer; returns false if there are fewer.
    @inline(__always)
    private mutating func load(_ count: Int) throws(SystemError) -> Bool {
        if buffer.holds(count, at: next) { return true }
        return try refill(count)
    }

    private mutating func refill(_ count: Int) throws(SystemError) -> Bool {
        // A damaged length must not cause a huge allocation: an entry larger than the buffer must really be in the
        // file.
        if count > largestWindow {
            let end = min(limit, try file.size())
            guard end > next, end - next >= UInt64(count) else { return false }
        }
        try buffer.fill(from: file, at: next, wanted: max(count, window), limit: limit)
        window = min(window * 2, largestWindow)
        return buffer.holds(count, at: next)
    }

    /// Returns the step for a rest that is shorter than a header.
    private func shortEnd() throws(SystemError) -> Step {
        let rest = buffer.bytes(buffer.available(at: next), at: next)
        return rest.isZero ? .end : .invalid("a header cut off by the end of the file")
    }
}

extension RawSpan {
    var isZero: Bool {
        guard byteCount > 0 else { return true }
        // SAFETY: both ranges lie inside the buffer. Equal to itself one byte further on, and zero at the start: all zero.
        return unsafe withUnsafeBytes { bytes in
            guard let base = bytes.baseAddress else { return true }
            return unsafe bytes[0] == 0 && memcmp(base, base + 1, bytes.count - 1) == 0
        }
    }
}
