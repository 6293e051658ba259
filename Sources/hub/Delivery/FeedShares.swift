import Diagnostics

/// Quotas of the listeners that are feeds (requests for changes over HTTP), and a list of the feeds that received
/// changes.
struct FeedShares {
    private var shares: [UInt32: FeedShare] = [:]
    /// Feeds that received changes since the last `takeFed`.
    private var fed: Set<UInt32> = []
    private let changes: Counter

    /// Creates a table without feeds.
    ///
    /// - Parameter changes: counter of the changes that feeds received.
    init(_ changes: Counter) { self.changes = changes }

    subscript(_ listener: UInt32) -> FeedShare? { shares[listener] }

    mutating func add(_ listener: UInt32, _ share: FeedShare) { shares[listener] = share }
    mutating func remove(_ listener: UInt32) { shares[listener] = nil }

    /// Counts one more change for a feed. Returns true if it is the feed's first change, and nil if the feed has
    /// reached its limit.
    mutating func take(_ listener: UInt32) -> Bool? {
        guard var share = shares[listener] else { preconditionFailure("a feed has its share") }
        let isFirst = share.told == 0
        guard share.take() else { return nil }
        shares[listener] = share
        fed.insert(listener)
        changes.add()
        return isFirst
    }

    mutating func takeFed() -> [UInt32] {
        defer { fed = [] }
        return fed.isEmpty ? [] : fed.sorted()
    }
}
