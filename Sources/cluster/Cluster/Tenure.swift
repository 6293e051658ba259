/// Machine that knows who holds the slot, and decides when this node stands for it.
///
/// The stream itself is the election: a tenure begins with a message that was appended at an expected place, so two
/// candidates never both succeed, and everything that an earlier holder appends afterwards is refused. This machine only
/// decides when it is worth trying.
public struct Tenure: Sendable, Equatable {
    public struct Holder: Sendable, Equatable {
        /// Sequence of the message with which the tenure began.
        public var number: UInt64
        public var node: String
    }

    /// Node that holds the slot; nil if nobody does, or the reader has not seen a tenure yet.
    public private(set) var holder: Holder?
    /// True if the holder has begun its tenure, or given a sign of life, while this node read along.
    private var isKnownToLive = false
    /// Time of the holder's last sign of life.
    private var heardAt: UInt64
    /// Time before which this node does not stand.
    private var restsUntil: UInt64 = 0
    private let node: String

    /// Time without a sign of the holder after which other nodes stand.
    public static let patience: UInt64 = 3_000_000_000
    /// The same if the holder has this node's name. A holder gives a sign each second.
    static let ownPatience: UInt64 = 1_500_000_000

    /// - Parameter number: tenure of the place where the reader begins; zero if it is unknown. Its holder may live.
    public init(node: String, number: UInt64, now: UInt64) {
        self.node = node
        holder = number > 0 ? Holder(number: number, node: "") : nil
        heardAt = now
    }

    /// Records a tenure that the stream has.
    public mutating func began(_ number: UInt64, _ node: String, now: UInt64) {
        assert(number >= holder?.number ?? 0, "tenures follow each other")
        holder = Holder(number: number, node: node)
        isKnownToLive = true
        heardAt = now
    }

    /// Records that the holder gave the slot up.
    public mutating func resigned(now: UInt64) {
        holder = nil
        heardAt = now
    }

    /// Records a sign of life of a holder. A sign of an earlier holder does not count.
    public mutating func heard(_ number: UInt64, now: UInt64) {
        guard number >= holder?.number ?? 0 else { return }
        isKnownToLive = true
        heardAt = max(heardAt, now)
    }

    /// Records that this node could not hold the slot, so that others stand first.
    public mutating func rest(until moment: UInt64) { restsUntil = max(restsUntil, moment) }

    /// True if the holder has given a sign of life lately.
    public func isHeld(at now: UInt64) -> Bool {
        holder != nil && isKnownToLive && now < heardAt + Self.patience
    }

    /// Maximum time between two holders for which nodes serve their clients as usual. A take-over is shorter.
    public static let ordinaryPause: UInt64 = 12_000_000_000

    /// True if the log is fed, or was a moment ago and another holder is expected.
    public func isFed(at now: UInt64) -> Bool { isKnownToLive && now < heardAt + Self.ordinaryPause }

    /// True if this node should stand for the slot now.
    ///
    /// - Parameter delay: time that this node leaves to others, so that not all of them stand at once.
    public func isDue(at now: UInt64, delay: UInt64) -> Bool {
        guard now >= restsUntil else { return false }
        guard let holder else { return now >= heardAt + delay }
        // A holder of this name is this node before a restart, unless it gives signs of life.
        return now >= heardAt + (holder.node == node ? Self.ownPatience : Self.patience + delay)
    }
}
