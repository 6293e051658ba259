import Change
import Diagnostics
import Policy
import Postgres
import Replication
import System

/// Watch that finds the tables whose changes the replication stream contains completely: all changes, with all columns.
///
/// When a table is added to the publication, a transaction that is already running may have changed the table before.
/// PostgreSQL never sends that change. So the watch waits until all such transactions have ended. Only the catalog's
/// thread uses the watch.
final class CoverageWatch {
    private struct Sighting {
        var mark: MembershipNotes.Mark
        /// Lowest number of a transaction that began after the hub first saw the table in the publication. The table
        /// counts as complete when all transactions with lower numbers have ended.
        var horizon: UInt64
    }

    /// Published tables that do not count as complete yet, because transactions from before their publication may still
    /// be running.
    private var unsettled: [MembershipNotes.Entry: Sighting] = [:]
    /// True if some published table does not count as complete yet.
    private(set) var isWaiting = false
    let stream: StreamCoverage
    private var since: LSN?
    private var hasFailed = false
    /// Tables that this process has added to the hub's own publication.
    fileprivate var added: Set<UInt32> = []
    /// Tables that the hub could not add to its own publication. A warning has been logged for each.
    fileprivate var refused: Set<UInt32> = []

    init(_ stream: StreamCoverage) { self.stream = stream }

    /// Returns the publications that the stream contains: `clients` and, if it is followed, the hub's own. If the hub's
    /// own publication was interrupted, its tables must be seen in it again.
    fileprivate func publications(_ clients: String) -> [String] {
        let now = stream.followedSince
        if now != since { unsettled = unsettled.filter { !$0.key.isOwn } }
        since = now
        return now == nil ? [clients] : [clients, stream.publication]
    }

    /// Records the tables that are published in a snapshot. Returns the LSN from which the log has all changes of each
    /// table that counts as complete. `position` is the end of PostgreSQL's WAL after the snapshot.
    func take(
        _ published: [MembershipNotes.Entry: MembershipNotes.Mark], firstRunning: UInt64, firstUnassigned: UInt64,
        at position: LSN
    ) -> MembershipNotes {
        let known = stream.record.notes
        var waiting: [MembershipNotes.Entry: Sighting] = [:]
        var settled: Set<MembershipNotes.Entry> = []
        for (entry, mark) in published where !known.follows(entry, mark) {
            var sighting = unsettled[entry] ?? Sighting(mark: mark, horizon: firstUnassigned)
            if sighting.mark != mark { sighting = Sighting(mark: mark, horizon: firstUnassigned) }
            if firstRunning >= sighting.horizon { settled.insert(entry) } else { waiting[entry] = sighting }
        }
        do throws(SystemError) {
            try stream.record.change { $0.take(published, settled: settled, at: position) }
            (unsettled, hasFailed) = (waiting, false)
        } catch {
            tell(error)
        }
        var notes = stream.record.notes
        // A new table counts only after it is stored on disk. A table that is not complete any more is removed even if
        // storing fails.
        if hasFailed { notes.take(published, settled: [], at: position) }
        isWaiting = published.contains { !notes.follows($0.key, $0.value) }
        return notes
    }

    private func tell(_ error: SystemError) {
        if !hasFailed {
            Log.shared.warning(
                "cannot store from when on the hub follows tables that policies read: the hub does not follow them",
                [.error("\(error)")])
        }
        hasFailed = true
    }
}

extension CatalogReader {
    /// Returns the tables that can hold memberships, each with the LSN from which the log has all of its changes.
    func followed() throws(PostgresError) -> MembershipNotes {
        // An open transaction or a record has no history, so its published tables count as followed from the beginning.
        guard asked.sharesTime else { return .always(try publishedWhole()) }
        let published = try query(
            """
            SELECT g.relid, p.pubname <> $2::text, concat_ws(':', p.oid, p.xmin, \(entries))
            FROM pg_publication p CROSS JOIN LATERAL \(publishedTables) g JOIN pg_class c ON c.oid = g.relid
            WHERE p.pubname = ANY ($1::text[]) AND p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate
                AND (p.pubname = $2::text OR $3::oid IN (0, p.oid)) AND NOT EXISTS (\(CatalogReader.cutText))
            """,
            [
                PostgresArray.literal(coverage.publications(publication)), publication, String(coverage.stream.number),
            ])
        // This query must follow the other one. Transactions that begin later see the tables as published.
        let transactions = try visibleTransactions()
        var marks: [MembershipNotes.Entry: MembershipNotes.Mark] = [:]
        for row in published.values {
            guard let table: UInt32 = row.number(0), let mark = row[2] else { throw CatalogReader.unreadable }
            marks[MembershipNotes.Entry(table: table, isOwn: row[1] == "t")] = mark
        }
        return coverage.take(
            marks, firstRunning: transactions.firstRunning, firstUnassigned: transactions.firstUnassigned,
            at: try position())
    }

    /// Returns the oids of the tables of which the publications contain all columns, rows and operations.
    private func publishedWhole() throws(PostgresError) -> [UInt32] {
        let published = try query(
            """
            SELECT g.relid, string_agg(concat_ws(':', p.oid, p.xmin, e.oid, e.xmin), ',' ORDER BY p.oid)
            FROM pg_publication p CROSS JOIN LATERAL \(publishedTables) g
                LEFT JOIN pg_publication_rel e ON e.prpubid = p.oid AND e.prrelid = g.relid
            WHERE p.pubname = ANY ($1::text[]) AND p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate
                AND NOT EXISTS (\(CatalogReader.cutText))
            GROUP BY g.relid
            """, [PostgresArray.literal(coverage.publications(publication))])
        return published.values.compactMap { $0.number(0) }
    }

