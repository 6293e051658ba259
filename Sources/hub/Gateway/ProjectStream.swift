import Change
import Delivery
import Diagnostics
import Peers

/// Event log of a project and state of its database stream. Any thread may use it.
public struct ProjectStream: Sendable {
    let log: LogSource
    /// Function that returns true if the hub now receives messages that PostgreSQL broadcasts (rows of
    /// `realtime.messages`).
    let hearsDatabase: @Sendable () -> Bool
    /// Function that records presence changes in the log; nil if they are not recorded.
    let presenceTimeline: (@Sendable ([PresenceMark]) -> Void)?
    /// Ledger of channel events; nil if none is kept.
    let ledger: ChannelLedger?
    /// Exchange with the other nodes of a cluster; nil for a hub on its own.
    let peers: PeerTalk?
    /// Function that returns the state of the stream. Its parameter is true if the catalog is known.
    let condition: @Sendable (_ isCatalogKnown: Bool) -> ProjectHealthReport

    public init(
        log: LogSource, hearsDatabase: @escaping @Sendable () -> Bool,
        presenceTimeline: (@Sendable ([PresenceMark]) -> Void)?, ledger: ChannelLedger? = nil,
        peers: PeerTalk? = nil, condition: @escaping @Sendable (_ isCatalogKnown: Bool) -> ProjectHealthReport
    ) {
        self.log = log
        self.hearsDatabase = hearsDatabase
        self.presenceTimeline = presenceTimeline
        self.ledger = ledger
        self.peers = peers
        self.condition = condition
    }
}

/// Resources that the hub assigns to one project.
public struct ProjectShare: Sendable {
    /// Number of the project in this process. It may be reused after the project has ended.
    let number: UInt32
    let loops: Int
    let budgets: ProjectBudgets
    let metrics: ProjectMetrics

    public init(number: UInt32, loops: Int, _ budgets: ProjectBudgets, _ metrics: ProjectMetrics) {
        self.number = number
        self.loops = loops
        self.budgets = budgets
        self.metrics = metrics
    }
}
