import Diagnostics
import Postgres
import System

/// Replacement for the SQL function `tidewire.keep_messages`, for a login with the rights of the table's owner. Some
/// operators give the hub such a login instead of applying Tidewire's SQL files.
struct PartitionKeeping {
    private let connection: Connection
    private let hours: Int
    private let interrupt: Wake
    private var done = JanitorRounds.Work()

    init(_ connection: Connection, hours: Int, _ interrupt: Wake) {
        self.connection = connection
        self.hours = hours
        self.interrupt = interrupt
    }

    func work() throws(PostgresError) -> JanitorRounds.Work {
        var copy = self
        try copy.keep()
        return copy.done
    }

    private mutating func keep() throws(PostgresError) {
        // The SQL function takes the same advisory lock, so that only one of them works at a time. The lock ends with
        // the connection.
        let locked = try ask("SELECT pg_try_advisory_lock(hashtextextended('tidewire.keep_messages', 0))")
        guard locked.first?.first == "t" else { return }
        for row in try ask(missing) {
            guard let name = row[0], let statement = row[1] else { continue }
            if try succeeds(statement, name) { done.made.append(name) }
        }
        for row in try ask(outdated) {
            guard let name = row[0] else { continue }
            do throws(PostgresError) {
                let statement = "DROP TABLE realtime.\(Quoted.identifier(name))"
                if try succeeds(statement, name) { done.dropped.append(name) }
            } catch {
                let refusals = [SQLState.insufficientPrivilege, SQLState.dependentObjects]
                guard let state = error.sqlState, refusals.contains(state) else { throw error }
                done.refused.append(name)
            }
        }
    }

    private func ask(_ sql: String) throws(PostgresError) -> [[String?]] {
        try connection.execute(sql, interrupt: interrupt).values
    }

    /// Runs a statement. Returns false if a lock was not available or if the partition already exists.
    private mutating func succeeds(_ statement: String, _ name: String) throws(PostgresError) -> Bool {
        do throws(PostgresError) {
            try connection.execute(statement, interrupt: interrupt)
            return true
        } catch {
            switch error.sqlState {
            case SQLState.lockNotAvailable: done.postponed.append(name)
            case SQLState.duplicateTable, SQLState.invalidObjectDefinition: break
            default: throw error
            }
            return false
        }
    }

    private var oldest: String {
        "(timezone('utc', now()) - make_interval(hours => \(max(0, hours))))::date"
    }

    /// Query for the name of each missing partition and the SQL that creates it. One statement creates the partition
    /// and sets its owner, so that a failure between the two is impossible.
    private var missing: String {
        """
        SELECT name, format('DO %L', format('BEGIN CREATE TABLE realtime.%I PARTITION OF realtime.messages
            FOR VALUES FROM (%L) TO (%L); ALTER TABLE realtime.%I OWNER TO %I; END', name, day, day + 1, name, (
                SELECT pg_get_userbyid(relowner) FROM pg_class
                WHERE relname = 'messages' AND relnamespace = 'realtime'::regnamespace)))
        FROM (
            SELECT timezone('utc', now())::date + n AS day,
                'messages_' || to_char(timezone('utc', now())::date + n, 'YYYY_MM_DD') AS name
            FROM generate_series(-1, \(Limits.partitionDaysAhead)) AS n
        ) AS wanted
        WHERE day >= \(oldest) AND NOT EXISTS (
            SELECT FROM pg_class WHERE relname = name AND relnamespace = 'realtime'::regnamespace)
        """
    }

    private var outdated: String {
        #"""
        SELECT c.relname
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'realtime.messages'::regclass AND c.relnamespace = 'realtime'::regnamespace
            AND c.relname ~ '^messages_\d{4}_(0\d|1[0-2])_([0-2]\d|3[01])$'
            AND substr(c.relname, 10) < to_char(\#(oldest), 'YYYY_MM_DD')
        ORDER BY 1
        """#
    }
}
