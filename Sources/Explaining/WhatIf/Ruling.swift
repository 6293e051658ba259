import Catalog
import Judging
import Policy
import Postgres

/// What some holders may see of some tables, by the catalog as a transaction has it: the policies with each holder's claims in
/// them, and the memberships as they are there.
struct Ruling {
    /// One holder and one table.
    struct Pair {
        var holder: Int
        var table: CatalogTable
        /// Nil where row security does not bind the role.
        var policy: PolicyBinding?
        var residual: Residual
        /// The places of its memberships in `sets`.
        var sets: [Int]
    }

    /// A membership of one holder.
    struct Members {
        var held: HeldMembership
        var table: CatalogTable?
        var fill: MembershipFill
    }

    let view: CatalogView
    private(set) var pairs: [Pair] = []
    private(set) var sets: [Members] = []

    /// `concerns` says which tables of which roles are of interest.
    init(
        _ view: CatalogView, _ holders: [ExplainedHolder], _ proposal: Proposal,
        concerns: (String, CatalogTable) -> Bool
    ) throws(PostgresError) {
        self.view = view
        let judge = TrialJudge(proposal.session)
        for (number, holder) in holders.enumerated() {
            let claimant = Claimant(role: holder.role, claims: holder.claims, identity: UInt32(number))
            var known: [HeldMembership: Int] = [:]
            for table in view.snapshot.tables where concerns(holder.role, table) {
                guard view.isReadable(table, by: holder.role) else { continue }
                let policy = view.policy(of: holder.role, on: table)
                let residual = try Self.residual(policy, claimant, judge)
                let places = try residual.memberships.map { held throws(PostgresError) in
                    if let place = known[held] { return place }
                    sets.append(try members(held, claimant, judge))
                    known[held] = sets.count - 1
                    return sets.count - 1
                }
                pairs.append(Pair(holder: number, table: table, policy: policy, residual: residual, sets: places))
            }
        }
    }

    /// What is asked first may decide that more has to be asked.
    private static func residual(
        _ policy: PolicyBinding?, _ claimant: Claimant, _ judge: TrialJudge
    ) throws(PostgresError) -> Residual {
        guard let policy else { return Residual(term: .always, memberships: [], mayAsk: false) }
        var answers: [AskedTerm: AskedAnswer] = [:]
        for _ in 0..<8 {
            let outcome = policy.rowPolicy.residual(
                claims: Array(claimant.claims.utf8), role: Array(claimant.role.utf8), answers: answers)
            switch outcome {
            case .residual(let residual): return residual
            case .needs(let terms): answers.merge(try judge.evaluate(terms, as: claimant)) { _, newest in newest }
            }
        }
        return .undecided
    }

    private func members(
        _ held: HeldMembership, _ claimant: Claimant, _ judge: TrialJudge
    ) throws(PostgresError) -> Members {
        let reader = view.snapshot.policies.reader(held.membership.reader, caller: claimant.role)
        let fill = try reader.map { reader throws(PostgresError) in
            let isSession = reader == view.snapshot.policies.login
            return try judge.fill(held.membership, as: claimant, reader: isSession ? nil : reader)
        }
        let table = view.snapshot.followed(held.membership.table)
        return Members(held: held, table: table, fill: table == nil ? .unreadable : fill ?? .unreadable)
    }

    /// Whether PostgreSQL is to be asked about some rows.
    var mayAsk: Bool {
        pairs.contains { pair in
            pair.residual.mayAsk || pair.sets.contains { if case .filled = sets[$0].fill { false } else { true } }
        }
    }
}
