import Bytes
import Diagnostics

/// Kind of an entry. The log only needs to know the kinds that are listed here. It stores and returns entries of other
/// kinds like all others.
public struct EntryKind: RawRepresentable, Sendable, Hashable {
    public let rawValue: UInt8
    public init(rawValue: UInt8) { self.rawValue = rawValue }

    /// Changes of a transaction. Only entries of this kind increase the offset.
    public static let transaction = EntryKind(rawValue: 1)
    /// Schema of rows, which later entries of the same segment need.
    public static let relation = EntryKind(rawValue: 2)
    /// Record that the source (PostgreSQL) had no further changes up to the entry's LSN.
    public static let progress = EntryKind(rawValue: 3)
    /// Record that changes were lost at this place. It is the first entry of a new epoch.
    public static let gap = EntryKind(rawValue: 4)
    /// Record that the source's catalog may have changed at this place.
    public static let catalogMark = EntryKind(rawValue: 5)
    /// Presence events since the previous entry of this kind: clients that joined, left, or updated their state.
    public static let presence = EntryKind(rawValue: 6)
    /// Events of channels since the previous entry of this kind.
    public static let ledger = EntryKind(rawValue: 7)
    /// Complete record of the source's catalog.
    public static let catalogRecord = EntryKind(rawValue: 8)
    /// Actions and notes of operators since the previous entry of this kind.
    public static let operatorMark = EntryKind(rawValue: 9)
    /// Rows that the hub read from a table and keeps in the log.
    public static let keptRows = EntryKind(rawValue: 10)
}

/// Set of the kinds of entries in a segment. It is unknown for segments that older versions sealed, because they did
/// not record it.
public struct EntryKinds: Sendable, Equatable {
    private static let isKnownBit: UInt32 = 1 << 31

    /// Stored form: one bit for each kind, and a bit that marks the set as known. Zero means unknown.
    private(set) var rawValue: UInt32

    static let unknown = EntryKinds(rawValue: 0)
    static let none = EntryKinds(rawValue: isKnownBit)

    init(rawValue: UInt32) { self.rawValue = rawValue & Self.isKnownBit == 0 ? 0 : rawValue }

    mutating func insert(_ kind: EntryKind) {
        guard rawValue != 0 else { return }
        // The set has no bit for such a kind, so it becomes unknown.
        rawValue = kind.rawValue < 31 ? rawValue | 1 << UInt32(kind.rawValue) : 0
    }

    /// True if the segment certainly has no entries of kinds other than these.
    public func hasOnly(_ kinds: EntryKind...) -> Bool {
        guard rawValue != 0 else { return false }
        return kinds.reduce(rawValue & ~Self.isKnownBit) { $0 & ~(1 << UInt32($1.rawValue)) } == 0
    }
}

/// Header of an entry. It precedes the payload and has 48 bytes, little-endian:
///
///     0  u32 payload length      (if this and the next word are zero, nothing has been written here)
///     4  u32 CRC-32C             (of the segment header's checksum, the length, and all that follows; never zero)
///     8  u8  kind
///     9  u8  flags               (bit 0: the transaction continues in the next entry)
///    10  u16 reserved, zero
///    12  u32 number of changes
///    16  u64 offset of the first change
///    24  u64 LSN that the log reaches with this entry
///    32  i64 time, microseconds since 1970
///    40  u64 number of this segment's bytes that were published when the entry was written
///
/// The checksum includes that of the segment's header, so an entry is valid in one segment only. Bytes of another
/// segment that are left on the disk, or copied into a payload, are never read as an entry.
///
/// The last field distinguishes an unfinished write from damage. All bytes before that position were synced as whole
/// transactions. If they cannot be read, they were lost later, and cutting them off would hide the loss.
public struct EntryHeader: Sendable, Equatable {
    public static let byteCount = 48
    static let continuedFlag: UInt8 = 1

    public var payloadBytes: Int
    public var kind: EntryKind
    /// True if the transaction continues in the next entry.
    public var isContinued: Bool
    public var changeCount: UInt32
    /// Offset of the entry's first change.
    public var offset: UInt64
    /// LSN that the log reaches with this entry.
    public var lsn: UInt64
    /// Time in microseconds since 1970.
    public var time: Int64
    /// Number of the segment's bytes that were published when the entry was written.
    public var publishedBytes: UInt64

    public var byteCount: Int { Self.byteCount + payloadBytes }
    public var endOffset: UInt64 { offset + UInt64(changeCount) }
}

