import Asking
import Change
import Diagnostics
import Policy
import Postgres
import Replication
import System

/// Reader of PostgreSQL's catalog. It reads the published tables, the rights of roles to them, and a fingerprint that
/// is cheap enough to poll.
struct CatalogReader {
    let asked: any CatalogAnswering
    let publication: String
    let compiling: PolicyCompiling
    let bench: TrialBench
    let coverage: CoverageWatch
    let definitions: DefinitionBook
    /// Replication slot that feeds the log.
    let slot: String
    let metrics: ProjectMetrics

    /// Sends statements that are independent of each other. Returns their answers in order.
    func ask(_ statements: [PipelinedStatement]) throws(PostgresError) -> [Result<Rows, PostgresError>] {
        try asked.answers(to: statements)
    }

    func query(_ sql: String, _ parameters: [String?] = []) throws(PostgresError) -> Rows {
        guard let answer = try ask([.kept(sql, parameters)]).first else { throw CatalogReader.unreadable }
        return try answer.get()
    }

    // MARK: Fingerprint

    /// Returns a text that changes whenever anything that this reader reads has changed. It is built from the
    /// transaction numbers of the catalog's rows.
    ///
    /// - Parameter snapshot: the last snapshot, which lists the tables that policies read.
    func fingerprint(_ snapshot: CatalogSnapshot?) throws(PostgresError) -> Fingerprint {
        let began = Clock.monotonicNanoseconds()
        let read = PostgresArray.literal((snapshot?.policies.tables.keys.sorted() ?? []).map { String($0) })
        let rows = try query(fingerprintText, [publication, read])
        guard let row = rows.first, let text = row[0], let visible = row[1].flatMap({ VisibleTransactions($0) }) else {
            throw CatalogReader.unreadable
        }
        return Fingerprint(
            text: text + "|\(coverage.stream.followedSince?.rawValue ?? 0)", visible: visible,
            unannounced: try CatalogReader.numbers(row[2]), took: Clock.monotonicNanoseconds() - began)
    }

    struct Fingerprint {
        var text: String
        /// Transactions whose effects the fingerprint includes.
        var visible: VisibleTransactions
        /// Published tables for which the replication stream does not announce that policies or rights may have
        /// changed.
        var unannounced: Set<UInt32>
        /// Duration of the query in nanoseconds.
        var took: UInt64
    }

    private static func numbers(_ list: String?) throws(PostgresError) -> Set<UInt32> {
        let texts = list?.split(separator: ",") ?? []
        let numbers = texts.compactMap { UInt32($0) }
        // If a number could not be read, the hub would not wait for that table.
        guard numbers.count == texts.count else { throw CatalogReader.unreadable }
        return Set(numbers)
    }

    /// Returns a text that changes whenever the meaning of a policy may have changed although its own text is the same.
    func surroundings() throws(PostgresError) -> String {
        let rows = try query("SELECT \(CatalogReader.surroundingsText)")
        guard let text = rows.first?.first ?? nil else { throw CatalogReader.unreadable }
        return text
    }

    /// SQL for versions of functions, operators, types, schemas and settings. It omits temporary schemas, which
    /// sessions create and drop all the time, including the hub's own.
    private static let surroundingsText = """
        concat_ws('|',
            (SELECT count(*) || ':' || sum(hashtextextended(f.oid || ':' || f.xmin, 0)) FROM pg_proc f
             WHERE f.oid >= 16384 AND f.pronamespace NOT IN (
                SELECT n.oid FROM pg_namespace n WHERE n.nspname LIKE 'pg\\_temp\\_%')),
            (SELECT sum(hashtextextended(o.oid || ':' || o.xmin, 0)) FROM pg_operator o WHERE o.oid >= 16384),
            (SELECT sum(hashtextextended(c.oid || ':' || c.xmin, 0)) FROM pg_cast c WHERE c.oid >= 16384),
            (SELECT sum(hashtextextended(t.oid || ':' || t.xmin, 0)) FROM pg_type t
             WHERE t.oid >= 16384 AND t.typtype <> 'c' AND t.typcategory <> 'A'),
            (SELECT sum(hashtextextended(n.oid || ':' || n.xmin, 0)) FROM pg_namespace n
             WHERE n.nspname NOT LIKE 'pg\\_temp\\_%' AND n.nspname NOT LIKE 'pg\\_toast\\_temp\\_%'),
            (SELECT sum(hashtextextended(concat_ws(':', s.setdatabase, s.setrole, s.setconfig::text), 0))
             FROM pg_db_role_setting s WHERE s.setdatabase = 0
                OR s.setdatabase = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())))
        """

