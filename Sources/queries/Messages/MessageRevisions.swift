import Diagnostics

/// Changes of messages in the log since they were inserted. Readers of the log's past use it, so that they send no message
/// that was deleted meanwhile, and no former text.
public struct MessageRevisions: Sendable, Equatable {
    public enum Fate: Sendable, Equatable {
        /// The message is as it was inserted.
        case unchanged
        /// The message was deleted, or moved to another topic.
        case deleted
        case rewritten(ArchivedMessage)
        /// The log does not tell, or its answer was too large.
        case unknown
    }

    /// Offsets of the messages that the answer is about.
    public let offsets: Range<UInt64>
    /// Offset in this range from which on the fates are known.
    private let knownFrom: UInt64
    /// Fates of messages that are not as they were inserted, by their offsets.
    private let changed: [UInt64: Fate]

    /// Creates an answer that knows nothing.
    public static func unknown(of offsets: Range<UInt64>) -> MessageRevisions {
        MessageRevisions(of: offsets, knownFrom: offsets.upperBound, [:])
    }

    public init(of offsets: Range<UInt64>, knownFrom: UInt64, _ changed: [UInt64: Fate]) {
        self.offsets = offsets
        self.knownFrom = knownFrom
        self.changed = changed
    }

    /// - Parameter offset: offset at which the message was inserted.
    public func fate(of offset: UInt64) -> Fate {
        assert(offsets.contains(offset), "an answer is used for what it was asked about")
        return offset < knownFrom ? .unknown : changed[offset] ?? .unchanged
    }
}
