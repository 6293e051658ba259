import Delivery
import Net

/// Shares of one project in the hub's memory budgets.
public struct ProjectBudgets: Sendable {
    /// Budget of unfinished messages and requests.
    let input: InputBudget
    let filters: HolderBudget
    let presence: HolderBudget
}