    /// SQL for the tables of the publication that the surrounding query calls `p`.
    var publishedTables: String { PublishedTables.of(serverVersion: asked.serverVersion) }

    private var fingerprintText: String {
        """
        WITH RECURSIVE published AS MATERIALIZED (
            SELECT g.relid FROM pg_publication p CROSS JOIN LATERAL \(publishedTables) g
            WHERE p.pubname = $1::text
            UNION SELECT unnest($2::oid[])),
        family (relid) AS (
            SELECT relid FROM published
            UNION SELECT i.inhrelid FROM family JOIN pg_inherits i ON i.inhparent = family.relid)
        SELECT concat_ws('|', $2::text,
            (SELECT string_agg(p.oid || ':' || p.xmin, ',' ORDER BY p.oid) FROM pg_publication p),
            (SELECT sum(hashtextextended(r.prrelid || ':' || r.xmin, 0)) FROM pg_publication_rel r),
            (SELECT count(*) || ':' || sum(hashtextextended(c.oid || ':' || c.xmin || ':' || n.oid || ':' || n.xmin, 0))
             FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
             WHERE c.oid IN (SELECT relid FROM family)),
            (SELECT sum(hashtextextended(a.attrelid || ':' || a.attnum || ':' || a.xmin, 0)) FROM pg_attribute a
             WHERE a.attnum > 0 AND (a.attrelid IN (SELECT relid FROM published)
                OR a.attrelid IN (SELECT c.oid FROM pg_class c WHERE c.relkind = 'c'))),
            (SELECT sum(hashtextextended(i.indexrelid || ':' || i.xmin, 0)) FROM pg_index i
             WHERE (i.indisprimary OR i.indisreplident) AND i.indrelid IN (SELECT relid FROM published)),
            (SELECT sum(hashtextextended(i.inhrelid || ':' || i.xmin, 0)) FROM pg_inherits i
             WHERE i.inhrelid IN (SELECT relid FROM published) OR i.inhparent IN (SELECT relid FROM published)),
            (SELECT sum(hashtextextended(q.oid || ':' || q.xmin, 0)) FROM pg_policy q
             WHERE q.polrelid IN (SELECT relid FROM published)),
            (SELECT sum(hashtextextended(c.oid || ':' || c.xmin || ':' || a.attnum || ':' || a.xmin, 0))
             FROM pg_depend d JOIN pg_policy q ON q.oid = d.objid JOIN pg_class c ON c.oid = d.refobjid
                JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
             WHERE d.classid = 'pg_policy'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjsubid = 0
                AND q.polrelid IN (SELECT relid FROM published)),
            \(CatalogReader.surroundingsText), \(CatalogReader.messageRulesText),
            (SELECT sum(hashtextextended(e.oid || ':' || e.xmin, 0)) FROM pg_enum e),
            (SELECT sum(hashtextextended(concat_ws(':', r.oid, r.rolname, r.rolsuper, r.rolinherit, r.rolbypassrls,
                r.rolreplication), 0))
             FROM pg_roles r),
            (SELECT sum(hashtextextended(m.roleid || ':' || m.member || ':' || m.xmin, 0)) FROM pg_auth_members m),
            (SELECT d.oid || ':' || d.datdba FROM pg_database d WHERE d.datname = current_database())),
            pg_current_snapshot()::text,
            (\(CatalogReader.unannouncedText))
        """
    }

    /// SQL for the published tables whose changed policies and rights the replication stream does not announce.
    ///
    /// For other tables, PostgreSQL describes the table again before its next change. For a partitioned table that is
    /// published under its own name, PostgreSQL describes only the partition. The list is empty if event triggers
    /// announce changed definitions (`sql/050_ddl_messages.sql`).
    private static let unannouncedText = """
        SELECT string_agg(c.oid::text, ',' ORDER BY c.oid) FROM published JOIN pg_class c ON c.oid = published.relid
        WHERE c.relkind = 'p' AND (SELECT count(*) FROM pg_event_trigger e
            WHERE e.evtname IN ('tidewire_definitions_made', 'tidewire_definitions_dropped') AND e.evtenabled IN ('O', 'A')) < 2
        """

