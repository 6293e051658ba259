import Catalog
import History
import Judging
import Policy
import Postgres

/// Policies that decide which rows of some tables some holders may see, by the catalog in a transaction. Contains each
/// holder's claims in them, and the memberships in that transaction.
struct Ruling {
    /// Policies and bindings for one holder and one table.
    struct Pair {
        var holder: Int
        var table: CatalogTable
        /// Policies of the table for the role; nil if row security does not apply to the role.
        var policy: PolicyBinding?
        var residual: Residual
        /// Indexes in `sets` of the memberships that the policies read for this holder.
        var sets: [Int]
        /// Single policies, if there are several; empty otherwise, because a single one would equal the whole.
        var parts: [Part] = []
        /// Bindings that the holder asks for on the table; nil means all changes.
        var bindings: [TableBinding]?
        /// Cause for which no verdict for this pair is known: policies read unknown claims, or a filter is unknown.
        var blindness: UnknownCause?

        /// Part index that stands for all policies together without regard to bindings: one more than the last single
        /// policy's.
        var partOfAll: Int { parts.count }
    }

    /// One of several policies of a table, with the holder's claims in it.
    struct Part {
        var part: PolicyBinding.Part
        var residual: Residual
        var sets: [Int]
    }

    /// Membership of one holder: rows of another table that decide which rows the holder sees.
    struct Members {
        var held: HeldMembership
        var table: CatalogTable?
        var fill: MembershipFill
    }

    let view: CatalogView
    private(set) var pairs: [Pair] = []
    private(set) var sets: [Members] = []
    /// Role names of the holders, in their order.
    private let roles: [String]
    /// Index in `pairs` for each holder and table.
    private(set) var places: [Place: Int] = [:]

    struct Place: Hashable {
        var holder: Int
        var schema: String
        var table: String
    }

    /// Maximum number of policies of one table for which results are kept one by one.
    private static let mostParts = 16

    /// Builds the ruling. `concerns` returns true for a role and a table that the result must cover.
    init(
        _ view: CatalogView, _ holders: [ExplainedHolder], _ proposal: Proposal, asking bindings: BoundBindings? = nil,
        concerns: (String, CatalogTable) -> Bool
    ) throws {
        self.view = view
        roles = holders.map(\.role)
        var bindings = bindings
        let judge = TrialJudge(proposal.session)
        for (number, holder) in holders.enumerated() {
            let subject = PolicySubject(role: holder.role, claims: holder.claims, identity: UInt32(number))
            var known = KnownOfHolder()
            for table in view.snapshot.tables where bindings?.concerns(table) ?? concerns(holder.role, table) {
                guard view.isReadable(table, by: holder.role) else { continue }
                let policy = view.policy(of: holder.role, on: table)
                var pair = Pair(
                    holder: number, table: table, policy: policy,
                    residual: Residual(term: .always, memberships: [], mayAsk: false), sets: [])
                if let policy {
                    pair.residual = try Self.residual(policy.rowPolicy, subject, judge, &known)
                    pair.sets = try places(of: pair.residual, subject, judge, &known)
                    pair.parts = try parts(of: policy, subject, judge, &known)
                }
                pair.bindings = try bindings?.bindings(of: number, holder.role, table)
                places[Place(holder: number, schema: table.schema, table: table.name)] = pairs.count
                pairs.append(pair)
            }
        }
    }

    /// Answers of PostgreSQL and membership sets that were already read for one holder.
    private struct KnownOfHolder {
        var answers: [AskedTerm: AskedAnswer] = [:]
        var sets: [HeldMembership: Int] = [:]
    }

    private mutating func parts(
        of policy: PolicyBinding, _ subject: PolicySubject, _ judge: TrialJudge, _ known: inout KnownOfHolder
    ) throws(PostgresError) -> [Part] {
        guard policy.parts.count > 1, policy.parts.count <= Self.mostParts else { return [] }
        var parts: [Part] = []
        for part in policy.parts {
            let residual = try Self.residual(RowPolicy(part.term), subject, judge, &known)
            let sets = try places(of: residual, subject, judge, &known)
            parts.append(Part(part: part, residual: residual, sets: sets))
        }
        return parts
    }

    /// Returns the indexes in `sets` of the memberships that a policy reads; reads those that are not there yet.
    private mutating func places(
        of residual: Residual, _ subject: PolicySubject, _ judge: TrialJudge, _ known: inout KnownOfHolder
    ) throws(PostgresError) -> [Int] {
        var places: [Int] = []
        for held in residual.memberships {
            if let place = known.sets[held] {
                places.append(place)
                continue
            }
            sets.append(try members(held, subject, judge))
            known.sets[held] = sets.count - 1
            places.append(sets.count - 1)
        }
        assert(places.count == residual.memberships.count, "each membership has its set")
        return places
    }

