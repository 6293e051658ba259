import Change
import Delivery
import Diagnostics

/// What follows a project's database, as those see it who are served from it, from any thread.
public struct ProjectStream: Sendable {
    let log: LogSource
    /// Whether messages of the database arrive.
    let hearsDatabase: @Sendable () -> Bool
    /// Writes down who came and went; nil when nobody wants to know.
    let presenceTimeline: (@Sendable ([PresenceMark]) -> Void)?
    /// Nil where nothing is kept of channels.
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

/// What a hub has for one of its projects.
public struct ProjectShare: Sendable {
    /// Among the hub's projects; given again after it has gone.
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