    /// Returns SQL that is true if another session holds or awaits an exclusive lock on the table. A query that prints
    /// an expression naming the table would have to wait for that lock.
    static func isLocked(_ table: String) -> String {
        """
        EXISTS (SELECT FROM pg_locks l
            WHERE l.locktype = 'relation' AND l.mode = 'AccessExclusiveLock' AND l.relation = \(table)
                AND l.pid IS DISTINCT FROM pg_backend_pid()
                AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
        """
    }

    static let unreadable = PostgresError(operation: "catalog", message: "the catalog cannot be read")

    // MARK: Visible transactions

    func visibleTransactions() throws(PostgresError) -> VisibleTransactions {
        let rows = try query(VisibleTransactions.question)
        guard let visible = VisibleTransactions(rows) else { throw CatalogReader.unreadable }
        return visible
    }

    // MARK: Tables

    /// Reads the whole catalog again and returns it as a view. The tables are read in one transaction, the rights after
    /// it. Unchanged tables keep their objects. Rights are read for the roles and tables whose rights the view before
    /// had.
    func view(after before: CatalogView?) throws(PostgresError) -> CatalogView {
        let known = before?.snapshot
        let version = (known?.version ?? 0) + 1
        definitions.beginReading()
        let tables = try tables(reusing: known)
        let text = try textRules()
        let policies = try policyBook(version: version, of: tables, text, after: known?.policies)
        let memberships = try followed()
        let snapshot = CatalogSnapshot(
            version: version, publication: publication, tables: tables, text: text, policies: policies,
            followable: memberships.tables, unknownPasts: memberships.unknownPasts,
            privilegedRoles: try privilegedRoles(), messageRules: try messageRules(), publishedAs: try publishedAs())
        var view = CatalogView(snapshot: snapshot, roles: try roles(before?.roles.tables ?? [:], of: snapshot))
        view.combinePolicies(after: before)
        if asked.sharesTime { definitions.finishReading() }
        assert(before.map { $0.snapshot.version < version } ?? true, "versions only grow")
        return view
    }

    private func tables(reusing known: CatalogSnapshot?) throws(PostgresError) -> [CatalogTable] {
        _ = try query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        do throws(PostgresError) {
            let tables = try readTables(known)
            _ = try query("COMMIT")
            return tables
        } catch {
            if !error.isConnectionLost { _ = try? query("ROLLBACK") }
            throw error
        }
    }

    private func readTables(_ known: CatalogSnapshot?) throws(PostgresError) -> [CatalogTable] {
        try tables(tableHeads()) { known?.table($0) }
    }

    func tables(
        _ heads: [TableHead], reusing known: (UInt32) -> CatalogTable?
    ) throws(PostgresError) -> [CatalogTable] {
        let oids = PostgresArray.literal(heads.map { String($0.oid) })
        let attributes = try attributes(oids)
        let types = try types(of: oids)
        let collations = try collations(of: oids)
        let ages = try ages(of: heads, types)
        return heads.map { head in
            let table = head.table(attributes[head.oid] ?? [], types, collations, ages)
            let before = known(table.oid)
            assert(before.map { $0.oid == table.oid } ?? true, "a table is known by its own number")
            return before == table ? before ?? table : table
        }
    }

    func textRules() throws(PostgresError) -> TextRules {
        let rows = try query(
            """
            SELECT getdatabaseencoding(), lower('ABCDEFGHIJKLMNOPQRSTUVWXYZ') = 'abcdefghijklmnopqrstuvwxyz'
                AND upper('abcdefghijklmnopqrstuvwxyz') = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ'
            """)
        guard let row = rows.first, let encoding = row[0] else { throw CatalogReader.unreadable }
        return TextRules(TextRules.Encoding(server: encoding), foldsASCIIPlainly: row.flag(1))
    }

