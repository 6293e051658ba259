import Channels

/// Functions by which the nodes of a cluster tell each other about their clients, so that a client can go on at another node. Its
/// functions are called on the thread of the exchange.
public struct PeerRecords: Sendable {
    /// Client of a node that another node serves now.
    public struct Claim: Sendable, Equatable {
        /// Number of the node's name, which it keeps when it starts again.
        public var home: UInt64
        public var entry: ClaimedEntry

        public init(home: UInt64, entry: ClaimedEntry) {
            self.home = home
            self.entry = entry
        }
    }

    /// Returns the contents of letters with all records, or with those that changed since the last call.
    let changes: @Sendable (_ all: Bool) -> [[UInt8]]
    /// Takes a content of another node. Returns false if it is invalid.
    let learn: @Sendable (_ node: UInt64, _ home: UInt64, _ content: [UInt8]) -> Bool
    /// Records that a node is silent.
    let lose: @Sendable (_ node: UInt64) -> Void
    /// Returns the clients of other nodes that came to this one since the last call.
    let takeClaims: @Sendable () -> [Claim]
    /// Records that another node serves a client of this one.
    let claimed: @Sendable (Claim) -> Void
    /// Records that another node serves a client of a third one.
    let overheard: @Sendable (Claim) -> Void

    public init(
        changes: @escaping @Sendable (_ all: Bool) -> [[UInt8]],
        learn: @escaping @Sendable (_ node: UInt64, _ home: UInt64, _ content: [UInt8]) -> Bool,
        lose: @escaping @Sendable (_ node: UInt64) -> Void, takeClaims: @escaping @Sendable () -> [Claim],
        claimed: @escaping @Sendable (Claim) -> Void, overheard: @escaping @Sendable (Claim) -> Void
    ) {
        self.changes = changes
        self.learn = learn
        self.lose = lose
        self.takeClaims = takeClaims
        self.claimed = claimed
        self.overheard = overheard
    }
}
