import Diagnostics
import EventLog

/// Query for old messages of a topic.
public struct ReplayQuery: Sendable, Equatable {
    /// Topic without the prefix that clients add.
    public var topic: [UInt8]
    public var isPrivate: Bool
    /// Insert time, in milliseconds since 1970, of the oldest message wanted. If there are more than `limit`, the
    /// newest are returned. Only broadcasts are.
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

/// Old message. It owns its bytes.
public struct ArchivedMessage: Sendable, Equatable {
    public enum Payload: Sendable, Equatable {
        /// JSON as PostgreSQL writes it.
        case json([UInt8])
        case binary([UInt8])
    }

    /// UUID of the row, as text.
    public var id: [UInt8]
    public var event: [UInt8]
    public var payload: Payload
    /// Microseconds since 1970.
    public var insertedAt: Int64
    /// Offset in the log; nil if only the table has the message.
    public var offset: UInt64?

    public init(id: [UInt8], event: [UInt8], payload: Payload, insertedAt: Int64, offset: UInt64? = nil) {
        self.id = id
        self.event = event
        self.payload = payload
        self.insertedAt = insertedAt
        self.offset = offset
    }

    var byteCount: Int {
        switch payload {
        case .json(let bytes), .binary(let bytes): bytes.count + event.count + id.count
        }
    }
}

public enum ReplayAnswer: Sendable, Equatable {
    /// Messages, oldest first, in the order of their commits.
    ///
    /// - Parameters:
    ///   - upTo: end of the searched part of the log: a live message with this offset or a larger one is not among
    ///     them.
    ///   - isWhole: false if the table may have older ones, which the hub's login may not read.
    case messages([ArchivedMessage], upTo: EventLogPosition, isWhole: Bool)
    /// The messages could not be read: `UnableToReplayMessages`.
    case failed
}
