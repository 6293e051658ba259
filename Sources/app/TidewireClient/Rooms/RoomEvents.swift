/// Clients that are present, by key, with their tracked state.
public typealias Presences = [String: [JSONValue]]

/// An event of a room.
public enum RoomEvent: Sendable, Hashable {
    case message(event: String, payload: JSONValue, bytes: [UInt8]?)
    /// The changes of presence, and the present state. Clients that left while the connection was lost are in `left`.
    case presence(joined: Presences, left: Presences, now: Presences)
    case joined
    case problem(TidewireProblem)
    /// Number of events that were dropped here because 1000 earlier ones waited for the app.
    case missed(Int)
}

/// The events of a room, from now on.
public struct RoomEvents: AsyncSequence, Sendable {
    let room: TidewireRoom

    public func makeAsyncIterator() -> Iterator { Iterator(room) }

    public final class Iterator: AsyncIteratorProtocol {
        private let room: TidewireRoom
        private let number: Int
        private let mailbox: Mailbox<RoomEvent>

        init(_ room: TidewireRoom) {
            self.room = room
            (number, mailbox) = room.listen()
        }

        deinit { room.stopListening(number) }

        public func next() async -> RoomEvent? { await mailbox.take() }
    }
}
