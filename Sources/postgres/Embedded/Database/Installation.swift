import Postgres

/// Effects of one file of `sql/` on a database, planned or real.
public struct InstallationStep: Sendable {
    public let file: String
    public var made: [DatabaseObject] = []
    /// Objects that existed before and whose privileges or properties changed.
    public var changed: [DatabaseObject] = []
    /// Warnings that the file raised, with advice.
    public var warnings: [PostgresNotice] = []
    /// Error for which the file cannot be applied; nil if it can. A file with an error changes nothing.
    public var failure: PostgresError?

    public var doesNothing: Bool { made.isEmpty && changed.isEmpty }
}

/// Applies files of `sql/` to a database, or describes in advance what they would change.
public struct Installation {
    private let connection: Connection

    /// Maximum number of seconds for which a file waits for locks of other sessions.
    private static let lockTimeoutSeconds = 10

    public init(_ connection: Connection) {
        self.connection = connection
    }

    /// Returns the effects of applying the files in this order. The files really run, but in a transaction that is
    /// rolled back.
    public func plan(_ files: [SQLFile]) throws(PostgresError) -> [InstallationStep] {
        try begin()
        let steps: [InstallationStep]
        do throws(PostgresError) {
            steps = try rehearse(files)
        } catch {
            _ = try? connection.execute("ROLLBACK")
            throw error
        }
        try connection.execute("ROLLBACK")
        return steps
    }

    private func rehearse(_ files: [SQLFile]) throws(PostgresError) -> [InstallationStep] {
        var steps: [InstallationStep] = []
        var before = try DatabaseInventory(connection)
        for file in files {
            try connection.execute("SAVEPOINT tidewire_step")
            var step = InstallationStep(file: file.name)
            run(file, &step)
            if let failure = step.failure {
                guard !failure.isConnectionLost else { throw failure }
                try connection.execute("ROLLBACK TO SAVEPOINT tidewire_step")
            } else {
                try compare(&step, &before)
            }
            steps.append(step)
        }
        return steps
    }

    /// Applies one file as a whole. If the result has a `failure`, the file has changed nothing.
    public func apply(_ file: SQLFile) throws(PostgresError) -> InstallationStep {
        try begin()
        var step = InstallationStep(file: file.name)
        do throws(PostgresError) {
            var before = try DatabaseInventory(connection)
            run(file, &step)
            if step.failure == nil { try compare(&step, &before) }
        } catch {
            _ = try? connection.execute("ROLLBACK")
            throw error
        }
        try connection.execute(step.failure == nil ? "COMMIT" : "ROLLBACK")
        return step
    }

    /// Begins the transaction. An advisory lock makes hubs that start simultaneously wait for each other, because
    /// concurrent IF NOT EXISTS statements conflict.
    private func begin() throws(PostgresError) {
        try connection.execute(
            """
            BEGIN; SET LOCAL lock_timeout = '\(Installation.lockTimeoutSeconds)s';
            SELECT pg_catalog.pg_advisory_xact_lock(\(Installation.advisoryLock))
            """)
    }

    /// Key of the advisory lock: "tidewire" in bytes.
    public static let advisoryLock = 0x7469_6465_7769_7265

    private func run(_ file: SQLFile, _ step: inout InstallationStep) {
        var notices: [PostgresNotice] = []
        do throws(PostgresError) {
            try connection.withNotices(&notices) { () throws(PostgresError) in try file.apply(connection) }
        } catch {
            step.failure = error
        }
        step.warnings = notices.filter { $0.severity == "WARNING" }
    }

    private func compare(_ step: inout InstallationStep, _ before: inout DatabaseInventory) throws(PostgresError) {
        let after = try DatabaseInventory(connection)
        step.made = after.made(since: before)
        step.changed = after.changed(since: before)
        before = after
    }
}
