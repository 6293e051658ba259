import Bytes

/// JSON object in a hub's answer, parsed only to the depth that commands need.
struct HubJSON {
    /// Members of the object by name: strings and numbers as text, `true` or `false`, and the JSON text of nested
    /// objects. In elements of `rows`, arrays too are JSON text.
    private(set) var members: [String: String] = [:]
    /// Elements of the array in the outer object; empty for an object inside it.
    private(set) var rows: [HubJSON] = []
    /// JSON of the object as received.
    private(set) var text = ""

    /// Parses an object; nil for other values.
    init?(_ bytes: [UInt8]) {
        guard let read = try? Self.read(bytes.rawBytes) else { return nil }
        self = read
    }

    private init() {}

    private static func read(_ bytes: RawSpan) throws(ByteError) -> HubJSON? {
        var scanner = JSONScanner(bytes)
        guard try scanner.next() == .beginObject else { return nil }
        let object = try object(&scanner, bytes, isOuter: true)
        return try scanner.next() == .end ? object : nil
    }

    /// Parses the rest of an object whose opening brace the scanner has read.
    /// - Parameter isOuter: true to parse an array in the object into `rows`.
    private static func object(
        _ scanner: inout JSONScanner, _ bytes: RawSpan, isOuter: Bool
    ) throws(ByteError) -> HubJSON {
        var found = HubJSON()
        let start = scanner.offset - 1
        while try scanner.next() == .name {
            let name = scanner.text
            let value = try scanner.next()
            switch value {
            case .string, .number: found.members[name] = scanner.text
            case .bool(let isTrue): found.members[name] = isTrue ? "true" : "false"
            case .null: break
            case .beginArray where isOuter:
                while try scanner.next() == .beginObject {
                    found.rows.append(try object(&scanner, bytes, isOuter: false))
                }
            default:
                let from = scanner.offset - 1
                try scanner.skip(value)
                found.members[name] = bytes.extracting(from..<scanner.offset).text
            }
        }
        found.text = bytes.extracting(start..<scanner.offset).text
        return found
    }
}
