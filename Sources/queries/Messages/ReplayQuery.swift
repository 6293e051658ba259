import Diagnostics
import EventLog

/// Query for old messages of a topic.
public struct ReplayQuery: Sendable, Equatable {
    /// Topic without the prefix `realtime:`.
    public var topic: [UInt8]
    /// True for messages to private channels of the topic, false for messages to public ones.
    public var isPrivate: Bool
    /// Insert time of the oldest wanted message, in milliseconds since 1970. If more than `limit` messages are newer,
    /// the newest ones are returned. Only broadcasts are returned.
    public var since: Int64
    public var limit: Int

    public init(topic: [UInt8], isPrivate: Bool, since: Int64, limit: Int) {
        self.topic = topic
        self.isPrivate = isPrivate
        self.since = since
        self.limit = min(max(limit, 1), Limits.maximumReplayedMessages)
        assert(self.limit > 0, "something is asked for")
    }
}

/// Old message as an archive returns it, with its own copy of the bytes.
public struct ArchivedMessage: Sendable, Equatable {
    public enum Payload: Sendable, Equatable {
        /// The payload is JSON, as PostgreSQL writes it.
        case json([UInt8])
        case binary([UInt8])
    }

    /// UUID of the row, as text.
    public var id: [UInt8]
    public var event: [UInt8]
    public var payload: Payload
    /// Insert time in microseconds since 1970.
    public var insertedAt: Int64
    /// Offset of the message in the log; nil if it was read from the table.
    public var offset: UInt64?

    public init(id: [UInt8], event: [UInt8], payload: Payload, insertedAt: Int64, offset: UInt64? = nil) {
        self.id = id
        self.event = event
        self.payload = payload
        self.insertedAt = insertedAt
        self.offset = offset
    }

    public var byteCount: Int {
        switch payload {
        case .json(let bytes), .binary(let bytes): bytes.count + event.count + id.count
        }
    }
}

public enum ReplayAnswer: Sendable, Equatable {
    /// Messages in the order of their commits, oldest first.
    ///
    /// - Parameters:
    ///   - upTo: the end of the searched part of the log. A live message with this offset or a higher one is not among
    ///     the messages.
    ///   - isWhole: false if the table may have older messages that the hub's login may not read.
    case messages([ArchivedMessage], upTo: EventLogPosition, isWhole: Bool)
    /// The messages could not be read. The hub reports `UnableToReplayMessages`.
    case failed
}
