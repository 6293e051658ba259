import Foundation

/// A row as the server sent it: values by column name. `decode` converts a row to any `Decodable` type. A key matches
/// its column in the spellings `owner_id`, `ownerId` and `ownerID`.
public struct RowImage: Sendable, Hashable {
    /// Values by column name.
    public var values: [String: JSONValue]

    /// Creates an image from values by column name.
    public init(_ values: [String: JSONValue]) { self.values = values }

    /// Value of a column; nil if the image does not have the column.
    public subscript(column: String) -> JSONValue? { values[column] }

    /// Decodes the row as a value of the app's type.
    ///
    /// - Throws: `DecodingError` if the row does not fit the type. The error never contains the row's values.
    public func decode<Value: Decodable>(_ type: Value.Type = Value.self) throws -> Value {
        try RowDecoder(.object(values), []).value(type)
    }

    /// Decodes the value of one column.
    public func decode<Value: Decodable>(_ type: Value.Type = Value.self, column: String) throws -> Value {
        guard let value = values[column] else {
            throw DecodingError.keyNotFound(
                Name(column), .init(codingPath: [], debugDescription: "the row has no \(column)"))
        }
        return try RowDecoder(value, [Name(column)]).value(type)
    }
}

/// A number with all its digits, for values of type `numeric` that `Decimal` cannot hold.
public struct PostgresNumeric: Sendable, Hashable, Codable, CustomStringConvertible {
    /// The number as PostgreSQL writes it.
    public let digits: String

    /// Creates a number from its digits.
    public init(digits: String) { self.digits = digits }

    /// The number as a `Decimal`, which rounds to 38 digits; nil if the digits are not a number.
    ///
    /// - Complexity: O(*n*), where *n* is the number of digits.
    public var decimal: Decimal? { Decimal(string: digits) }
    /// The `Double` nearest to the number; NaN if the digits are not a number.
    ///
    /// - Complexity: O(*n*), where *n* is the number of digits.
    public var double: Double { Double(digits) ?? .nan }
    /// The digits.
    public var description: String { digits }
}

struct Name: CodingKey, CustomStringConvertible {
    let stringValue: String
    let intValue: Int?

    init(_ name: String) { (stringValue, intValue) = (name, nil) }
    init(_ index: Int) { (stringValue, intValue) = ("\(index)", index) }
    init?(stringValue: String) { self.init(stringValue) }
    init?(intValue: Int) { self.init(intValue) }

    var description: String { stringValue }

    /// Returns a name in the form by which names are compared: `ownerID`, `ownerId` and `owner_id` give `ownerid`.
    static func squashed(_ name: String) -> String { name.replacing("_", with: "").lowercased() }

