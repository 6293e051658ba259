import Bytes

/// Validator of UTF-8 (RFC 3629 §4) for text that arrives in pieces. It finds an error as early as possible. It refuses
/// overlong forms, surrogates and code points above U+10FFFF.
struct UTF8Validator {
    /// Number of continuation bytes that the current character still needs.
    private var missing: UInt8 = 0
    /// Lowest value allowed for the next continuation byte.
    private var lowest: UInt8 = 0x80
    /// Highest value allowed for the next continuation byte.
    private var highest: UInt8 = 0xBF

    /// True if the text so far ends with a complete character.
    var isBetweenCharacters: Bool { missing == 0 }

    static func isValid(_ text: RawSpan) -> Bool {
        var validator = UTF8Validator()
        return validator.accepts(text) && validator.isBetweenCharacters
    }

    /// Reads further text. Returns false as soon as no continuation could make the text valid.
    mutating func accepts(_ text: RawSpan) -> Bool {
        var state = self
        defer { self = state }
        let count = text.byteCount
        var at = 0
        while at < count {
            if state.missing == 0 { at = Self.afterASCII(text, from: at) }
            guard at < count else { break }
            guard state.accepts(text.byte(at)) else { return false }
            at &+= 1
        }
        return true
    }

    /// Returns the offset after all eight-byte words of ASCII that follow each other from `start` on.
    private static func afterASCII(_ text: RawSpan, from start: Int) -> Int {
        var at = start
        while at &+ 8 <= text.byteCount {
            // SAFETY: the line above keeps the load inside the span; every bit pattern is a number.
            let word = unsafe text.unsafeLoadUnaligned(fromUncheckedByteOffset: at, as: UInt64.self)
            if word & 0x8080_8080_8080_8080 != 0 { break }
            at &+= 8
        }
        return at
    }

    private mutating func accepts(_ byte: UInt8) -> Bool {
        if missing > 0 {
            guard byte >= lowest, byte <= highest else { return false }
            missing &-= 1
            (lowest, highest) = (0x80, 0xBF)
            return true
        }
        switch byte {
        case 0x00...0x7F: return true
        case 0xC2...0xDF: expect(1)
        case 0xE0: expect(2, from: 0xA0)
        case 0xED: expect(2, to: 0x9F)
        case 0xE1...0xEF: expect(2)
        case 0xF0: expect(3, from: 0x90)
        case 0xF1...0xF3: expect(3)
        case 0xF4: expect(3, to: 0x8F)
        default: return false
        }
        return true
    }

    private mutating func expect(_ count: UInt8, from lowest: UInt8 = 0x80, to highest: UInt8 = 0xBF) {
        missing = count
        self.lowest = lowest
        self.highest = highest
    }
}
