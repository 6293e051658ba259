extension Tidewire {
    /// State of a client, for a status indicator.
    public enum State: Sendable, Hashable {
        /// Absence of a signed-in user.
        case signedOut
        /// The client tries to connect. `next` is the time of the next attempt, counted from the client's start; nil
        /// while an attempt is under way.
        case connecting(attempt: Int, next: Duration?, after: Interruption?)
        /// Number of subscriptions that have yet to catch up on missed changes.
        case catchingUp(Int)
        /// The client has delivered all changes that it missed.
        case live
        /// The client is not connected, and does not try to connect.
        case offline(OfflineReason)
    }

    /// Reason why a client does not try to connect.
    public enum OfflineReason: Sendable, Hashable {
        /// The client needs no connection: it runs no query and has joined no room.
        case nothingSubscribed
        /// The app has reported that there is no network.
        case noNetwork
        /// The app was in the background for more than half a minute. The client resumes when the app returns.
        case inBackground
        /// The server rejects the key. The client does not try again until it gets another key or token.
        case refused(Interruption)
        /// The token has expired or was rejected. `signIn(token:)` with another token resumes.
        case tokenRefused(TidewireProblem)
    }

    /// The sequence of a client's states.
    public struct States: AsyncSequence, Sendable {
        let engine: Engine

        /// Returns an iterator that begins with the present state.
        public func makeAsyncIterator() -> Iterator { Iterator(engine) }

        /// Iterator of a client's states. It watches the client until it is released.
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
