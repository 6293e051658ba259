import EventLog
import Protocol

/// Progress of a reader of the log, as it concerns one channel.
public struct ReaderProgress: Equatable, Sendable {
    /// True for the live reader, which reads at the log's end.
    public var isLive: Bool
    /// Epoch of the last entry that was read, or of the position where the reader began; nil if neither is known.
    public var epoch: UInt64?
    /// Offset of the next change that the reader will deliver.
    public var frontier: UInt64
    /// Offset of the next entry whose database messages the reader will read.
    public var messageFrontier: UInt64
    /// True if changes for the channel wait for an answer of PostgreSQL.
    public var isHeld = false
    /// Offset of the first change that waits for an answer; nil if there is none or it is not known.
    public var firstHeld: UInt64?
    /// Offset that the reader last sent to the client; nil if it has sent none.
    public var toldAt: UInt64?

    public init(isLive: Bool, epoch: UInt64?, frontier: UInt64, messageFrontier: UInt64) {
        self.isLive = isLive
        self.epoch = epoch
        self.frontier = frontier
        self.messageFrontier = messageFrontier
    }
}

/// State of the log and of its readers, from which a channel's position is computed.
public struct LogView: Equatable, Sendable {
    /// Progress of the reader that serves the channel; nil if none does.
    public var reader: ReaderProgress?
    /// Offset of the next change that the live reader will deliver.
    public var liveFrontier: UInt64
    /// Epoch of the channel's reader, else of the live reader, else of the log's end; nil until the log has begun.
    public var epoch: UInt64?

    public init(reader: ReaderProgress?, liveFrontier: UInt64, epoch: UInt64?) {
        self.reader = reader
        self.liveFrontier = liveFrontier
        self.epoch = epoch
    }
}

/// Range of positions that the log has now.
public struct LogExtent: Equatable, Sendable {
    /// Position after the last change; nil until the log has begun.
    public var end: EventLogPosition?
    /// Offset of the oldest readable change; nil if it cannot be found out now.
    public var oldest: UInt64?
    /// True if the log has older changes, which cannot be read because of damage.
    public var isBehindDamage: Bool

    public init(end: EventLogPosition?, oldest: UInt64?, isBehindDamage: Bool = false) {
        self.end = end
        self.oldest = oldest
        self.isBehindDamage = isBehindDamage
    }

    /// Decides if the hub can send all changes from the position on. Returns nil if that is not known yet.
    public func decision(about position: EventLogPosition) -> ChannelPosition.Resumption? {
        guard let end else { return nil }
        if position.epoch != end.epoch { return .refused(.otherEpoch) }
        if position.offset > end.offset { return .refused(.unknown) }
        guard let oldest else { return nil }
        if position.offset >= oldest { return .from(position) }
        return .refused(isBehindDamage ? .unreadable : .olderThanRetention)
    }
}
