/// Number of changes that a feed (a request for changes over HTTP) has received, and its limit.
public struct FeedShare: Sendable, Equatable {
    /// Maximum number of changes for the feed; nil if there is no limit.
    public let limit: UInt64?
    public private(set) var told: UInt64 = 0

    public init(limit: UInt64?) { self.limit = limit }

    public var isFull: Bool { limit.map { told >= $0 } ?? false }

    /// Counts one more change for the feed. Returns false if the feed has reached its limit.
    mutating func take() -> Bool {
        if isFull { return false }
        told += 1
        return true
    }
}
