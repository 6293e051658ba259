import Bytes

/// What hubs answer, read as far as commands need it.
struct HubJSON {
    /// The object's members that are no objects and no arrays, and the texts of those that are arrays of objects.
    private(set) var members: [String: String] = [:]
    private(set) var rows: [HubJSON] = []
    /// As it came.
    private(set) var text = ""

    /// Nil for what is no object.
    init?(_ bytes: [UInt8]) {
        // SAFETY: any byte is a valid UInt8, and the array outlives the call.
        guard let read = try? Self.read(unsafe bytes.span.bytes) else { return nil }
        self = read
    }

    private init() {}

    private static func read(_ bytes: RawSpan) throws(ByteError) -> HubJSON? {
        var scanner = JSONScanner(bytes)
        guard try scanner.next() == .beginObject else { return nil }
        let object = try object(&scanner, bytes, isOuter: true)
        return try scanner.next() == .end ? object : nil
    }

    /// Behind its beginning.
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
