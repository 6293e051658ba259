import Foundation

extension TidewireRoom {
    /// Returns the messages with one event name as values of the app's type, from now on.
    ///
    /// ```swift
    /// let moves = room.messages(event: "move", as: Move.self)
    /// try await room.join()
    /// for try await move in moves {
    ///     board.apply(move)
    /// }
    /// ```
    ///
    /// Payloads are decoded by the same rules as rows: a key matches in the spellings `owner_id`, `ownerId` and
    /// `ownerID`, numbers keep all their digits, and dates keep microseconds. At most 1000 messages wait for the app.
    ///
    /// - Parameters:
    ///   - event: name of the messages to receive.
    ///   - type: type of the payloads.
    ///   - skipped: receives the error for each message that cannot be delivered, and the sequence continues. Without
    ///     it the sequence throws the ``RoomMessageError``.
    public func messages<Value: Decodable & Sendable>(
        event: String, as type: Value.Type, skipped: (@Sendable (RoomMessageError) -> Void)? = nil
    ) -> Messages<Value> {
        Messages(RoomListening(self, event), event, skipped) { payload in try RowDecoder(payload, []).value(type) }
    }

    /// Returns the messages with one event name as JSON, from now on.
    ///
    /// - Parameters:
    ///   - event: name of the messages to receive.
    ///   - skipped: receives the error for each message that cannot be delivered, and the sequence continues. Without
    ///     it the sequence throws the ``RoomMessageError``.
    public func messages(
        event: String, skipped: (@Sendable (RoomMessageError) -> Void)? = nil
    ) -> Messages<JSONValue> {
        Messages(RoomListening(self, event), event, skipped) { $0 }
    }
}

/// Reason why a sequence could not deliver messages of a room.
public enum RoomMessageError: Error, Sendable, Hashable {
    /// The payload does not fit the app's type, or is not JSON. Any client with the right to write to the room can send
    /// such a payload.
    case unreadable(UnreadableMessage)
    /// Messages were dropped because 1000 earlier ones were waiting for the app. The number is how many.
    case missed(Int)
}

extension RoomMessageError {
    /// A message whose payload does not fit the app's type.
    public struct UnreadableMessage: Sendable, Hashable {
        /// Event name of the message.
        public let event: String
        /// Payload as JSON; null if the message has bytes instead.
        public let payload: JSONValue
        /// Expected type and its place in the payload. Never contains a value.
        public let reason: String
    }
}

extension RoomMessageError: CustomStringConvertible, LocalizedError {
    /// The same text as `description`.
    public var errorDescription: String? { description }

    /// The reason, for developers.
    public var description: String {
        switch self {
        case .unreadable(let message): "a message “\(message.event)” cannot be read: \(message.reason)"
        case .missed(let count): "\(count) messages were dropped, because the app did not take the earlier ones in time"
        }
    }
}

extension TidewireRoom {
    /// The sequence of a room's messages with one event name.
    ///
    /// The sequence receives messages from the moment it is created, and ends when the app leaves the room or signs
    /// out. Several loops over one sequence share its messages: each message goes to one loop. A loop ends when its
    /// task is cancelled; a later loop receives the messages after it.
    ///
    /// The iterator throws ``RoomMessageError`` for a message that it cannot deliver, and ``RoomError/refused(_:)`` if
    /// the user loses the right to the room. After an error, the next call continues with the next message.
    public struct Messages<Element: Sendable>: AsyncSequence, Sendable {
        private let listening: RoomListening
        private let event: String
        private let skipped: (@Sendable (RoomMessageError) -> Void)?
        private let decode: @Sendable (JSONValue) throws -> Element

        init(
            _ listening: RoomListening, _ event: String, _ skipped: (@Sendable (RoomMessageError) -> Void)?,
            _ decode: @escaping @Sendable (JSONValue) throws -> Element
        ) {
            self.listening = listening
            self.event = event
            self.skipped = skipped
            self.decode = decode
        }

        /// Returns an iterator over the messages that no other loop has taken.
        public func makeAsyncIterator() -> Iterator { Iterator(messages: self) }

        /// Iterator over the messages with one event name.
        public struct Iterator: AsyncIteratorProtocol {
            let messages: Messages

            /// Waits for the next message; nil if the room has been left or the task is cancelled.
            ///
            /// - Throws: ``RoomMessageError`` for a message that cannot be delivered, or ``RoomError/refused(_:)``.
            public func next() async throws -> Element? {
                while let event = await messages.listening.mailbox.take(cancellationEndsQueue: false) {
                    do throws(RoomMessageError) {
                        if let element = try messages.element(event) { return element }
                    } catch {
                        guard let skipped = messages.skipped else { throw error }
                        skipped(error)
                    }
                    if case .problem(let problem) = event { throw RoomError.refused(problem) }
                }
                return nil
            }
        }

        private func element(_ told: Event) throws(RoomMessageError) -> Element? {
            switch told {
            case .message(_, let payload, let bytes):
                guard bytes == nil else { throw unreadable(payload, "expected JSON, found bytes") }
                do {
                    return try decode(payload)
                } catch {
                    throw unreadable(payload, RowDecoder.reason(error))
                }
            case .missed(let count): throw .missed(count)
            case .presence, .joined, .problem: return nil
            }
        }

        private func unreadable(_ payload: JSONValue, _ reason: String) -> RoomMessageError {
            .unreadable(RoomMessageError.UnreadableMessage(event: event, payload: payload, reason: reason))
        }
    }
}
