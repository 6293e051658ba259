import Catalog
import Change
import Diagnostics
import History
import Judging
import Policy
import Postgres

/// Counts of the rows that a holder may SELECT from each published table, taken by PostgreSQL.
extension Explainer {
    private static let countedRows = 10_000

    public func views(of holder: ExplainedHolder, _ only: TableName? = nil) throws(ExplainFailure) -> [TableFinding] {
        guard let snapshot else { throw .databaseAway }
        let tables = snapshot.tables.filter { table in
            only.map { $0 == TableName(schema: table.schema, name: table.name) } ?? true
        }
        guard mayAsk() else {
            return tables.map {
                TableFinding(
                    $0.quotedName, holder.role, .notable,
                    "was not checked: no login is fit to run policies, because it may do more than the client roles (policy_database_url)"
                )
            }
        }
        guard let target = settings.policies ?? settings.database else { throw .databaseAway }
        do throws(PostgresError) {
            let connection = try Connection(
                target, applicationName: "tidewire doctor", settings: Self.bounds,
                keepsSettings: true)
            return tables.map { view(of: $0, holder, connection) }
        } catch {
            throw .databaseAway
        }
    }

    private static let bounds = ["default_transaction_read_only=on", "statement_timeout=10s", "lock_timeout=2s"]

    private func view(of table: CatalogTable, _ holder: ExplainedHolder, _ connection: Connection) -> TableFinding {
        let name = table.quotedName
        do throws(PostgresError) {
            let count = try counted(name, holder, connection)
            let limit = Self.countedRows
            return TableFinding(
                name, holder.role, count == 0 ? .notable : .fine,
                "\(holder.name) sees \(count > limit ? "more than \(limit)" : count == 0 ? "none" : "\(count)") of its rows"
            )
        } catch {
            return TableFinding(
                name, holder.role, .wrong, "PostgreSQL refuses \(holder.name) its rows: \(error.message)")
        }
    }

    /// Counts the table's rows that the holder sees. Rolls the transaction back, so that functions called by policies
    /// have no effect.
    private func counted(
        _ table: String, _ holder: ExplainedHolder, _ connection: Connection
    ) throws(PostgresError) -> Int {
        defer { _ = try? connection.execute("ROLLBACK") }
        _ = try connection.execute("BEGIN READ ONLY")
        _ = try connection.query(
            "SELECT pg_catalog.set_config('request.jwt.claims', $1, true), pg_catalog.set_config('role', $2, true)",
            [holder.claims, holder.role])
        let rows = try connection.query(
            "SELECT pg_catalog.count(*) FROM (SELECT FROM \(table) LIMIT \(Self.countedRows + 1)) AS rows_of_it")
        return rows.values.first?[0].flatMap { Int($0) } ?? 0
    }
}
