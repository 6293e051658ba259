import Auth
import Bytes
import Catalog
import Matching
import Policy

/// Role and claims that policies judge. All channels of a loop with the same role and claims share one holder.
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
    /// Number of the holder on the loop.
    public let number: UInt32
    public let claimant: PolicySubject
    /// Number of channels that use the holder.
    var users = 0
    /// PostgreSQL's answers about terms that depend on the claims alone.
    public var answers: [AskedTerm: AskedAnswer] = [:]
    /// Active policies by the identity of their `PolicyBinding`; they are ready or wait for their memberships.
    public var policies: [ObjectIdentifier: ActivePolicy] = [:]
    /// Policies of the holder, in an order that does not differ between runs.
    public var heldInOrder: [ActivePolicy] { policies.values.sorted { $0.number < $1.number } }
    /// Ticket of the question about the claims that is under way. `waiters` are the channels that wait for its answer.
    public var ticket: UInt64 = 0
    public var waiters: Set<UInt32> = []

    init(_ key: Key, _ claimant: PolicySubject, number: UInt32) {
        self.key = key
        self.claimant = claimant
        self.number = number
    }
}

/// Policy as it applies to one holder.
public final class ActivePolicy {
    public let binding: PolicyBinding
    let residual: Residual
    public let sets: [MembershipSet]
    /// Number of the policy among the loop's policies.
    public let number: UInt32
    /// Predicate that rows are matched against; nil until the memberships are known.
    public var predicate: Predicate?
    /// True if the holder is gone or another policy has replaced this one. The policy is removed with its last binding.
    public var isRetired = false
    /// True if a channel waits until the policy's memberships are known.
    public var isAwaited: Bool { sets.contains(where: \.isAwaited) }
    /// Channels that are bound by the policy, with the number of their bindings.
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

    /// Gives the holder back for one channel. True if that was the last channel: the caller then releases what the
    /// holder has.
    public mutating func release(_ holder: Holder) -> Bool {
        assert(holder.users > 0 && holders.contains(holder.number), "a holder is given back by its channels")
        holder.users -= 1
        guard holder.users == 0 else { return false }
        numbers[holder.key] = nil
        holders.remove(holder.number)
        return true
    }
}