    /// Returns a name in the usual spelling of columns: `ownerID` and `ownerId` become `owner_id`.
    static func snakeCased(_ name: String) -> String {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(name.utf8.count + 4)
        var wasLower = false
        for byte in name.utf8 {
            let isUpper = (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(byte)
            if isUpper, wasLower { bytes.append(UInt8(ascii: "_")) }
            bytes.append(isUpper ? byte | 0x20 : byte)
            wasLower = !isUpper
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}

/// Decoder of values of PostgreSQL's types from the JSON that the server sends.
struct RowDecoder: Decoder {
    let json: JSONValue
    let codingPath: [any CodingKey]
    var userInfo: [CodingUserInfoKey: Any] { [:] }

    init(_ json: JSONValue, _ path: [any CodingKey]) {
        self.json = json
        codingPath = path
    }

    func container<Key: CodingKey>(keyedBy type: Key.Type) throws -> KeyedDecodingContainer<Key> {
        guard case .object(let members) = json else { throw mismatch([String: JSONValue].self) }
        return KeyedDecodingContainer(Columns<Key>(members: members, codingPath: codingPath))
    }

    func unkeyedContainer() throws -> any UnkeyedDecodingContainer {
        guard case .array(let items) = json else { throw mismatch([JSONValue].self) }
        return Items(items: items, codingPath: codingPath)
    }

    func singleValueContainer() throws -> any SingleValueDecodingContainer { Single(decoder: self) }

    /// Returns an error that states the expected type and its place in the row. It never contains a value of the row.
    func mismatch(_ type: Any.Type) -> DecodingError {
        .typeMismatch(type, .init(codingPath: codingPath, debugDescription: "expected \(type), found \(json.kind)"))
    }

    /// Returns a text about a decoding error: the expected type and its place in the row. It never contains a value of
    /// the row.
    static func reason(_ error: any Error) -> String {
        switch error {
        case DecodingError.keyNotFound(_, let context), DecodingError.typeMismatch(_, let context),
            DecodingError.valueNotFound(_, let context), DecodingError.dataCorrupted(let context):
            (context.codingPath.map(\.stringValue) + [context.debugDescription]).joined(separator: ": ")
        default: "\(type(of: error))"
        }
    }

    func value<Value: Decodable>(_ type: Value.Type) throws -> Value {
        if let value = Self.special(type, json) { return value }
        guard !Self.isSpecial(type) else { throw mismatch(type) }
        return try Value(from: self)
    }

    /// True for types that the decoder converts by its own rules, such as dates and numbers.
    private static func isSpecial(_ type: Any.Type) -> Bool {
        type == UUID.self || type == Date.self || type == Decimal.self || type == PostgresNumeric.self
            || type == Data.self
            || type == URL.self
    }

    /// Returns a value of a type with its own decoding rules. Nil for other types, and for JSON that does not fit the
    /// type.
    fileprivate static func special<Value>(_ type: Value.Type, _ json: JSONValue) -> Value? {
        if type == UUID.self { return json.text.flatMap { UUID(uuidString: $0) } as? Value }
        if type == Date.self { return json.text.flatMap(PostgresTime.date) as? Value }
        if type == Decimal.self { return json.digits.flatMap { Decimal(string: $0) } as? Value }
        if type == PostgresNumeric.self { return json.digits.map { PostgresNumeric(digits: $0) } as? Value }
        if type == Data.self { return json.text.flatMap(bytes) as? Value }
        if type == URL.self { return json.text.flatMap { URL(string: $0) } as? Value }
        if type == JSONValue.self { return json as? Value }
        return nil
    }

    /// Decodes `bytea` from hexadecimal digits, with or without `\x`.
    private static func bytes(_ text: String) -> Data? {
        let digits = Array((text.hasPrefix("\\x") ? text.dropFirst(2) : text[...]).utf8)
        guard digits.count.isMultiple(of: 2) else { return nil }
        var bytes = Data(capacity: digits.count / 2)
        for index in stride(from: 0, to: digits.count, by: 2) {
            guard let byte = UInt8(String(decoding: digits[index...index + 1], as: UTF8.self), radix: 16) else {
                return nil
            }
            bytes.append(byte)
        }
        return bytes
    }

    func integer<Value: FixedWidthInteger>(_ type: Value.Type) throws -> Value {
        guard let digits = json.digits, let value = Value(digits) else { throw mismatch(type) }
        return value
    }

    /// Decodes a floating-point number. JSON has no NaN or infinity, so the server sends null for them. Use an optional
    /// for a column that may be NULL.
    func float<Value: BinaryFloatingPoint & LosslessStringConvertible>(_ type: Value.Type) throws -> Value {
        if json.isNull { return .nan }
        guard let digits = json.digits, let value = Value(digits) else { throw mismatch(type) }
        return value
    }
}

extension JSONValue {
    /// Digits of a number, or of a string that contains a number; nil for other values.
    fileprivate var digits: String? {
        switch self {
        case .number(let digits): digits
        case .string(let text) where Double(text) != nil: text
        default: nil
        }
    }

    fileprivate var kind: String {
        switch self {
        case .null: "NULL"
        case .bool: "a boolean"
        case .number: "a number"
        case .string: "a text"
        case .array: "an array"
        case .object: "an object"
        }
    }
}

private struct Columns<Key: CodingKey>: KeyedDecodingContainerProtocol {
    let members: [String: JSONValue]
    let codingPath: [any CodingKey]

    var allKeys: [Key] { members.keys.compactMap { Key(stringValue: $0) } }

    private func member(_ key: Key) -> JSONValue? {
        if let value = members[key.stringValue] ?? members[Name.snakeCased(key.stringValue)] { return value }
        let squashed = Name.squashed(key.stringValue)
        return members.first { Name.squashed($0.key) == squashed }?.value
    }

    private func decoder(_ key: Key) throws -> RowDecoder {
        guard let value = member(key) else {
            throw DecodingError.keyNotFound(
                key, .init(codingPath: codingPath, debugDescription: "the row has no \(key.stringValue)"))
        }
        return RowDecoder(value, codingPath + [key])
    }

    func contains(_ key: Key) -> Bool { member(key) != nil }
    func decodeNil(forKey key: Key) throws -> Bool { member(key)?.isNull ?? true }
    // Only errors use the coding path, so it is built only for an error.
    func decode(_ type: Bool.Type, forKey key: Key) throws -> Bool {
        try member(key)?.bool ?? Single(decoder: decoder(key)).decode(type)
    }
    func decode(_ type: String.Type, forKey key: Key) throws -> String {
        try member(key)?.text ?? Single(decoder: decoder(key)).decode(type)
    }
    func decode(_ type: Double.Type, forKey key: Key) throws -> Double { try decoder(key).float(type) }
    func decode(_ type: Float.Type, forKey key: Key) throws -> Float { try decoder(key).float(type) }
    func decode(_ type: Int.Type, forKey key: Key) throws -> Int { try integer(type, key) }
    func decode(_ type: Int8.Type, forKey key: Key) throws -> Int8 { try integer(type, key) }
    func decode(_ type: Int16.Type, forKey key: Key) throws -> Int16 { try integer(type, key) }
    func decode(_ type: Int32.Type, forKey key: Key) throws -> Int32 { try integer(type, key) }
    func decode(_ type: Int64.Type, forKey key: Key) throws -> Int64 { try integer(type, key) }
    func decode(_ type: UInt.Type, forKey key: Key) throws -> UInt { try integer(type, key) }
    func decode(_ type: UInt8.Type, forKey key: Key) throws -> UInt8 { try integer(type, key) }
    func decode(_ type: UInt16.Type, forKey key: Key) throws -> UInt16 { try integer(type, key) }
    func decode(_ type: UInt32.Type, forKey key: Key) throws -> UInt32 { try integer(type, key) }
    func decode(_ type: UInt64.Type, forKey key: Key) throws -> UInt64 { try integer(type, key) }
    func decode<T: Decodable>(_ type: T.Type, forKey key: Key) throws -> T {
        try member(key).flatMap { RowDecoder.special(type, $0) } ?? decoder(key).value(type)
    }

    private func integer<Value: FixedWidthInteger>(_ type: Value.Type, _ key: Key) throws -> Value {
        if case .number(let digits) = member(key), let value = Value(digits) { return value }
        return try decoder(key).integer(type)
    }

    func nestedContainer<Nested: CodingKey>(
        keyedBy type: Nested.Type, forKey key: Key
    ) throws -> KeyedDecodingContainer<Nested> {
        try decoder(key).container(keyedBy: type)
    }

    func nestedUnkeyedContainer(forKey key: Key) throws -> any UnkeyedDecodingContainer {
        try decoder(key).unkeyedContainer()
    }

    func superDecoder() throws -> any Decoder { RowDecoder(.object(members), codingPath) }
    func superDecoder(forKey key: Key) throws -> any Decoder { try decoder(key) }
}

private struct Items: UnkeyedDecodingContainer {
    let items: [JSONValue]
    let codingPath: [any CodingKey]
    private(set) var currentIndex = 0

    init(items: [JSONValue], codingPath: [any CodingKey]) {
        self.items = items
        self.codingPath = codingPath
    }

    var count: Int? { items.count }
    var isAtEnd: Bool { currentIndex >= items.count }

    private mutating func next() throws -> RowDecoder {
        guard !isAtEnd else {
            throw DecodingError.valueNotFound(
                JSONValue.self, .init(codingPath: codingPath, debugDescription: "the array has no more"))
        }
        defer { currentIndex += 1 }
        return RowDecoder(items[currentIndex], codingPath + [Name(currentIndex)])
    }

    mutating func decodeNil() throws -> Bool {
        guard !isAtEnd, items[currentIndex].isNull else { return false }
        currentIndex += 1
        return true
    }

    mutating func decode<T: Decodable>(_ type: T.Type) throws -> T { try next().value(type) }

    mutating func nestedContainer<Nested: CodingKey>(keyedBy type: Nested.Type) throws -> KeyedDecodingContainer<Nested>
    {
        try next().container(keyedBy: type)
    }

    mutating func nestedUnkeyedContainer() throws -> any UnkeyedDecodingContainer { try next().unkeyedContainer() }
    mutating func superDecoder() throws -> any Decoder { try next() }
}

private struct Single: SingleValueDecodingContainer {
    let decoder: RowDecoder
    var codingPath: [any CodingKey] { decoder.codingPath }

    func decodeNil() -> Bool { decoder.json.isNull }

    func decode(_ type: Bool.Type) throws -> Bool {
        guard let value = decoder.json.bool else { throw decoder.mismatch(type) }
        return value
    }

    func decode(_ type: String.Type) throws -> String {
        guard let text = decoder.json.text else { throw decoder.mismatch(type) }
        return text
    }

    func decode(_ type: Double.Type) throws -> Double { try decoder.float(type) }
    func decode(_ type: Float.Type) throws -> Float { try decoder.float(type) }
    func decode(_ type: Int.Type) throws -> Int { try decoder.integer(type) }
    func decode(_ type: Int8.Type) throws -> Int8 { try decoder.integer(type) }
    func decode(_ type: Int16.Type) throws -> Int16 { try decoder.integer(type) }
    func decode(_ type: Int32.Type) throws -> Int32 { try decoder.integer(type) }
    func decode(_ type: Int64.Type) throws -> Int64 { try decoder.integer(type) }
    func decode(_ type: UInt.Type) throws -> UInt { try decoder.integer(type) }
    func decode(_ type: UInt8.Type) throws -> UInt8 { try decoder.integer(type) }
    func decode(_ type: UInt16.Type) throws -> UInt16 { try decoder.integer(type) }
    func decode(_ type: UInt32.Type) throws -> UInt32 { try decoder.integer(type) }
    func decode(_ type: UInt64.Type) throws -> UInt64 { try decoder.integer(type) }

    func decode<T: Decodable>(_ type: T.Type) throws -> T { try decoder.value(type) }
}

extension JSONValue: Codable {
    /// Decodes a value. A decoder of another library may lose digits of numbers.
    public init(from decoder: any Decoder) throws {
        if let own = decoder as? RowDecoder {
            self = own.json
            return
        }
        let container = try decoder.singleValueContainer()
        if container.decodeNil() {
            self = .null
        } else if let value = try? container.decode(Bool.self) {
            self = .bool(value)
        } else if let value = try? container.decode(Int64.self) {
            self = .number(String(value))
        } else if let value = try? container.decode(Decimal.self) {
            self = .number("\(value)")
        } else if let text = try? container.decode(String.self) {
            self = .string(text)
        } else if let items = try? container.decode([JSONValue].self) {
            self = .array(items)
        } else {
            self = .object(try container.decode([String: JSONValue].self))
        }
    }

    /// Encodes the value with an encoder of JSON.
    public func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        switch self {
        case .null: try container.encodeNil()
        case .bool(let value): try container.encode(value)
        case .number(let digits):
            if let whole = Int64(digits) {
                try container.encode(whole)
            } else {
                try container.encode(Decimal(string: digits) ?? .nan)
            }
        case .string(let text): try container.encode(text)
        case .array(let items): try container.encode(items)
        case .object(let members): try container.encode(members)
        }
    }
}
