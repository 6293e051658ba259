extension Tidewire {
    /// Reason why a connection ended, or could not be made.
    public enum Interruption: Error, Sendable, Hashable {
        /// The server closed the connection. The code is 1012 if the server restarts, and 1013 if this client was too
        /// slow or the server is overloaded.
        case closed(code: Int, reason: String)
        /// The server answered the opening request with an HTTP status other than 101.
        case refused(status: Int, reason: String)
        /// The network failed, the host name is unknown, or the certificate is invalid.
        case unreachable(String)
        /// No data arrived from the server for too long.
        case silent

        /// True if the server asked the client to wait before its next attempt.
        var asksForPause: Bool {
            switch self {
            case .closed(let code, _): code == 1013
            case .refused(let status, _): status == 429 || status == 503
            case .unreachable, .silent: false
            }
        }

        /// True if the server rejected the project's key, so that another attempt with the same key cannot succeed.
        var needsAnotherKey: Bool {
            if case .refused(let status, _) = self { status == 401 } else { false }
        }
    }
}
