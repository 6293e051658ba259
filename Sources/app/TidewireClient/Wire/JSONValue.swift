/// A JSON value. Numbers keep all their digits, so that `int8` and `numeric` values are exact in every type into which
/// the app decodes them.
public enum JSONValue: Sendable, Hashable {
    /// The value `null`.
    case null
    /// A boolean.
    case bool(Bool)
    /// A number, as the digits that were received, for example `12345678901234567890.123`.
    case number(String)
    /// A text.
    case string(String)
    /// An array.
    case array([JSONValue])
    /// An object: values by their names.
    case object([String: JSONValue])

    /// Member of an object; nil for other values, and if the object has no such member.
    public subscript(name: String) -> JSONValue? {
        if case .object(let members) = self { members[name] } else { nil }
    }

    /// The text; nil for other values.
    public var text: String? { if case .string(let text) = self { text } else { nil } }
    /// The boolean; nil for other values.
    public var bool: Bool? { if case .bool(let value) = self { value } else { nil } }
    /// The items of an array; nil for other values.
    public var array: [JSONValue]? { if case .array(let items) = self { items } else { nil } }
    /// The members of an object; nil for other values.
    public var object: [String: JSONValue]? { if case .object(let members) = self { members } else { nil } }
    /// The number, if it is an integer that fits; nil for other values.
    public var integer: Int? { if case .number(let digits) = self { Int(digits) } else { nil } }
    /// True if the value is `null`.
    public var isNull: Bool { self == .null }
}

extension JSONValue {
    /// Error for text that is not valid JSON. It states the place, but never contains the text itself.
    public struct ParsingError: Error, Hashable, CustomStringConvertible {
        /// Description of the token that valid JSON would have at the place of the error.
        public let expected: String
        /// Number of bytes before the place of the error.
        public let offset: Int

        /// The expected token and the place.
        public var description: String { "expected \(expected) at byte \(offset)" }
    }
}

extension JSONValue {
    /// Maximum nesting depth. The parser refuses deeper JSON, so that no text can exhaust the stack.
    static let maximumDepth = 512

    /// Parses JSON from text.
    ///
    /// - Throws: ``ParsingError`` if the text is not valid JSON, or is nested more than 512 levels deep.
    public init(parsing text: String) throws(ParsingError) { try self.init(parsing: Array(text.utf8)) }

    /// Parses JSON from UTF-8.
    ///
    /// - Throws: ``ParsingError`` if the bytes are not valid JSON, or are nested more than 512 levels deep.
    public init(parsing bytes: [UInt8]) throws(ParsingError) {
        var parser = JSONParser(bytes, nil)
        self = try parser.document()
    }

    /// Parses JSON. `said` has the member `columns` of the previous message; if this message has the same bytes, their
    /// value is reused.
    init(parsing bytes: [UInt8], _ said: inout PreviousColumns) throws(ParsingError) {
        var parser = JSONParser(bytes, said)
        self = try parser.document()
        said = parser.said ?? said
    }
}

/// Value of the member `columns` in the previous message. Each message about a table contains its column names and
/// types, which are often half of the message. If the next message has the same bytes, the parser reuses the value.
/// Equal bytes suffice, because they contain the whole array.
struct PreviousColumns: Sendable {
    static let name = "columns"
    fileprivate var bytes: ArraySlice<UInt8> = []
    fileprivate var value = JSONValue.null
}

private struct JSONParser {
    typealias ParsingError = JSONValue.ParsingError

    private let bytes: [UInt8]
    private var at = 0
    private(set) var said: PreviousColumns?

    init(_ bytes: [UInt8], _ said: PreviousColumns?) {
        self.bytes = bytes
        self.said = said
    }

    mutating func document() throws(ParsingError) -> JSONValue {
        let value = try value(depth: 0)
        skipBlanks()
        guard at == bytes.count else { throw expected("the end") }
        return value
    }

    private func expected(_ what: String) -> ParsingError { ParsingError(expected: what, offset: at) }

    private var next: UInt8? { at < bytes.count ? bytes[at] : nil }

    private mutating func skipBlanks() {
        while at < bytes.count, bytes[at] == 32 || (9...13).contains(bytes[at]) { at += 1 }
    }

