import Bytes
import Change
import Crypto

/// Identity of a replicated log: 16 random bytes, which every message carries.
public struct ClusterLogID: Sendable, Hashable, CustomStringConvertible {
    public var high: UInt64
    public var low: UInt64

    public init(high: UInt64, low: UInt64) {
        self.high = high
        self.low = low
    }

    public static func random() -> ClusterLogID {
        ClusterLogID(high: .random(in: .min ... .max), low: .random(in: .min ... .max))
    }

    public var description: String { Hex.text(high) + Hex.text(low) }

    /// Parses the text form; nil if the text has another form.
    public init?(_ text: some StringProtocol) {
        guard text.utf8.count == 32, let high = UInt64(text.prefix(16), radix: 16),
            let low = UInt64(text.suffix(16), radix: 16)
        else { return nil }
        self.init(high: high, low: low)
    }
}

/// Hash over all messages of a log up to one. Two logs with the same chain have the same messages.
public struct ClusterChain: Sendable, Hashable, CustomStringConvertible {
    public var high: UInt64 = 0
    public var low: UInt64 = 0

    /// Chain before the first message.
    public init() {}

    init(_ digest: [UInt8]) {
        for index in 0..<8 {
            high = high << 8 | UInt64(digest[index])
            low = low << 8 | UInt64(digest[8 + index])
        }
    }

    public var description: String { Hex.text(high) + Hex.text(low) }

    /// Parses the text form; nil if the text has another form.
    public init?(_ text: some StringProtocol) {
        guard let id = ClusterLogID(text) else { return nil }
        (high, low) = (id.high, id.low)
    }
}

/// Head of a message: which log it belongs to, who wrote it, and where the log stood before its batch.
///
/// ```
/// message = "TW" · format u8 · flags u8 (bit 0: first slice of a batch, bit 1: last slice) · log id 2 × u64
///           · tenure u64 · epoch u64 · offset u64 · LSN u64 · chain 2 × u64 · slice of the batch
/// ```
public struct StreamHead: Sendable, Equatable {
    public var isFirst: Bool
    public var isLast: Bool
    public var log: ClusterLogID
    /// Sequence of the message with which the writer's tenure began.
    public var tenure: UInt64
    public var epoch: UInt64
    public var offset: UInt64
    public var position: LSN

    static let byteCount = 68
    static let chainAt = 52
    static let format: UInt8 = 1

    public init(
        isFirst: Bool, isLast: Bool, log: ClusterLogID, tenure: UInt64, epoch: UInt64, offset: UInt64, position: LSN
    ) {
        self.isFirst = isFirst
        self.isLast = isLast
        self.log = log
        self.tenure = tenure
        self.epoch = epoch
        self.offset = offset
        self.position = position
    }
}

/// Message of the stream in its stored form.
public enum StreamMessage {
    /// Writes a message that follows the messages with this chain. Returns its bytes, and the chain behind it.
    public static func encode(
        _ head: StreamHead, _ slice: RawSpan, after chain: ClusterChain
    ) -> (bytes: [UInt8], chain: ClusterChain) {
        var writer = ByteWriter(capacity: StreamHead.byteCount + slice.byteCount)
        writer.append("TW")
        writer.append(StreamHead.format)
        writer.append(UInt8(head.isFirst ? 1 : 0) | UInt8(head.isLast ? 2 : 0))
        for number in [head.log.high, head.log.low, head.tenure, head.epoch, head.offset, head.position.rawValue] {
            writer.append(little: number)
        }
        assert(writer.count == StreamHead.chainAt, "the chain has its place")
        // The hash covers the chain before the message in the place of the chain behind it.
        writer.append(big: chain.high)
        writer.append(big: chain.low)
        writer.append(slice)
        var bytes = writer.copied()
        let digest = SHA256.digest(of: bytes.span)
        for index in 0..<16 { bytes[StreamHead.chainAt + index] = digest[index] }
        return (bytes, ClusterChain(digest))
    }

    /// Reads the head of a message, and checks its chain.
    ///
    /// - Parameter chain: chain of the messages before; nil if it is unknown, and the message's own is taken.
    static func decode(
        _ bytes: [UInt8], after chain: ClusterChain?
    ) throws(StreamDamage) -> (head: StreamHead, chain: ClusterChain) {
        guard let head = try? head(bytes) else { throw .unreadable }
        let told = ClusterChain(Array(bytes[StreamHead.chainAt..<StreamHead.byteCount]))
        guard let chain else { return (head, told) }
        var copy = bytes
        for index in 0..<8 {
            copy[StreamHead.chainAt + index] = UInt8(truncatingIfNeeded: chain.high >> UInt64(56 - 8 * index))
            copy[StreamHead.chainAt + 8 + index] = UInt8(truncatingIfNeeded: chain.low >> UInt64(56 - 8 * index))
        }
        guard ClusterChain(SHA256.digest(of: copy.span)) == told else { throw .brokenChain }
        return (head, told)
    }

    private static func head(_ bytes: [UInt8]) throws(ByteError) -> StreamHead {
        var reader = ByteReader(bytes.rawBytes)
        guard try reader.uint8() == UInt8(ascii: "T"), try reader.uint8() == UInt8(ascii: "W"),
            try reader.uint8() == StreamHead.format
        else { throw ByteError(expected: "a message of format 1", offset: 0) }
        let flags = try reader.uint8()
        let log = ClusterLogID(high: try reader.littleUInt64(), low: try reader.littleUInt64())
        let head = StreamHead(
            isFirst: flags & 1 != 0, isLast: flags & 2 != 0, log: log, tenure: try reader.littleUInt64(),
            epoch: try reader.littleUInt64(), offset: try reader.littleUInt64(),
            position: LSN(try reader.littleUInt64()))
        try reader.skip(16)
        return head
    }
}

/// Damage of the stream, which a reader notices. Nothing of the message was used.
public enum StreamDamage: Error, Sendable, Equatable {
    /// The message after the last one is missing.
    case hole(expected: UInt64, found: UInt64)
    /// The message is not what followed the messages before, or its bytes changed.
    case brokenChain
    /// The message has another form: a newer version wrote it, or its first bytes changed.
    case unreadable
    /// The message belongs to another log.
    case otherLog(ClusterLogID)
    /// The writer no longer held the slot.
    case staleTenure(found: UInt64, current: UInt64)
    /// A batch has more bytes than any writer gives it.
    case tooLarge
}

extension StreamDamage: CustomStringConvertible {
    public var description: String {
        switch self {
        case .hole(let expected, let found): "message \(expected) is missing: message \(found) came instead"
        case .brokenChain: "a message does not follow those before it, or its bytes changed"
        case .unreadable: "a message has a form that this version does not read"
        case .otherLog(let id): "a message belongs to the log \(id)"
        case .staleTenure(let found, let current):
            "a message was written in tenure \(found), although tenure \(current) had begun"
        case .tooLarge: "a batch is larger than any that a hub writes"
        }
    }
}
