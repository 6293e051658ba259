import TestSupport

/// Generator of conditions that read a row other than by its columns: as a whole, through functions, or in sub-selects.
///
/// Other tests cover conditions on columns. These conditions test the code that builds a row for PostgreSQL.
struct WholeRowShapes {
    private var random: SeededRandom
    private let table: String

    init(seed: Seed, of table: String) {
        random = SeededRandom(seed: seed)
        self.table = table
    }

    /// Returns functions over rows of the table. Each reveals part of the row without naming a column.
    static func functions(of table: String) -> String {
        """
        CREATE FUNCTION told(\(table)) RETURNS text LANGUAGE plpgsql STABLE AS $f$ BEGIN RETURN $1::text; END $f$;
        CREATE FUNCTION sealed(r \(table)) RETURNS boolean LANGUAGE sql STABLE AS $f$ SELECT r.is_private IS TRUE $f$;
        CREATE FUNCTION any_told(r anyelement) RETURNS text LANGUAGE plpgsql STABLE AS $f$ BEGIN RETURN r::text; END $f$;
        CREATE FUNCTION told_of(r record) RETURNS text LANGUAGE plpgsql STABLE AS $f$ BEGIN RETURN to_jsonb(r)::text; END $f$;
        """
    }

    /// Returns the row in one of its notations.
    private mutating func row() -> String {
        random.pick(["\(table)", "\(table).*", "(\(table))", "(\(table).*)", "\(table)::\(table)"])
    }

    /// Returns the row in a notation without an asterisk. An asterisk would stand for all its columns.
    private mutating func value() -> String { random.pick(["\(table)", "(\(table))", "\(table)::\(table)"]) }

    /// Returns a text made from the whole row.
    private mutating func text() -> String {
        let row = row()
        return random.pick([
            "to_jsonb(\(row))::text", "row_to_json(\(row))::text", "(\(table))::text", "format('%s', \(row))",
            "concat(\(row), 'x')", "told(\(row))", "any_told(\(row))", "told_of(\(row))",
            "to_jsonb(ARRAY[\(row)])::text", "array_to_string(ARRAY[\(row)]::text[], '+')",
            "json_build_object('row', \(row))::text", "(SELECT to_jsonb(s)::text FROM (SELECT \(table).*) s)",
            "(SELECT s.p::text FROM (SELECT \(value()) AS p) s)",
            "(SELECT string_agg(e.value, ',' ORDER BY e.key) FROM jsonb_each_text(to_jsonb(\(table))) e)",
            "(SELECT to_jsonb(\(table))::text || count(*) FROM (VALUES (1)) AS \(table)2 (n))", "(\(table)).body",
            "\(table).told", "to_jsonb(\(table)) ->> 'is_private'", "to_jsonb(\(table)) ->> 'odd \"name'",
        ])
    }

    private mutating func condition() -> String {
        switch Int.random(in: 0..<10, using: &random) {
        case 0: return "\(table) IS NOT NULL"
        case 1: return "NOT (\(table) IS NULL)"
        case 2: return "\(row()) IS DISTINCT FROM \(row())"
        case 3: return "NOT sealed(\(row()))"
        case 4: return "(SELECT NOT (s.p).is_private FROM (SELECT \(value()) AS p) s)"
        case 5: return "EXISTS (SELECT FROM unnest(ARRAY[\(row())]) AS u WHERE u.is_private)"
        default: break
        }
        let text = text()
        return random.pick([
            "coalesce(\(text) LIKE '%secret%', true)", "\(text) NOT LIKE '%secret%'", "hashtext(\(text)) % 2 = 0",
            "length(\(text)) % 3 = \(Int.random(in: 0..<3, using: &random))", "md5(\(text)) < '8'",
            "\(text) IS NOT NULL",
            "NOT coalesce(\(text) ~ 't', false)",
        ])
    }

    mutating func expression(_ depth: Int = 2) -> String {
        guard depth > 0, Int.random(in: 0..<3, using: &random) > 0 else { return condition() }
        let (one, two) = (expression(depth - 1), random.pick([expression(depth - 1), "id % 2 = 0", "n > 1"]))
        return random.pick(["(\(one)) AND (\(two))", "(\(one)) OR (\(two))", "NOT (\(one))", "(\(one)) IS NOT FALSE"])
    }
}
