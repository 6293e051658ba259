import Auth
import Bytes
import Crypto
import Diagnostics
import WebSocket

/// Check of operators' requests. A request passes with a token that is signed with one of the operators' secrets, has
/// valid dates, and was not withdrawn. If a maximum validity is set, the token must have an expiry. The gate also reads
/// the operator's name and role from the token.
///
/// In the reference server's setup, the operators' secret is also that of clients' tokens, so every client has a token
/// signed with it. With such a secret, a token with a database role passes only if this is the service role; for health
/// checks, any role passes.
public struct OperatorGate: Sendable {
    fileprivate static let roles: Set = ["service_role", "supabase_admin"]

    private let keys: [OperatorKey]
    private let withdrawn: Set<String>
    private let rule: OperatorRoleRule

    /// Creates a gate from the settings that concern operators.
    ///
    /// - Parameters:
    ///   - secrets: secrets of operators; with none, no request passes.
    ///   - longest: maximum validity of a token, which must then have an expiry; nil if it need not have one.
    ///   - withdrawn: tokens that are refused, separated by commas.
    ///   - clients: secret of clients' tokens.
    init(
        _ secrets: [Secret], within longest: Duration? = Limits.longestOperatorToken, withdrawn: Secret?,
        clients: Secret?, rule: OperatorRoleRule = OperatorRoleRule()
    ) {
        keys = secrets.map { secret in
            OperatorKey(
                verifier: TokenVerifier(secret: secret.revealed, maximumBytes: Limits.maximumTokenBytes),
                longest: longest?.components.seconds, isOfClients: secret == clients)
        }
        let tokens = withdrawn?.revealed.split(separator: ",") ?? []
        self.withdrawn = Set(tokens.map { String($0).filter { !$0.isWhitespace } })
        self.rule = rule
    }

    /// Gate that admits nobody.
    public static let nobody = OperatorGate([], withdrawn: nil, clients: nil)

    /// True if operators have at least one secret. Without one, no request passes.
    public var hasOperators: Bool { !keys.isEmpty }

    /// Purpose of an operator's request.
    public enum Concern: Sendable {
        case everything
        /// Health check, for which the reference server's setup uses a client's token.
        case health
    }

    /// Result of checking a request.
    public enum Admission: Sendable, Equatable {
        case admitted(Operator)
        /// An operator's token whose claim names no role that exists. The text states this and contains nothing of the
        /// token.
        case noRole(String)
        case refused
    }

    /// Digest of the request's token, by which a session in the web console remembers the token; nil if the request has
    /// none.
    public static func digest(_ request: HTTPRequest) -> [UInt8]? {
        guard let header = request.header("authorization"), header.hasPrefix("Bearer ") else { return nil }
        return digest(String(header.dropFirst("Bearer ".count)))
    }

    private static func digest(_ token: String) -> [UInt8] {
        SHA256.digest(of: Array(token.filter { !$0.isWhitespace }.utf8).span)
    }

    /// True if the token with this digest was withdrawn.
    public func isWithdrawn(digest: [UInt8]) -> Bool { withdrawn.contains { Self.digest($0) == digest } }

    /// True if the request has a valid token, without regard to the operator's role.
    public func admits(_ request: HTTPRequest, for concern: Concern = .everything, at now: Int64) -> Bool {
        claims(request, for: concern, at: now) != nil
    }

    /// Returns the operator who sent the request, with the role, or the reason for refusing the request.
    public func admission(_ request: HTTPRequest, at now: Int64) -> Admission {
        guard let claims = claims(request, for: .everything, at: now) else { return .refused }
        switch claims.named {
        case .missing:
            guard let role = rule.withoutClaim else {
                return .noRole("the token has no claim \(rule.claim), which names the operator's role")
            }
            return .admitted(Operator(subject: claims.subject, role: role, expiry: claims.expiry))
        case .text(let name):
            guard let role = OperatorRole(rawValue: name) else { return .noRole(noSuchRole) }
            return .admitted(Operator(subject: claims.subject, role: role, expiry: claims.expiry))
        case .other: return .noRole(noSuchRole)
        }
    }

    private var noSuchRole: String {
        "the token's claim \(rule.claim) is none of \(OperatorRole.allCases.map(\.rawValue).joined(separator: ", "))"
    }

    /// Returns the claims of the request's token; nil if it may not pass. The scheme of its header must be exactly
    /// `Bearer`.
    private func claims(_ request: HTTPRequest, for concern: Concern, at now: Int64) -> OperatorClaims? {
        guard let header = request.header("authorization"), header.hasPrefix("Bearer ") else { return nil }
        let text = String(header.dropFirst("Bearer ".count))
        guard !withdrawn.contains(text.filter { !$0.isWhitespace }) else { return nil }
        let token = Array(text.utf8)
        return keys.lazy.compactMap { $0.claims(token, naming: rule.claim, for: concern, at: now) }.first
    }
}

/// Secret of operators, with the rules for tokens that are signed with it.
private struct OperatorKey: Sendable {
    let verifier: TokenVerifier
    /// Maximum validity of a token in seconds; nil if it need not have an expiry.
    let longest: Int64?
    /// True if clients' tokens are signed with the same secret.
    let isOfClients: Bool

    func claims(
        _ token: [UInt8], naming claim: String, for concern: OperatorGate.Concern, at now: Int64
    ) -> OperatorClaims? {
        do throws(TokenError) {
            let claims = try verifier.operatorClaims(token.rawBytes, naming: claim, endingWithin: longest, at: now)
            guard isOfClients, concern == .everything, let role = claims.role else { return claims }
            return OperatorGate.roles.contains(role) ? claims : nil
        } catch {
            return nil
        }
    }
}
