/// How many changes a feed was told, and how many it may be.
public struct FeedShare: Sendable, Equatable {
    /// Nil: as many as there are.
    public let limit: UInt64?
    public private(set) var told: UInt64 = 0

    public init(limit: UInt64?) { self.limit = limit }

    public var isFull: Bool { limit.map { told >= $0 } ?? false }

    /// One more, unless it is full.
    mutating func take() -> Bool {
        if isFull { return false }
        told += 1
        return true
    }
}
