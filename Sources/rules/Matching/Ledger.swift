/// Counts the time that filters take that are tried one by one: one account for each who may have to answer for it.
///
/// Nobody is asked for the little that a change usually takes. What goes beyond that comes out of a purse for all, which
/// fills up as time goes by; where it is empty, those who take much of the change at hand are not tried any more, and the
/// others go on.
struct Ledger: ~Copyable {
    private let allowance: Allowance
    private var purse: Int
    private var filledAt: UInt64 = 0
    /// The work that the change at hand took.
    private var work = 0
    /// Changes, so that what an account took of an earlier one does not count.
    private var change: UInt32 = 0
    private var accounts = Pool<Account>()
    /// Accounts that were stopped, until somebody asks.
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

    /// Time has gone by.
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

    /// Whether so much may be done for the account.
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

    /// The accounts that were stopped since this was asked last.
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

/// The work that may be done for filters that are tried one by one, in units of `Effort`.
public struct Allowance: Sendable {
    /// Of each change, whoever it is for.
    public var ofChange: Int
    /// Beyond that, of each change for each account.
    public var ofAccount: Int
    /// The reserve beyond both, at most …
    public var most: Int
    /// … and how fast it comes back.
    public var perMicrosecond: Int

    public init(ofChange: Int, ofAccount: Int, most: Int, perMicrosecond: Int) {
        self.ofChange = ofChange
        self.ofAccount = ofAccount
        self.most = most
        self.perMicrosecond = perMicrosecond
    }

    public static let unlimited = Allowance(ofChange: .max, ofAccount: .max, most: .max, perMicrosecond: 0)
}
