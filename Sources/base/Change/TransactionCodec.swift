import Bytes

/// Properties of a transaction besides its changes.
public struct TransactionInfo: Sendable, Hashable {
    public var xid: UInt32
    /// Start of the commit record in the WAL.
    public var commitLSN: LSN
    /// End of the commit record in the WAL. When the log has stored the transaction, this is the log's position in the
    /// WAL.
    public var endLSN: LSN
    /// Commit time in microseconds since 1970, UTC.
    public var commitTime: Int64
    /// Name of the replication origin: the node on which the transaction was first committed. Empty if it was committed
    /// on this server.
    public var origin: String

    public init(xid: UInt32, commitLSN: LSN, endLSN: LSN, commitTime: Int64, origin: String = "") {
        self.xid = xid
        self.commitLSN = commitLSN
        self.endLSN = endLSN
        self.commitTime = commitTime
        self.origin = origin
    }
}

/// Stored form of a transaction, or of a part of a transaction that is too large for one entry.
///
/// ```
/// part   = version u8 · flags u8 (bit 0: has changes that were forgotten) · origin length u16 · xid u32
///           · commit LSN u64 · end LSN u64 · commit time i64 · index of its first change in the transaction u32
///           · number of changes u32 · origin · change*
/// change = length u32 (of all that follows) · operation u8 · old image u8 · options u8 · flags u8 (bit 0: forgotten)
///           · relation u64 · length of old u32 · old · new
/// ```
///
/// Numbers are little-endian; row images are PostgreSQL's own bytes.
public enum TransactionCodec {
    static let version: UInt8 = 1
    static let forgottenFlag: UInt8 = 1
    /// Length of the header before the origin.
    static let headerBytes = 40

    /// Begins a part: writes its header without the final counts.
    public static func begin(_ info: TransactionInfo, firstIndex: UInt32, to writer: inout ByteWriter) {
        precondition(writer.isEmpty, "a part begins an empty buffer")
        let origin = Array(info.origin.utf8.prefix(Int(UInt16.max)))
        writer.append(version)
        writer.append(UInt8(0))
        writer.append(little: UInt16(origin.count))
        writer.append(little: info.xid)
        writer.append(little: info.commitLSN.rawValue)
        writer.append(little: info.endLSN.rawValue)
        writer.append(little: UInt64(bitPattern: info.commitTime))
        writer.append(little: firstIndex)
        writer.append(little: UInt32(0))
        writer.append(origin)
    }

    /// Finishes a part: fills in the values that were unknown when it began.
    public static func finish(endLSN: LSN, changeCount: UInt32, in writer: inout ByteWriter) {
        writer.set(little: UInt32(truncatingIfNeeded: endLSN.rawValue), at: 16)
        writer.set(little: UInt32(truncatingIfNeeded: endLSN.rawValue >> 32), at: 20)
        writer.set(little: changeCount, at: 36)
    }

    /// Marks the part that is being written: values of some of its changes were removed on demand.
    public static func noteForgotten(in writer: inout ByteWriter) {
        let length = UInt32(writer.bytes.byte(2)) | UInt32(writer.bytes.byte(3)) << 8
        writer.set(little: UInt32(version) | UInt32(forgottenFlag) << 8 | length << 16, at: 0)
    }

    /// Reserves the header of a change. The caller then writes the change's images. `endChange` completes the change.
    public static func beginChange(in writer: inout ByteWriter) {
        for _ in 0..<changeHeadBytes { writer.append(UInt8(0)) }
    }

    /// Length of the header before a change's images.
    public static let changeHeadBytes = 20

    /// Completes the change that `beginChange` started at `start`. The bytes written since then are the old image, of
    /// `oldBytes` bytes, and the new image.
    public static func endChange(
        _ operation: Operation, relation: UInt64, oldImage: OldImage, oldBytes: Int, options: UInt8, from start: Int,
        in writer: inout ByteWriter
    ) {
        let length = writer.count - start - 4
        precondition(length >= 16 + oldBytes, "a change has its head and its images")
        writer.set(little: UInt32(truncatingIfNeeded: length), at: start)
        writer.set(
            little: UInt32(operation.rawValue) | UInt32(oldImage.rawValue) << 8 | UInt32(options) << 16, at: start + 4)
        writer.set(little: UInt32(truncatingIfNeeded: relation), at: start + 8)
        writer.set(little: UInt32(truncatingIfNeeded: relation >> 32), at: start + 12)
        writer.set(little: UInt32(truncatingIfNeeded: oldBytes), at: start + 16)
    }

