/// Connections with the hub's own login for the hub's own queries.
public enum OwnSession {
    /// Returns the settings of such a connection: names resolve only to PostgreSQL's own objects, writes fail, and no
    /// statement runs long.
    public static func settings(statementTimeout milliseconds: Int) -> [String] {
        [
            "search_path=pg_catalog", "default_transaction_read_only=on", "row_security=on",
            "statement_timeout=\(milliseconds)", "lock_timeout=\(milliseconds)",
            "idle_in_transaction_session_timeout=\(10 * milliseconds)", "standard_conforming_strings=on",
            // The planner overestimates the cost of catalog queries, and JIT compilation would take seconds.
            "jit=off",
        ]
    }
}
