/// Token of a JSON text.
public enum JSONToken: Sendable, Equatable {
    case beginObject, endObject
    case beginArray, endArray
    /// Name of an object's member. The next token begins the member's value.
    case name
    case string
    case number
    case bool(Bool)
    case null
    /// End of a well-formed text.
    case end
}

/// Scanner that reads JSON (RFC 8259) token by token, in place. It refuses everything that is not correct JSON,
/// including invalid UTF-8, unpaired surrogates, and anything after the value.
///
/// A scanner allocates no memory for any text. Arrays and objects may be nested up to a limit. The scanner does not
/// detect duplicate names in an object.
public struct JSONScanner: ~Escapable {
    /// Largest permitted value of `maximumDepth`: the scanner keeps one bit for each open array or object.
    public static let deepest = 64

    private enum Expected {
        case value, firstNameOrEnd, name, firstValueOrEnd, commaOrEnd, end
    }

    private let bytes: RawSpan
    private var position = 0
    private let maximumDepth: Int
    private var depth = 0
    /// Kinds of the open arrays and objects, one bit for each: 1 for an object, 0 for an array. Bit 0 is the innermost.
    private var objects: UInt64 = 0
    private var expected = Expected.value
    private var tokenStart = 0
    private var tokenEnd = 0
    public private(set) var hasEscapes = false

    @_lifetime(copy bytes)
    public init(_ bytes: RawSpan, maximumDepth: Int = 32) {
        precondition((0...Self.deepest).contains(maximumDepth), "depth is counted in 64 bits")
        self.bytes = bytes
        self.maximumDepth = maximumDepth
    }

    /// Offset from which the scanner reads the next token.
    public var offset: Int { position }

    /// Bytes of the last number, string or name. Strings and names are without their quotes, and escapes are not
    /// decoded.
    public var tokenBytes: RawSpan {
        @_lifetime(copy self)
        get { bytes.extracting(tokenStart..<tokenEnd) }
    }

    /// Reads the next token. After an error, the scanner must not be used again.
    @_lifetime(self: copy self)
    public mutating func next() throws(ByteError) -> JSONToken {
        skipSpace()
        switch expected {
        case .value: return try value()
        case .firstValueOrEnd: return peek == UInt8(ascii: "]") ? close() : try value()
        case .firstNameOrEnd: return peek == UInt8(ascii: "}") ? close() : try name()
        case .name: return try name()
        case .commaOrEnd: return try commaOrEnd()
        case .end:
            guard position == bytes.byteCount else { throw refusal("nothing after the value") }
            return .end
        }
    }

    /// Skips one whole value whose first token was `token`.
    @_lifetime(self: copy self)
    public mutating func skip(_ token: JSONToken) throws(ByteError) {
        guard token == .beginObject || token == .beginArray else { return }
        let outside = depth - 1
        while depth > outside { _ = try next() }
    }

    private var peek: UInt8? { position < bytes.byteCount ? bytes.byte(position) : nil }

    private func refusal(_ expected: StaticString) -> ByteError { ByteError(expected: expected, offset: position) }

    @_lifetime(self: copy self)
    private mutating func skipSpace() {
        while let byte = peek, byte == 0x20 || byte == 0x0a || byte == 0x0d || byte == 0x09 { position += 1 }
    }

    // MARK: Structure

    @_lifetime(self: copy self)
    private mutating func commaOrEnd() throws(ByteError) -> JSONToken {
        let isObject = objects & 1 == 1
        switch peek {
        case UInt8(ascii: "]") where !isObject, UInt8(ascii: "}") where isObject: return close()
        case UInt8(ascii: ","):
            position += 1
            skipSpace()
            return isObject ? try name() : try value()
        default: throw refusal("a comma or the end of the array or object")
        }
    }

    @_lifetime(self: copy self)
    private mutating func open(isObject: Bool) throws(ByteError) {
        guard depth < maximumDepth else { throw refusal("fewer levels") }
        position += 1
        depth += 1
        objects = objects << 1 | (isObject ? 1 : 0)
        expected = isObject ? .firstNameOrEnd : .firstValueOrEnd
    }

    @_lifetime(self: copy self)
    private mutating func close() -> JSONToken {
        let isObject = objects & 1 == 1
        position += 1
        depth -= 1
        objects >>= 1
        valueEnded()
        return isObject ? .endObject : .endArray
    }

    @_lifetime(self: copy self)
    private mutating func valueEnded() { expected = depth == 0 ? .end : .commaOrEnd }