extension EntryHeader {
    /// Result of searching an entry at a position of a segment.
    enum Sighting {
        case entry(EntryHeader, checksum: UInt32)
        case unwritten
        case implausible
    }

    /// Reads the header of an entry. Rejects values that no writer produces, but does not check the checksum.
    ///
    /// `bytes` must have at least the length of a header.
    @inline(__always)
    static func sighting(in bytes: UnsafeRawPointer) -> Sighting {
        // SAFETY: the caller has `byteCount` bytes there; any bit pattern is a valid integer.
        let length = unsafe UInt32(littleEndian: bytes.loadUnaligned(as: UInt32.self))
        let checksum = unsafe UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: 4, as: UInt32.self))
        if checksum == 0 { return length == 0 ? .unwritten : .implausible }
        let word = unsafe UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: 8, as: UInt32.self))
        guard length <= Limits.maximumEntryPayloadBytes, word & 0xffff_fe00 == 0 else {
            return .implausible
        }
        let header = EntryHeader(
            payloadBytes: Int(length),
            kind: EntryKind(rawValue: UInt8(truncatingIfNeeded: word)),
            isContinued: word >> 8 & UInt32(continuedFlag) != 0,
            changeCount: unsafe UInt32(littleEndian: bytes.loadUnaligned(fromByteOffset: 12, as: UInt32.self)),
            offset: unsafe UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: 16, as: UInt64.self)),
            lsn: unsafe UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: 24, as: UInt64.self)),
            time: unsafe Int64(littleEndian: bytes.loadUnaligned(fromByteOffset: 32, as: Int64.self)),
            publishedBytes: unsafe UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: 40, as: UInt64.self)))
        return .entry(header, checksum: checksum)
    }

    /// Returns the checksum of the entry that `bytes` contains. `seed` is the checksum of the segment's header.
    @inline(__always)
    static func checksum(of bytes: RawSpan, seed: UInt32) -> UInt32 {
        let length = CRC32C.of(bytes.extracting(0..<4), continuing: seed)
        let crc = CRC32C.of(bytes.extracting(8..<bytes.byteCount), continuing: length)
        // Zero means that nothing has been written.
        return crc == 0 ? 1 : crc
    }

    func append(to writer: inout ByteWriter) {
        writer.append(little: UInt32(truncatingIfNeeded: payloadBytes))
        writer.append(little: UInt32(0))
        writer.append(kind.rawValue)
        writer.append(isContinued ? Self.continuedFlag : 0)
        writer.append(little: UInt16(0))
        writer.append(little: changeCount)
        writer.append(little: offset)
        writer.append(little: lsn)
        writer.append(little: UInt64(bitPattern: time))
        writer.append(little: publishedBytes)
    }

    /// Appends the whole entry: header, payload and checksum.
    func append(payload: RawSpan, seed: UInt32, to writer: inout ByteWriter) {
        let start = writer.count
        writer.reserve(byteCount)
        append(to: &writer)
        writer.append(payload)
        let written = writer.count - start
        assert(written == byteCount, "an entry is as long as its header says")
        let crc = Self.checksum(of: writer.bytes.extracting(start..<writer.count), seed: seed)
        writer.set(little: crc, at: start + 4)
    }
}

/// Header of a segment. It is at the beginning of the file and has 128 bytes, little-endian:
///
///      0  "TIDEWIRE"
///      8  u32 format version     12  u32 reserved
///     16  u64 epoch              24  u64 sequence
///     32  u64 base offset        40  u64 base LSN
///     48  i64 time of creation   56  u64 source identity
///     64  reserved, zero        124  u32 CRC-32C of the 124 bytes before
public struct SegmentHeader: Sendable, Equatable {
    public static let byteCount = 128
    public static let formatVersion: UInt32 = 1

    /// Number of the unbroken history that the segment belongs to.
    public var epoch: UInt64
    /// Number of the segment in the log, from 1.
    public var sequence: UInt64
    /// Offset of the segment's first change.
    public var baseOffset: UInt64
    /// LSN that the log had reached before the segment.
    public var baseLSN: UInt64
    /// Time at which the segment was created, in microseconds since 1970.
    public var created: Int64
    /// Identity of the source of the entries, such as a database's system identifier.
    public var source: UInt64
    /// Checksum of the header. The checksum of each entry begins with this value.
    public private(set) var checksum: UInt32 = 0