    private func tableHeads() throws(PostgresError) -> [TableHead] {
        let rows = try query(
            """
            SELECT c.oid, n.nspname, c.relname, c.relrowsecurity, c.relforcerowsecurity, c.relreplident,
                (SELECT i.indkey::text FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary LIMIT 1),
                (SELECT i.indkey::text FROM pg_index i WHERE i.indrelid = c.oid AND i.indisreplident LIMIT 1),
                EXISTS (SELECT 1 FROM pg_policy q WHERE q.polrelid = c.oid),
                p.pubinsert, p.pubupdate, p.pubdelete, g.attrs, \(CatalogReader.isOrdinary), g.is_filtered,
                \(CatalogReader.sureIdentity),
                \(PublishedTables.entries(serverVersion: asked.serverVersion))
            FROM pg_publication p CROSS JOIN LATERAL \(publishedTables) g
                JOIN pg_class c ON c.oid = g.relid JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE p.pubname = $1::text
            ORDER BY n.nspname COLLATE "C", c.relname COLLATE "C"
            """, [publication])
        return rows.values.compactMap { TableHead($0) }
    }

    /// Returns, for each partition or partitioned table, the SQL name of the published table whose changes contain its
    /// rows.
    private func publishedAs() throws(PostgresError) -> [QualifiedName: String] {
        let rows = try query(
            """
            SELECT n.nspname, k.relname, min(quote_ident(m.nspname) || '.' || quote_ident(c.relname))
            FROM pg_publication p CROSS JOIN LATERAL \(publishedTables) g
                JOIN pg_class c ON c.oid = g.relid AND (c.relispartition OR c.relkind = 'p')
                JOIN pg_namespace m ON m.oid = c.relnamespace
                CROSS JOIN LATERAL (SELECT a.relid FROM pg_partition_ancestors(c.oid) a
                    UNION SELECT t.relid FROM \(PublishedTables.partitions(of: "c.oid")) t) kin
                JOIN pg_class k ON k.oid = kin.relid AND k.oid <> c.oid
                JOIN pg_namespace n ON n.oid = k.relnamespace
            WHERE p.pubname = $1::text
            GROUP BY n.nspname, k.relname
            """, [publication])
        var names: [QualifiedName: String] = [:]
        for row in rows.values {
            guard let schema = row[0], let name = row[1] else { continue }
            names[QualifiedName(schema, name)] = row[2]
        }
        return names
    }

    /// SQL over `pg_class c`: the replica identity whose columns the old rows of all partitions contain. NULL if the
    /// identities of all partitions and of the table are the same. All identities except an index and "nothing" include
    /// the primary key.
    private static let sureIdentity = """
        CASE WHEN c.relkind = 'p' THEN (
            SELECT CASE WHEN bool_and(k.relreplident IN ('d', 'f')) THEN 'd' ELSE 'n' END
            FROM \(PublishedTables.partitions(of: "c.oid")) t JOIN pg_class k ON k.oid = t.relid
            WHERE k.relkind <> 'p' OR k.oid = c.oid
            HAVING count(DISTINCT k.relreplident::text || CASE WHEN k.relreplident = 'i' THEN (
                SELECT string_agg(a.attname, ',' ORDER BY a.attname)
                FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
                WHERE i.indrelid = k.oid AND i.indisreplident) ELSE '' END) > 1) END
        """

    /// SQL over `pg_class c` that is true for a permanent table without partitions, parents or children.
    private static let isOrdinary = """
        c.relkind = 'r' AND c.relpersistence = 'p' AND NOT c.relispartition AND NOT EXISTS (
            SELECT FROM pg_inherits i WHERE i.inhparent = c.oid OR i.inhrelid = c.oid)
        """

    /// Returns the kinds (`relkind`) of the relations that the requests name. Relations that a request's role may not
    /// read are missing.
    func kinds(of requests: [BindingRequest]) throws(PostgresError) -> [BindingRequest: String] {
        let rows = try query(
            """
            SELECT w.number, c.relkind
            FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS w (schema, name, role, number)
                JOIN pg_roles r ON r.rolname = w.role JOIN pg_namespace n ON n.nspname = w.schema
                JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
            WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND has_schema_privilege(r.oid, n.oid, 'USAGE')
                AND has_any_column_privilege(r.oid, c.oid, 'SELECT')
            """,
            [requests.map(\.schema), requests.map(\.table), requests.map(\.role)].map { PostgresArray.literal($0) })
        var kinds: [BindingRequest: String] = [:]
        for row in rows.values {
            guard let number = row[0].flatMap({ Int($0) }), requests.indices.contains(number - 1) else { continue }
            kinds[requests[number - 1]] = row[1]
        }
        return kinds
    }

