import Bytes

/// Addresses of a cluster's NATS servers, `nats://host:port` or `tls://host:port` separated by commas, with the login in
/// them, if there is one.
///
/// A text that this parser cannot read is refused, because otherwise parts of a password might be shown.
public struct ClusterAddresses: Sendable, Equatable {
    public struct Server: Sendable, Equatable {
        public let host: String
        public let port: UInt16

        /// Host and port as text. An IPv6 address is in brackets.
        var place: String { ListenAddress(host: host, port: port).description }
    }

    /// Login in an address. NATS reads a name without a password as a token.
    enum Login: Sendable, Equatable {
        case user(String, password: Secret)
        case token(Secret)
    }

    static let maximumServers = 64
    private static let usualPort: UInt16 = 4222

    public let servers: [Server]
    /// True if connections to the servers are encrypted (`tls://`).
    public let isEncrypted: Bool
    /// Login that the addresses contain; nil if there is none.
    let login: Login?
    /// Text with the secrets replaced by asterisks.
    let redacted: String

    /// Parses the addresses; an empty text has none. Returns nil if one is not valid, if only some are encrypted, or if
    /// they contain different logins.
    init?(_ text: String) {
        let parts = text.isEmpty ? [] : text.split(separator: ",", omittingEmptySubsequences: false)
        let addresses = parts.compactMap { Address(Self.trimmed($0)) }
        guard addresses.count == parts.count, parts.count <= Self.maximumServers,
            Set(addresses.map(\.isEncrypted)).count <= 1
        else { return nil }
        let logins = addresses.compactMap(\.login)
        guard logins.allSatisfy({ $0 == logins.first }) else { return nil }
        servers = addresses.map(\.server)
        isEncrypted = addresses.first?.isEncrypted ?? false
        login = logins.first
        redacted = addresses.map(\.redacted).joined(separator: ",")
    }

    private static func trimmed(_ text: Substring) -> Substring {
        let start = text.drop { $0 == " " }
        return start.lastIndex { $0 != " " }.map { start[...$0] } ?? ""
    }

    /// URLs of the servers without a login.
    public var urls: [String] { servers.map { (isEncrypted ? "tls://" : "nats://") + $0.place } }

    /// One address, taken apart.
    private struct Address {
        let server: Server
        let isEncrypted: Bool
        let login: Login?
        let redacted: String

        init?(_ text: Substring) {
            guard let scheme = ["nats://", "tls://"].first(where: { text.hasPrefix($0) }) else { return nil }
            isEncrypted = scheme == "tls://"
            var rest = text.dropFirst(scheme.count)
            var shown = scheme
            // An @ in a password must be encoded: with two of them, a part of the password could pass for the host.
            if let end = rest.firstIndex(of: "@") {
                guard let login = Self.login(rest[..<end]) else { return nil }
                self.login = login
                if case .user(let name, _) = login { shown += PercentText.encoded(name) + ":" }
                shown += Secret.mask + "@"
                rest = rest[rest.index(after: end)...]
            } else {
                login = nil
            }
            guard let server = Self.server(rest.hasSuffix("/") ? rest.dropLast() : rest) else { return nil }
            self.server = server
            redacted = shown + server.place
        }

        private static func login(_ text: Substring) -> Login? {
            guard let colon = text.firstIndex(of: ":") else {
                guard let token = decoded(text), !token.isEmpty else { return nil }
                return .token(Secret(token))
            }
            guard let name = decoded(text[..<colon]), !name.isEmpty,
                let password = decoded(text[text.index(after: colon)...]), !password.isEmpty
            else { return nil }
            return .user(name, password: Secret(password))
        }

        /// Returns the text without percent encoding; nil if the encoding is not valid or hides a control character.
        private static func decoded(_ text: Substring) -> String? {
            var bytes: [UInt8] = []
            var rest = text.utf8[...]
            while let byte = rest.popFirst() {
                guard byte == UInt8(ascii: "%") else {
                    bytes.append(byte)
                    continue
                }
                guard let digits = String(rest.prefix(2)), digits.utf8.count == 2, digits.allSatisfy(\.isHexDigit),
                    let decoded = UInt8(digits, radix: 16)
                else { return nil }
                bytes.append(decoded)
                rest = rest.dropFirst(2)
            }
            guard bytes.allSatisfy({ $0 > 0x20 && $0 != 0x7f }) else { return nil }
            return String(validating: bytes, as: UTF8.self)
        }

        private static func server(_ text: Substring) -> Server? {
            let hasPort = text.hasPrefix("[") ? text.contains("]:") : text.contains(":")
            let whole = hasPort ? String(text) : "\(text):\(ClusterAddresses.usualPort)"
            guard let address = ListenAddress(whole), address.port > 0 else { return nil }
            return Server(host: address.host, port: address.port)
        }
    }
}

/// Addresses of NATS servers' monitoring ports, `http://host:port` or `https://host:port` separated by commas.
public struct MonitorAddresses: Sendable, Equatable {
    static let usualPort: UInt16 = 8222

    public let urls: [String]

    /// Parses the addresses. Returns nil if there is none, or one is not valid.
    init?(_ text: String) {
        let parts = text.split(separator: ",", omittingEmptySubsequences: false)
        let urls = parts.compactMap { Self.url($0.drop { $0 == " " }) }
        guard !text.isEmpty, urls.count == parts.count, parts.count <= ClusterAddresses.maximumServers else {
            return nil
        }
        self.urls = urls
    }

    private static func url(_ text: Substring) -> String? {
        guard let scheme = ["http://", "https://"].first(where: { text.hasPrefix($0) }) else { return nil }
        var rest = text.dropFirst(scheme.count)
        if rest.hasSuffix("/") { rest = rest.dropLast() }
        let hasPort = rest.hasPrefix("[") ? rest.contains("]:") : rest.contains(":")
        guard let address = ListenAddress(hasPort ? String(rest) : "\(rest):\(usualPort)"), address.port > 0 else {
            return nil
        }
        return scheme + address.description
    }
}
