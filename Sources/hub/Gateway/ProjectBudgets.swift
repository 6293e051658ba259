import Delivery
import Net

/// Shares of one project in the hub's budgets.
public struct ProjectBudgets: Sendable {
    /// Budget of bytes for unfinished messages and requests.
    let input: InputBudget
    let filters: HolderBudget
    let presence: HolderBudget
}