    /// Returns the facts about tables that policies read but the publication may lack. Clients cannot subscribe to
    /// them.
    func heads(_ oids: Set<UInt32>) throws(PostgresError) -> [TableHead] {
        let rows = try query(
            """
            SELECT c.oid, n.nspname, c.relname, c.relrowsecurity, c.relforcerowsecurity, c.relreplident,
                (SELECT i.indkey::text FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary LIMIT 1),
                (SELECT i.indkey::text FROM pg_index i WHERE i.indrelid = c.oid AND i.indisreplident LIMIT 1),
                EXISTS (SELECT 1 FROM pg_policy q WHERE q.polrelid = c.oid),
                false, false, false, NULL, \(CatalogReader.isOrdinary), false, NULL, NULL
            FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE c.oid = ANY ($1::oid[])
            ORDER BY c.oid
            """, [PostgresArray.literal(oids.sorted().map { String($0) })])
        return rows.values.compactMap { TableHead($0) }
    }

    private func attributes(_ oids: String) throws(PostgresError) -> [UInt32: [TableAttribute]] {
        let rows = try query(
            """
            SELECT a.attrelid, a.attnum, a.attname, a.atttypid, a.attcollation, a.attgenerated <> '',
                format_type(a.atttypid, a.atttypmod),
                (SELECT quote_ident(n.nspname) || '.' || quote_ident(l.collname)
                 FROM pg_type t, pg_collation l JOIN pg_namespace n ON n.oid = l.collnamespace
                 WHERE t.oid = a.atttypid AND l.oid = a.attcollation AND t.typcollation <> a.attcollation),
                CASE WHEN a.attgenerated <> '' AND NOT \(CatalogReader.isLocked("a.attrelid"))
                    THEN pg_get_expr(d.adbin, d.adrelid) END,
                -- What an expression reads is noted of it from 15 on, and before of its column. Each by itself, so that the
                -- index finds it.
                ARRAY(SELECT p.refobjsubid FROM pg_depend p
                    WHERE a.attgenerated <> '' AND p.classid = 'pg_attrdef'::regclass AND p.objid = d.oid
                        AND p.refclassid = 'pg_class'::regclass AND p.refobjid = a.attrelid
                        AND p.refobjsubid <> a.attnum
                    UNION SELECT p.refobjsubid FROM pg_depend p
                    WHERE a.attgenerated <> '' AND p.classid = 'pg_class'::regclass AND p.objid = a.attrelid
                        AND p.objsubid = a.attnum
                        AND p.refclassid = 'pg_class'::regclass AND p.refobjid = a.attrelid
                        AND p.refobjsubid <> a.attnum),
                a.xmin
            FROM pg_attribute a LEFT JOIN pg_attrdef d
                ON a.attgenerated <> '' AND d.adrelid = a.attrelid AND d.adnum = a.attnum
            WHERE a.attrelid = ANY ($1::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
            ORDER BY a.attrelid, a.attnum
            """, [oids])
        return Dictionary(grouping: rows.values.compactMap { TableAttribute($0) }, by: \.table)
    }

    /// Returns the types of the tables' columns and the types in `others`, with all types of which they consist.
    func types(of tables: String = "{}", and others: [UInt32] = []) throws(PostgresError) -> TypeBook {
        let rows = try query(
            """
            WITH RECURSIVE needed(oid) AS (
                SELECT a.atttypid FROM pg_attribute a
                WHERE a.attrelid = ANY ($1::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
                UNION SELECT unnest($2::oid[])
                UNION
                SELECT part.oid FROM needed JOIN pg_type t ON t.oid = needed.oid CROSS JOIN LATERAL (
                    SELECT t.typbasetype WHERE t.typbasetype <> 0
                    UNION ALL SELECT e.oid FROM pg_type e WHERE e.oid = t.typelem AND e.typarray = t.oid
                    UNION ALL SELECT a.atttypid FROM pg_attribute a
                        WHERE t.typrelid <> 0 AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
                ) part(oid))
            SELECT t.oid, t.typname, format_type(t.oid, NULL), t.typtype, t.typbasetype, e.oid, ascii(e.typdelim::text),
                (SELECT x.extname FROM pg_depend d JOIN pg_extension x ON x.oid = d.refobjid
                 WHERE d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e'
                    AND d.refclassid = 'pg_extension'::regclass LIMIT 1),
                t.typrelid
            FROM needed JOIN pg_type t ON t.oid = needed.oid
                LEFT JOIN pg_type e ON e.oid = t.typelem AND e.typarray = t.oid
            """, [tables, PostgresArray.literal(others.map { String($0) })])
        let entries = rows.values.compactMap { TypeBook.Entry($0) }
        let all = PostgresArray.literal(entries.map { String($0.oid) })
        return TypeBook(entries: entries, labels: try labels(all), fields: try fields(all))
    }

