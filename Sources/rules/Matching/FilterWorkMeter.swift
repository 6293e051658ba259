/// Meter for the work of filters that are evaluated one by one, with an account for each party that may be charged.
///
/// The work that a change usually takes is free. Work beyond that comes out of a reserve for all accounts, which
/// refills with time. If the reserve is empty, filters whose account has taken much of the current change are skipped.
/// The others go on.
struct FilterWorkMeter: ~Copyable {
    private let allowance: Allowance
    private var purse: Int
    private var filledAt: UInt64 = 0
    /// Work that the current change has taken.
    private var work = 0
    /// Number of the current change. Work of an account for an earlier change does not count.
    private var change: UInt32 = 0
    private var accounts = Pool<Account>()
    /// Accounts that were stopped since the last call of `takeStopped`.
    private var stopped = Pool<UInt32>()

    struct Account: BitwiseCopyable {
        var change: UInt32 = 0
        var isStopped = false
        var work = 0
    }

    init(_ allowance: Allowance) {
        self.allowance = allowance
        purse = allowance.most
    }

    /// Refills the reserve for the time that has passed.
    mutating func fill(_ now: UInt64) {
        if filledAt == 0 { filledAt = now }
        guard now > filledAt else { return }
        let gained = Int(clamping: (now - filledAt) / 1000).multipliedReportingOverflow(by: allowance.perMicrosecond)
        purse = gained.overflow ? allowance.most : min(allowance.most, purse + gained.partialValue)
        filledAt = now
    }

    @inline(__always)
    mutating func beginChange() {
        work = 0
        change &+= 1
    }

    /// True if the account may spend this effort on the current change.
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
        guard isLittle || purse >= effort else {
            work -= effort
            stop(account)
            return false
        }
        accounts[Int(account)].work = taken
        purse = max(0, purse - effort)
        assert(purse <= allowance.most, "more than there can be")
        return true
    }

    private mutating func stop(_ account: UInt32) {
        if accounts[Int(account)].isStopped { return }
        accounts[Int(account)].isStopped = true
        stopped.append(account)
    }

    /// Returns the accounts that were stopped since the last call.
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

/// Limits for the work of filters that are evaluated one by one, in units of `Effort`.
public struct Allowance: Sendable {
    /// Free work for each change, for all accounts together.
    public var ofChange: Int
    /// Work beyond `ofChange`, for each change and account.
    public var ofAccount: Int
    /// Maximum of the reserve for work beyond both limits.
    public var most: Int
    /// Work that returns to the reserve per microsecond.
    public var perMicrosecond: Int

    public init(ofChange: Int, ofAccount: Int, most: Int, perMicrosecond: Int) {
        self.ofChange = ofChange
        self.ofAccount = ofAccount
        self.most = most
        self.perMicrosecond = perMicrosecond
    }

    public static let unlimited = Allowance(ofChange: .max, ofAccount: .max, most: .max, perMicrosecond: 0)
}
