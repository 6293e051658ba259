import Change
import Diagnostics
import Policy
import Postgres
import Replication
import System

/// Tables whose changes arrive complete in the stream: all changes, with all columns.
///
/// A transaction that was running when a table was added to the publication may have changed the table before, and
/// PostgreSQL never sends that change. So a table counts only after all such transactions have ended. Only the
/// catalog's thread uses the watch.
final class CoverageWatch {
    private struct Sighting {
        var mark: MembershipNotes.Mark
        /// Number below which no transaction may still be running.
        var horizon: UInt64
    }

    /// Entries for which transactions from before the publication may still be running.
    private var unsettled: [MembershipNotes.Entry: Sighting] = [:]
    private(set) var isWaiting = false
    let stream: StreamCoverage
    private var since: LSN?
    private var hasFailed = false
    /// Tables that this process added to the hub's own publication.
    fileprivate var added: Set<UInt32> = []
    /// Tables that could not be added to the hub's own publication, with a warning logged.
    fileprivate var refused: Set<UInt32> = []

    init(_ stream: StreamCoverage) { self.stream = stream }

    /// Returns the publications that the stream carries. After a break in the hub's own publication, its tables must be
    /// seen in it again.
    fileprivate func publications(_ clients: String) -> [String] {
        let now = stream.followedSince
        if now != since { unsettled = unsettled.filter { !$0.key.isOwn } }
        since = now
        return now == nil ? [clients] : [clients, stream.publication]
    }

    /// Records the tables published in the snapshot, and returns all that is then known about tables. `position` is the
    /// end of the server's log after the snapshot.
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
        // A new table counts only once it is on disk. A table that is no longer covered stays so even if writing fails.
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
    /// Returns the tables that can hold memberships, with the positions from which they are followed.
    func followed() throws(PostgresError) -> MembershipNotes {
        // A transaction or a record has no history, so its published tables count as always followed.
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
        // This query runs afterwards, because transactions that begin from here on see the tables published.
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

    /// Returns the published tables with all columns and operations, with their marks, from PostgreSQL's catalog.
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

    /// SQL for a published table whose changes are incomplete because of a column list or a row filter.
    private static let cutText = """
        SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = g.relid
            AND (to_jsonb(r) ->> 'prattrs' IS NOT NULL OR to_jsonb(r) ->> 'prqual' IS NOT NULL)
        """

    // MARK: The hub's own publication

    /// Adds tables that hold memberships to the hub's own publication, where the hub may, and removes those that it
    /// added and no longer needs.
    func tendInternalPublication(_ snapshot: CatalogSnapshot) throws(PostgresError) {
        var wanted: Set<UInt32> = []
        for policy in snapshot.policies.policies.values.joined() {
            policy.compiled.term.visit { if case .member(let member, _) = $0 { wanted.insert(member.table) } }
        }
        let present = try internalTables()
        if let present, let position = present.position { coverage.stream.saw(present.number, at: position) }
        if present == nil { coverage.stream.missed() }
        // Tables that the clients' publication sends completely need no second one. Tables that it sends in part must
        // stay partial.
        let other = try query(
            """
            SELECT DISTINCT g.relid FROM pg_publication p CROSS JOIN LATERAL \(publishedTables) g
            WHERE p.pubname = $1::text AND (p.pubinsert AND p.pubupdate AND p.pubdelete AND p.pubtruncate
                OR EXISTS (\(CatalogReader.cutText)))
            """, [publication])
        let published = Set(other.values.compactMap { $0.number(0) as UInt32? })
        wanted.subtract(published)
        let tables = present?.tables ?? []
        sayWhatIsPublishedNow(published.union(tables), snapshot)
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

    /// Logs that a table is published now, after the operator followed the logged hint.
    private func sayWhatIsPublishedNow(_ published: Set<UInt32>, _ snapshot: CatalogSnapshot) {
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

    /// Runs the statement. Returns PostgreSQL's error, or nil after success.
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
