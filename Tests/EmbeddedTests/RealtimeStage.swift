import Embedded
import Postgres
import TestSupport

/// Database prepared by `sql/`, with helpers to use it as applications do.
struct RealtimeStage {
    let database: TestDatabase
    var connection: Connection { database.connection }

    init(on cluster: PrivateCluster? = nil) throws {
        database = try TestDatabase(on: cluster)
        try database.applyFoundation()
    }

    @discardableResult
    func run(_ sql: String) throws -> Rows { try database.run(sql) }

    func value(_ sql: String) throws -> String? { try database.value(sql) }

    /// Returns the first column of every row.
    func column(_ sql: String) throws -> [String?] { try database.run(sql).values.map { $0[0] } }

    /// Returns the messages of the server's warnings.
    func warnings(_ sql: String) throws -> [String] {
        var notices: [PostgresNotice] = []
        try connection.withNotices(&notices) { () throws(PostgresError) in _ = try connection.execute(sql) }
        return notices.filter { $0.severity == "WARNING" }.map(\.message)
    }

    /// Returns the server's error for the statement; nil if there is none.
    func refusal(_ sql: String) throws -> String? {
        do throws(PostgresError) {
            try connection.execute(sql)
            return nil
        } catch {
            return error.message
        }
    }

    /// Runs the statement as a client, in a transaction that is rolled back.
    func asClient(
        _ role: String, claims: String = "{}", topic: String = "", _ sql: String
    ) throws -> Rows {
        try connection.execute("BEGIN")
        defer { _ = try? connection.execute("ROLLBACK") }
        try connection.query("SELECT set_config('request.jwt.claims', $1, true)", [claims])
        try connection.query("SELECT set_config('realtime.topic', $1, true)", [topic])
        try connection.execute("SET LOCAL ROLE \(role)")
        return try connection.execute(sql)
    }
}
