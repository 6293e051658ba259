import Bytes
import Diagnostics
import System

/// State of the bytes after the last entry that can be read.
enum SegmentTail: Equatable {
    /// No bytes, or only zeros.
    case clean
    /// Bytes of unfinished writes that no reader or source was told of as durable. `end` is where the last one ends.
    /// The next start of the hub may cut them off.
    case torn(end: UInt64)
    /// Durable bytes that were lost. A valid later entry states that they were durable, so they must not be cut off.
    case damaged

    /// Returns the state. Searches all bytes after `position` for an entry which states that bytes after `position`
    /// were durable.
    static func of(_ file: any StorageFile, _ header: SegmentHeader, after position: UInt64) throws(SystemError) -> Self
    {
        var search = DurabilityEvidenceSearch(file: file, header: header, position: position, size: try file.size())
        return try search.run()
    }
}

private struct DurabilityEvidenceSearch: ~Copyable {
    let file: any StorageFile
    let header: SegmentHeader
    let position: UInt64
    let size: UInt64
    var buffer = ReadBuffer(capacity: Limits.logReadBytes)
    var candidate = ReadBuffer(capacity: 4096)
    var lastWritten: UInt64?
    var bytesChecked: UInt64 = 0

    init(file: any StorageFile, header: SegmentHeader, position: UInt64, size: UInt64) {
        self.file = file
        self.header = header
        self.position = position
        self.size = size
    }

    mutating func run() throws(SystemError) -> SegmentTail {
        let stride = Limits.logReadBytes - EntryHeader.byteCount
        var at = position
        while at < size {
            // The pieces overlap by the size of a header, so that a header at the boundary of two pieces is found.
            try buffer.fill(from: file, at: at, wanted: Limits.logReadBytes, limit: size)
            let count = buffer.available(at: at)
            if count == 0 { break }
            if !buffer.bytes(count, at: at).isZero {
                noteWritten(count, at: at)
                if try hasWitness(count, at: at) { return .damaged }
            }
            at += UInt64(stride)
        }
        guard let lastWritten else { return .clean }
        assert((position..<size).contains(lastWritten), "a torn write lies behind the last entry")
        return .torn(end: lastWritten + 1)
    }

    /// Records the last byte that is not zero. The caller passes only pieces that have one.
    private mutating func noteWritten(_ count: Int, at start: UInt64) {
        var last = count - 1
        while buffer.bytes(count, at: start).byte(last) == 0 { last -= 1 }
        lastWritten = start + UInt64(last)
    }

    private mutating func hasWitness(_ count: Int, at start: UInt64) throws(SystemError) -> Bool {
        guard count >= EntryHeader.byteCount else { return false }
        for offset in 0...count - EntryHeader.byteCount {
            let at = start + UInt64(offset)
            guard case .entry(let entry, let checksum) = buffer.sighting(at: at),
                entry.publishedBytes > position, entry.publishedBytes <= at, entry.offset >= header.baseOffset,
                UInt64(entry.byteCount) <= size - at
            else { continue }
            if try isValid(entry, checksum, at: at) { return true }
        }
        return false
    }

    /// True if the checksum is correct. Plausible fields can occur by chance, so only the checksum proves an entry.
    private mutating func isValid(_ entry: EntryHeader, _ checksum: UInt32, at: UInt64) throws(SystemError) -> Bool {
        // Bytes that were made to look like many long entries would take too long. The search then ends with "damaged".
        bytesChecked += UInt64(entry.byteCount)
        if bytesChecked > 16 * size { return true }
        try candidate.fill(from: file, at: at, wanted: entry.byteCount, limit: size)
        guard candidate.holds(entry.byteCount, at: at) else { return false }
        return EntryHeader.checksum(of: candidate.bytes(entry.byteCount, at: at), seed: header.checksum) == checksum
    }
}

/// Result of reading one segment from its beginning to the last entry that can be read.
struct SegmentScan {
    var index: SegmentIndex
    /// Byte position at which the reading stopped.
    var stoppedAt: UInt64
    /// Reason why the reading stopped.
    var finding: SegmentScanner.Step
    /// Position up to which later entries state that the bytes were durable.
    var confirmedBytes: UInt64

    static func of(
        _ file: any StorageFile, _ header: SegmentHeader, limit: UInt64 = .max, keysOf: EventLogKeys? = nil,
        look: (EntryHeader, RawSpan) -> Void = { _, _ in }
    ) throws(SystemError) -> SegmentScan {
        var scanner = SegmentScanner(file, header, limit: limit)
        var index = SegmentIndex(header)
        if keysOf == nil { index.giveUpKeys() }
        var vouched: UInt64 = 0
        while true {
            let step = try scanner.step()
            guard step == .entry else {
                let stop = scanner.next
                assert(index.all.bytes == stop, "the index describes all that was scanned")
                assert(vouched <= stop, "entries vouch only for bytes before them")
                return SegmentScan(index: index, stoppedAt: scanner.next, finding: step, confirmedBytes: vouched)
            }
            let entry = scanner.entry
            var keys: [UInt64] = []
            if let keysOf {
                if let known = keysOf(entry.kind, scanner.payload) { keys = known } else { index.giveUpKeys() }
            }
            look(entry, scanner.payload)
            index.add(entry, keys: keys.span)
            vouched = max(vouched, entry.publishedBytes)
        }
    }
}

/// Function that returns the key hashes of an entry, for building an index again. The log cannot read payloads itself.
/// Nil means that the keys are unknown, so that the index must match every key.
public typealias EventLogKeys = @Sendable (EntryKind, RawSpan) -> [UInt64]?
