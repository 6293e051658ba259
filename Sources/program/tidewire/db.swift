import Console
import Postgres
import Replication
import Settings

/// Command `tidewire db`: the group of commands that prepare a database.
struct DatabaseCommand: Command {
    let name = "db"
    let summary = "Prepare a database for the hub."
    let discussion = """
        The hub needs a few things in the database: roles, a publication, the schema realtime with its functions, and \
        two functions of its own. The files of sql/ create them; this program contains these files. A database that \
        Supabase prepared has most of this already, and these commands do not change it. `tidewire doctor` shows what \
        is missing.
        """
    let subcommands: [any Command] = [DatabaseApplyCommand()]
}

/// Connections to a database for commands. Errors become messages with exit codes and advice.
enum DatabaseAccess {
    static func connect(
        _ configuration: Configuration, _ name: String, keepsSettings: Bool = false
    ) throws -> Connection {
        guard let database = configuration.databaseURL else {
            throw UsageError("no database is configured: set TIDEWIRE_DATABASE_URL or give --database-url")
        }
        return try connect(
            ConnectionTarget(database.revealed), shown: "\(database)", name, keepsSettings: keepsSettings)
    }

    /// Connects to a database. Throws a message with advice if that fails.
    /// - Parameter shown: the address without its secrets, for that message.
    static func connect(
        _ target: ConnectionTarget, shown: String, _ name: String, keepsSettings: Bool = false
    ) throws -> Connection {
        do throws(PostgresError) {
            return try Connection(target, applicationName: "tidewire \(name)", keepsSettings: keepsSettings)
        } catch {
            let trouble = StreamFailure(connecting: error)
            throw CommandFailure(
                .unreachable, "cannot connect to the database (\(shown)): \(trouble.message)",
                hint: trouble.hint ?? error.advice)
        }
    }

    /// Runs a body that queries a database, and turns PostgreSQL's errors into messages with exit codes and advice.
    static func asking<T>(_ body: () throws -> T) throws -> T {
        do {
            return try body()
        } catch let error as PostgresError {
            throw CommandFailure(error.isConnectionLost ? .unreachable : .notFound, "\(error)", hint: hint(error))
        }
    }

    /// Returns advice about an error of PostgreSQL. If the login lacks a right, the advice says which login to give.
    /// - Parameter needed: the login that has the right, in words after "give a login".
    static func hint(
        _ error: PostgresError, who needed: String = "that owns the named object, or a superuser"
    ) -> String {
        guard error.sqlState == SQLState.insufficientPrivilege else { return error.advice }
        let needs = "the login of --database-url (TIDEWIRE_DATABASE_URL) may not do that: give a login \(needed)"
        return error.hint.map { "\($0); \(needs)" } ?? needs
    }
}