    public init(epoch: UInt64, sequence: UInt64, baseOffset: UInt64, baseLSN: UInt64, created: Int64, source: UInt64) {
        self.epoch = epoch
        self.sequence = sequence
        self.baseOffset = baseOffset
        self.baseLSN = baseLSN
        self.created = created
        self.source = source
        var writer = ByteWriter(capacity: Self.byteCount)
        appendUnsealed(to: &writer)
        checksum = CRC32C.of(writer.bytes)
    }

    private func appendUnsealed(to writer: inout ByteWriter) {
        writer.append("TIDEWIRE")
        writer.append(little: Self.formatVersion)
        writer.append(little: UInt32(0))
        for word in [epoch, sequence, baseOffset, baseLSN, UInt64(bitPattern: created), source] {
            writer.append(little: word)
        }
        for _ in 0..<7 { writer.append(little: UInt64(0)) }
        writer.append(little: UInt32(0))
    }

    public func append(to writer: inout ByteWriter) {
        let start = writer.count
        appendUnsealed(to: &writer)
        writer.append(little: checksum)
        let written = writer.count - start
        assert(written == Self.byteCount, "every segment header has the same length")
    }

    /// Returns the format version from the first bytes of a segment; nil if they are not of a segment. All versions
    /// store it at the same position.
    static func format(of bytes: RawSpan) -> UInt32? {
        var reader = ByteReader(bytes)
        guard let magic = try? reader.span(8), magic.equals("TIDEWIRE") else { return nil }
        return try? reader.littleUInt32()
    }

    /// Returns the header from the first bytes of a segment; nil if it is not valid in this format.
    static func decode(_ bytes: RawSpan) -> SegmentHeader? {
        guard bytes.byteCount >= byteCount else { return nil }
        var reader = ByteReader(bytes.extracting(0..<byteCount))
        guard let magic = try? reader.span(8), magic.equals("TIDEWIRE"),
            let version = try? reader.littleUInt32(), version == formatVersion,
            (try? reader.skip(4)) != nil,
            let epoch = try? reader.littleUInt64(), let sequence = try? reader.littleUInt64(),
            let baseOffset = try? reader.littleUInt64(), let baseLSN = try? reader.littleUInt64(),
            let created = try? reader.littleUInt64(), let source = try? reader.littleUInt64()
        else { return nil }
        let header = SegmentHeader(
            epoch: epoch, sequence: sequence, baseOffset: baseOffset, baseLSN: baseLSN,
            created: Int64(bitPattern: created), source: source)
        // All bytes are compared, because reserved bytes are zero in this version. The checksum is the last of them.
        var expected = ByteWriter(capacity: byteCount)
        header.append(to: &expected)
        return expected.bytes.equals(bytes.extracting(0..<byteCount)) ? header : nil
    }
}

/// Names of the log's files.
enum LogFile {
    static let lock = "LOCK"
    static let spare = "next.segment"
    /// Name of the file with the plan of an erasure.
    static let erasure = "erasure.plan"
    /// Name of the erasure plan's file while it is being written.
    static let unfinishedErasure = "erasure.plan.unfinished"
    /// Name of a rewritten segment without the erased bytes, until it replaces the original.
    static let erasedSegment = "erasure.segment"
    /// Name of the lock that a process holds while it writes or executes a plan of an erasure.
    static let erasureLock = "erasure.lock"

    static func segment(_ sequence: UInt64) -> String { padded(sequence) + ".segment" }
    static func sidecar(_ sequence: UInt64) -> String { padded(sequence) + ".index" }
    static func keys(_ sequence: UInt64) -> String { padded(sequence) + ".keys" }
    /// Returns the names of all files of a segment; the segment itself is the first. If the segment has been deleted,
    /// the next start of the hub removes the other files.
    static func all(of sequence: UInt64) -> [String] { [segment(sequence), sidecar(sequence), keys(sequence)] }

    private static func padded(_ sequence: UInt64) -> String {
        let digits = String(sequence)
        return String(repeating: "0", count: max(0, 10 - digits.count)) + digits
    }

    static func sequence(ofSegment name: String) -> UInt64? { sequence(of: name, suffix: ".segment") }
    static func sequence(ofSidecar name: String) -> UInt64? {
        sequence(of: name, suffix: ".index") ?? sequence(of: name, suffix: ".keys")
    }

    private static func sequence(of name: String, suffix: String) -> UInt64? {
        guard name.hasSuffix(suffix) else { return nil }
        let digits = name.dropLast(suffix.count)
        // A number with nineteen or more digits is not of this log, and adding one to it could overflow.
        guard (10...18).contains(digits.count), digits.allSatisfy({ $0.isASCII && $0.isNumber }) else { return nil }
        return UInt64(digits)
    }
}
