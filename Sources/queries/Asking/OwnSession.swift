/// Settings of connections with which the hub's own login runs the hub's own queries.
public enum OwnSession {
    /// Returns connection settings: names refer to PostgreSQL's own objects only, writes fail, and statements have a
    /// timeout.
    public static func settings(statementTimeout milliseconds: Int) -> [String] {
        [
            "search_path=pg_catalog", "default_transaction_read_only=on", "row_security=on",
            "statement_timeout=\(milliseconds)", "lock_timeout=\(milliseconds)",
            "idle_in_transaction_session_timeout=\(10 * milliseconds)", "standard_conforming_strings=on",
            // The planner overestimates the cost of catalog queries. JIT compilation would then take seconds.
            "jit=off",
        ]
    }
}
