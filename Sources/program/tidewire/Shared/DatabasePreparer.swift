import Diagnostics
import Embedded
import Postgres

/// Preparation of the database when a hub starts or gets a new project. It creates the same objects as `tidewire db
/// apply`, but asks nobody. The hub's log lines show what it created, and what a login with more rights must create.
struct DatabasePreparer {
    private let connection: Connection

    init(_ target: ConnectionTarget) throws(PostgresError) {
        connection = try Connection(
            target, applicationName: "tidewire db apply", timeoutSeconds: Limits.connectTimeout.wholeSeconds)
    }

    /// Applies the hub's SQL files to the database, and logs what they created or could not create.
    func prepare() throws(PostgresError) {
        let installation = Installation(connection)
        var (made, isWhole) = (0, true)
        for file in SQLFile.foundation {
            guard let step = try attempt(file, installation) else { return }
            if let failure = step.failure {
                tell(file, failure)
                isWhole = false
            }
            tell(step)
            made += step.made.count + step.changed.count
        }
        if isWhole {
            Log.shared.info(
                made == 0 ? "the database has everything that the hub needs" : "prepared the database", [.count(made)])
        }
    }

    /// Applies one SQL file. Returns nil, after a warning in the hub's log lines, if PostgreSQL refuses it now, for
    /// example because of a lock. Throws only if the connection is lost.
    private func attempt(_ file: SQLFile, _ installation: Installation) throws(PostgresError) -> InstallationStep? {
        do throws(PostgresError) {
            let step = try installation.apply(file)
            if let failure = step.failure, failure.isConnectionLost { throw failure }
            return step
        } catch {
            if error.isConnectionLost { throw error }
            tell(file, error)
            return nil
        }
    }

    /// Logs what a file created or changed, and what this login may not create.
    private func tell(_ step: InstallationStep) {
        for object in step.made {
            Log.shared.info("created in the database", [.source(step.file), .object(object.description)])
        }
        for object in step.changed {
            Log.shared.info("changed in the database", [.source(step.file), .object(object.description)])
        }
        for warning in step.warnings {
            Log.shared.warning(
                "the database lacks something that this login may not create",
                [.source(step.file), .reason(warning.message)] + (warning.hint.map { [.hint($0)] } ?? []))
        }
    }

    /// Logs a warning that a file could not be applied.
    private func tell(_ file: SQLFile, _ failure: PostgresError) {
        Log.shared.warning(
            "cannot prepare the database: applied nothing of this file",
            [
                .source(file.name), .reason(failure.message),
                .hint("run 'tidewire db apply' as a superuser, or as a login that may do this"),
            ] + (failure.sqlState.map { [.sqlstate($0)] } ?? []))
    }
}