    @_lifetime(self: copy self)
    private mutating func name() throws(ByteError) -> JSONToken {
        guard peek == UInt8(ascii: "\"") else { throw refusal("a name in quotes") }
        try quoted()
        skipSpace()
        guard peek == UInt8(ascii: ":") else { throw refusal("a colon") }
        position += 1
        expected = .value
        return .name
    }

    @_lifetime(self: copy self)
    private mutating func value() throws(ByteError) -> JSONToken {
        switch peek {
        case UInt8(ascii: "{"):
            try open(isObject: true)
            return .beginObject
        case UInt8(ascii: "["):
            try open(isObject: false)
            return .beginArray
        case UInt8(ascii: "\""):
            try quoted()
            valueEnded()
            return .string
        case UInt8(ascii: "t"): return try word("true", .bool(true))
        case UInt8(ascii: "f"): return try word("false", .bool(false))
        case UInt8(ascii: "n"): return try word("null", .null)
        case UInt8(ascii: "-"), .some(48...57): return try number()
        default: throw refusal("a value")
        }
    }

    @_lifetime(self: copy self)
    private mutating func word(_ word: StaticString, _ token: JSONToken) throws(ByteError) -> JSONToken {
        let end = position + word.utf8CodeUnitCount
        guard end <= bytes.byteCount, bytes.extracting(position..<end).equals(word) else { throw refusal("a value") }
        position = end
        valueEnded()
        return token
    }

    // MARK: Numbers

    @_lifetime(self: copy self)
    private mutating func number() throws(ByteError) -> JSONToken {
        tokenStart = position
        if peek == UInt8(ascii: "-") { position += 1 }
        if peek == UInt8(ascii: "0") { position += 1 } else { try digits() }
        if peek == UInt8(ascii: ".") {
            position += 1
            try digits()
        }
        if peek == UInt8(ascii: "e") || peek == UInt8(ascii: "E") {
            position += 1
            if peek == UInt8(ascii: "+") || peek == UInt8(ascii: "-") { position += 1 }
            try digits()
        }
        tokenEnd = position
        valueEnded()
        return .number
    }

    @_lifetime(self: copy self)
    private mutating func digits() throws(ByteError) {
        guard let first = peek, first &- 48 < 10 else { throw refusal("a digit") }
        while let byte = peek, byte &- 48 < 10 { position += 1 }
    }

    /// Returns the last number if it is a whole number that fits the type; otherwise nil.
    public func integer<Number: FixedWidthInteger>(_ type: Number.Type = Number.self) -> Number? {
        let isNegative = tokenStart < tokenEnd && bytes.byte(tokenStart) == UInt8(ascii: "-")
        var result: Number = 0
        for offset in tokenStart + (isNegative ? 1 : 0)..<tokenEnd {
            guard let digit = Number(exactly: bytes.byte(offset) &- 48), digit < 10 else { return nil }
            let (scaled, overflow) = result.multipliedReportingOverflow(by: 10)
            let (sum, carried) =
                isNegative ? scaled.subtractingReportingOverflow(digit) : scaled.addingReportingOverflow(digit)
            if overflow || carried { return nil }
            result = sum
        }
        return result
    }

    // MARK: Strings

    /// Reads a string up to its closing quote, checks escapes and UTF-8, and stores the range between the quotes.
    @_lifetime(self: copy self)
    private mutating func quoted() throws(ByteError) {
        position += 1
        tokenStart = position
        hasEscapes = false
        skipPlainWords()
        while true {
            guard let byte = peek else { throw refusal("the end of the string") }
            switch byte {
            case UInt8(ascii: "\""):
                tokenEnd = position
                position += 1
                return
            case UInt8(ascii: "\\"):
                hasEscapes = true
                position += 1
                _ = try escaped()
                skipPlainWords()
            case 0..<0x20: throw refusal("no control character in a string")
            case 0x20..<0x80: position += 1
            default:
                try multibyte(byte)
                skipPlainWords()
            }
        }
    }

    /// Skips eight bytes at a time while all are ASCII and none is a quote, a backslash or a control character.
    @_lifetime(self: copy self)
    @inline(__always)
    private mutating func skipPlainWords() {
        while position &+ 8 <= bytes.byteCount {
            // SAFETY: `position + 8` lies within the span; every bit pattern is an integer.
            let word = unsafe bytes.unsafeLoadUnaligned(fromUncheckedByteOffset: position, as: UInt64.self)
                .littleEndian
            if word & 0x8080_8080_8080_8080 != 0 || JSONText.needsEscape(word) { return }
            position &+= 8
        }
    }

