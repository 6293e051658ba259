import Bytes
import Diagnostics
import Glibc
import System

/// Walks over one segment, entry by entry, and checks everything that can be checked: checksums, order of offsets
/// and LSNs. Bytes come from disks and may be anything; nothing in them can make it crash or ask for memory that
/// the file does not justify.
public struct SegmentScanner: ~Copyable, Sendable {
    public enum Step: Equatable, Sendable {
        case entry
        /// Nothing was ever written here: zeros, or the end of the file or of the allowed range.
        case end
        /// Something is here that is no entry of this segment; a fixed phrase says why.
        case invalid(String)
    }

    public let file: any StorageFile
    public let header: SegmentHeader
    /// The entry last stepped on, and where it begins.
    public private(set) var entry: EntryHeader
    public private(set) var position: UInt64
    /// Where the next one begins.
    public private(set) var next: UInt64
    /// Bytes from here on are not looked at.
    var limit: UInt64

    private var buffer: ReadBuffer
    private var window: Int
    private let largestWindow: Int
    private var expectedOffset: UInt64
    private var reachedLSN: UInt64
    /// What was reached before the entry last stepped on.
    private var lsnBefore: UInt64

    /// Starts at the first entry, or at a place that an index says an entry begins at.
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

    /// A follower at the end reads little at a time; a scan soon reads much.
    private static let smallestWindow = 64 << 10

    /// The state to come back to: an index point for the next entry.
    public var nextPoint: IndexPoint {
        IndexPoint(position: next, offset: expectedOffset, lsn: reachedLSN, time: .min)
    }

    /// The place of the entry last stepped on, to step on it again.
    var startOfEntry: IndexPoint {
        IndexPoint(position: position, offset: entry.offset, lsn: lsnBefore, time: .min)
    }

    /// Goes back (or on) to a place where an entry begins.
    mutating func move(to point: IndexPoint) {
        next = point.position
        expectedOffset = point.offset
        reachedLSN = point.lsn
    }

    /// Forgets bytes read before, which another process may have changed since.
    mutating func refresh() {
        buffer.forget()
        window = min(largestWindow, Self.smallestWindow)
    }

    public var payload: RawSpan {
        @_lifetime(borrow self)
        get { buffer.bytes(entry.payloadBytes, at: position + UInt64(EntryHeader.byteCount)) }
    }

    /// Moves to the next entry. Where it does not say `.entry`, it stays where it is.
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

    /// Makes sure that `count` bytes from `next` on are in the buffer; false if there are not that many.
    @inline(__always)
    private mutating func load(_ count: Int) throws(SystemError) -> Bool {
        if buffer.holds(count, at: next) { return true }
        return try refill(count)
    }

    private mutating func refill(_ count: Int) throws(SystemError) -> Bool {
        // A damaged length must not make us ask for memory: what is larger than the buffer has to be in the file.
        if count > largestWindow {
            let end = min(limit, try file.size())
            guard end > next, end - next >= UInt64(count) else { return false }
        }
        try buffer.fill(from: file, at: next, wanted: max(count, window), limit: limit)
        window = min(window * 2, largestWindow)
        return buffer.holds(count, at: next)
    }

    /// Fewer bytes than a header are left.
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
