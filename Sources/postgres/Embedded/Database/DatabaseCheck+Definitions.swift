import Postgres

/// Check that the replication stream reports changes of policies and rights.
extension DatabaseCheck {
    /// Returns a requirement that names the tables whose changes have to wait until the hub has read the catalog; nil
    /// if there are none.
    func definitions() throws(PostgresError) -> Requirement? {
        let rows = try ask(
            """
            SELECT string_agg(c.oid::regclass::text, ', ' ORDER BY c.oid::regclass::text)
            FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_publication_tables t ON t.pubname = p.pubname
                JOIN pg_catalog.pg_namespace n ON n.nspname = t.schemaname
                JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
            WHERE p.pubname = $1 AND p.pubviaroot AND c.relkind = 'p'
                AND (SELECT count(*) FROM pg_catalog.pg_event_trigger e
                    WHERE e.evtname IN ('tidewire_definitions_made', 'tidewire_definitions_dropped')
                        AND e.evtenabled IN ('O', 'A')) < 2
            """, [settings.publication])
        guard let tables = rows.first?[0] else { return nil }
        return .wrong(
            .publication, "definitions",
            "the replication stream does not show when policies of \(tables) change, so changes of these tables wait some "
                + "milliseconds, until the hub has read the catalog", isRequired: false,
            hint: "as a superuser: tidewire db apply --ddl-messages")
    }
}
