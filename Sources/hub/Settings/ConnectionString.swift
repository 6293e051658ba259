/// Address of a PostgreSQL database in libpq's form: a URL or `key=value` pairs ("Connection Strings" in libpq's
/// manual).
///
/// The hub parses the text only to find mistakes early and to show it without secrets. It connects with the text as
/// given. A text that this parser cannot read is refused, because otherwise parts of a password might be shown.
public struct ConnectionString: Sendable, Equatable {
    private let text: Secret

    /// Text with every secret replaced by asterisks.
    public let redacted: String

    public init?(_ text: String) {
        guard !text.utf8.contains(0), let redacted = Self.redact(text) else { return nil }
        self.text = Secret(text)
        self.redacted = redacted
    }

    public enum Encryption: Sendable, Equatable {
        /// Connections must be encrypted.
        case required
        /// The server's certificate is checked. The value is the path of the authority's certificate.
        case checked(against: String)
    }

    /// Creates an address from its parts, which the reference container has as separate variables.
    public init(
        host: String, port: UInt16, user: String, password: String?, database: String, encryption: Encryption? = nil
    ) {
        var pairs = [("host", host), ("port", String(port)), ("user", user), ("dbname", database)]
        if let password { pairs.append(("password", password)) }
        switch encryption {
        case .required: pairs.append(("sslmode", "require"))
        case .checked(let authority): pairs += [("sslmode", "verify-full"), ("sslrootcert", authority)]
        case nil: break
        }
        text = Secret(pairs.map { "\($0.0)=\(KeyValueConnection.quoted($0.1))" }.joined(separator: " "))
        redacted = KeyValueConnection.redacted(pairs)
    }

    /// Text with the password, only for libpq.
    public var revealed: String {
        text.revealed
    }

    /// Returns the text without its secrets; nil if it cannot be read. The scheme must be in lower case: RFC 3986
    /// allows any case, but libpq does not.
    private static func redact(_ text: String) -> String? {
        for scheme in ["postgresql://", "postgres://"] where text.hasPrefix(scheme) {
            return URLConnection(text.dropFirst(scheme.count)).map { scheme + $0.redacted }
        }
        return KeyValueConnection.pairs(text).map(KeyValueConnection.redacted)
    }

    /// True for parameters of libpq with secret values. The rule also covers names that later versions may add.
    static func isSecret(_ parameter: String) -> Bool {
        ["password", "secret", "key", "token"].contains { parameter.lowercased().contains($0) } && parameter != "sslkey"
    }
}

extension ConnectionString: CustomStringConvertible {
    public var description: String {
        redacted
    }
}

/// URL `[user[:password]@][host[:port],…][/database][?name=value&…]`, parsed as libpq's `conninfo_uri_parse_options`
/// does.
private struct URLConnection {
    let redacted: String

    init?(_ text: Substring) {
        var rest = text
        let credentials = Self.takeCredentials(&rest)
        let hosts = rest.prefix { $0 != "/" && $0 != "?" }
        rest = rest.dropFirst(hosts.count)
        let database = rest.prefix { $0 != "?" }
        let parameters = rest.dropFirst(database.count).dropFirst()

        guard Self.areHosts(hosts), Self.isDatabase(database), let shown = Self.redactedParameters(parameters) else {
            return nil
        }
        guard let credentials else {
            redacted = hosts + database + shown
            return
        }
        guard let shownCredentials = Self.redactedCredentials(credentials) else { return nil }
        redacted = shownCredentials + "@" + hosts + database + shown
    }

    /// Removes and returns the credentials, which end at the first `@`; nil if a `/` precedes it or there is none.
    private static func takeCredentials(_ rest: inout Substring) -> Substring? {
        guard let end = rest.firstIndex(where: { $0 == "@" || $0 == "/" }), rest[end] == "@" else { return nil }
        defer { rest = rest[rest.index(after: end)...] }
        return rest[..<end]
    }

    private static func redactedCredentials(_ credentials: Substring) -> String? {
        guard isEncoded(credentials) else { return nil }
        let user = credentials.prefix { $0 != ":" }
        return user.endIndex == credentials.endIndex ? String(user) : user + ":" + Secret.mask
    }

    private static func redactedParameters(_ parameters: Substring) -> String? {
        guard !parameters.isEmpty else { return "" }
        var shown: [String] = []
        for parameter in parameters.split(separator: "&", omittingEmptySubsequences: false) {
            let name = parameter.prefix { $0 != "=" }
            guard let plainName = decoded(name), name.endIndex != parameter.endIndex, isEncoded(parameter) else {
                return nil
            }
            shown.append(ConnectionString.isSecret(plainName) ? "\(name)=\(Secret.mask)" : String(parameter))
        }
        return "?" + shown.joined(separator: "&")
    }

