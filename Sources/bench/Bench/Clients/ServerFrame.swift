import Bytes

/// Frame of a server (RFC 6455 §5.2), read in place from the received bytes.
struct ServerFrame {
    enum Kind {
        case message, ping, pong, close
        /// Frame that the hub never sends: masked, fragmented, or with bits that were not negotiated.
        case unexpected
    }

    let kind: Kind
    let payload: Range<Int>

    /// Parses the frame at `start`. Returns nil if the frame is not complete.
    init?(_ bytes: RawSpan, at start: Int) {
        guard start + 2 <= bytes.byteCount else { return nil }
        let (first, second) = (bytes.byte(start), bytes.byte(start + 1))
        var (header, length) = (2, UInt64(second & 0x7f))
        if length >= 126 {
            let width = length == 126 ? 2 : 8
            guard start + 2 + width <= bytes.byteCount else { return nil }
            length = 0
            for offset in 0..<width { length = length << 8 | UInt64(bytes.byte(start + 2 + offset)) }
            header += width
        }
        guard UInt64(bytes.byteCount - start - header) >= length else { return nil }
        payload = start + header..<start + header + Int(length)
        kind = second & 0x80 != 0 ? .unexpected : Self.kind(first)
    }

    private static func kind(_ first: UInt8) -> Kind {
        switch first {
        case 0x81, 0x82: .message
        case 0x88: .close
        case 0x89: .ping
        case 0x8a: .pong
        default: .unexpected
        }
    }
}
