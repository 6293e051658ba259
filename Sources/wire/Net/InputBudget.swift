import Diagnostics
import Synchronization

/// Limit of the memory that all clients' incomplete messages and requests use: bytes that the hub keeps until the rest
/// arrives.
///
/// All loops share one budget. A budget for some of the clients also counts against the budget `whole`, so these
/// clients cannot use up the memory of the others.
public final class InputBudget: Sendable {
    private let limit: Int
    private let whole: InputBudget?
    private let used = Atomic<Int>(0)

    public init(_ limit: Int, of whole: InputBudget? = nil) {
        self.limit = limit
        self.whole = whole
    }

    public var usedBytes: Int { used.load(ordering: .relaxed) }

    func add(_ bytes: Int) {
        used.add(bytes, ordering: .relaxed)
        whole?.add(bytes)
    }

    /// True if the budget is exceeded so far that a connection which holds `bytes` must be closed. A connection that
    /// holds little is closed only at twice the limit, so that a few large messages do not end many clients with small
    /// ones.
    func isExceeded(byHolderOf bytes: Int) -> Bool {
        let allowed = bytes <= Self.little ? 2 * limit : limit
        return used.load(ordering: .relaxed) > allowed || whole?.isExceeded(byHolderOf: bytes) ?? false
    }

    static let little = 256 << 10
}

/// Budgets to which one loop charges the incomplete input of its connections. Index 0 is the common budget.
struct InputAccounts {
    private var budgets: [InputBudget]
    private let metrics: ProcessMetrics

    init(common: InputBudget, _ metrics: ProcessMetrics) {
        budgets = [common]
        self.metrics = metrics
    }

    /// Charges a connection's incomplete input to a budget from now on, and moves the bytes that it holds already.
    mutating func bill(_ connection: inout Connection, to budget: InputBudget) {
        let held = connection.input.chargedBytes
        charge(connection.account, from: held, to: 0)
        connection.charge(to: account(of: budget))
        charge(connection.account, from: 0, to: held)
    }

    private mutating func account(of budget: InputBudget) -> UInt16 {
        if let known = budgets.firstIndex(where: { $0 === budget }) { return UInt16(known) }
        // Once all indexes are used, the common budget is charged.
        guard budgets.count < Int(UInt16.max) else { return 0 }
        budgets.append(budget)
        return UInt16(budgets.count - 1)
    }

    /// Charges a budget with the difference between the bytes that a connection held before and holds now.
    @inline(__always)
    func charge(_ account: UInt16, from before: Int, to after: Int) {
        guard before != after else { return }
        budgets[Int(account)].add(after - before)
        metrics.unfinishedInputBytes.add(Int64(after - before))
    }

    /// True if a connection must be closed because its budget for incomplete input is exceeded.
    func haveNoRoom(for connection: Connection) -> Bool {
        let held = connection.input.chargedBytes
        return held > 0 && budgets[Int(connection.account)].isExceeded(byHolderOf: held)
    }
}
