/// Why a connection is not there any more, or did not come about.
public enum Interruption: Error, Sendable, Hashable {
    /// The server closed it: 1012 when it restarts, 1013 when this client was too slow for it or it is too busy.
    case closed(code: Int, reason: String)
    /// It answered the handshake with another status than 101.
    case refused(status: Int, reason: String)
    /// The network, a name that is not known, a certificate that is not good.
    case unreachable(String)
    /// Nothing came for too long.
    case silent

    /// Whether the server asked for a pause, and not just ended.
    var asksForPause: Bool {
        switch self {
        case .closed(let code, _): code == 1013
        case .refused(let status, _): status == 429 || status == 503
        case .unreachable, .silent: false
        }
    }

    /// A key that is not good does not get better by asking again.
    var needsAnotherKey: Bool {
        if case .refused(let status, _) = self { status == 401 } else { false }
    }
}
