/// Encoder of a client's WebSocket frames (RFC 6455).
enum Frames {
    enum Opcode: UInt8, Sendable {
        case continuation = 0
        case text = 1
        case binary = 2
        case close = 8
        case ping = 9
        case pong = 10
    }

    /// Encodes one frame. RFC 6455 §5.3 requires clients to mask frames with a random key.
    static func encode(_ opcode: Opcode, _ payload: [UInt8], mask: UInt32) -> [UInt8] {
        var frame: [UInt8] = [0x80 | opcode.rawValue]
        switch payload.count {
        case 0..<126: frame.append(0x80 | UInt8(payload.count))
        case 126..<65_536: frame += [0xfe, UInt8(payload.count >> 8), UInt8(payload.count & 0xff)]
        default:
            frame.append(0xff)
            frame += (0..<8).map { UInt8(truncatingIfNeeded: payload.count >> (56 - 8 * $0)) }
        }
        let key = (0..<4).map { UInt8(truncatingIfNeeded: mask >> (24 - 8 * $0)) }
        frame += key
        for (index, byte) in payload.enumerated() { frame.append(byte ^ key[index & 3]) }
        return frame
    }

    static func close(code: Int, mask: UInt32) -> [UInt8] {
        encode(.close, [UInt8(code >> 8), UInt8(code & 0xff)], mask: mask)
    }
}

/// Parser that turns a server's bytes into whole messages.
struct FrameParser: Sendable {
    enum Event: Sendable, Hashable {
        case text(String)
        case binary([UInt8])
        case ping([UInt8])
        case close(code: Int, reason: String)
    }

    struct Violation: Error, Hashable {
        let words: String
    }

    /// Maximum size of a message in bytes. The parser refuses a larger one before its payload is in memory.
    static let maximumMessageBytes = 64 << 20

    private var bytes: [UInt8] = []
    private var at = 0
    private var message: [UInt8] = []
    private var kind: Frames.Opcode?

    mutating func append(_ more: some Sequence<UInt8>) {
        if at > 0 {
            bytes.removeFirst(at)
            at = 0
        }
        bytes.append(contentsOf: more)
    }

    /// Returns the next event; nil if more bytes are needed.
    mutating func next() throws(Violation) -> Event? {
        while let (opcode, isFinal, payload) = try frame() {
            switch opcode {
            case .ping: return .ping(payload)
            case .pong: continue
            case .close:
                guard payload.count >= 2 else { return .close(code: 1005, reason: "") }
                let code = Int(payload[0]) << 8 | Int(payload[1])
                return .close(code: code, reason: String(decoding: payload[2...], as: UTF8.self))
            case .text, .binary:
                guard kind == nil else { throw Violation(words: "a message within a message") }
                kind = opcode
                message = payload
            case .continuation:
                guard kind != nil else { throw Violation(words: "a continuation of nothing") }
                message += payload
            }
            guard message.count <= Self.maximumMessageBytes else { throw Violation(words: "a message too large") }
            guard isFinal, let whole = kind else { continue }
            kind = nil
            defer { message = [] }
            return whole == .text ? .text(String(decoding: message, as: UTF8.self)) : .binary(message)
        }
        return nil
    }

    private mutating func frame() throws(Violation) -> (Frames.Opcode, isFinal: Bool, [UInt8])? {
        guard bytes.count - at >= 2 else { return nil }
        let (first, second) = (bytes[at], bytes[at + 1])
        guard first & 0x70 == 0, let opcode = Frames.Opcode(rawValue: first & 0x0f) else {
            throw Violation(words: "a frame of an unknown kind")
        }
        guard second & 0x80 == 0 else { throw Violation(words: "a masked frame from a server") }
        var head = 2
        var length = Int(second)
        if length >= 126 {
            let more = length == 126 ? 2 : 8
            guard bytes.count - at >= 2 + more else { return nil }
            let announced = bytes[at + 2..<at + 2 + more].reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
            guard announced <= UInt64(Self.maximumMessageBytes) else { throw Violation(words: "a message too large") }
            length = Int(announced)
            head += more
        }
        if opcode.rawValue >= 8, length > 125 || first & 0x80 == 0 { throw Violation(words: "a large control frame") }
        guard bytes.count - at >= head + length else { return nil }
        let payload = Array(bytes[at + head..<at + head + length])
        at += head + length
        return (opcode, first & 0x80 != 0, payload)
    }
}
