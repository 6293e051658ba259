/// Meter that limits the work of filters which are evaluated one by one. It has an account for each party that may be
/// charged, such as a client.
///
/// For each change, a certain amount of work is free. Work beyond it is taken from a reserve that all accounts share
/// and that refills with time. If the reserve is empty, the meter skips filters whose account has already used much
/// work for the current change. Filters of other accounts are still evaluated.
struct FilterWorkMeter: ~Copyable {
    private let allowance: Allowance
    /// Work that is left in the reserve, in units of `Effort`.
    private var reservedWork: Int
    /// Time of the last refill in nanoseconds; 0 before the first.
    private var filledAt: UInt64 = 0
    /// Work that the current change has used, of all accounts.
    private var work = 0
    /// Number of the current change. Work that an account used for an earlier change does not count.
    private var change: UInt32 = 0
    private var accounts = Pool<Account>()
    /// Accounts of which a filter was skipped since the last call of `takeStopped`.
    private var stopped = Pool<UInt32>()

    /// Work of one party for one change.
    struct Account: BitwiseCopyable {
        var change: UInt32 = 0
        var isStopped = false
        var work = 0
    }

    init(_ allowance: Allowance) {
        self.allowance = allowance
        reservedWork = allowance.most
    }

    /// Refills the reserve for the time since the last refill. `now` is in nanoseconds.
    mutating func fill(_ now: UInt64) {
        if filledAt == 0 { filledAt = now }
        guard now > filledAt else { return }
        let gained = Int(clamping: (now - filledAt) / 1000).multipliedReportingOverflow(by: allowance.perMicrosecond)
        reservedWork = gained.overflow ? allowance.most : min(allowance.most, reservedWork + gained.partialValue)
        filledAt = now
    }

    @inline(__always)
    /// Begins to measure the work for the next change. All accounts begin again at 0.
    mutating func beginChange() {
        work = 0
        change &+= 1
    }

    /// Charges the effort to the account for the current change. Returns false if the filter must be skipped.
    @inline(__always)
    mutating func take(_ effort: Int, _ account: UInt32) -> Bool {
        work &+= effort
        return work <= allowance.ofChange || mayGoOn(effort, account)
    }

    @inline(never)
    private mutating func mayGoOn(_ effort: Int, _ account: UInt32) -> Bool {
        precondition(effort >= 0, "work that gives back what others took")
        guard account != .none else { return true }
        while accounts.count <= Int(account) { accounts.append(Account()) }
        if accounts[Int(account)].change != change {
            accounts[Int(account)].change = change
            accounts[Int(account)].work = 0
        }
        let taken = accounts[Int(account)].work + effort
        let isLittle = taken <= allowance.ofAccount
        guard isLittle || reservedWork >= effort else {
            work -= effort
            stop(account)
            return false
        }
        accounts[Int(account)].work = taken
        reservedWork = max(0, reservedWork - effort)
        assert(reservedWork <= allowance.most, "more than there can be")
        return true
    }

    private mutating func stop(_ account: UInt32) {
        if accounts[Int(account)].isStopped { return }
        accounts[Int(account)].isStopped = true
        stopped.append(account)
    }

    /// Returns the accounts of which a filter was skipped since the last call.
    mutating func takeStopped() -> [UInt32] {
        var taken: [UInt32] = []
        while !stopped.isEmpty {
            let account = stopped.removeLast()
            accounts[Int(account)].isStopped = false
            taken.append(account)
        }
        return taken
    }
}

/// Limits of the work for filters that are evaluated one by one, in units of `Effort`.
public struct Allowance: Sendable {
    /// Free work for each change, of all accounts together.
    public var ofChange: Int
    /// Work beyond `ofChange` that each account may use for a change even if the reserve is empty.
    public var ofAccount: Int
    /// Maximum of the reserve from which work beyond the free amount is taken.
    public var most: Int
    /// Work that is added to the reserve each microsecond.
    public var perMicrosecond: Int

    public init(ofChange: Int, ofAccount: Int, most: Int, perMicrosecond: Int) {
        self.ofChange = ofChange
        self.ofAccount = ofAccount
        self.most = most
        self.perMicrosecond = perMicrosecond
    }

    public static let unlimited = Allowance(ofChange: .max, ofAccount: .max, most: .max, perMicrosecond: 0)
}
