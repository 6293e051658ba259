import Delivery
import Net

/// A project's shares of what all clients may take together.
public struct ProjectBudgets: Sendable {
    /// Messages and requests that are not whole.
    let input: InputBudget
    let filters: HolderBudget
    let presence: HolderBudget
}
