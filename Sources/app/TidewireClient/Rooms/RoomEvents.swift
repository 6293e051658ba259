extension TidewireRoom {
    /// Clients that are present in a room, by presence key, each with its tracked states.
    public typealias Presences = [String: [JSONValue]]

    /// An event of a room.
    public enum Event: Sendable, Hashable {
        /// A message of another client. If the message has bytes instead of JSON, `bytes` holds them and `payload` is
        /// null.
        case message(event: String, payload: JSONValue, bytes: [UInt8]?)
        /// A change of presence: who joined, who left, and who is present now. `left` includes clients that left while
        /// the connection was lost.
        case presence(joined: Presences, left: Presences, now: Presences)
        /// The room is joined: for the first time, or again after a lost connection.
        case joined
        /// A problem that the server reports.
        case problem(TidewireProblem)
        /// Events were dropped because 1000 earlier ones were waiting for the app. The number is how many.
        case missed(Int)
    }

    /// The sequence of a room's events. It receives events from the moment it is created, and ends when the app leaves
    /// the room.
    ///
    /// Several loops over one sequence share its events: each event goes to one loop. A loop ends when its task is
    /// cancelled; a later loop receives the events after it.
    public struct Events: AsyncSequence, Sendable {
        let listening: RoomListening

        /// Returns an iterator over the events that no other loop has taken.
        public func makeAsyncIterator() -> Iterator { Iterator(listening: listening) }

        /// Iterator over the events of a room.
        public struct Iterator: AsyncIteratorProtocol {
            let listening: RoomListening

            /// Waits for the next event; nil if the room has been left or the task is cancelled.
            public func next() async -> Event? {
                await listening.mailbox.take(cancellationEndsQueue: false)
            }
        }
    }
}

/// Listener of a room. It receives events from its creation until it is released.
final class RoomListening: Sendable {
    private let room: TidewireRoom
    private let number: Int
    let mailbox: Mailbox<TidewireRoom.Event>

    /// Starts to listen to a room.
    ///
    /// - Parameter event: event name of the messages to receive; nil to receive all events.
    init(_ room: TidewireRoom, _ event: String?) {
        self.room = room
        (number, mailbox) = room.listen(to: event)
    }

    deinit { room.stopListening(number) }
}
