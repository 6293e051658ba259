import Postgres

extension ValueSettings {
    /// Statement that gives the session the settings with which the hub writes and reads texts.
    public static let ownStatement = statement(own, isLocal: false)

    static func statement(_ values: [String: String], isLocal: Bool) -> PipelinedStatement {
        let names = values.keys.sorted()
        return PipelinedStatement(
            """
            SELECT pg_catalog.set_config(s.name, s.value, \(isLocal))
            FROM ROWS FROM (pg_catalog.unnest(CAST($1 AS pg_catalog.text[])), pg_catalog.unnest(CAST($2 AS pg_catalog.text[])))
                AS s (name, value)
            """, [TextArray.literal(names[...]), TextArray.literal(names.map { values[$0] ?? "" }[...])],
            preparedAs: isLocal ? "surroundings" : nil)
    }
}
