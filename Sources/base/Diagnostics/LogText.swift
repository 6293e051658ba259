/// Text in a log line: quoted if necessary, cut if too long, and without characters that could begin a new line or
/// control a terminal. Clients choose some of this text, so the log trusts none of it.
enum LogText {
    /// Appends the text, in quotes unless it is a single plain word. An empty text is written as `""`, so that readers
    /// notice it.
    static func appendQuotedIfNeeded(_ text: String, to line: inout [UInt8]) {
        let isBare = !text.isEmpty && text.utf8.count <= Limits.maximumLogFieldBytes && text.utf8.allSatisfy(isBareByte)
        if isBare {
            line.append(contentsOf: text.utf8)
        } else {
            appendQuoted(text, to: &line)
        }
    }

    /// Appends the text as a JSON string (RFC 8259 §7). Text log lines use the same quoting, so that parsers of both
    /// formats need only one rule.
    static func appendQuoted(_ text: String, to line: inout [UInt8]) {
        line.append(UInt8(ascii: "\""))
        appendEscaped(text, to: &line)
        line.append(UInt8(ascii: "\""))
    }

    static func appendEscaped(_ text: String, to line: inout [UInt8]) {
        var room = Limits.maximumLogFieldBytes
        for scalar in text.unicodeScalars {
            let width = UTF8.width(scalar)
            guard room >= width else {
                line.append(contentsOf: "…".utf8)
                return
            }
            room -= width
            appendEscaped(scalar, to: &line)
        }
    }

    /// Returns the number with at most three decimals. Foundation's formatting is not available in this room.
    static func thousandths(_ number: Double) -> String {
        guard number.isFinite, abs(number) < 1e15 else { return "null" }
        return String((number * 1000).rounded() / 1000)
    }

    private static func isBareByte(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "="), UInt8(ascii: "\\"): false
        default: byte > 0x20 && byte < 0x7F
        }
    }

    private static func appendEscaped(_ scalar: Unicode.Scalar, to line: inout [UInt8]) {
        switch scalar {
        case "\"": line.append(contentsOf: #"\""#.utf8)
        case "\\": line.append(contentsOf: #"\\"#.utf8)
        case "\n": line.append(contentsOf: #"\n"#.utf8)
        case "\r": line.append(contentsOf: #"\r"#.utf8)
        case "\t": line.append(contentsOf: #"\t"#.utf8)
        case _ where steersTheReader(scalar): appendHexadecimal(scalar, to: &line)
        default: line.append(contentsOf: UTF8.encode(scalar) ?? UTF8.encodedReplacementCharacter)
        }
    }

    /// True for control characters (C0, DEL, C1), line and paragraph separators, and the characters that reorder text
    /// on a screen.
    private static func steersTheReader(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        case 0..<0x20, 0x7F...0x9F, 0x2028...0x202E, 0x2066...0x2069, 0x200E, 0x200F, 0xFEFF: true
        default: false
        }
    }

    private static func appendHexadecimal(_ scalar: Unicode.Scalar, to line: inout [UInt8]) {
        let digits = String(scalar.value, radix: 16)
        line.append(contentsOf: #"\u"#.utf8)
        line.append(contentsOf: repeatElement(UInt8(ascii: "0"), count: 4 - digits.utf8.count))
        line.append(contentsOf: digits.utf8)
    }
}
