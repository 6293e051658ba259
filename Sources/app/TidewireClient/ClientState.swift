/// State of a client, for a status indicator. `live` means that all changes the client missed have been delivered.
public enum ClientState: Sendable, Hashable {
    case signedOut
    /// `next` is the time of the next attempt, counted from the client's start; nil while an attempt is under way.
    case connecting(attempt: Int, next: Duration?, after: Interruption?)
    /// Number of subscriptions that have yet to catch up on missed changes.
    case catchingUp(Int)
    case live
    case offline(OfflineReason)
}

public enum OfflineReason: Sendable, Hashable {
    case nothingSubscribed
    case noNetwork
    /// The app was in the background for more than half a minute. The client resumes when the app returns.
    case inBackground
    /// The server rejects the key. The client does not try again until it gets another key or token.
    case refused(Interruption)
    /// The token has expired or was rejected. `signIn(token:)` with another token resumes.
    case tokenRefused(TidewireProblem)
}
