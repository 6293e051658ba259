import Auth
import Bytes
import Diagnostics
import WebSocket

/// Who may do what only operators may: whoever brings a token that is signed by one of the operators' secrets, and was not
/// withdrawn. Signature and dates are all that is asked of it; it has to have an end.
///
/// Where an operators' secret is the clients' secret too, which is how the reference's own stack has it, every client has a
/// token that is signed by it. There, tokens with a role are let in only with that of the service; health is told to all.
public struct OperatorGate: Sendable {
    fileprivate static let roles: Set = ["service_role", "supabase_admin"]

    private let keys: [OperatorKey]
    private let withdrawn: Set<String>

    /// - Parameters:
    ///   - longest: how long a token may hold, so that each has to have an end; nil where it need not.
    ///   - withdrawn: tokens, separated by commas.
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

    /// Whether there is any secret: without one, nobody is an operator.
    public var hasOperators: Bool { !keys.isEmpty }

    /// What is asked for.
    public enum Concern: Sendable {
        case everything
        /// What the reference's own health check asks, with a client's token.
        case health
    }

    /// The scheme is exactly `Bearer`.
    public func admits(_ request: HTTPRequest, for concern: Concern = .everything, at now: Int64) -> Bool {
        guard let header = request.header("authorization"), header.hasPrefix("Bearer ") else { return false }
        let text = String(header.dropFirst("Bearer ".count))
        guard !withdrawn.contains(text.filter { !$0.isWhitespace }) else { return false }
        let token = Array(text.utf8)
        return keys.contains { $0.admits(token, for: concern, at: now) }
    }
}

/// One secret of operators.
private struct OperatorKey: Sendable {
    let verifier: TokenVerifier
    /// Longest validity of a token in seconds; nil if it need not end.
    let longest: Int64?
    let isOfClients: Bool

    func admits(_ token: [UInt8], for concern: OperatorGate.Concern, at now: Int64) -> Bool {
        do throws(TokenError) {
            // SAFETY: any byte is a valid UInt8, and the array outlives the call.
            let role = unsafe try verifier.authenticatedRole(token.span.bytes, endingWithin: longest, at: now)
            guard isOfClients, concern == .everything, let role else { return true }
            return OperatorGate.roles.contains(role)
        } catch {
            return false
        }
    }
}