    /// Returns the policy with the holder's claims in it. A policy may need values from PostgreSQL; the first answers
    /// may show that it needs more.
    private static func residual(
        _ policy: RowPolicy, _ subject: PolicySubject, _ judge: TrialJudge, _ known: inout KnownOfHolder
    ) throws(PostgresError) -> Residual {
        for _ in 0..<8 {
            let outcome = policy.residual(
                claims: Array(subject.claims.utf8), role: Array(subject.role.utf8), answers: known.answers)
            switch outcome {
            case .residual(let residual): return residual
            case .needs(let terms):
                known.answers.merge(try judge.evaluate(terms, as: subject)) { _, newest in newest }
            }
        }
        return .undecided
    }

    /// Reads the keys of a holder's membership from PostgreSQL.
    private func members(
        _ held: HeldMembership, _ subject: PolicySubject, _ judge: TrialJudge
    ) throws(PostgresError) -> Members {
        let reader = view.snapshot.policies.reader(held.membership.reader, caller: subject.role)
        let fill = try reader.map { reader throws(PostgresError) in
            let isSession = reader == view.snapshot.policies.login
            return try judge.fill(held.membership, as: subject, reader: isSession ? nil : reader)
        }
        let table = view.snapshot.followed(held.membership.table)
        return Members(held: held, table: table, fill: table == nil ? .unreadable : fill ?? .unreadable)
    }

    /// Role of the holder with this index.
    func role(of holder: Int) -> String { roles[holder] }

    /// True if only PostgreSQL can evaluate the policies for some rows.
    var mayAsk: Bool {
        pairs.contains { pair in
            pair.residual.mayAsk || pair.sets.contains { if case .filled = sets[$0].fill { false } else { true } }
        }
    }

    /// Largest number of single policies of any pair whose results are kept one by one.
    var partCount: Int {
        let most = pairs.reduce(0) { max($0, $1.parts.count + ($1.bindings == nil ? 0 : 1)) }
        assert(most <= Self.mostParts + 1, "a pair distinguishes no more policies than allowed")
        return most
    }

    /// Returns the names of the columns that policies or filters read and that a bundle has masked.
    func columns(maskedBy masking: Masking) -> Set<String> {
        var found: Set<String> = []
        for pair in pairs {
            let table = TableName(schema: pair.table.schema, name: pair.table.name)
            let ofPolicies = (pair.policy?.row.columns ?? []).filter(\.isNeeded).map(\.name)
            let ofFilters = (pair.bindings ?? []).flatMap { $0.predicate?.columns ?? [] }.map {
                pair.table.columns[$0].name
            }
            for name in ofPolicies + ofFilters where masking.masks(name, of: table) { found.insert("\(table).\(name)") }
        }
        return found
    }

    /// Gives up the results of single policies; only those of all policies together remain.
    mutating func dropParts() { for pair in pairs.indices { pairs[pair].parts = [] } }

    /// Marks the pairs whose verdicts depend on something unknown.
    ///
    /// - Parameter claims: names of each holder's unknown claims.
    /// - Parameter filters: tables for which the holder has an unknown filter.
    mutating func markUnknown(claims: [Set<String>], filters: [Set<TableName>]) {
        for place in pairs.indices {
            let pair = pairs[place]
            if filters[pair.holder].contains(TableName(schema: pair.table.schema, name: pair.table.name)) {
                pairs[place].blindness = .filters
            } else if let term = pair.policy?.rowPolicy.term, Self.depends(term, on: claims[pair.holder]) {
                pairs[place].blindness = .claims
            }
        }
    }

    /// True if the term reads one of the claims. Parts that only PostgreSQL can decide do not count: for rows where
    /// they matter, PostgreSQL gives the verdict.
    private static func depends(_ term: Term, on claims: Set<String>) -> Bool {
        guard term.contains(isLeftToPostgreSQL) else { return term.readsClaims(amongst: claims) }
        var depends = false
        term.visit { part in
            switch part {
            case .apply(_, let parts) where parts.count < 2: return
            case .apply, .member:
                depends = depends || !part.contains(isLeftToPostgreSQL) && part.readsClaims(amongst: claims)
            default: return
            }
        }
        return depends
    }

    private static func isLeftToPostgreSQL(_ term: Term) -> Bool {
        switch term {
        case .undecided, .ofClaims(nil, _): true
        default: false
        }
    }
}
