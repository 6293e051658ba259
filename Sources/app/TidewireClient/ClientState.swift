/// What the small dot in the corner shows. `live` means what people take a green dot for: everything that was missed has come.
public enum ClientState: Sendable, Hashable {
    case signedOut
    /// `next` is when it is tried again, counted from the client's start; nil while it is being tried.
    case connecting(attempt: Int, next: Duration?, after: Interruption?)
    /// So many queries have yet to catch up with what was missed.
    case catchingUp(Int)
    case live
    case offline(OfflineReason)
}

public enum OfflineReason: Sendable, Hashable {
    case nothingSubscribed
    case noNetwork
    /// Longer than half a minute in the background; it goes on where it was when the app comes back.
    case inBackground
    /// The server does not take the key: nothing is tried before there is another one.
    case refused(Interruption)
    /// The token is over, or not taken: `signIn(token:)` with another one goes on.
    case tokenRefused(Problem)
}
