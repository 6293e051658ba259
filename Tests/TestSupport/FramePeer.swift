import Bytes
import WebSocket

/// Event that a frame decoder returned for a peer's bytes, with copies of the bytes to which the event refers.
public enum FrameRecord: Equatable, Sendable {
    case message(MessageKind, [UInt8])
    case ping([UInt8])
    case pong([UInt8])
    case close(CloseCode?, String)
    case violation(FrameViolation)

    public static func text(_ text: String) -> FrameRecord { .message(.text, Array(text.utf8)) }
    public static func binary(_ bytes: [UInt8]) -> FrameRecord { .message(.binary, bytes) }
}

/// Peer that passes bytes to a decoder like a connection: it keeps bytes that the decoder does not consume, and appends
/// later bytes to them.
public struct FramePeer: ~Copyable {
    private var decoder: FrameDecoder
    private let inflater = Inflater()
    private var held: [UInt8] = []
    public private(set) var records: [FrameRecord] = []
    /// Number of bytes for which the decoder asked last.
    public private(set) var wanted = 0

    public init(_ rules: FrameDecoder.Rules) { decoder = FrameDecoder(rules) }

    public mutating func receive(_ bytes: [UInt8]) {
        var buffer = held + bytes
        let consumed = read(&buffer)
        held = Array(buffer.dropFirst(consumed))
        precondition(wanted == 0 || wanted > held.count, "a decoder waits for bytes that it has")
    }

    private mutating func read(_ buffer: inout [UInt8]) -> Int {
        var storage = buffer.mutableSpan
        var bytes = storage.mutableBytes
        var offset = 0
        while true {
            let step = decoder.next(in: &bytes, from: offset, inflater: inflater)
            offset += step.consumed
            precondition(offset <= bytes.byteCount, "more was consumed than was given")
            switch step.event {
            case .needMore(let total):
                wanted = total
                return offset
            case .message(let kind, .inPlace(let range)): records.append(.message(kind, Self.copy(range, bytes.bytes)))
            case .message(let kind, .assembled): records.append(.message(kind, decoder.takeMessage().copied()))
            case .ping(let range): records.append(.ping(Self.copy(range, bytes.bytes)))
            case .pong(let range): records.append(.pong(Self.copy(range, bytes.bytes)))
            case .close(let code, let range): records.append(.close(code, bytes.bytes.extracting(range).text))
            case .violation(let violation): records.append(.violation(violation))
            }
        }
    }

    private static func copy(_ range: Range<Int>, _ bytes: RawSpan) -> [UInt8] { bytes.extracting(range).copied() }

    /// Returns the decoder's results for bytes that arrive in these pieces.
    public static func records(of pieces: [[UInt8]], _ rules: FrameDecoder.Rules) -> [FrameRecord] {
        var peer = FramePeer(rules)
        for piece in pieces { peer.receive(piece) }
        return peer.records
    }
}

/// Splits the bytes at random places.
public func pieces(of bytes: [UInt8], using random: inout SeededRandom) -> [[UInt8]] {
    var pieces: [[UInt8]] = []
    var rest = bytes[...]
    while !rest.isEmpty {
        let longest = random.pick([1, 2, 7, 64, 4096])
        let piece = rest.prefix(Int.random(in: 1...longest, using: &random))
        pieces.append(Array(piece))
        rest = rest.dropFirst(piece.count)
    }
    return pieces
}
