extension TidewireRoom {
    /// Clients that are present, by key, with their tracked state.
    public typealias Presences = [String: [JSONValue]]

    /// An event of a room.
    public enum Event: Sendable, Hashable {
        /// A message of another client. `bytes` is set for a message with bytes in place of JSON; `payload` is then
        /// null.
        case message(event: String, payload: JSONValue, bytes: [UInt8]?)
        /// The changes of presence, and the present state. Clients that left while the connection was lost are in
        /// `left`.
        case presence(joined: Presences, left: Presences, now: Presences)
        /// The room is joined: for the first time, or again after the connection was lost.
        case joined
        /// A problem that the server reports.
        case problem(TidewireProblem)
        /// Number of events that were dropped here because 1000 earlier ones waited for the app.
        case missed(Int)
    }

    /// The events of a room. The sequence receives events from its creation on, and ends when the room is left.
    ///
    /// Loops over one sequence share its events. A loop whose task is cancelled ends, and a later loop continues behind
    /// it.
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

/// A listener of a room, from its creation until it is released.
final class RoomListening: Sendable {
    private let room: TidewireRoom
    private let number: Int
    let mailbox: Mailbox<TidewireRoom.Event>

    /// - Parameter event: event of the messages to receive; nil to receive all events.
    init(_ room: TidewireRoom, _ event: String?) {
        self.room = room
        (number, mailbox) = room.listen(to: event)
    }

    deinit { room.stopListening(number) }
}
