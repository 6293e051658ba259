import Bytes
import Channels
import Delivery

/// Letter from one node of a cluster to the others.
///
/// ```
/// letter = "TP" · format u8 · kind u8 · node u64 (random, new with each start) · number u64 · content
/// ```
///
/// Letters with broadcasts, presence changes and standings of clients are numbered, each kind on its own, so that a
/// receiver notices a loss.
enum PeerLetter {
    enum Kind: UInt8 {
        /// Broadcasts of one turn of a loop.
        case broadcasts = 1
        /// Presence changes of one turn of a loop.
        case presence
        /// Sign of life, with the numbers of the last letters of each kind, and what the node tells about itself
        /// (`PeerStatus`).
        case pulse
        /// Wish for all presences of a node; the number is that node's.
        case wish
        /// All presences of a node, or a part of them: part u32, number of parts u32, changes.
        case presences
        /// Records of a node's clients, behind the number of the node's name u64.
        case records
        /// Client of another node that came to the sender; the number is that of the node's name. Place u32, key 2 × u64.
        case claim
        /// Part of a letter that is too large for the servers; the number is the same for all its parts. Part u32, number
        /// of parts u32, bytes.
        case slice
    }

    /// Returns what a sign of life tells about its node; nil if it tells nothing.
    static func status(_ letter: [UInt8]) -> PeerStatus? {
        PeerStatus(Array(letter.dropFirst(headBytes + numbersBytes)))
    }

    static let headBytes = 20
    /// Number of bytes of the three numbers in a sign of life.
    private static let numbersBytes = 24
    static let format: UInt8 = 1

    static func write(_ kind: Kind, from node: UInt64, number: UInt64, _ body: (inout ByteWriter) -> Void) -> [UInt8] {
        var writer = ByteWriter(capacity: 512)
        writer.append("TP")
        writer.append(format)
        writer.append(kind.rawValue)
        writer.append(little: node)
        writer.append(little: number)
        body(&writer)
        return writer.copied()
    }

    /// Head of a letter; nil if the bytes are no letter of this format.
    static func head(_ bytes: [UInt8]) -> (kind: Kind, node: UInt64, number: UInt64)? {
        var reader = ByteReader(bytes.rawBytes)
        guard (try? reader.uint8()) == UInt8(ascii: "T"), (try? reader.uint8()) == UInt8(ascii: "P"),
            (try? reader.uint8()) == format, let kind = (try? reader.uint8()).flatMap({ Kind(rawValue: $0) }),
            let node = try? reader.littleUInt64(), let number = try? reader.littleUInt64()
        else { return nil }
        return (kind, node, number)
    }
}

extension PeerLetter {
    /// Maximum size of what is sent at once. With its head it stays below the servers' default limit of 1 MB.
    static let sliceBytes = 512 << 10

    /// Returns the letter as it is sent: as it is, or in slices.
    static func sendable(_ letter: [UInt8], from node: UInt64) -> [[UInt8]] {
        guard letter.count > sliceBytes else { return [letter] }
        let count = (letter.count + sliceBytes - 1) / sliceBytes
        let number = UInt64.random(in: .min ... .max)
        return (0..<count).map { part in
            write(.slice, from: node, number: number) { writer in
                writer.append(little: UInt32(part))
                writer.append(little: UInt32(count))
                writer.append(Array(letter[part * sliceBytes..<min((part + 1) * sliceBytes, letter.count)]))
            }
        }
    }
}

/// Letter of which slices arrive, one after the other. If one is missing, the letter is lost; its number tells that.
struct SlicedLetter: Sendable {
    private var bytes: [UInt8] = []
    private var next: UInt32 = 0
    private var number: UInt64 = 0

    /// Maximum size of a letter. No node sends a larger one.
    private static let maximumBytes = 64 << 20

    /// Takes a slice. Returns the letter if it is whole.
    mutating func take(_ slice: [UInt8]) -> [UInt8]? {
        var reader = ByteReader(slice.rawBytes)
        guard let head = PeerLetter.head(slice), (try? reader.skip(PeerLetter.headBytes)) != nil,
            let part = try? reader.littleUInt32(), let count = try? reader.littleUInt32()
        else { return nil }
        if part == 0 { (bytes, next, number) = ([], 0, head.number) }
        guard head.number == number, part == next, part < count, bytes.count <= Self.maximumBytes else {
            (bytes, next) = ([], .max)
            return nil
        }
        bytes += reader.rest().copied()
        next += 1
        guard next == count else { return nil }
        defer { (bytes, next) = ([], .max) }
        return bytes
    }
}

/// Numbers of the last letters of each kind that a node has sent.
struct PeerNumbers: Equatable, Sendable {
    var broadcasts: UInt64 = 0
    var presence: UInt64 = 0
    var records: UInt64 = 0
}