    /// Appends one change of a row. `old` and `new` must be valid TupleData.
    @inlinable
    public static func append(
        _ operation: Operation, relation: UInt64, oldImage: OldImage, old: RawSpan, new: RawSpan, options: UInt8 = 0,
        isForgotten: Bool = false, to writer: inout ByteWriter
    ) {
        let length = 16 &+ old.byteCount &+ new.byteCount
        writer.reserve(length &+ 4)
        writer.append(little: UInt32(truncatingIfNeeded: length))
        writer.append(
            little: UInt32(operation.rawValue) | UInt32(oldImage.rawValue) << 8 | UInt32(options) << 16
                | (isForgotten ? 1 << 24 : 0))
        writer.append(little: relation)
        writer.append(little: UInt32(truncatingIfNeeded: old.byteCount))
        writer.append(old)
        writer.append(new)
    }
}

/// Stored part of a transaction, read in place: its header when it is created, its changes one after the other. The
/// type contains no references, so a copy is cheap.
public struct TransactionPart: ~Escapable {
    public let xid: UInt32
    public let commitLSN: LSN
    private let endLSN: LSN
    private let commitTime: Int64
    private let originLength: UInt16
    /// Index of the part's first change in the whole transaction.
    public let firstIndex: UInt32
    public let changeCount: UInt32
    /// True if values of some changes were removed from the log.
    public let hasForgotten: Bool
    /// Whole stored form, which contains the images of the changes.
    public let bytes: RawSpan
    var reader: ByteReader
    var read: UInt32 = 0
    /// Fingerprints of relations whose old images may lack columns although they are marked as complete: partitioned
    /// tables in which some partition has a replica identity that keeps less.
    private let doubted: Span<UInt64>

    @_lifetime(copy bytes)
    public init(_ bytes: RawSpan) throws(ByteError) {
        try self.init(bytes, doubting: Span())
    }

    @_lifetime(copy bytes, copy doubted)
    public init(_ bytes: RawSpan, doubting doubted: Span<UInt64>) throws(ByteError) {
        self.doubted = doubted
        self.bytes = bytes
        var reader = ByteReader(bytes)
        guard try reader.uint8() == TransactionCodec.version else {
            throw ByteError(expected: "a transaction of version 1", offset: 0)
        }
        hasForgotten = try reader.uint8() & TransactionCodec.forgottenFlag != 0
        originLength = try reader.littleUInt16()
        xid = try reader.littleUInt32()
        commitLSN = LSN(try reader.littleUInt64())
        endLSN = LSN(try reader.littleUInt64())
        commitTime = Int64(bitPattern: try reader.littleUInt64())
        firstIndex = try reader.littleUInt32()
        changeCount = try reader.littleUInt32()
        try reader.skip(Int(originLength))
        self.reader = reader
    }

    public var info: TransactionInfo {
        var info = TransactionInfo(xid: xid, commitLSN: commitLSN, endLSN: endLSN, commitTime: commitTime)
        let start = TransactionCodec.headerBytes
        if originLength > 0 { info.origin = bytes.extracting(start..<start + Int(originLength)).text }
        return info
    }

    /// Reads the next change. Returns nil after the last one.
    @_lifetime(copy self)
    public mutating func next() throws(ByteError) -> Change? {
        guard read < changeCount else {
            try reader.expectEnd()
            return nil
        }
        read &+= 1
        let length = Int(try reader.littleUInt32())
        guard length >= 16 else { throw ByteError(expected: "a change's header", offset: reader.offset) }
        let head = try reader.littleUInt32()
        let relation = try reader.littleUInt64()
        let oldLength = Int(try reader.littleUInt32())
        guard let operation = Operation(rawValue: UInt8(truncatingIfNeeded: head)),
            var oldImage = OldImage(rawValue: UInt8(truncatingIfNeeded: head >> 8)),
            oldLength <= length &- 16
        else { throw ByteError(expected: "a change", offset: reader.offset) }
        let images = try reader.span(length &- 16)
        if !doubted.isEmpty, oldImage == .full, isDoubted(relation) { oldImage = .key }
        return Change(
            operation: operation, oldImage: oldImage, options: UInt8(truncatingIfNeeded: head >> 16),
            isForgotten: head >> 24 & 1 != 0, relation: relation, images: images, oldLength: oldLength)
    }

    /// Offset in the stored form after the change that was read last.
    public var offset: Int { reader.offset }

    /// Current position, to which `rewind` returns.
    public var mark: Mark { Mark(read: read, offset: reader.offset) }

    public struct Mark: Sendable {
        fileprivate let read: UInt32
        fileprivate let offset: Int
    }

    public mutating func rewind(to mark: Mark) {
        read = mark.read
        reader.seek(to: mark.offset)
    }

    private func isDoubted(_ relation: UInt64) -> Bool {
        for index in doubted.indices where doubted[index] == relation { return true }
        return false
    }
}