    /// Returns the character that an escape stands for. The caller has already skipped the backslash.
    @_lifetime(self: copy self)
    private mutating func escaped() throws(ByteError) -> Unicode.Scalar {
        guard let byte = peek else { throw refusal("an escape") }
        position += 1
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): return Unicode.Scalar(byte)
        case UInt8(ascii: "b"): return "\u{8}"
        case UInt8(ascii: "f"): return "\u{c}"
        case UInt8(ascii: "n"): return "\n"
        case UInt8(ascii: "r"): return "\r"
        case UInt8(ascii: "t"): return "\t"
        case UInt8(ascii: "u"): return try unicode()
        default: throw refusal("an escape")
        }
    }

    @_lifetime(self: copy self)
    private mutating func unicode() throws(ByteError) -> Unicode.Scalar {
        let first = try hex()
        if let scalar = Unicode.Scalar(first) { return scalar }
        // RFC 8259 §7: a character outside the basic plane is written as two surrogates, the high one first.
        guard first < 0xdc00, peek == UInt8(ascii: "\\") else { throw refusal("a pair of surrogates") }
        position += 1
        guard peek == UInt8(ascii: "u") else { throw refusal("a pair of surrogates") }
        position += 1
        let second = try hex()
        guard (0xdc00...0xdfff).contains(second),
            let scalar = Unicode.Scalar(0x10000 + (first - 0xd800) << 10 + (second - 0xdc00))
        else { throw refusal("a pair of surrogates") }
        return scalar
    }

    @_lifetime(self: copy self)
    private mutating func hex() throws(ByteError) -> UInt32 {
        var value: UInt32 = 0
        for _ in 0..<4 {
            guard let byte = peek, let digit = Hex.value(byte) else { throw refusal("four hexadecimal digits") }
            value = value << 4 | UInt32(digit)
            position += 1
        }
        return value
    }

    /// Checks one multi-byte character: accepts only well-formed UTF-8 (The Unicode Standard, table 3-7).
    @_lifetime(self: copy self)
    private mutating func multibyte(_ first: UInt8) throws(ByteError) {
        switch first {
        case 0xc2...0xdf: try continuation(0x80...0xbf, more: 0)
        case 0xe0: try continuation(0xa0...0xbf, more: 1)
        case 0xed: try continuation(0x80...0x9f, more: 1)
        case 0xe1...0xef: try continuation(0x80...0xbf, more: 1)
        case 0xf0: try continuation(0x90...0xbf, more: 2)
        case 0xf1...0xf3: try continuation(0x80...0xbf, more: 2)
        case 0xf4: try continuation(0x80...0x8f, more: 2)
        default: throw refusal("UTF-8")
        }
    }

    @_lifetime(self: copy self)
    private mutating func continuation(_ second: ClosedRange<UInt8>, more: Int) throws(ByteError) {
        position += 1
        guard let byte = peek, second.contains(byte) else { throw refusal("UTF-8") }
        position += 1
        for _ in 0..<more {
            guard let byte = peek, byte & 0xc0 == 0x80 else { throw refusal("UTF-8") }
            position += 1
        }
    }

    /// Appends the last string or name with its escapes decoded.
    public func appendText(to writer: inout ByteWriter) {
        guard hasEscapes else { return writer.append(tokenBytes) }
        var rest = JSONScanner(bytes)
        rest.position = tokenStart
        var plain = tokenStart
        while rest.position < tokenEnd {
            guard bytes.byte(rest.position) == UInt8(ascii: "\\") else {
                rest.position += 1
                continue
            }
            writer.append(bytes.extracting(plain..<rest.position))
            rest.position += 1
            // The scanner checked this escape when it read the token.
            guard let scalar = try? rest.escaped() else { preconditionFailure("an escape was checked and is none") }
            for unit in UTF8.encode(scalar) ?? .init() { writer.append(unit) }
            plain = rest.position
        }
        writer.append(bytes.extracting(plain..<tokenEnd))
    }

    /// Last string or name, with its escapes decoded.
    public var text: String {
        guard hasEscapes else { return tokenBytes.text }
        var writer = ByteWriter(capacity: tokenEnd - tokenStart + 1)
        appendText(to: &writer)
        return writer.bytes.text
    }

    /// True if the last string or name equals `text` and contains no escapes.
    public func equals(_ text: StaticString) -> Bool { !hasEscapes && tokenBytes.equals(text) }
}
