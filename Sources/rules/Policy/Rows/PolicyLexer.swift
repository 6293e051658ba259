/// Token of an expression's text.
enum PolicyToken: Equatable {
    /// An unquoted word as it is written, which may be a keyword.
    case word(String)
    case quotedName(String)
    case string(String)
    case number(String)
    case parameter(Int)
    case symbol(String)
    /// One of `( ) [ ] , . ; :`, or `::`.
    case mark(String)
    case end
}

/// Lexer of texts that PostgreSQL prints. It is strict: it returns nothing for a text that PostgreSQL would not print.
struct PolicyLexer {
    struct Piece {
        var token: PolicyToken
        var start: Int
        var end: Int
    }

    private let bytes: [UInt8]
    private var at = 0

    init(_ text: String) { bytes = Array(text.utf8) }

    static func pieces(_ text: String, maximum: Int) -> [Piece]? {
        var lexer = PolicyLexer(text)
        var pieces: [Piece] = []
        while pieces.count < maximum {
            lexer.skipSpace()
            let start = lexer.at
            guard let token = lexer.next() else { return nil }
            precondition(lexer.at > start || token == .end, "a token of nothing, which would be read for ever")
            precondition(lexer.at <= lexer.bytes.count, "a token beyond the text")
            pieces.append(Piece(token: token, start: start, end: lexer.at))
            if token == .end { return pieces }
        }
        return nil
    }

    private var peek: UInt8? { at < bytes.count ? bytes[at] : nil }

    private func peek(_ distance: Int) -> UInt8? { at + distance < bytes.count ? bytes[at + distance] : nil }

    private mutating func skipSpace() {
        while let byte = peek, byte == 0x20 || byte == 0x0a || byte == 0x09 || byte == 0x0d { at += 1 }
    }

    private mutating func next() -> PolicyToken? {
        guard let byte = peek else { return .end }
        switch byte {
        case UInt8(ascii: "'"): return quoted(byte).map { .string($0) }
        case UInt8(ascii: "\""): return quoted(byte).flatMap { $0.isEmpty ? nil : .quotedName($0) }
        case UInt8(ascii: "$"): return parameter()
        case UInt8(ascii: "0")...UInt8(ascii: "9"): return number()
        case UInt8(ascii: ":"): return colons()
        default: break
        }
        if Self.marks.contains(byte) {
            at += 1
            return .mark(String(UnicodeScalar(byte)))
        }
        if Self.symbols.contains(byte) { return symbol() }
        return Self.startsWord(byte) ? word() : nil
    }

    private static let marks = Set("()[],.;".utf8)
    private static let symbols = Set("+-*/<>=~!@#%^&|`?".utf8)

    private static func startsWord(_ byte: UInt8) -> Bool {
        (0x41...0x5a).contains(byte) || (0x61...0x7a).contains(byte) || byte == UInt8(ascii: "_") || byte >= 0x80
    }

    private static func goesOn(_ byte: UInt8) -> Bool {
        startsWord(byte) || (0x30...0x39).contains(byte) || byte == UInt8(ascii: "$")
    }

    /// Reads a quoted text. Under `standard_conforming_strings` a backslash is an ordinary character; only the quote is
    /// doubled.
    private mutating func quoted(_ quote: UInt8) -> String? {
        assert(peek == quote, "a quote that does not open")
        at += 1
        var inside: [UInt8] = []
        while let byte = peek {
            at += 1
            guard byte == quote else {
                inside.append(byte)
                continue
            }
            guard peek == quote else { return String(validating: inside, as: UTF8.self) }
            inside.append(quote)
            at += 1
        }
        return nil
    }

    private mutating func word() -> PolicyToken? {
        let start = at
        while let byte = peek, Self.goesOn(byte) { at += 1 }
        guard let text = String(validating: bytes[start..<at], as: UTF8.self) else { return nil }
        guard peek == UInt8(ascii: "'") else { return .word(text) }
        // `E'…'` is a literal with escapes. `B'…'` and similar literals become two tokens, which no expression
        // contains.
        return text == "E" ? escaped().map { .string($0) } : .word(text)
    }

    private mutating func escaped() -> String? {
        assert(peek == UInt8(ascii: "'"), "a quote that does not open")
        at += 1
        var inside: [UInt8] = []
        while let byte = peek {
            at += 1
            switch byte {
            case UInt8(ascii: "'"):
                guard peek == byte else { return String(validating: inside, as: UTF8.self) }
                inside.append(byte)
                at += 1
            case UInt8(ascii: "\\"):
                guard let next = peek, next == UInt8(ascii: "\\") || next == UInt8(ascii: "'") else { return nil }
                inside.append(next)
                at += 1
            default: inside.append(byte)
            }
        }
        return nil
    }

    private mutating func parameter() -> PolicyToken? {
        at += 1
        var value = 0
        let start = at
        while let byte = peek, (0x30...0x39).contains(byte), at - start < 5 {
            value = value * 10 + Int(byte - 0x30)
            at += 1
        }
        return value > 0 ? .parameter(value) : nil
    }

    private mutating func number() -> PolicyToken? {
        let start = at
        skipDigits()
        if peek == UInt8(ascii: "."), let digit = peek(1), (0x30...0x39).contains(digit) {
            at += 1
            skipDigits()
        }
        if peek == UInt8(ascii: "e") || peek == UInt8(ascii: "E") {
            at += 1
            if peek == UInt8(ascii: "+") || peek == UInt8(ascii: "-") { at += 1 }
            guard let digit = peek, (0x30...0x39).contains(digit) else { return nil }
            skipDigits()
        }
        if let byte = peek, Self.goesOn(byte) { return nil }
        return .number(String(decoding: bytes[start..<at], as: UTF8.self))
    }

    private mutating func skipDigits() {
        while let byte = peek, (0x30...0x39).contains(byte) { at += 1 }
    }

    private mutating func colons() -> PolicyToken? {
        let isDouble = peek(1) == UInt8(ascii: ":")
        at += isDouble ? 2 : 1
        return .mark(isDouble ? "::" : ":")
    }

    private mutating func symbol() -> PolicyToken? {
        let start = at
        while let byte = peek, Self.symbols.contains(byte) { at += 1 }
        let text = String(decoding: bytes[start..<at], as: UTF8.self)
        // Such a symbol would begin a comment, which PostgreSQL never prints.
        return text.contains("--") || text.contains("/*") ? nil : .symbol(text)
    }
}
