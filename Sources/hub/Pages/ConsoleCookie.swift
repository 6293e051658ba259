import Bytes
import Crypto
import Settings

/// Session of an operator in the web console. The browser keeps it as a signed cookie; the hub keeps nothing of it.
struct ConsoleSession: Equatable, Sendable {
    /// Random name, by which a sign-out ends the session in all copies of its cookie.
    let id: String
    let subject: String
    let role: OperatorRole
    /// Times in Unix seconds: of the sign-in, of the request after which the cookie was written, and of the end.
    let begun: Int64
    var seen: Int64
    let end: Int64
    /// Digest of the token with which the operator signed in.
    let token: [UInt8]

    /// Longest time between two requests of a session.
    static let idle: Int64 = 30 * 60
    /// Longest session.
    static let longest: Int64 = 8 * 3600
    /// Age of a cookie after which the hub writes a new one.
    static let renewal: Int64 = 60
    /// Largest difference between this machine's clock and that of another node that wrote the cookie.
    private static let skew: Int64 = 60

    init(_ operator: Operator, token: [UInt8], at now: Int64) {
        id = Base64URL.encode(Secrets.randomBytes(16).span)
        (subject, role) = (`operator`.subject, `operator`.role)
        (begun, seen) = (now, now)
        end = min(now + Self.longest, `operator`.expiry ?? .max)
        self.token = token
    }

    private init(
        id: String, subject: String, role: OperatorRole, begun: Int64, seen: Int64, end: Int64, token: [UInt8]
    ) {
        (self.id, self.subject, self.role, self.begun) = (id, subject, role, begun)
        (self.seen, self.end, self.token) = (seen, end, token)
    }

    var `operator`: Operator { Operator(subject: subject, role: role, expiry: end) }

    /// True if the session has ended, because its time is over or because it was idle for too long.
    func hasEnded(at now: Int64) -> Bool {
        now >= end || now >= begun + Self.longest || now - seen >= Self.idle || seen > now + Self.skew
    }

    // MARK: The signed form

    private static let version = "1"

    /// Returns the value of the cookie, signed with the key.
    func signed(with key: [UInt8]) -> String {
        let fields = [
            Self.version, id, role.rawValue, String(begun), String(seen), String(end),
            Base64URL.encode(token.span), Base64URL.encode(Array(subject.utf8).span),
        ]
        let text = fields.joined(separator: ".")
        return text + "." + Base64URL.encode(Self.code(of: text, key).span)
    }

    /// Reads a cookie's value; nil if its signature is wrong, or if it is of another version.
    init?(signed text: String, with key: [UInt8]) {
        guard text.utf8.count <= 2048, let dot = text.lastIndex(of: "."),
            let code = Base64URL.decode(text[text.index(after: dot)...].utf8)
        else { return nil }
        guard Secrets.areEqual(code.span, Self.code(of: String(text[..<dot]), key).span) else { return nil }
        let fields = text[..<dot].split(separator: ".", omittingEmptySubsequences: false).map(String.init)
        guard fields.count == 8, fields[0] == Self.version, let role = OperatorRole(rawValue: fields[2]),
            let begun = Int64(fields[3]), let seen = Int64(fields[4]), let end = Int64(fields[5]),
            let token = Base64URL.decode(fields[6].utf8),
            let subject = Base64URL.decode(fields[7].utf8)
        else { return nil }
        self.init(
            id: fields[1], subject: String(decoding: subject, as: UTF8.self), role: role, begun: begun, seen: seen,
            end: end, token: token)
    }

    private static func code(of text: String, _ key: [UInt8]) -> [UInt8] {
        SHA256.authenticationCode(of: Array(text.utf8).span, key: key.span)
    }
}
