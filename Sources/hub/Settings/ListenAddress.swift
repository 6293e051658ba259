/// Address on which the hub listens: a host name or IP address, and a port. With port 0 the kernel chooses a free one.
public struct ListenAddress: Sendable, Equatable, CustomStringConvertible {
    public let host: String
    public let port: UInt16

    public init(host: String, port: UInt16) {
        self.host = host
        self.port = port
    }

    /// Parses `host:port`. An IPv6 address must be in brackets, because it contains colons.
    public init?(_ text: String) {
        guard let colon = text.lastIndex(of: ":"), let port = Self.port(text[text.index(after: colon)...]) else {
            return nil
        }
        let host = text[..<colon]
        if host.hasPrefix("[") {
            guard host.hasSuffix("]"), host.contains(":") else { return nil }
            self.init(host: String(host.dropFirst().dropLast()), port: port)
        } else {
            guard !host.isEmpty, host.utf8.allSatisfy(Self.isHostByte) else { return nil }
            self.init(host: String(host), port: port)
        }
    }

    public var description: String {
        host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)"
    }

    public static func port(_ text: Substring) -> UInt16? {
        text.utf8.allSatisfy { $0 >= UInt8(ascii: "0") && $0 <= UInt8(ascii: "9") } ? UInt16(text) : nil
    }

    private static func isHostByte(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"): true
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "-"), UInt8(ascii: "_"): true
        default: false
        }
    }
}
