import EventLog
import Protocol

/// Progress of a reader of the log, seen from one channel.
public struct ReaderProgress: Equatable, Sendable {
    /// True for the live reader, which stands at the log's end.
    public var isLive: Bool
    /// Epoch of what the reader read last; nil until it has read something, or begun in the epoch of its position.
    public var epoch: UInt64?
    /// Offset of the next change that the reader reads.
    public var frontier: UInt64
    /// Offset of the next entry from which the database's messages are still to be read.
    public var messageFrontier: UInt64
    /// True if changes for the channel wait for an answer of PostgreSQL. `firstHeld` is the offset of the first one.
    public var isHeld = false
    public var firstHeld: UInt64?
    /// Offset that was last sent to the channel; nil if none was.
    public var toldAt: UInt64?

    public init(isLive: Bool, epoch: UInt64?, frontier: UInt64, messageFrontier: UInt64) {
        self.isLive = isLive
        self.epoch = epoch
        self.frontier = frontier
        self.messageFrontier = messageFrontier
    }
}

/// State of the log and of its readers, by which a channel's position is computed.
public struct LogView: Equatable, Sendable {
    /// Progress of the reader that serves the channel; nil if none does.
    public var reader: ReaderProgress?
    /// Offset of the next change of the live reader.
    public var liveFrontier: UInt64
    /// Epoch of the channel's reader, or of the live reader, or of the log's end; nil while the log has not begun.
    public var epoch: UInt64?

    public init(reader: ReaderProgress?, liveFrontier: UInt64, epoch: UInt64?) {
        self.reader = reader
        self.liveFrontier = liveFrontier
        self.epoch = epoch
    }
}

/// Range of positions that the log holds.
public struct LogExtent: Equatable, Sendable {
    /// Position after the last change; nil while the log has not begun.
    public var end: EventLogPosition?
    /// Offset of the first change; nil if it cannot be read now.
    public var oldest: UInt64?
    /// True if older changes are in the log, and cannot be read because they are damaged.
    public var isBehindDamage: Bool

    public init(end: EventLogPosition?, oldest: UInt64?, isBehindDamage: Bool = false) {
        self.end = end
        self.oldest = oldest
        self.isBehindDamage = isBehindDamage
    }

    /// Decides whether the changes since the position can be sent. Returns nil if that is not known yet.
    public func decision(about position: EventLogPosition) -> ChannelPosition.Resumption? {
        guard let end else { return nil }
        if position.epoch != end.epoch { return .refused(.otherEpoch) }
        if position.offset > end.offset { return .refused(.unknown) }
        guard let oldest else { return nil }
        if position.offset >= oldest { return .from(position) }
        return .refused(isBehindDamage ? .unreadable : .olderThanRetention)
    }
}
