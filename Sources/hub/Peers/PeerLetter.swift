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
        /// Sign of life, with the numbers of the last letters of each kind.
        case pulse
        /// Wish for all presences of a node; the number is that node's.
        case wish
        /// All presences of a node, or a part of them: part u32, number of parts u32, changes.
        case presences
        /// Records of a node's clients, behind the number of the node's name u64.
        case records
        /// Client of another node that came to the sender; the number is that of the node's name. Place u32, key 2 × u64.
        case claim
    }

    static let headBytes = 20
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

/// Numbers of the last letters of each kind that a node has sent.
struct PeerNumbers: Equatable, Sendable {
    var broadcasts: UInt64 = 0
    var presence: UInt64 = 0
    var records: UInt64 = 0
}
