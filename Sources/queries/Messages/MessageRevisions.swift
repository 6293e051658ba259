import Diagnostics

/// Changes that messages in the log underwent after they were inserted. A reader of the log's past needs them, so that
/// it sends no deleted message and no outdated text.
public struct MessageRevisions: Sendable, Equatable {
    public enum Fate: Sendable, Equatable {
        /// The message is as it was inserted.
        case unchanged
        /// The message was deleted or moved to another topic.
        case deleted
        /// The message has a new version.
        case rewritten(ArchivedMessage)
        /// The log does not tell what happened, or the answer would be too large.
        case unknown
    }

    /// Log offsets of the messages that the answer covers.
    public let offsets: Range<UInt64>
    /// Log offset from which it is known what happened to each message.
    private let knownFrom: UInt64
    /// Fates of the messages that were changed after their insertion, by the log offset of the insertion.
    private let changed: [UInt64: Fate]

    /// Creates an answer in which every fate is unknown.
    public static func unknown(of offsets: Range<UInt64>) -> MessageRevisions {
        MessageRevisions(of: offsets, knownFrom: offsets.upperBound, [:])
    }

    public init(of offsets: Range<UInt64>, knownFrom: UInt64, _ changed: [UInt64: Fate]) {
        self.offsets = offsets
        self.knownFrom = knownFrom
        self.changed = changed
    }

    /// Returns what happened to a message after it was inserted.
    ///
    /// - Parameter offset: the log offset at which the message was inserted.
    public func fate(of offset: UInt64) -> Fate {
        assert(offsets.contains(offset), "an answer is used for what it was asked about")
        return offset < knownFrom ? .unknown : changed[offset] ?? .unchanged
    }
}