    private var entries: String { PublishedTables.entries(serverVersion: asked.serverVersion) }

    private func position() throws(PostgresError) -> LSN {
        let rows = try query(
            """
            SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END
            """)
        guard let position = rows.first?.first?.flatMap({ LSN($0) }) else { throw CatalogReader.unreadable }
        return position
    }

    /// SQL for the entry of a published table whose changes are incomplete because of a column list or a row filter.
    private static let cutText = """
        SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = g.relid
            AND (to_jsonb(r) ->> 'prattrs' IS NOT NULL OR to_jsonb(r) ->> 'prqual' IS NOT NULL)
        """

    // MARK: The hub's own publication

    /// Adds tables that hold memberships to the hub's own publication if the hub has the rights. Removes tables that
    /// this process added and that no policy needs any more.
    func tendInternalPublication(_ snapshot: CatalogSnapshot) throws(PostgresError) {
        var wanted: Set<UInt32> = []
        for policy in snapshot.policies.policies.values.joined() {
            policy.compiled.term.visit { if case .member(let member, _) = $0 { wanted.insert(member.table) } }
        }
        let present = try internalTables()
        if let present, let position = present.position { coverage.stream.saw(present.number, at: position) }
        if present == nil { coverage.stream.missed() }
        // A table that the clients' publication contains completely needs no second one. A table of which it contains
        // only a part must not be added, because clients would then receive the rest.
        let other = try query(
            """
            SELECT DISTINCT g.relid FROM pg_publication p CROSS JOIN LATERAL \(publishedTables) g
            WHERE p.pubname = $1::text AND (p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate
                OR EXISTS (\(CatalogReader.cutText)))
            """, [publication])
        let published = Set(other.values.compactMap { $0.number(0) as UInt32? })
        wanted.subtract(published)
        let tables = present?.tables ?? []
        logPublishedTables(published.union(tables), snapshot)
        for table in wanted.subtracting(tables).sorted() { try add(table, snapshot, isPresent: present != nil) }
        for table in coverage.added.intersection(tables).subtracting(wanted).sorted() { try drop(table, snapshot) }
    }

    private func internalTables() throws(PostgresError) -> (number: UInt32, tables: Set<UInt32>, position: LSN?)? {
        let rows = try query(
            """
            SELECT ARRAY(SELECT r.prrelid FROM pg_publication_rel r WHERE r.prpubid = p.oid)::text,
                CASE WHEN NOT pg_is_in_recovery() THEN pg_current_wal_lsn() END::text, p.oid
            FROM pg_publication p WHERE p.pubname = $1::text
            """, [coverage.stream.publication])
        guard let row = rows.first else { return nil }
        guard let number: UInt32 = row.number(2) else { throw CatalogReader.unreadable }
        return (number, Set((row.numbers(0) ?? []).compactMap { UInt32(exactly: $0) }), row[1].flatMap { LSN($0) })
    }

    /// Logs that a table is now published, because an operator followed the hint that the hub had logged.
    private func logPublishedTables(_ published: Set<UInt32>, _ snapshot: CatalogSnapshot) {
        for oid in coverage.refused.intersection(published).sorted() {
            coverage.refused.remove(oid)
            guard let table = snapshot.related(oid) else { continue }
            Log.shared.info(
                "a table that policies read is published now: the hub will follow it",
                [.relation("\(table.schema).\(table.name)")])
        }
    }

    private func add(_ oid: UInt32, _ snapshot: CatalogSnapshot, isPresent: Bool) throws(PostgresError) {
        guard let table = snapshot.related(oid), table.isOrdinary else { return }
        let name = Quoted.identifier(table.schema) + "." + Quoted.identifier(table.name)
        let publication = Quoted.identifier(coverage.stream.publication)
        let sql =
            isPresent
            ? "ALTER PUBLICATION \(publication) ADD TABLE ONLY \(name)"
            : "CREATE PUBLICATION \(publication) FOR TABLE ONLY \(name) WITH (publish = 'insert, update, delete, truncate')"
        guard let refusal = try change(sql) else {
            coverage.added.insert(oid)
            return Log.shared.info(
                "the hub follows a table that policies read from now on",
                [.publication(coverage.stream.publication), .relation("\(table.schema).\(table.name)")])
        }
        coverage.refused.insert(oid)
        guard bench.isNews(sql) else { return }
        Log.shared.warning(
            "the hub cannot follow a table that policies read: PostgreSQL decides every row, which is slower",
            [
                .relation("\(table.schema).\(table.name)"), .error(refusal.message),
                .hint("as the tables' owner: \(sql)"),
            ])
    }

    private func drop(_ oid: UInt32, _ snapshot: CatalogSnapshot) throws(PostgresError) {
        coverage.added.remove(oid)
        let rows = try query("SELECT $1::oid::regclass::text", [String(oid)])
        guard let name = rows.first?.first ?? nil else { return }
        _ = try change("ALTER PUBLICATION \(Quoted.identifier(coverage.stream.publication)) DROP TABLE ONLY \(name)")
    }

    /// Runs the statement in a transaction of its own. Returns PostgreSQL's error; nil after success.
    private func change(_ sql: String) throws(PostgresError) -> PostgresError? {
        let answers = try ask([
            PipelinedStatement("BEGIN READ WRITE"), PipelinedStatement(sql), PipelinedStatement("COMMIT"),
        ])
        for case .failure(let error) in answers {
            if error.isConnectionLost { throw error }
            return error
        }
        return nil
    }
}
