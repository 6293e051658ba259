import Diagnostics
import EventLog

/// Which messages that were sent before are wanted.
public struct ReplayQuery: Sendable, Equatable {
    /// Without the prefix that clients put before it.
    public var topic: [UInt8]
    public var isPrivate: Bool
    /// Those inserted at this moment (milliseconds since 1970) or later; the newest, if there are more than the limit. Only
    /// broadcasts.
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

/// A message that was sent before. It owns its bytes.
public struct ArchivedMessage: Sendable, Equatable {
    public enum Payload: Sendable, Equatable {
        /// JSON as PostgreSQL writes it.
        case json([UInt8])
        case binary([UInt8])
    }

    /// The row's uuid, as text.
    public var id: [UInt8]
    public var event: [UInt8]
    public var payload: Payload
    /// Microseconds since 1970.
    public var insertedAt: Int64
    /// Its place in the log; nil where only the table has it.
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
    /// The messages, oldest first, as they were committed.
    ///
    /// - Parameters:
    ///   - upTo: how far the log was looked through: a live message with this offset or a larger one is not among them.
    ///   - isWhole: false where older ones may be in the table, which the hub's login may not read.
    case messages([ArchivedMessage], upTo: EventLogPosition, isWhole: Bool)
    /// They could not be read: `UnableToReplayMessages`.
    case failed
}
