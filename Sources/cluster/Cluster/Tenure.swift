/// Machine that knows which node feeds the stream, the one that holds PostgreSQL's slot, and decides when this node
/// stands for it.
///
/// The stream itself is the election: a tenure begins with a message that was appended at an expected place, so two
/// candidates never both succeed, and everything that an earlier feeder appends afterwards is refused. This machine only
/// decides when it is worth trying.
public struct Tenure: Sendable, Equatable {
    public struct Feeder: Sendable, Equatable {
        /// Sequence of the message with which the tenure began.
        public var number: UInt64
        public var node: String
    }

    /// Node that holds the slot; nil if nobody does, or the reader has not seen a tenure yet.
    public private(set) var feeder: Feeder?
    /// True if the feeder has begun its tenure, or given a sign of life, while this node read along.
    private var isKnownToLive = false
    /// Time of the feeder's last sign of life.
    private var heardAt: UInt64
    /// Time before which this node does not stand.
    private var restsUntil: UInt64 = 0
    private let node: String

    /// Time without a sign of the feeder after which other nodes stand.
    public static let patience: UInt64 = 3_000_000_000
    /// The same if the feeder has this node's name. A feeder gives a sign each second.
    static let ownPatience: UInt64 = 1_500_000_000

    /// - Parameter number: tenure of the place where the reader begins; zero if it is unknown. Its feeder may live.
    public init(node: String, number: UInt64, now: UInt64) {
        self.node = node
        feeder = number > 0 ? Feeder(number: number, node: "") : nil
        heardAt = now
    }

    /// Records a tenure that the stream has.
    public mutating func began(_ number: UInt64, _ node: String, now: UInt64) {
        assert(number >= feeder?.number ?? 0, "tenures follow each other")
        feeder = Feeder(number: number, node: node)
        isKnownToLive = true
        heardAt = now
    }

    /// Records that the feeder gave the slot up.
    public mutating func resigned(now: UInt64) {
        feeder = nil
        heardAt = now
    }

    /// Records a sign of life of a feeder. A sign of an earlier feeder does not count.
    public mutating func heard(_ number: UInt64, now: UInt64) {
        guard number >= feeder?.number ?? 0 else { return }
        isKnownToLive = true
        heardAt = max(heardAt, now)
    }

    /// Records that this node could not hold the slot, so that others stand first.
    public mutating func rest(until moment: UInt64) { restsUntil = max(restsUntil, moment) }

    /// True if the feeder has given a sign of life lately.
    public func isHeld(at now: UInt64) -> Bool {
        feeder != nil && isKnownToLive && now < heardAt + Self.patience
    }

    /// Maximum time between two feeders for which nodes serve their clients as usual. A take-over is shorter.
    public static let ordinaryPause: UInt64 = 12_000_000_000

    /// True if the log is fed, or was a moment ago and another feeder is expected.
    public func isFed(at now: UInt64) -> Bool { isKnownToLive && now < heardAt + Self.ordinaryPause }

    /// True if this node should stand for the slot now.
    ///
    /// - Parameter delay: time that this node leaves to others, so that not all of them stand at once.
    public func isDue(at now: UInt64, delay: UInt64) -> Bool {
        guard now >= restsUntil else { return false }
        guard let feeder else { return now >= heardAt + delay }
        // A feeder of this name is this node before a restart, unless it gives signs of life.
        return now >= heardAt + (feeder.node == node ? Self.ownPatience : Self.patience + delay)
    }
}
