import Auth
import Bytes
import Catalog
import Matching
import Policy

/// Role and claims by which policies are evaluated. All channels of a loop with the same role and claims share one
/// holder.
public final class Holder {
    public struct Key: Hashable {
        public var role: [UInt8]
        public var claims: [UInt8]

        init(_ claims: Claims) {
            role = claims.role.copied()
            self.claims = claims.json.copied()
        }
    }

    public let key: Key
    /// Index of the holder in `HolderTable`.
    public let number: UInt32
    public let subject: PolicySubject
    /// Number of channels that use the holder.
    var users = 0
    /// PostgreSQL's answers about policy terms that depend on the claims alone.
    public var answers: [AskedTerm: AskedAnswer] = [:]
    /// Policies by the identity of their `PolicyBinding`. Each is ready or waits for its memberships.
    public var policies: [ObjectIdentifier: ActivePolicy] = [:]
    /// Policies of the holder, sorted by number, so that every run of the program has the same order.
    public var heldInOrder: [ActivePolicy] { policies.values.sorted { $0.number < $1.number } }
    /// Ticket of the open question to PostgreSQL about terms that depend on the claims alone.
    public var ticket: UInt64 = 0
    /// Indices of the channels that wait for the answer to the question with `ticket`.
    public var waiters: Set<UInt32> = []
    /// Indices of the channels that are about to move to the holder's follower, for which its policies are kept.
    public var newcomers: Set<UInt32> = []

    init(_ key: Key, _ subject: PolicySubject, number: UInt32) {
        self.key = key
        self.subject = subject
        self.number = number
    }
}

/// Policy of one holder, with the holder's claims filled in.
public final class ActivePolicy {
    public let binding: PolicyBinding
    public let residual: Residual
    public let sets: [MembershipSet]
    /// Index of the policy in `ActivePolicies`.
    public let number: UInt32
    /// Predicate that decides which rows the holder sees; nil until the memberships are known.
    public var predicate: Predicate?
    /// Last predicate that was known. What it shows, clients have been shown; nil before the first, and after a set was
    /// taken back to an earlier transaction.
    public var shown: Predicate?
    /// True if the holder was released or a newer policy has replaced this one. The policy is removed once no binding
    /// uses it.
    public var isRetired = false
    /// True if some channel waits until the policy's memberships are known.
    public var isAwaited: Bool { sets.contains(where: \.isAwaited) }
    /// Indices of the channels with bindings under the policy, each with the number of these bindings.
    public var places: [UInt32: Int] = [:]

    public init(_ binding: PolicyBinding, _ residual: Residual, _ sets: [MembershipSet], number: UInt32) {
        self.binding = binding
        self.residual = residual
        self.sets = sets
        self.number = number
    }

    public var isSettled: Bool { sets.allSatisfy(\.isSettled) }

    public func makePredicate(_ settings: FilterCheck.Settings, isDemoted: Bool) -> Predicate {
        precondition(isSettled || isDemoted, "nobody is judged by memberships that are not known")
        let residual = isDemoted ? .undecided : residual
        return residual.predicate(keys: sets.map(\.keys), asker: number, settings: settings)
    }

    public func add(_ place: UInt32) { places[place, default: 0] += 1 }

    public func remove(_ place: UInt32) {
        assert(places[place, default: 0] > 0, "a channel gives back what it is bound by")
        let left = (places[place] ?? 1) - 1
        places[place] = left > 0 ? left : nil
    }
}

/// Holders on one loop.
public struct HolderTable {
    public private(set) var holders = Slots<Holder>()

    private var numbers: [Holder.Key: UInt32] = [:]

    public init() {}

    /// Returns the holder with these claims, for one more channel. Calls `make` to make a new one if there is none.
    public mutating func take(_ claims: Claims, make: (UInt32) -> PolicySubject) -> Holder {
        let key = Holder.Key(claims)
        if let number = numbers[key], let known = holders[number] {
            known.users += 1
            return known
        }
        let number = holders.nextIndex
        let holder = Holder(key, make(number), number: number)
        holder.users = 1
        _ = holders.add(holder)
        numbers[key] = number
        return holder
    }

    /// Releases the holder for one channel. Returns true if it was the holder's last channel: the caller must then
    /// release the holder's policies.
    public mutating func release(_ holder: Holder) -> Bool {
        assert(holder.users > 0 && holders.contains(holder.number), "a holder is given back by its channels")
        holder.users -= 1
        guard holder.users == 0 else { return false }
        numbers[holder.key] = nil
        holders.remove(holder.number)
        return true
    }
}
