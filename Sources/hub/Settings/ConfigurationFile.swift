import Diagnostics

/// File of `name = value` lines in the syntax of postgresql.conf ("Setting Parameters via the Configuration File"). The
/// `=` is optional, `#` begins a comment, and values other than plain words and numbers are in single quotes.
struct ConfigurationFile {
    struct Line: Equatable {
        let number: Int
        let name: String
        let value: String
    }

    /// Mistake in a line. It does not repeat the line, which may contain a secret.
    struct Mistake: Equatable {
        let line: Int
        let message: String
    }

    private(set) var lines: [Line] = []
    private(set) var mistakes: [Mistake] = []

    init(_ content: [UInt8]) {
        for (index, bytes) in content.withoutByteOrderMark.split(
            separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false
        )
        .enumerated() {
            var parser = ConfigurationLineParser(bytes)
            do throws(ConfigurationLineParser.Mistake) {
                guard let (name, value) = try parser.parse() else { continue }
                lines.append(Line(number: index + 1, name: name, value: value))
            } catch {
                mistakes.append(Mistake(line: index + 1, message: error.message))
            }
        }
    }
}

extension [UInt8] {
    fileprivate var withoutByteOrderMark: ArraySlice<UInt8> {
        starts(with: [0xEF, 0xBB, 0xBF]) ? dropFirst(3) : self[...]
    }
}

/// Parser of a single line.
struct ConfigurationLineParser {
    struct Mistake: Error {
        let message: String

        init(_ message: String) {
            self.message = message
        }
    }

    private var rest: ArraySlice<UInt8>

    init(_ line: ArraySlice<UInt8>) {
        rest = line
    }

    /// Returns the setting in the line; nil for a line without one.
    mutating func parse() throws(Mistake) -> (name: String, value: String)? {
        skipBlanks()
        guard !isAtEnd else { return nil }
        let name = try takeName()
        skipBlanks()
        if rest.first == UInt8(ascii: "=") {
            rest.removeFirst()
            skipBlanks()
        }
        guard !isAtEnd else { throw Mistake("\(name) has no value; an empty one is ''") }
        let value = try takeValue()
        skipBlanks()
        guard isAtEnd else {
            throw Mistake(
                "there is more after the value of \(name); a value with spaces or signs stands in single quotes")
        }
        return (name, value)
    }

    private var isAtEnd: Bool {
        rest.isEmpty || rest.first == UInt8(ascii: "#")
    }

    private mutating func skipBlanks() {
        rest = rest.drop { $0 == UInt8(ascii: " ") || (0x09...0x0D).contains($0) }
    }

    private mutating func takeName() throws(Mistake) -> String {
        let name = rest.prefix(while: Self.isNameByte)
        guard !name.isEmpty else { throw Mistake("expected a setting's name at the beginning of the line") }
        rest = rest.dropFirst(name.count)
        return String(decoding: name, as: UTF8.self).lowercased()
    }

    private mutating func takeValue() throws(Mistake) -> String {
        let bytes = rest.first == UInt8(ascii: "'") ? try takeQuoted() : takeBare()
        guard bytes.count <= Limits.maximumSettingBytes else {
            throw Mistake("the value is longer than \(Limits.maximumSettingBytes) bytes")
        }
        guard let value = String(validating: bytes, as: UTF8.self) else { throw Mistake("the value is not UTF-8") }
        return value
    }

    private mutating func takeBare() -> [UInt8] {
        let value = rest.prefix(while: Self.isBareByte)
        rest = rest.dropFirst(value.count)
        return Array(value)
    }

    /// Reads a quoted value. Two quotes stand for one, and a backslash has the same meaning as in postgresql.conf.
    private mutating func takeQuoted() throws(Mistake) -> [UInt8] {
        rest.removeFirst()
        var value: [UInt8] = []
        while let byte = rest.popFirst() {
            switch byte {
            case UInt8(ascii: "'"):
                guard rest.first == UInt8(ascii: "'") else { return value }
                value.append(rest.removeFirst())
            case UInt8(ascii: "\\"): value.append(try takeEscaped())
            default: value.append(byte)
            }
        }
        throw Mistake("the quote at the beginning of the value has no end")
    }

    private mutating func takeEscaped() throws(Mistake) -> UInt8 {
        guard let byte = rest.popFirst() else { throw Mistake("the quote at the beginning of the value has no end") }
        switch byte {
        case UInt8(ascii: "b"): return 0x08
        case UInt8(ascii: "f"): return 0x0C
        case UInt8(ascii: "n"): return 0x0A
        case UInt8(ascii: "r"): return 0x0D
        case UInt8(ascii: "t"): return 0x09
        case UInt8(ascii: "0")...UInt8(ascii: "7"): return takeOctal(from: byte)
        default: return byte
        }
    }

    private mutating func takeOctal(from first: UInt8) -> UInt8 {
        var number = UInt16(first - UInt8(ascii: "0"))
        for _ in 0..<2 {
            guard let digit = rest.first, (UInt8(ascii: "0")...UInt8(ascii: "7")).contains(digit) else { break }
            number = number * 8 + UInt16(digit - UInt8(ascii: "0"))
            rest.removeFirst()
        }
        return UInt8(truncatingIfNeeded: number)
    }

    private static func isNameByte(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"): true
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"), UInt8(ascii: "."): true
        default: false
        }
    }

    private static func isBareByte(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: ":"), UInt8(ascii: "/"), UInt8(ascii: "+"), UInt8(ascii: "-"): true
        default: isNameByte(byte) || byte >= 0x80
        }
    }
}
