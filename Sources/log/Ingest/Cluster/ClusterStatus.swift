import Diagnostics
import Synchronization
import System

/// State of a node in its cluster, which the ingest thread publishes, and the wish of an operator that the node give the
/// slot up. Any thread may use it.
public final class ClusterStatus: Sendable {
    public enum State: String, Sendable {
        /// The node has no connection to the servers, or has not begun to read the stream.
        case connecting
        case following
        /// The node holds the replication slot, and feeds the stream.
        case feeding
        /// The node's log is not one that the stream can continue.
        case refused
    }

    public struct Report: Sendable, Equatable {
        public var state = State.connecting
        /// Sequence of the message with which the last known tenure began; zero if none is known.
        public var tenure: UInt64 = 0
        /// Node that holds the slot in that tenure; nil if nobody does, or its name is not known yet.
        public var feeder: String?
        /// Unix time in seconds since which this node feeds the stream; nil if it does not.
        public var feedsSince: Int64?
        /// Sequence of the last message of the stream that the node's log has.
        public var sequence: UInt64 = 0
        /// Sequence of the last message that the node knows of.
        public var last: UInt64 = 0
        /// Monotonic time at which the log last had everything that the node knew of; nil if it never had.
        var caughtUpAt: UInt64?
        /// Monotonic time at which the node began to read the stream.
        var beganAt: UInt64
        public var refusal: ClusterRefusal?
        /// Reason why the node does not take part; nil while it does.
        public var trouble: String?
        /// Address of the server to which the node is connected; empty if there is none.
        public var server = ""
        /// Health of the stream, as the servers last told it; nil before that.
        public var stream: StreamHealth?

        /// Number of messages that the node's log lacks.
        public var missing: UInt64 { last - min(last, sequence) }

        /// Nanoseconds since the log last had everything that the node knew of; zero if it has everything.
        public func lag(at now: UInt64) -> UInt64 {
            if state == .feeding || missing == 0 && caughtUpAt != nil { return 0 }
            return now - min(now, caughtUpAt ?? beganAt)
        }

        /// True if clients should go to other nodes: the log never had everything, or has been behind for too long.
        public func isFarBehind(at now: UInt64) -> Bool {
            guard state != .feeding else { return false }
            return caughtUpAt == nil || lag(at: now) > Limits.clusterLagPatience.wholeNanoseconds
        }
    }

    /// Health of the stream at the servers.
    public struct StreamHealth: Sendable, Equatable {
        public struct Replica: Sendable, Equatable {
            public var server: String
            public var isCurrent: Bool
            public var isOffline: Bool
        }

        /// Server that leads the stream; nil while there is none.
        public var leader: String?
        public var replicas: [Replica] = []
        public var first: UInt64 = 0
        public var last: UInt64 = 0
        public var bytes: UInt64 = 0
    }

    public let node: String
    public let streamName: String
    private let state: Mutex<Report>
    private let handoverWish = Atomic<Bool>(false)

    init(node: String, stream: String) {
        self.node = node
        streamName = stream
        state = Mutex(Report(beganAt: Clock.monotonicNanoseconds()))
    }

    public var report: Report { state.withLock { $0 } }

    func change(_ body: (inout Report) -> Void) { state.withLock { body(&$0) } }

    // MARK: Handover

    /// True if an operator wants this node to give the slot up, and it has not done so.
    var isHandoverWanted: Bool { handoverWish.load(ordering: .acquiring) }

    /// Asks the node to give the slot up. Returns false if it does not hold it.
    public func wantHandover() -> Bool {
        guard report.state == .feeding else { return false }
        handoverWish.store(true, ordering: .releasing)
        return true
    }

    /// Ends the wish, because the node does not hold the slot any more.
    func handoverIsDone() { handoverWish.store(false, ordering: .releasing) }
}
