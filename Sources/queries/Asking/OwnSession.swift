/// Connections on which the hub's own login asks the hub's own questions.
public enum OwnSession {
    /// What each is set to. Names resolve to PostgreSQL's own alone, nothing can be written, and nothing takes long.
    public static func settings(statementTimeout milliseconds: Int) -> [String] {
        [
            "search_path=pg_catalog", "default_transaction_read_only=on", "row_security=on",
            "statement_timeout=\(milliseconds)", "lock_timeout=\(milliseconds)",
            "idle_in_transaction_session_timeout=\(10 * milliseconds)", "standard_conforming_strings=on",
            // What is asked of the catalog is estimated to cost much, and costs little: compiling it takes seconds.
            "jit=off",
        ]
    }
}
