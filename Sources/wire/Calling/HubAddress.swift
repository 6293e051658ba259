/// Address of a hub: `https://host:port`, optionally with a path before the hub's own paths.
public struct HubAddress: Sendable, Hashable {
    public let host: String
    public let port: UInt16
    public let isSecure: Bool
    /// Path prefix of the hub's interface: `/realtime/v1/api/` unless the address has a path.
    private(set) var path: String

    /// Parses an address; nil if the text is not valid.
    public init?(_ text: String) {
        guard let scheme = ["https://", "http://"].first(where: { text.hasPrefix($0) }) else { return nil }
        isSecure = scheme == "https://"
        let rest = text.dropFirst(scheme.count)
        let authority = rest.prefix { $0 != "/" }
        var path = String(rest.dropFirst(authority.count))
        let isQuoted = authority.hasPrefix("[")
        let host = isQuoted ? authority.dropFirst().prefix { $0 != "]" } : authority.prefix { $0 != ":" }
        let port = authority.dropFirst(host.count + (isQuoted ? 2 : 0))
        guard !host.isEmpty, host.utf8.allSatisfy({ $0 > 0x20 && $0 != 0x40 }), port.isEmpty || port.hasPrefix(":"),
            let number = port.isEmpty ? (isSecure ? 443 : 80) : UInt16(port.dropFirst()),
            path.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f })
        else { return nil }
        if path.isEmpty || path == "/" { path = "/realtime/v1/api" }
        self.host = String(host)
        self.port = number
        self.path = path.hasSuffix("/") ? path : path + "/"
    }

    /// Address of the same server with the root as its path prefix, for servers that are no hubs.
    public var root: HubAddress {
        var address = self
        address.path = "/"
        return address
    }

    /// Host and port of the hub as text, `host:port`. An IPv6 address is in brackets.
    public var place: String { (host.contains(":") ? "[\(host)]" : host) + ":\(port)" }
}

extension HubAddress: CustomStringConvertible {
    public var description: String { (isSecure ? "https://" : "http://") + place }
}
