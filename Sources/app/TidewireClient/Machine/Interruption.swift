extension Tidewire {
    /// Reason why a connection ended, or could not be made.
    public enum Interruption: Error, Sendable, Hashable {
        /// The server closed it: 1012 if the server restarts; 1013 if this client was too slow, or the server is too
        /// busy.
        case closed(code: Int, reason: String)
        /// The server answered the handshake with a status other than 101.
        case refused(status: Int, reason: String)
        /// The network failed, the host name is unknown, or the certificate is invalid.
        case unreachable(String)
        /// Silence: data did not arrive for too long.
        case silent

        /// True if the server asked for a pause before the next attempt.
        var asksForPause: Bool {
            switch self {
            case .closed(let code, _): code == 1013
            case .refused(let status, _): status == 429 || status == 503
            case .unreachable, .silent: false
            }
        }

        /// True if the server rejected the key, so that another attempt with the same key is useless.
        var needsAnotherKey: Bool {
            if case .refused(let status, _) = self { status == 401 } else { false }
        }
    }
}
