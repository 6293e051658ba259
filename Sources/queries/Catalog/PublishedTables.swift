/// SQL that lists the tables of a publication without locking them.
///
/// PostgreSQL's own functions (`pg_get_publication_tables`, `pg_partition_tree`) open each table. If another session
/// rewrote a table for minutes, they would block the reading of the catalog and thus all clients.
enum PublishedTables {
    /// Returns SQL for the tables of publication `p`. Its columns are `relid`, `attrs` (the numbers of the published
    /// columns) and `is_filtered` (true if the table has a row filter).
    ///
    /// `attrs` is NULL if all columns that are not generated are published.
    static func of(serverVersion: Int) -> String {
        // PostgreSQL 15 added column lists, row filters and whole schemas, PostgreSQL 18 added generated columns.
        let hasLists = serverVersion >= 150_000
        let columns = hasLists ? "r.prattrs::text" : "NULL::text"
        let all = serverVersion >= 180_000 ? "CASE WHEN p.pubgencols = 's' THEN (\(sentColumns)) END" : "NULL::text"
        let isFiltered = hasLists ? "r.prqual IS NOT NULL" : "false"
        return """
            (
                WITH RECURSIVE listed AS (\(listedTablesSQL(hasSchemas: hasLists))), tree (relid, is_listed) AS (
                    SELECT listed.relid, true FROM listed
                    UNION SELECT i.inhrelid, false FROM tree JOIN pg_inherits i ON i.inhparent = tree.relid
                        JOIN pg_class above ON above.oid = tree.relid AND above.relkind = 'p'),
                sent AS (
                    SELECT c.oid AS relid FROM pg_class c
                    WHERE p.puballtables AND \(isPublishable)
                        AND CASE WHEN p.pubviaroot THEN NOT c.relispartition ELSE c.relkind = 'r' END
                    UNION SELECT tree.relid FROM tree JOIN pg_class c ON c.oid = tree.relid
                    WHERE NOT p.puballtables AND \(isPublishable)
                        AND CASE WHEN p.pubviaroot
                            THEN NOT EXISTS (SELECT FROM tree below WHERE below.relid = tree.relid AND NOT below.is_listed)
                            ELSE c.relkind = 'r' END)
                SELECT sent.relid, COALESCE(\(columns), \(all)) AS attrs, COALESCE(\(isFiltered), false) AS is_filtered
                FROM sent LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = sent.relid
            )
            """
    }

    /// Returns SQL for the oids of the catalog rows by which publication `p` includes `pg_class c` or one of its
    /// ancestors. The text differs after the table was removed and added again.
    static func entries(serverVersion: Int) -> String {
        let schemas = """
             UNION ALL SELECT s.oid FROM pg_publication_namespace s WHERE s.pnpubid = p.oid AND s.pnnspid = c.relnamespace
            """
        return """
            (SELECT string_agg(entry.oid::text, ',' ORDER BY entry.oid) FROM (
                SELECT r.oid FROM pg_publication_rel r
                WHERE r.prpubid = p.oid AND (r.prrelid = c.oid
                    OR r.prrelid IN (SELECT above.relid FROM pg_partition_ancestors(c.oid) above))
                \(serverVersion >= 150_000 ? schemas : "")) entry)
            """
    }

    /// Returns SQL for a table and its partitions of all levels. The only column is `relid`.
    static func partitions(of table: String) -> String {
        """
        (
            WITH RECURSIVE tree (relid) AS (
                SELECT root.oid FROM pg_class root
                WHERE root.oid = \(table) AND (root.relkind = 'p' OR root.relispartition)
                UNION SELECT i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.relid
                    JOIN pg_class above ON above.oid = tree.relid AND above.relkind = 'p')
            SELECT tree.relid FROM tree
        )
        """
    }

    /// SQL over `pg_class c` that is true if a user can publish the table. Oids below 16384 belong to PostgreSQL
    /// itself.
    private static let isPublishable = "c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND c.oid >= 16384"

    /// Returns SQL for the oids of the tables that publication `p` lists itself or, from PostgreSQL 15 on, through a
    /// schema.
    private static func listedTablesSQL(hasSchemas: Bool) -> String {
        let tables = "SELECT r.prrelid AS relid FROM pg_publication_rel r WHERE r.prpubid = p.oid"
        guard hasSchemas else { return tables }
        return """
            \(tables) UNION SELECT c.oid FROM pg_publication_namespace s JOIN pg_class c ON c.relnamespace = s.pnnspid
            WHERE s.pnpubid = p.oid AND \(isPublishable)
            """
    }

    private static let sentColumns = """
        SELECT string_agg(a.attnum::text, ' ' ORDER BY a.attnum) FROM pg_attribute a
        WHERE a.attrelid = sent.relid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated IN ('', 's')
        """
}
