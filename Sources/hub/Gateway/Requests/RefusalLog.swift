import Diagnostics
import Synchronization

/// Reason for refusing a client, as the hub's log distinguishes it.
enum ClientRefusal: Hashable, Sendable {
    case token(ProjectMetrics.TokenRefusal)
    case suspended
    case tooManyUsers
    case tooManyJoins
    /// The client asked for a protocol version that the hub does not know.
    case version
    case unknownHost
    /// The client was not refused: no project has its host name, and the project of the settings serves it.
    case unknownHostServed
}

/// Log lines about refused clients, for operators. Each reason has at most one line per interval, with the number of
/// refusals since the last line. Lines contain neither tokens nor claims. The metrics count all refusals.
final class RefusalLog: Sendable {
    private struct Said {
        /// Monotonic time of the last line, in nanoseconds.
        var at: UInt64
        /// Number of refusals since the last line.
        var since: UInt64 = 0
    }

    private let project: String?
    private let log: Log
    private let said = Mutex<[ClientRefusal: Said]>([:])

    /// Creates the log of a project's refusals.
    ///
    /// - Parameter project: name of the clients' project; nil if it is not known.
    init(project: String?, log: Log = .shared) {
        self.project = project
        self.log = log
    }

    /// Counts a refusal, and writes a line to the log if one is due.
    ///
    /// - Parameter host: host name that the client asked for, if the refusal is about it.
    func note(_ refusal: ClientRefusal, host: String? = nil, at now: UInt64) {
        guard let count = said.withLock({ Self.countToSay(of: refusal, &$0, at: now) }) else { return }
        var fields: [LogField] = []
        if let project { fields.append(.project(project)) }
        if case .token(let reason) = refusal { fields.append(.reason(reason.rawValue)) }
        if let host { fields.append(.host(HostText.shown(host))) }
        fields.append(.count(count))
        if let hint = refusal.hint { fields.append(.hint(hint)) }
        if refusal.isOperators { log.warning(refusal.sentence, fields) } else { log.info(refusal.sentence, fields) }
    }

    /// Counts a refusal. Returns the number of refusals since the last line, including this one; nil if no line is due.
    private static func countToSay(
        of refusal: ClientRefusal, _ said: inout [ClientRefusal: Said], at now: UInt64
    ) -> UInt64? {
        guard var last = said[refusal] else {
            said[refusal] = Said(at: now)
            return 1
        }
        last.since += 1
        defer { said[refusal] = last }
        guard now - min(now, last.at) >= Limits.refusalLineInterval.wholeNanoseconds else { return nil }
        defer { last = Said(at: now) }
        return last.since
    }
}

/// Host name from a client, made safe for a log line.
enum HostText {
    static func shown(_ host: String) -> String {
        let kept = host.utf8.prefix(Limits.shownHostBytes).map { isPlain($0) ? $0 : UInt8(ascii: "?") }
        return String(decoding: kept, as: UTF8.self) + (host.utf8.count > Limits.shownHostBytes ? "…" : "")
    }

    /// True if the byte may be part of a host name, an address or a port.
    private static func isPlain(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "-"), UInt8(ascii: "_"),
            UInt8(ascii: ":"), UInt8(ascii: "["), UInt8(ascii: "]"):
            true
        default: false
        }
    }
}

extension ClientRefusal {
    fileprivate var sentence: StaticString {
        switch self {
        case .token: "the hub refuses tokens of clients"
        case .suspended: "the hub refuses clients, because the project is suspended"
        case .tooManyUsers: "the hub refuses clients, because the project has reached its limit of users"
        case .tooManyJoins: "the hub refuses clients, because the project has reached its limit of joins per second"
        case .version: "the hub refuses clients, because they ask for an unknown version of the protocol"
        case .unknownHost: "the hub refuses clients, because no project has the host name that they ask for"
        case .unknownHostServed:
            "clients ask for a host name that no project has: the project of the settings serves them"
        }
    }

    /// True if the cause is a configuration that an operator must correct: the hub and its clients are configured
    /// differently.
    fileprivate var isOperators: Bool {
        switch self {
        case .token(let reason):
            switch reason {
            case .unknownKey, .badSignature, .wrongClaim, .wrongRole: true
            case .missing, .malformed, .expired, .notYetValid, .claimsMissing: false
            }
        case .tooManyUsers, .tooManyJoins, .unknownHost: true
        case .suspended, .version, .unknownHostServed: false
        }
    }

    fileprivate var hint: String? {
        switch self {
        case .token(let reason): reason.hint
        case .suspended: "an operator suspended the project: the operators' API can set 'suspend' to false"
        case .tooManyUsers: "raise max_concurrent_users"
        case .tooManyJoins: "raise max_joins_per_second"
        case .version: "the parameter vsn must be 1.0.0 or 2.0.0"
        case .unknownHost:
            "the first part of the host name must be a project's name; with unknown_hosts = 'main' the project of the "
                + "settings serves all others"
        case .unknownHostServed: "with unknown_hosts = 'refuse' the hub refuses them"
        }
    }
}

extension ProjectMetrics.TokenRefusal {
    fileprivate var hint: String {
        switch self {
        case .missing: "clients send their key as apikey, x-api-key or Authorization: Bearer"
        case .malformed: "what they send as their key is neither a token nor one of api_keys"
        case .unknownKey: "jwt_secret is not set, or jwks has no key of the token's algorithm and kid"
        case .badSignature: "the tokens were signed with another secret or key than those of jwt_secret and jwks"
        case .expired: "clients must renew their tokens; or a clock is wrong"
        case .notYetValid: "a clock is wrong, here or where tokens are signed"
        case .wrongClaim:
            "a claim has a value that jwt_claim_validators does not allow, or a time in the token is not a number"
        case .wrongRole: "allowed_roles lists the roles that tokens may name"
        case .claimsMissing: "a token needs role and exp"
        }
    }
}
