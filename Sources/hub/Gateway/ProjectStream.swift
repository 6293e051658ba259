import Change
import Delivery
import Diagnostics

/// Log and state of a project's database stream, for use from any thread.
public struct ProjectStream: Sendable {
    let log: LogSource
    /// Function that returns true if database messages arrive.
    let hearsDatabase: @Sendable () -> Bool
    /// Function that writes down presence changes; nil if they are not recorded.
    let presenceTimeline: (@Sendable ([PresenceMark]) -> Void)?
    /// Ledger of channel events; nil if none is kept.
    let ledger: ChannelLedger?
    let condition: @Sendable (_ isCatalogKnown: Bool) -> ProjectHealthReport

    public init(
        log: LogSource, hearsDatabase: @escaping @Sendable () -> Bool,
        presenceTimeline: (@Sendable ([PresenceMark]) -> Void)?, ledger: ChannelLedger? = nil,
        condition: @escaping @Sendable (_ isCatalogKnown: Bool) -> ProjectHealthReport
    ) {
        self.log = log
        self.hearsDatabase = hearsDatabase
        self.presenceTimeline = presenceTimeline
        self.ledger = ledger
        self.condition = condition
    }
}

/// Resources that the hub assigns to one of its projects.
public struct ProjectShare: Sendable {
    /// Number among the hub's projects. A later project may reuse the number of one that has ended.
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