    private func labels(_ types: String) throws(PostgresError) -> [UInt32: [String]] {
        let rows = try query(
            """
            SELECT e.enumtypid, e.enumlabel FROM pg_enum e WHERE e.enumtypid = ANY ($1::oid[])
            ORDER BY e.enumtypid, e.enumsortorder
            """, [types])
        var labels: [UInt32: [String]] = [:]
        for row in rows.values {
            guard let type = row.number(0), let label = row[1] else { continue }
            labels[type, default: []].append(label)
        }
        return labels
    }

    private func fields(_ types: String) throws(PostgresError) -> [UInt32: [(name: String, type: UInt32)]] {
        let rows = try query(
            """
            SELECT t.oid, a.attname, a.atttypid FROM pg_type t JOIN pg_attribute a ON a.attrelid = t.typrelid
            WHERE t.oid = ANY ($1::oid[]) AND t.typrelid <> 0 AND a.attnum > 0 AND NOT a.attisdropped
            ORDER BY t.oid, a.attnum
            """, [types])
        var fields: [UInt32: [(name: String, type: UInt32)]] = [:]
        for row in rows.values {
            guard let type = row.number(0), let name = row[1], let field = row.number(2) else { continue }
            fields[type, default: []].append((name, field))
        }
        return fields
    }

    /// Returns the collations of the tables' columns and of the database.
    private func collations(of tables: String) throws(PostgresError) -> CollationBook {
        let database = try query(
            """
            SELECT COALESCE(to_jsonb(d) ->> 'datlocprovider', 'c'),
                COALESCE(to_jsonb(d) ->> 'datlocale', d.datcollate)
            FROM pg_database d WHERE d.datname = current_database()
            """)
        let rows = try query(
            """
            SELECT c.oid, quote_ident(n.nspname) || '.' || quote_ident(c.collname), c.collprovider,
                COALESCE(to_jsonb(c) ->> 'colllocale', c.collcollate),
                COALESCE(to_jsonb(c) ->> 'colllocale', c.collctype), c.collisdeterministic
            FROM pg_collation c JOIN pg_namespace n ON n.oid = c.collnamespace
            WHERE c.oid IN (SELECT a.attcollation FROM pg_attribute a WHERE a.attrelid = ANY ($1::oid[]))
            """, [tables])
        guard let first = database.first else { throw CatalogReader.unreadable }
        return CollationBook(
            entries: rows.values.compactMap { CollationBook.Entry($0) }, databaseProvider: first[0] ?? "",
            databaseLocale: first[1] ?? "")
    }
}

/// Conversion of lists to and from the text form of PostgreSQL's arrays.
enum PostgresArray {
    /// Returns an array literal such as `{"a","b"}`.
    static func literal(_ elements: [String]) -> String {
        var text = "{"
        for (index, element) in elements.enumerated() {
            if index > 0 { text += "," }
            text += "\""
            for character in element.unicodeScalars {
                if character == "\"" || character == "\\" { text += "\\" }
                text.unicodeScalars.append(character)
            }
            text += "\""
        }
        return text + "}"
    }

    /// Returns the numbers of an array such as `{1,2}`, or of a vector such as `1 2`.
    static func numbers(_ text: String) -> [Int] {
        text.split { $0 == "," || $0 == " " || $0 == "{" || $0 == "}" }.compactMap { Int($0) }
    }
}

extension [String?] {
    func number(_ index: Int) -> UInt32? { self[index].flatMap { UInt32($0) } }
    func oids(_ index: Int) -> Set<UInt32> { Set((numbers(index) ?? []).compactMap { UInt32(exactly: $0) }) }
    func numbers(_ index: Int) -> [Int]? { self[index].map { PostgresArray.numbers($0) } }
}
