import Asking
import Catalog
import Diagnostics
import History
import Judging
import Postgres
import System

/// Transaction in which SQL that a user proposes is applied; it is always rolled back.
///
/// The changed catalog is read in that transaction, and questions to PostgreSQL are asked there, so other sessions see
/// nothing of it. The transaction holds the locks that the SQL takes, from `apply` until `undo`.
final class Proposal {
    let session: PolicySession
    private let publication: String
    private let interrupt: Wake

    init(_ target: ConnectionTarget, publication: String) throws {
        self.publication = publication
        interrupt = try Wake()
        let milliseconds = Limits.policyTimeout.wholeMilliseconds
        session = try PolicySession(
            target, applicationName: "tidewire whatif",
            settings: [
                "row_security=on", "statement_timeout=\(10 * milliseconds)", "lock_timeout=\(milliseconds)",
                "default_transaction_read_only=off", "check_function_bodies=on",
            ], connectTimeout: Limits.connectTimeout, answerTimeout: Limits.answerTimeout, interrupt: interrupt)
        try run("BEGIN ISOLATION LEVEL READ COMMITTED", "SAVEPOINT tidewire_proposal")
    }

    private func run(_ statements: String...) throws(PostgresError) {
        for statement in statements { _ = try session.query(statement) }
    }

    /// Runs the SQL with the search path of the connection's login. The SQL cannot end the transaction: a PL/pgSQL
    /// block executes its statements, and PostgreSQL refuses COMMIT and ROLLBACK in it.
    func apply(_ sql: String) throws(PostgresError) {
        _ = try session.pipeline([try session.surroundingsStatement(nil)])[0].get()
        _ = try session.query("SELECT pg_catalog.set_config('tidewire.proposal', $1, true)", [sql])
        try run(
            "DO $tidewire$ BEGIN EXECUTE pg_catalog.current_setting('tidewire.proposal'); END $tidewire$",
            "SELECT pg_catalog.set_config('search_path', 'pg_catalog', true), pg_catalog.set_config('role', 'none', true)"
        )
        _ = try session.pipeline([session.ownSettingsStatement])[0].get()
    }

    /// Undoes the SQL and releases its locks.
    func undo() throws(PostgresError) { try run("ROLLBACK TO SAVEPOINT tidewire_proposal") }

    /// Rolls the transaction back. No question can be asked afterwards.
    func end() throws(PostgresError) { try run("ROLLBACK") }

    /// Returns a view of the catalog as it is in the transaction at this moment.
    func view(for roles: [String]) throws(PostgresError) -> CatalogView {
        try trial.view(for: roles)
    }

    /// Returns the tables of all publications in the database, also of those that are not for clients.
    func publishedTables() throws(PostgresError) -> Set<TableName> {
        let rows = try session.query("SELECT schemaname, tablename FROM pg_catalog.pg_publication_tables", [])
        return Set(
            rows.values.compactMap { row in
                guard row.count == 2, let schema = row[0], let name = row[1] else { return nil }
                return TableName(schema: schema, name: name)
            })
    }

    /// Returns the outcome of a subscription by the catalog as it is in the transaction at this moment.
    func outcome(of request: BindingRequest, in view: CatalogView) throws(PostgresError) -> BindingOutcome? {
        try trial.outcome(of: request, in: view)
    }

    private var trial: CatalogTrial { CatalogTrial(session, publication: publication, interrupt: interrupt) }
}