    private mutating func value(depth: Int) throws(ParsingError) -> JSONValue {
        guard depth < JSONValue.maximumDepth else { throw expected("fewer levels") }
        skipBlanks()
        switch next {
        case UInt8(ascii: "{"): return try object(depth: depth)
        case UInt8(ascii: "["): return try array(depth: depth)
        case UInt8(ascii: "\""): return .string(try string())
        case UInt8(ascii: "t"): return try word("true", .bool(true))
        case UInt8(ascii: "f"): return try word("false", .bool(false))
        case UInt8(ascii: "n"): return try word("null", .null)
        default: return try number()
        }
    }

    private mutating func word(_ word: StaticString, _ value: JSONValue) throws(ParsingError) -> JSONValue {
        let letters = Array(word.description.utf8)
        guard at + letters.count <= bytes.count, Array(bytes[at..<at + letters.count]) == letters else {
            throw expected("\(word)")
        }
        at += letters.count
        return value
    }

    private mutating func number() throws(ParsingError) -> JSONValue {
        let start = at
        if next == UInt8(ascii: "-") { at += 1 }
        guard skipDigits() else { throw expected("a value") }
        if next == UInt8(ascii: ".") {
            at += 1
            guard skipDigits() else { throw expected("digits") }
        }
        if next == UInt8(ascii: "e") || next == UInt8(ascii: "E") {
            at += 1
            if next == UInt8(ascii: "+") || next == UInt8(ascii: "-") { at += 1 }
            guard skipDigits() else { throw expected("digits") }
        }
        return .number(String(decoding: bytes[start..<at], as: UTF8.self))
    }

    private mutating func skipDigits() -> Bool {
        let start = at
        while let digit = next, (48...57).contains(digit) { at += 1 }
        return at > start
    }

    private mutating func array(depth: Int) throws(ParsingError) -> JSONValue {
        at += 1
        var items: [JSONValue] = []
        skipBlanks()
        if next == UInt8(ascii: "]") {
            at += 1
            return .array(items)
        }
        while true {
            items.append(try value(depth: depth + 1))
            skipBlanks()
            guard let byte = next else { throw expected("] or ,") }
            at += 1
            if byte == UInt8(ascii: "]") { return .array(items) }
            guard byte == UInt8(ascii: ",") else { throw expected("] or ,") }
        }
    }

    private mutating func object(depth: Int) throws(ParsingError) -> JSONValue {
        at += 1
        var members: [String: JSONValue] = [:]
        skipBlanks()
        if next == UInt8(ascii: "}") {
            at += 1
            return .object(members)
        }
        // Rows often have about twelve columns. Without this, the dictionary would grow four times.
        members.reserveCapacity(12)
        while true {
            skipBlanks()
            guard next == UInt8(ascii: "\"") else { throw expected("a name") }
            let name = try string()
            skipBlanks()
            guard next == UInt8(ascii: ":") else { throw expected(":") }
            at += 1
            members[name] = name == PreviousColumns.name ? try columns(depth: depth + 1) : try value(depth: depth + 1)
            skipBlanks()
            guard let byte = next else { throw expected("} or ,") }
            at += 1
            if byte == UInt8(ascii: "}") { return .object(members) }
            guard byte == UInt8(ascii: ",") else { throw expected("} or ,") }
        }
    }

    private mutating func columns(depth: Int) throws(ParsingError) -> JSONValue {
        skipBlanks()
        if let said, !said.bytes.isEmpty, bytes[at...].starts(with: said.bytes) {
            at += said.bytes.count
            return said.value
        }
        let start = at
        let value = try value(depth: depth)
        if said != nil, case .array = value { said = PreviousColumns(bytes: bytes[start..<at], value: value) }
        return value
    }

    private mutating func string() throws(ParsingError) -> String {
        at += 1
        let start = at
        while let byte = next, byte != UInt8(ascii: "\""), byte != UInt8(ascii: "\\") { at += 1 }
        if next == UInt8(ascii: "\"") {
            at += 1
            return String(decoding: bytes[start..<at - 1], as: UTF8.self)
        }
        return try escapedString(from: start)
    }

