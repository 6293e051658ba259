/// JSON value as a tree. For small and rare data, of which the hub keeps parts that it does not understand.
public indirect enum JSONValue: Sendable, Equatable {
    case null
    case bool(Bool)
    /// Number as written, so that no digit is lost.
    case number(String)
    case string(String)
    case array([JSONValue])
    case object(JSONObject)

    public static func number(_ number: Int) -> JSONValue { .number(String(number)) }

    public var string: String? { if case .string(let text) = self { text } else { nil } }
    public var object: JSONObject? { if case .object(let object) = self { object } else { nil } }
    public var array: [JSONValue]? { if case .array(let elements) = self { elements } else { nil } }
    public var bool: Bool? { if case .bool(let flag) = self { flag } else { nil } }

    /// Whole number that fits into an `Int`; nil for other values.
    public var integer: Int? { if case .number(let digits) = self { Int(digits) } else { nil } }
}

/// Members of a JSON object, in order. If a name occurs twice, the last value counts.
public struct JSONObject: Sendable, Equatable {
    public private(set) var members: [(name: String, value: JSONValue)] = []

    public init(_ members: [(String, JSONValue)] = []) {
        for (name, value) in members { self[name] = value }
        assert(self.members.count <= members.count, "a member that comes twice is kept once")
    }

    /// Value of a member; nil if there is none. Setting nil removes the member.
    public subscript(name: String) -> JSONValue? {
        get { index(of: name).map { members[$0].value } }
        set {
            switch (index(of: name), newValue) {
            case (let index?, let value?): members[index].value = value
            case (let index?, nil): members.remove(at: index)
            case (nil, let value?): members.append((name, value))
            case (nil, nil): break
            }
        }
    }

    /// Returns the index of the member with this name. Names are compared byte by byte, so that names which only look
    /// equal differ.
    private func index(of name: String) -> Int? {
        members.firstIndex { $0.name.utf8.elementsEqual(name.utf8) }
    }

    public var isEmpty: Bool { members.isEmpty }

    public static func == (left: JSONObject, right: JSONObject) -> Bool {
        left.members.count == right.members.count
            && left.members.allSatisfy { name, value in right[name] == value }
    }
}

// MARK: Reading

extension JSONValue {
    /// Parses bytes that contain exactly one JSON value.
    ///
    /// - Parameter maximumMembers: maximum number of members of each object.
    public static func parse(
        _ bytes: [UInt8], maximumDepth: Int, maximumMembers: Int = 1_000
    ) throws(ByteError) -> JSONValue {
        var scanner = JSONScanner(bytes.rawBytes, maximumDepth: maximumDepth)
        let value = try JSONValue(try scanner.next(), of: &scanner, maximumMembers)
        let end = try scanner.next()
        assert(end == .end, "nothing follows the value")
        return value
    }

    private init(_ token: JSONToken, of scanner: inout JSONScanner, _ most: Int) throws(ByteError) {
        switch token {
        case .null: self = .null
        case .bool(let flag): self = .bool(flag)
        case .number: self = .number(scanner.tokenBytes.text)
        case .string: self = .string(scanner.text)
        case .beginArray: self = .array(try Self.elements(of: &scanner, most))
        case .beginObject: self = .object(try Self.members(of: &scanner, most))
        case .endArray, .endObject, .name, .end: throw ByteError(expected: "a value", offset: scanner.offset)
        }
    }

    private static func elements(of scanner: inout JSONScanner, _ most: Int) throws(ByteError) -> [JSONValue] {
        var elements: [JSONValue] = []
        while true {
            let token = try scanner.next()
            if token == .endArray { return elements }
            elements.append(try JSONValue(token, of: &scanner, most))
        }
    }

    private static func members(of scanner: inout JSONScanner, _ most: Int) throws(ByteError) -> JSONObject {
        var members: [(String, JSONValue)] = []
        while try scanner.next() == .name {
            guard members.count < most else {
                throw ByteError(expected: "fewer members", offset: scanner.offset)
            }
            let name = scanner.text
            members.append((name, try JSONValue(try scanner.next(), of: &scanner, most)))
        }
        return JSONObject(members)
    }
}

// MARK: Writing

extension JSONValue {
    public func append(to writer: inout ByteWriter) {
        switch self {
        case .null: writer.append("null")
        case .bool(let flag): writer.append(flag ? "true" : "false")
        case .number(let digits): writer.append(digits)
        case .string(let text): JSONText.appendString(text, to: &writer)
        case .array(let elements): Self.append(elements, to: &writer)
        case .object(let object): object.append(to: &writer)
        }
    }

    private static func append(_ elements: [JSONValue], to writer: inout ByteWriter) {
        writer.append("[")
        for (index, element) in elements.enumerated() {
            if index > 0 { writer.append(",") }
            element.append(to: &writer)
        }
        writer.append("]")
    }

    public var bytes: [UInt8] {
        var writer = ByteWriter()
        append(to: &writer)
        return writer.copied()
    }

    public var text: String { String(decoding: bytes, as: UTF8.self) }
}

extension JSONObject {
    public func append(to writer: inout ByteWriter) {
        writer.append("{")
        for (index, member) in members.enumerated() {
            if index > 0 { writer.append(",") }
            JSONText.appendString(member.name, to: &writer)
            writer.append(":")
            member.value.append(to: &writer)
        }
        writer.append("}")
    }
}
