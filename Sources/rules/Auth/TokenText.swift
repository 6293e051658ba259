import Bytes

/// Text of a token, divided into its parts: header, claims and signature. The signature covers the first two.
struct TokenText {
    private let bytes: [UInt8]
    private let firstDot: Int
    private let secondDot: Int

    /// Creates the text after removing URI encoding and white space, as Supabase Realtime does. Nil if the encoding is
    /// malformed or if there are not three parts.
    init?(_ token: RawSpan) {
        guard let bytes = Self.cleaned(token) else { return nil }
        var dots: [Int] = []
        for (offset, byte) in bytes.enumerated() where byte == UInt8(ascii: ".") {
            dots.append(offset)
            guard dots.count <= 2 else { return nil }
        }
        guard dots.count == 2 else { return nil }
        self.bytes = bytes
        firstDot = dots[0]
        secondDot = dots[1]
    }

    var header: [UInt8]? { Base64URL.decode(bytes.span.extracting(0..<firstDot)) }
    var claims: [UInt8]? { Base64URL.decode(bytes.span.extracting(firstDot + 1..<secondDot)) }
    var signature: [UInt8]? { Base64URL.decode(bytes.span.extracting(secondDot + 1..<bytes.count)) }

    /// Text that the signature covers.
    var signed: Span<UInt8> {
        @_lifetime(borrow self)
        get {
            let signed = bytes.span.extracting(0..<secondDot)
            // SAFETY: the bytes are this value's own and live as long as the borrow of `self`.
            return unsafe _overrideLifetime(signed, borrowing: self)
        }
    }

    private static func cleaned(_ token: RawSpan) -> [UInt8]? {
        var cleaned: [UInt8] = []
        cleaned.reserveCapacity(token.byteCount)
        var at = 0
        while at < token.byteCount {
            var byte = token.byte(at)
            at += 1
            if byte == UInt8(ascii: "%") {
                guard at + 2 <= token.byteCount, let high = Hex.value(token.byte(at)),
                    let low = Hex.value(token.byte(at + 1))
                else { return nil }
                byte = high << 4 | low
                at += 2
            }
            if !isSpace(byte) { cleaned.append(byte) }
        }
        return cleaned
    }

    private static func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || (0x09...0x0d).contains(byte) }
}