    private mutating func escapedString(from start: Int) throws(ParsingError) -> String {
        var text = Array(bytes[start..<at])
        while let byte = next {
            at += 1
            if byte == UInt8(ascii: "\"") { return String(decoding: text, as: UTF8.self) }
            guard byte == UInt8(ascii: "\\") else {
                text.append(byte)
                continue
            }
            guard let escape = next else { break }
            at += 1
            switch escape {
            case UInt8(ascii: "n"): text.append(10)
            case UInt8(ascii: "t"): text.append(9)
            case UInt8(ascii: "r"): text.append(13)
            case UInt8(ascii: "b"): text.append(8)
            case UInt8(ascii: "f"): text.append(12)
            case UInt8(ascii: "u"): text.append(contentsOf: Array(String(try unicodeScalar()).utf8))
            case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): text.append(escape)
            default: throw expected("an escape")
            }
        }
        throw expected("\"")
    }

    /// Reads the digits after `\u`. A pair of surrogates is one character; a single surrogate becomes the replacement
    /// character.
    private mutating func unicodeScalar() throws(ParsingError) -> Character {
        let first = try hexadecimal()
        if (0xd800..<0xdc00).contains(first), at + 1 < bytes.count, bytes[at] == UInt8(ascii: "\\"),
            bytes[at + 1] == UInt8(ascii: "u")
        {
            let before = at
            at += 2
            let second = try hexadecimal()
            if (0xdc00..<0xe000).contains(second) {
                let both = 0x10000 + (first - 0xd800) << 10 + (second - 0xdc00)
                return Unicode.Scalar(both).map(Character.init) ?? "\u{fffd}"
            }
            at = before
        }
        return Unicode.Scalar(first).map(Character.init) ?? "\u{fffd}"
    }

    private mutating func hexadecimal() throws(ParsingError) -> UInt32 {
        guard at + 4 <= bytes.count,
            let value = UInt32(String(decoding: bytes[at..<at + 4], as: UTF8.self), radix: 16)
        else { throw expected("four hexadecimal digits") }
        at += 4
        return value
    }
}

extension JSONValue {
    /// The value as JSON text. Names are sorted, so equal values have equal texts.
    ///
    /// - Complexity: O(*n*), where *n* is the length of the text.
    public var json: String {
        var bytes: [UInt8] = []
        write(to: &bytes)
        return String(decoding: bytes, as: UTF8.self)
    }

    func write(to bytes: inout [UInt8]) {
        switch self {
        case .null: bytes.append(contentsOf: "null".utf8)
        case .bool(let value): bytes.append(contentsOf: (value ? "true" : "false").utf8)
        case .number(let digits): bytes.append(contentsOf: digits.utf8)
        case .string(let text): Self.write(text, to: &bytes)
        case .array(let items):
            bytes.append(UInt8(ascii: "["))
            for (index, item) in items.enumerated() {
                if index > 0 { bytes.append(UInt8(ascii: ",")) }
                item.write(to: &bytes)
            }
            bytes.append(UInt8(ascii: "]"))
        case .object(let members):
            bytes.append(UInt8(ascii: "{"))
            for (index, name) in members.keys.sorted().enumerated() {
                if index > 0 { bytes.append(UInt8(ascii: ",")) }
                Self.write(name, to: &bytes)
                bytes.append(UInt8(ascii: ":"))
                members[name]?.write(to: &bytes)
            }
            bytes.append(UInt8(ascii: "}"))
        }
    }

    private static func write(_ text: String, to bytes: inout [UInt8]) {
        bytes.append(UInt8(ascii: "\""))
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "\""), UInt8(ascii: "\\"): bytes += [UInt8(ascii: "\\"), byte]
            case 10: bytes.append(contentsOf: "\\n".utf8)
            case 13: bytes.append(contentsOf: "\\r".utf8)
            case 9: bytes.append(contentsOf: "\\t".utf8)
            case 0..<32:
                let digits = String(byte, radix: 16)
                bytes.append(contentsOf: ("\\u" + String(repeating: "0", count: 4 - digits.count) + digits).utf8)
            default: bytes.append(byte)
            }
        }
        bytes.append(UInt8(ascii: "\""))
    }
}

extension JSONValue: ExpressibleByStringLiteral, ExpressibleByIntegerLiteral, ExpressibleByBooleanLiteral,
    ExpressibleByArrayLiteral, ExpressibleByDictionaryLiteral, ExpressibleByNilLiteral
{
    /// Creates a text.
    public init(stringLiteral text: String) { self = .string(text) }
    /// Creates a number.
    public init(integerLiteral number: Int) { self = .number(String(number)) }
    /// Creates a boolean.
    public init(booleanLiteral value: Bool) { self = .bool(value) }
    /// Creates the value `null`.
    public init(nilLiteral: ()) { self = .null }
    /// Creates an array.
    public init(arrayLiteral items: JSONValue...) { self = .array(items) }
    /// Creates an object. If a name occurs several times, the last member counts.
    public init(dictionaryLiteral members: (String, JSONValue)...) {
        self = .object(Dictionary(members) { _, last in last })
    }
}
