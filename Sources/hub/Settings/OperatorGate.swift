import Auth
import Bytes
import Diagnostics
import WebSocket

/// Gate for requests of operators. A request passes with a token that is signed by one of the operators' secrets and
/// was not withdrawn. The gate checks the signature and the dates only; the token must have an end.
///
/// If an operators' secret is the clients' secret too, as in the reference's own stack, every client has a token that
/// is signed by it. A token with a role then passes only if the role is the service's; health is told to all.
public struct OperatorGate: Sendable {
    fileprivate static let roles: Set = ["service_role", "supabase_admin"]

    private let keys: [OperatorKey]
    private let withdrawn: Set<String>

    /// - Parameters:
    ///   - longest: longest validity of a token, so that each must have an end; nil if it need not end.
    ///   - withdrawn: tokens that are refused, separated by commas.
    ///   - clients: the secret of clients' tokens.
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

    /// True if there is any secret. Without one, nobody is an operator.
    public var hasOperators: Bool { !keys.isEmpty }

    /// Purpose of a request.
    public enum Concern: Sendable {
        case everything
        /// The reference's own health check, which uses a client's token.
        case health
    }

    /// True if the request may pass. The scheme of its header must be exactly `Bearer`.
    public func admits(_ request: HTTPRequest, for concern: Concern = .everything, at now: Int64) -> Bool {
        guard let header = request.header("authorization"), header.hasPrefix("Bearer ") else { return false }
        let text = String(header.dropFirst("Bearer ".count))
        guard !withdrawn.contains(text.filter { !$0.isWhitespace }) else { return false }
        let token = Array(text.utf8)
        return keys.contains { $0.admits(token, for: concern, at: now) }
    }
}

/// Secret of operators, with the rules for tokens that are signed by it.
private struct OperatorKey: Sendable {
    let verifier: TokenVerifier
    /// Longest validity of a token in seconds; nil if it need not end.
    let longest: Int64?
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
