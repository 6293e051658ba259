import Asking
import Change
import Diagnostics
import Policy
import Postgres
import Replication
import System

/// Catalog that is read once and has no listeners. It is read in a transaction that the caller has begun, or from a
/// record in the event log.
public struct CatalogTrial {
    private let reader: CatalogReader

    /// Creates the trial on the session's open transaction. It sees changes of the catalog that the transaction made
    /// and other sessions do not see.
    public init(_ session: PolicySession, publication: String, interrupt: Wake) {
        self.init(AskedTransaction(session.connection, interrupt: interrupt), publication)
    }

    public init(_ record: CatalogRecord, compiling: PolicyCompiling = .real) {
        self.init(RecordedAnswers(record), record.publication, compiling)
    }

    init(_ asked: any CatalogAnswering, _ publication: String, _ compiling: PolicyCompiling = .real) {
        reader = CatalogReader(
            asked: asked, publication: publication, compiling: compiling, bench: TrialBench(),
            coverage: CoverageWatch(StreamCoverage(followedSince: .zero)), definitions: DefinitionBook(), slot: "",
            metrics: ProjectMetrics())
    }

    /// Returns the published tables and the rights of these roles to them.
    public func view(for roles: [String]) throws(PostgresError) -> CatalogView {
        var view = try reader.view(after: nil)
        // The tables that a policy reads have policies too, which may read further tables.
        for _ in 0..<8 {
            let wanted = wanted(roles, view)
            if wanted.isEmpty { break }
            view.roles.add(try reader.roles(wanted, of: view.snapshot))
            view.combinePolicies(after: view)
            // A role that does not exist now will not exist in the next round either.
            if wanted.keys.allSatisfy({ !view.roles.existing.contains($0) }) { break }
        }
        return view
    }

    /// Returns the outcome of a request, with the filter's literals converted by PostgreSQL. Nil if the role's rights
    /// are unknown.
    public func outcome(of request: BindingRequest, in view: CatalogView) throws(PostgresError) -> BindingOutcome? {
        switch BindingResolver(view: view).step(request) {
        case .final(let outcome), .outcome(let outcome): return outcome
        case .needsAccess: return nil
        case .drafts(let drafts): return try reader.outcomes(of: [request: drafts])[request]
        }
    }

    private func wanted(_ roles: [String], _ view: CatalogView) -> [String: Set<UInt32>] {
        var wanted: [String: Set<UInt32>] = [:]
        for role in roles {
            for table in view.snapshot.tables {
                let needs = PolicyCombiner.needs(AccessKey(role: role, table: table.oid), view.snapshot)
                for key in needs where view.roles.access[key] == nil { wanted[key.role, default: []].insert(key.table) }
            }
        }
        return wanted
    }
}

extension CatalogView {
    /// Returns the combined policies of the role on the table; nil if row level security is not active for the role.
    public func policy(of role: String, on table: CatalogTable) -> PolicyBinding? {
        policies[AccessKey(role: role, table: table.oid)]
    }

    /// Returns the role's rights to the table; nil if the role or the table does not exist.
    public func access(of role: String, to table: CatalogTable) -> TableAccess? {
        roles.access[AccessKey(role: role, table: table.oid)]
    }

    /// True if the role receives rows of the table, because it may read the whole primary key.
    public func isReadable(_ table: CatalogTable, by role: String) -> Bool {
        guard let access = access(of: role, to: table), !table.primaryKey.isEmpty else { return false }
        return table.primaryKey.allSatisfy(access.selectable.contains)
    }
}
