import CTexts
import Postgres

/// File of `sql/`, embedded in the program. `all` has the files in the order in which they are applied.
public struct SQLFile: Sendable {
    public let name: String
    public let text: String

    public static let all: [SQLFile] = {
        var count = 0
        // SAFETY: the list and its bytes are constants of the program, `count` entries long.
        let files = unsafe tw_sql_files(&count)
        return (0..<count).compactMap { index in
            guard let file = unsafe files?[index], let name = unsafe file.name, let text = unsafe file.text else {
                return nil
            }
            let bytes = unsafe UnsafeRawBufferPointer(start: text, count: file.length)
            return unsafe SQLFile(name: String(cString: name), text: String(decoding: bytes, as: UTF8.self))
        }
    }()

    /// Files that make a plain PostgreSQL look like a Supabase database: roles, `auth`, the publication, the hub's
    /// roles, and schema `realtime`.
    public static var foundation: [SQLFile] {
        all.filter { (!$0.name.contains("/") || $0.name.hasPrefix("realtime/")) && !isOptional($0) }
    }
    /// Optional files that need a superuser.
    public static var extras: [SQLFile] { all.filter { isOptional($0) } }

    private static func isOptional(_ file: SQLFile) -> Bool { file.name.hasPrefix("050_") }

    /// Optional files that note who makes the changes of a transaction.
    public static var actors: [SQLFile] { all.filter { $0.name.hasPrefix("actors/") } }

    /// Files of the five example applications.
    public static var scenarios: [SQLFile] { all.filter { $0.name.hasPrefix("scenarios/") } }
    /// Files of the demo that `tidewire dev` shows.
    public static var demo: [SQLFile] { all.filter { $0.name.hasPrefix("demo/") } }
    /// Files for the incident of `tidewire dev --incident`.
    public static var incident: [SQLFile] { all.filter { $0.name.hasPrefix("incident/") } }

    public func apply(_ connection: Connection) throws(PostgresError) {
        do throws(PostgresError) {
            try connection.execute(text)
        } catch {
            var error = error
            error.operation = "apply sql/\(name)"
            throw error
        }
    }
}
