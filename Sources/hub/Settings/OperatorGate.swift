import Auth
import Bytes
import Diagnostics
import WebSocket

/// Gate for operators' requests. A request passes with a token that is signed with one of the operators' secrets and is
/// not on the blocklist. The gate checks the signature and the dates only; the token must have an expiry.
///
/// In the reference's stack, an operators' secret is also the clients' secret, so that every client has a token signed
/// with it. Then a token with a role passes only if it is the service's role; for health, any role passes.
public struct OperatorGate: Sendable {
    fileprivate static let roles: Set = ["service_role", "supabase_admin"]

    private let keys: [OperatorKey]
    private let withdrawn: Set<String>

    /// Creates a gate from the settings that concern operators.
    ///
    /// - Parameters:
    ///   - secrets: secrets of operators; with none, no request passes.
    ///   - longest: maximum validity of a token, which must then have an expiry; nil if it need not have one.
    ///   - withdrawn: tokens that are refused, separated by commas.
    ///   - clients: secret of clients' tokens.
    init(
        _ secrets: [Secret], within longest: Duration? = Limits.longestOperatorToken, withdrawn: Secret?,
        clients: Secret?
    ) {
        keys = secrets.map { secret in
            OperatorKey(
                verifier: TokenVerifier(secret: secret.revealed, maximumBytes: Limits.maximumTokenBytes),
                longest: longest?.components.seconds, isOfClients: secret == clients)
        }
        let tokens = withdrawn?.revealed.split(separator: ",") ?? []
        self.withdrawn = Set(tokens.map { String($0).filter { !$0.isWhitespace } })
    }

    /// True if there is a secret of operators. Without one, no request passes.
    public var hasOperators: Bool { !keys.isEmpty }

    /// Purpose of an operator's request.
    public enum Concern: Sendable {
        case everything
        /// Health check of the reference's stack, which uses a client's token.
        case health
    }

    /// True if the request may pass. The scheme in its `Authorization` header must be exactly `Bearer`.
    public func admits(_ request: HTTPRequest, for concern: Concern = .everything, at now: Int64) -> Bool {
        guard let header = request.header("authorization"), header.hasPrefix("Bearer ") else { return false }
        let text = String(header.dropFirst("Bearer ".count))
        guard !withdrawn.contains(text.filter { !$0.isWhitespace }) else { return false }
        let token = Array(text.utf8)
        return keys.contains { $0.admits(token, for: concern, at: now) }
    }
}

/// Secret of operators, with the rules for tokens that are signed with it.
private struct OperatorKey: Sendable {
    let verifier: TokenVerifier
    /// Maximum validity of a token in seconds; nil if it need not have an expiry.
    let longest: Int64?
    /// True if the secret is also that of clients' tokens.
    let isOfClients: Bool

    func admits(_ token: [UInt8], for concern: OperatorGate.Concern, at now: Int64) -> Bool {
        do throws(TokenError) {
            let role = try verifier.authenticatedRole(token.rawBytes, endingWithin: longest, at: now)
            guard isOfClients, concern == .everything, let role else { return true }
            return OperatorGate.roles.contains(role)
        } catch {
            return false
        }
    }
}
