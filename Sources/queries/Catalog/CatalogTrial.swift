import Asking
import Change
import Diagnostics
import Policy
import Postgres
import Replication
import System

/// The catalog by itself, without anybody who follows it: within a transaction that somebody else began, or as it was when it
/// was recorded.
public struct CatalogTrial {
    private let reader: CatalogReader

    /// As the session's transaction has made it, and nobody else sees it.
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

    /// The published tables, and what these roles may see of them.
    public func view(for roles: [String]) throws(PostgresError) -> CatalogView {
        var view = try reader.view(after: nil)
        // What a policy reads has policies, which read more.
        for _ in 0..<8 {
            let wanted = wanted(roles, view)
            if wanted.isEmpty { break }
            view.roles.add(try reader.roles(wanted, of: view.snapshot))
            view.combinePolicies(after: view)
            // Whoever does not exist will not the next time.
            if wanted.keys.allSatisfy({ !view.roles.existing.contains($0) }) { break }
        }
        return view
    }

    /// What a request means there, with its values in the form that PostgreSQL gives them; nil where the role has no view.
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
    /// Nil where row level security does not bind the role.
    public func policy(of role: String, on table: CatalogTable) -> PolicyBinding? {
        policies[AccessKey(role: role, table: table.oid)]
    }

    /// Nil where the role, or the table, does not exist.
    public func access(of role: String, to table: CatalogTable) -> TableAccess? {
        roles.access[AccessKey(role: role, table: table.oid)]
    }

    /// Whether the role is sent rows of the table at all: its key has to be readable.
    public func isReadable(_ table: CatalogTable, by role: String) -> Bool {
        guard let access = access(of: role, to: table), !table.primaryKey.isEmpty else { return false }
        return table.primaryKey.allSatisfy(access.selectable.contains)
    }
}
