import Asking
import Change
import Diagnostics
import Postgres
import Replication
import System

/// The catalog as a transaction has made it, and nobody else sees it: read within that transaction, which somebody began and
/// will roll back.
public struct CatalogTrial {
    private let reader: CatalogReader

    /// `session` is in a transaction.
    public init(_ session: PolicySession, publication: String, interrupt: Wake) {
        reader = CatalogReader(
            connection: session.connection, publication: publication, interrupt: interrupt, compiling: .real,
            bench: TrialBench(), coverage: CoverageWatch(StreamCoverage(followedSince: .zero)),
            metrics: ProjectMetrics(), isNested: true)
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
            if wanted.allSatisfy({ role, _ in !view.roles.existing.contains(role) }) { break }
        }
        return view
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

extension CatalogReader {
    /// What would be transactions of their own are savepoints, and a statement that fails takes nothing with it.
    func askNested(_ statements: [PipelinedStatement]) throws(PostgresError) -> [Result<Rows, PostgresError>] {
        var sent: [PipelinedStatement] = []
        var places: [Int] = []
        var isWithin = false
        for statement in statements {
            switch statement.sql.prefix(while: { $0 != " " }) {
            case "BEGIN":
                places.append(sent.count)
                sent.append(Self.save)
                isWithin = true
            case "ROLLBACK":
                places.append(sent.count)
                sent += [Self.undo, Self.release]
                isWithin = false
            case "COMMIT":
                places.append(sent.count)
                sent.append(Self.release)
                isWithin = false
            case _ where isWithin:
                places.append(sent.count)
                sent.append(statement)
            default:
                places.append(sent.count + 1)
                sent += [Self.save, statement, Self.undo, Self.release]
            }
        }
        let answers = try askAll(sent)
        return places.map { answers[$0] }
    }

    private static let save = PipelinedStatement("SAVEPOINT tidewire_catalog")
    private static let undo = PipelinedStatement("ROLLBACK TO SAVEPOINT tidewire_catalog")
    private static let release = PipelinedStatement("RELEASE SAVEPOINT tidewire_catalog")
}
