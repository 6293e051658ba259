extension Tidewire {
    /// State of a client, for a status indicator.
    public enum State: Sendable, Hashable {
        /// No user is signed in.
        case signedOut
        /// The client tries to connect. `next` is the time of the next attempt, counted from the client's start; nil
        /// during an attempt. `after` is the reason why the last connection or attempt ended.
        case connecting(attempt: Int, next: Duration?, after: Interruption?)
        /// The client still receives missed changes. The number is that of subscriptions that have not caught up yet.
        case catchingUp(Int)
        /// All subscriptions have received all changes that they missed.
        case live
        /// The client is not connected, and does not try to connect.
        case offline(OfflineReason)
    }

    /// Reason why a client does not try to connect.
    public enum OfflineReason: Sendable, Hashable {
        /// No query is running and no room is joined, so the client needs no connection.
        case nothingSubscribed
        /// The app has reported that the device has no network.
        case noNetwork
        /// The app has been in the background for more than half a minute. The client connects when the app returns.
        case inBackground
        /// The server rejected the project's key. The client tries again only with another key or token.
        case refused(Interruption)
        /// The token has expired, or the server rejected it. A call of `signIn(token:)` with another token continues.
        case tokenRefused(TidewireProblem)
    }

    /// The sequence of a client's states.
    public struct States: AsyncSequence, Sendable {
        let engine: Engine

        /// Returns an iterator whose first element is the present state.
        public func makeAsyncIterator() -> Iterator { Iterator(engine) }

        /// Iterator over a client's states. It watches the client until the iterator is released.
        public final class Iterator: AsyncIteratorProtocol {
            private let engine: Engine
            private let number: Int
            private let mailbox: Mailbox<State>

            init(_ engine: Engine) {
                self.engine = engine
                (number, mailbox) = engine.watch()
            }

            deinit { engine.unwatch(number) }

            /// Waits for the next state; nil if the task is cancelled.
            public func next() async -> State? { await mailbox.take() }
        }
    }
}