    /// True if all hosts are valid. A host with an `@` is refused: the `@` may belong to a password that contains
    /// another one without `%40`.
    private static func areHosts(_ hosts: Substring) -> Bool {
        hosts.isEmpty || hosts.split(separator: ",", omittingEmptySubsequences: false).allSatisfy(isHost)
    }

    /// True if the database's name is valid. A name with an `@` is refused: in `postgres://user:12/34@host`, libpq
    /// reads `user` as the host and `34@host` as the database.
    private static func isDatabase(_ text: Substring) -> Bool {
        isEncoded(text) && !text.contains("@")
    }

    private static func isHost(_ text: Substring) -> Bool {
        let name = text.hasPrefix("[") ? text.prefix { $0 != "]" } + "]" : text.prefix { $0 != ":" }
        guard text.hasPrefix(name) else { return false }
        let port = text.dropFirst(name.count)
        let isPort = port.isEmpty || (port.first == ":" && isPortNumber(port.dropFirst()))
        return isPort && isEncoded(Substring(name)) && !name.contains { " @".contains($0) }
    }

    private static func isPortNumber(_ text: Substring) -> Bool {
        text.isEmpty || ListenAddress.port(text).map { $0 > 0 } ?? false
    }

    private static func isEncoded(_ text: Substring) -> Bool {
        decoded(text) != nil
    }

    /// Returns the text without percent encoding. Returns nil if a `%` is not followed by two hexadecimal digits, or if
    /// the result is not UTF-8.
    private static func decoded(_ text: Substring) -> String? {
        var bytes: [UInt8] = []
        var rest = text.utf8[...]
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "%") else {
                bytes.append(byte)
                continue
            }
            guard let digits = String(rest.prefix(2)), digits.allSatisfy(\.isHexDigit), digits.utf8.count == 2,
                let decoded = UInt8(digits, radix: 16), decoded != 0
            else { return nil }
            bytes.append(decoded)
            rest = rest.dropFirst(2)
        }
        return String(validating: bytes, as: UTF8.self)
    }
}

/// Pairs such as `host=localhost password='it\'s'`, parsed as libpq's `conninfo_parse` does. After a backslash, the
/// next character is literal, inside and outside of quotes.
private enum KeyValueConnection {
    typealias Pair = (name: String, value: String)

    static func pairs(_ text: String) -> [Pair]? {
        var rest = text.unicodeScalars[...]
        var pairs: [Pair] = []
        skipBlanks(&rest)
        while !rest.isEmpty {
            guard let name = takeName(&rest), let value = takeValue(&rest) else { return nil }
            pairs.append((name, value))
            skipBlanks(&rest)
        }
        return pairs.isEmpty ? nil : pairs
    }

    static func redacted(_ pairs: [Pair]) -> String {
        pairs.map { $0.name + "=" + (ConnectionString.isSecret($0.name) ? Secret.mask : shown($0.value)) }
            .joined(separator: " ")
    }

    static func quoted(_ value: String) -> String {
        "'" + value.map { $0 == "'" || $0 == "\\" ? "\\\($0)" : String($0) }.joined() + "'"
    }

    private static func shown(_ value: String) -> String {
        value.isEmpty || value.contains { $0.isWhitespace || $0 == "'" || $0 == "\\" } ? quoted(value) : value
    }

    private static func takeName(_ rest: inout Substring.UnicodeScalarView) -> String? {
        let name = rest.prefix { $0 == "_" || ("a"..."z").contains($0) }
        rest = rest.dropFirst(name.count)
        skipBlanks(&rest)
        guard !name.isEmpty, rest.popFirst() == "=" else { return nil }
        skipBlanks(&rest)
        return String(name)
    }

    private static func takeValue(_ rest: inout Substring.UnicodeScalarView) -> String? {
        let isQuoted = rest.first == "'"
        if isQuoted { rest.removeFirst() }
        var value = ""
        while let scalar = rest.first {
            if isQuoted ? scalar == "'" : isBlank(scalar) { break }
            rest.removeFirst()
            guard scalar == "\\" else {
                value.unicodeScalars.append(scalar)
                continue
            }
            if let escaped = rest.popFirst() { value.unicodeScalars.append(escaped) }
        }
        if isQuoted && rest.popFirst() != "'" { return nil }
        return value
    }

    private static func skipBlanks(_ rest: inout Substring.UnicodeScalarView) {
        rest = rest.drop(while: isBlank)
    }

    private static func isBlank(_ scalar: Unicode.Scalar) -> Bool {
        scalar == " " || (0x09...0x0D).contains(scalar.value)
    }
}
