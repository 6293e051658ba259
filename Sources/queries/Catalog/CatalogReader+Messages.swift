import Postgres

/// Queries for the rules that decide who may read and write in private channels.
extension CatalogReader {
    /// Returns a text that changes whenever rules about rows of `realtime.messages` may have changed. It covers the
    /// table's policies, rights and flags, those of tables that the policies read, and functions and roles. The text is
    /// empty if the table does not exist.
    func messageRules() throws(PostgresError) -> String {
        let rows = try query("SELECT \(CatalogReader.messageRulesText)")
        let own = rows.first?.first.flatMap(\.self) ?? ""
        return own.isEmpty ? "" : try own + "|" + surroundings()
    }

    /// SQL for the part of the text of `messageRules` that concerns tables. It is also a part of the catalog's
    /// fingerprint, so it runs at every poll. NULL if the table does not exist.
    static let messageRulesText = """
        (WITH concerned AS (
            SELECT m.oid FROM pg_class m JOIN pg_namespace n ON n.oid = m.relnamespace
            WHERE n.nspname = 'realtime' AND m.relname = 'messages'),
        read AS (
            SELECT oid FROM concerned
            UNION SELECT d.refobjid FROM pg_policy q JOIN pg_depend d ON d.classid = 'pg_policy'::regclass
                AND d.objid = q.oid AND d.refclassid = 'pg_class'::regclass
            WHERE q.polrelid IN (SELECT oid FROM concerned))
        SELECT concat_ws('/', string_agg(concat_ws(':', c.oid, c.relname, c.relnamespace, c.relowner, c.relrowsecurity,
                c.relforcerowsecurity, c.relacl::text), ',' ORDER BY c.oid),
            (SELECT string_agg(q.oid || ':' || q.xmin, ',' ORDER BY q.oid) FROM pg_policy q
             WHERE q.polrelid IN (SELECT oid FROM read)),
            (SELECT sum(hashtextextended(concat_ws(':', a.attrelid, a.attnum, a.attname, a.attacl::text), 0))
             FROM pg_attribute a WHERE a.attnum > 0 AND a.attrelid IN (SELECT oid FROM read)))
         FROM pg_class c WHERE c.oid IN (SELECT oid FROM read) HAVING count(*) > 0)
        """
}
