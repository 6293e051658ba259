import Foundation

extension TidewireRoom {
    /// Returns the messages of one event as values of the app's type, from now on.
    ///
    /// ```swift
    /// let moves = room.messages(event: "move", as: Move.self)
    /// try await room.join()
    /// for try await move in moves {
    ///     board.apply(move)
    /// }
    /// ```
    ///
    /// Payloads decode by the rules of rows: a key matches in the spellings `owner_id`, `ownerId` and `ownerID`,
    /// numbers keep all their digits, and dates keep microseconds. At most 1000 messages wait for the app.
    ///
    /// - Parameters:
    ///   - event: event of the messages to receive.
    ///   - type: type of the payloads.
    ///   - skipped: receives each message that could not be delivered, and the sequence continues. Without it the
    ///     sequence throws the ``RoomMessageError``.
    public func messages<Value: Decodable & Sendable>(
        event: String, as type: Value.Type, skipped: (@Sendable (RoomMessageError) -> Void)? = nil
    ) -> Messages<Value> {
        Messages(RoomListening(self, event), event, skipped) { payload in try RowDecoder(payload, []).value(type) }
    }

    /// Returns the messages of one event as JSON, from now on.
    ///
    /// - Parameters:
    ///   - event: event of the messages to receive.
    ///   - skipped: receives each message that could not be delivered, and the sequence continues. Without it the
    ///     sequence throws the ``RoomMessageError``.
    public func messages(
        event: String, skipped: (@Sendable (RoomMessageError) -> Void)? = nil
    ) -> Messages<JSONValue> {
        Messages(RoomListening(self, event), event, skipped) { $0 }
    }
}

/// Reason why messages of a room are not delivered to one of its sequences.
public enum RoomMessageError: Error, Sendable, Hashable {
    /// The payload does not fit the type, or is not JSON. Any client that may write to the room can send such a
    /// payload.
    case unreadable(UnreadableMessage)
    /// Number of messages that were dropped here because 1000 earlier ones waited for the app.
    case missed(Int)
}

extension RoomMessageError {
    /// A message whose payload does not fit the app's type.
    public struct UnreadableMessage: Sendable, Hashable {
        /// Event of the message.
        public let event: String
        /// Payload as JSON; null if the message has bytes.
        public let payload: JSONValue
        /// Expected type and its place in the payload; never a value.
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
    /// The messages of one event of a room.
    ///
    /// The sequence receives messages from its creation on, and ends when the app leaves the room or signs out. Loops
    /// over one sequence share its messages. A loop whose task is cancelled ends, and a later loop continues behind it.
    ///
    /// The iterator throws ``RoomMessageError`` for messages that it cannot deliver, and ``RoomError/refused(_:)`` if
    /// the server ends the user's rights on the room. After an error, the next call continues behind it.
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

        /// Iterator over the messages of one event.
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
