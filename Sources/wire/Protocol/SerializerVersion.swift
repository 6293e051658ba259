/// Version of the message format: version 1.0 writes objects, version 2.0 writes arrays.
public enum SerializerVersion: UInt8, Sendable, Hashable, CaseIterable {
    case v1 = 1
    case v2 = 2

    /// Reads the query parameter `vsn`. A missing parameter means 1.0.0. Accepts 1.0.N and 2.0.N with any last number
    /// N. Returns nil for any other value, and the hub then refuses the connection.
    public init?(vsn: String?) {
        guard let vsn else {
            self = .v1
            return
        }
        let numbers = vsn.utf8.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
        guard numbers.count == 3, numbers[1].elementsEqual("0".utf8), Self.isNumber(numbers[2]) else { return nil }
        switch String(numbers[0]) {
        case "1": self = .v1
        case "2": self = .v2
        default: return nil
        }
    }

    private static func isNumber(_ text: Substring.UTF8View) -> Bool {
        guard let first = text.first, text.allSatisfy({ $0 &- 48 < 10 }) else { return false }
        return first != UInt8(ascii: "0") || text.count == 1
    }
}
