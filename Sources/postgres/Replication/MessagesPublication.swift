import Change
import Diagnostics
import Postgres
import System

/// Keeper of the publication of database messages. It creates the publication if a messages table exists and the hub
/// has the right to. It also checks regularly whether the publication was created, dropped or replaced.
///
/// The ingest thread uses the keeper, with its connection for catalog queries.
struct MessagesPublication {
    /// State of the publication according to the catalog.
    private struct Sighting {
        let hasTable: Bool
        /// OID of the publication; nil if there is none.
        let number: UInt32?
        let position: LSN
        /// Reason why the publication does not include all messages; nil if it does.
        let flaw: String?
        /// Number of other tables in the publication.
        let others: Int
    }

    private let coverage: StreamCoverage
    private let clients: String
    private let catalog: Connection
    private let mayCreate: Bool
    private var nextAt: UInt64 = 0
    private var triedAt: UInt64?
    private var lastFlaw: String?

    init(_ settings: ReplicationSettings, _ catalog: Connection) {
        coverage = settings.messages
        clients = settings.publication
        mayCreate = settings.mayCreatePublication
        self.catalog = catalog
    }

    /// Checks the publication if a check is due. A failed query is not repeated before the next check. If the server
    /// cannot be reached, the stream itself reports it.
    mutating func look() {
        let now = Clock.monotonicNanoseconds()
        guard now >= nextAt else { return }
        nextAt = now + Limits.publicationWatchInterval.wholeNanoseconds
        do throws(PostgresError) {
            try settle(now)
        } catch {
            Log.shared.debug("cannot check the publication for messages", [.error(error.message)])
        }
    }

    private mutating func settle(_ now: UInt64) throws(PostgresError) {
        var sighting = try sight()
        if sighting.number == nil, sighting.hasTable, isWorthTrying(now) {
            try create()
            sighting = try sight()
        }
        tell(sighting)
        guard let number = sighting.number, sighting.flaw == nil else { return coverage.lost() }
        coverage.saw(number, at: sighting.position)
    }

    /// True if enough time has passed for another attempt to create the publication. The hub may get the right later,
    /// but frequent attempts would fill the server's log.
    private mutating func isWorthTrying(_ now: UInt64) -> Bool {
        if let triedAt, now - triedAt < Limits.publicationRetryInterval.wholeNanoseconds { return false }
        triedAt = now
        return true
    }

    private mutating func tell(_ sighting: Sighting) {
        let other = sighting.others > 0 ? "it publishes other tables, too" : nil
        let flaw = sighting.number == nil ? nil : sighting.flaw ?? other
        defer { lastFlaw = flaw }
        guard let flaw, flaw != lastFlaw else { return }
        Log.shared.warning(
            sighting.flaw == nil
                ? "the publication for messages has other tables too: their changes also go into the event log"
                : "the publication for messages is not as the hub needs it: the hub broadcasts no messages from the database",
            [.publication(coverage.publication), .reason(flaw), .hint("run 'tidewire db apply'")])
    }

    // MARK: Queries

    private func sight() throws(PostgresError) -> Sighting {
        let rows = try catalog.query(
            """
            SELECT c.oid IS NOT NULL, p.oid,
                CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END::text,
                CASE WHEN p.puballtables THEN 'it publishes every table'
                     WHEN NOT p.pubinsert THEN 'it publishes no inserts'
                     WHEN NOT EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = c.oid)
                         THEN 'it does not publish realtime.messages'
                     WHEN EXISTS (SELECT FROM pg_publication_rel r
                         WHERE r.prrelid = c.oid AND r.prpubid = p.oid AND to_jsonb(r) ->> 'prqual' IS NOT NULL)
                         THEN 'it publishes some rows of realtime.messages only'
                     WHEN EXISTS (SELECT FROM pg_publication_rel r JOIN pg_publication q ON q.oid = r.prpubid
                         WHERE r.prrelid = c.oid AND q.pubname IN ($1, $2) AND to_jsonb(r) ->> 'prattrs' IS NOT NULL)
                         THEN 'some columns of realtime.messages are published only'
                END,
                (SELECT count(*) FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid <> c.oid)
            FROM (SELECT) one
            LEFT JOIN (SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                WHERE n.nspname = 'realtime' AND c.relname = 'messages' AND c.relkind IN ('r', 'p')) c ON true
            LEFT JOIN pg_publication p ON p.pubname = $1
            """, [coverage.publication, clients])
        guard let row = rows.first, row.count == 5, let position = row[2].flatMap({ LSN($0) }) else {
            throw PostgresError(operation: "catalog", message: "the publication of messages cannot be read")
        }
        return Sighting(
            hasTable: row[0] == "t", number: row[1].flatMap { UInt32($0) }, position: position, flaw: row[3],
            others: row[4].flatMap { Int($0) } ?? 0)
    }

    private func create() throws(PostgresError) {
        let sql = "CREATE PUBLICATION \(Quoted.identifier(coverage.publication)) FOR TABLE realtime.messages"
        guard mayCreate else { return missing(sql, "publication_create is off") }
        let name: [LogField] = [.publication(coverage.publication)]
        do throws(PostgresError) {
            // If another session has locked the table, the stream must not wait for it.
            try catalog.execute(
                "BEGIN; SET LOCAL lock_timeout = \(Limits.policyLockTimeout.wholeMilliseconds); \(sql); COMMIT")
            Log.shared.info("created the publication for messages", name)
        } catch {
            if error.isConnectionLost { throw error }
            _ = try catalog.execute("ROLLBACK")
            // Another session has created the publication in the meantime.
            if error.sqlState != SQLState.duplicateObject { missing(sql, error.message) }
        }
    }

    private func missing(_ sql: String, _ reason: String) {
        Log.shared.warning(
            "the hub cannot broadcast messages from the database: the publication for messages is missing",
            [
                .publication(coverage.publication), .reason(reason),
                .hint("run 'tidewire db apply', or as the table's owner: \(sql)"),
            ])
    }
}

extension Connection {
    /// Returns the OID of the publication that has this name now; nil if there is none.
    func publicationNumber(_ name: String) throws(PostgresError) -> UInt32? {
        let rows = try query("SELECT oid FROM pg_catalog.pg_publication WHERE pubname = $1", [name])
        return rows.first?.first.flatMap { $0 }.flatMap { UInt32($0) }
    }

    /// Returns the time of the server's clock, in microseconds since 1970, UTC.
    func serverTime() throws(PostgresError) -> Int64 {
        let rows = try query("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
        guard let time = rows.first?.first?.flatMap({ Int64($0) }) else {
            throw PostgresError(operation: "catalog", message: "the server did not tell the time")
        }
        return time
    }
}
