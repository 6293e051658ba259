import Diagnostics
import Synchronization

/// Limit of the memory for incomplete messages and requests of all clients: bytes that are kept until the rest arrives.
///
/// All loops share one budget. A budget for some of the clients also counts against a larger one. So these clients
/// cannot use up the memory of the others.
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

    /// True if a connection that holds `bytes` must be closed. A connection that holds little is closed only at twice
    /// the limit, so that a few large messages do not harm many clients with small ones.
    func isExceeded(byHolderOf bytes: Int) -> Bool {
        let allowed = bytes <= Self.little ? 2 * limit : limit
        return used.load(ordering: .relaxed) > allowed || whole?.isExceeded(byHolderOf: bytes) ?? false
    }

    static let little = 256 << 10
}

/// Budgets that pay for the incomplete input of one loop's connections: first the common one, then others by index.
struct InputAccounts {
    private var budgets: [InputBudget]
    private let metrics: ProcessMetrics

    init(common: InputBudget, _ metrics: ProcessMetrics) {
        budgets = [common]
        self.metrics = metrics
    }

    /// Charges a connection's incomplete input, also what it holds now, to a budget.
    mutating func bill(_ connection: inout Connection, to budget: InputBudget) {
        let held = connection.input.chargedBytes
        charge(connection.account, from: held, to: 0)
        connection.charge(to: account(of: budget))
        charge(connection.account, from: 0, to: held)
    }

    private mutating func account(of budget: InputBudget) -> UInt16 {
        if let known = budgets.firstIndex(where: { $0 === budget }) { return UInt16(known) }
        // The index is used up after that many budgets, so the common budget pays.
        guard budgets.count < Int(UInt16.max) else { return 0 }
        budgets.append(budget)
        return UInt16(budgets.count - 1)
    }

    /// Charges the difference of the bytes that a connection holds.
    @inline(__always)
    func charge(_ account: UInt16, from before: Int, to after: Int) {
        guard before != after else { return }
        budgets[Int(account)].add(after - before)
        metrics.unfinishedInputBytes.add(Int64(after - before))
    }

    /// True if a connection must be closed for the memory of its incomplete input.
    func haveNoRoom(for connection: Connection) -> Bool {
        let held = connection.input.chargedBytes
        return held > 0 && budgets[Int(connection.account)].isExceeded(byHolderOf: held)
    }
}
