import Asking
import Catalog
import Diagnostics
import History
import Judging
import Postgres
import System

/// SQL that somebody proposes, applied in a transaction that is rolled back whatever happens.
///
/// What it makes of the catalog is read in that transaction, and whatever only PostgreSQL can say is asked there: nobody else
/// sees any of it. It holds the locks that the SQL takes, from `apply` until `undo`.
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

    /// Names in it mean what they mean to its login. The server itself sees to it that it ends no transaction: what a block
    /// of PL/pgSQL executes cannot.
    func apply(_ sql: String) throws(PostgresError) {
        _ = try session.pipeline([try session.surroundingsStatement(nil)])[0].get()
        _ = try session.query("SELECT pg_catalog.set_config('tidewire.proposal', $1, true)", [sql])
        try run(
            "DO $tidewire$ BEGIN EXECUTE pg_catalog.current_setting('tidewire.proposal'); END $tidewire$",
            "SELECT pg_catalog.set_config('search_path', 'pg_catalog', true), pg_catalog.set_config('role', 'none', true)"
        )
        _ = try session.pipeline([session.ownSettingsStatement])[0].get()
    }

    /// As it was before, and without the locks.
    func undo() throws(PostgresError) { try run("ROLLBACK TO SAVEPOINT tidewire_proposal") }

    /// Nothing more can be asked.
    func end() throws(PostgresError) { try run("ROLLBACK") }

    /// As it is now.
    func view(for roles: [String]) throws(PostgresError) -> CatalogView {
        try trial.view(for: roles)
    }

    /// In whichever publication: some are not for clients.
    func publishedTables() throws(PostgresError) -> Set<TableName> {
        let rows = try session.query("SELECT schemaname, tablename FROM pg_catalog.pg_publication_tables", [])
        return Set(
            rows.values.compactMap { row in
                guard row.count == 2, let schema = row[0], let name = row[1] else { return nil }
                return TableName(schema: schema, name: name)
            })
    }

    /// What a subscription means as it is now.
    func outcome(of request: BindingRequest, in view: CatalogView) throws(PostgresError) -> BindingOutcome? {
        try trial.outcome(of: request, in: view)
    }

    private var trial: CatalogTrial { CatalogTrial(session, publication: publication, interrupt: interrupt) }
}
