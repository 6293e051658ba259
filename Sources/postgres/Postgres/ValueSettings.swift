/// Settings of databases and roles that determine how PostgreSQL reads and writes values, and their effect on the hub.
///
/// The hub reads and writes values as text, with its own settings (`Connection.outputSettings`). But PostgreSQL
/// evaluates a policy with the settings of a client's session. Under all settings in `followed`, PostgreSQL reads the
/// hub's texts as the same values.
public enum ValueSettings {
    /// Settings that may change the result of an expression, but not how PostgreSQL reads the texts of values that the
    /// hub sends.
    public static let followed: Set<String> = writing.union([
        "search_path", "timezone", "lc_time", "lc_numeric", "default_text_search_config",
    ])
    /// Settings that change how PostgreSQL writes values as text.
    private static let writing: Set<String> = [
        "datestyle", "intervalstyle", "bytea_output", "extra_float_digits", "xmlbinary",
    ]
    /// Settings that could change how PostgreSQL reads the texts of values that the hub sends, with the value that each
    /// must have. If the sessions of clients have another value, policies allow no one to read.
    public static let required = [
        "array_nulls": "on", "xmloption": "content", "standard_conforming_strings": "on",
        "transform_null_equals": "off",
    ]
    /// Settings of the hub's own sessions for reading and writing values.
    public static let own = [
        "datestyle": "ISO, MDY", "intervalstyle": "postgres", "bytea_output": "hex", "extra_float_digits": "3",
        "xmlbinary": "base64", "timezone": "UTC", "lc_monetary": "C", "array_nulls": "on", "xmloption": "content",
        "standard_conforming_strings": "on", "transform_null_equals": "off", "quote_all_identifiers": "off",
    ]

    // MARK: Differences

    /// Query for the relevant settings as rows of name and value: those of the session at its start, of the database,
    /// and of roles that may read in the database. The session must have begun without the hub's own settings. Roles
    /// belong to the whole server; those without privileges in this database do not matter.
    public static let question = """
        SELECT pg_catalog.lower(s.name), s.reset_val FROM pg_catalog.pg_settings s
        WHERE pg_catalog.lower(s.name) IN (\(names))
        UNION SELECT pg_catalog.lower(pg_catalog.split_part(c.setting, '=', 1)),
            pg_catalog.substr(c.setting, pg_catalog.strpos(c.setting, '=') OPERATOR(pg_catalog.+) 1)
        FROM pg_catalog.pg_db_role_setting s CROSS JOIN LATERAL pg_catalog.unnest(s.setconfig) AS c (setting)
        WHERE (s.setdatabase = 0 OR s.setdatabase = (
                SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()))
            AND pg_catalog.lower(pg_catalog.split_part(c.setting, '=', 1)) IN (\(names))
            AND (s.setrole = 0 OR \(mayRead("s.setrole")))
        ORDER BY 1, 2
        """

    /// Returns an SQL condition that is true for a role that may read in the database, by its own privileges, those of
    /// another role, or those of PUBLIC.
    private static func mayRead(_ role: String) -> String {
        """
        pg_catalog.pg_has_role(\(role), 'pg_read_all_data', 'MEMBER')
        OR EXISTS (SELECT FROM pg_catalog.pg_shdepend o JOIN pg_catalog.pg_database d ON d.oid = o.dbid
            JOIN pg_catalog.pg_roles r ON r.oid = o.refobjid
            WHERE d.datname = pg_catalog.current_database()
                AND o.refclassid = 'pg_catalog.pg_authid'::pg_catalog.regclass
                AND pg_catalog.pg_has_role(\(role), r.oid, 'MEMBER'))
        OR EXISTS (SELECT FROM pg_catalog.pg_class t CROSS JOIN LATERAL pg_catalog.aclexplode(t.relacl) AS a
            WHERE t.oid >= 16384 AND t.relkind IN ('r', 'p') AND a.grantee = 0)
        """
    }

    private static let names = (writing.union(required.keys)).sorted().map { Quoted.literal($0) }.joined(
        separator: ", ")

    /// Settings of a database that differ from the hub's own, according to the answer to `question`.
    public struct Differences: Sendable, Equatable {
        /// Settings, such as `DateStyle = ISO, DMY`, under which PostgreSQL reads or writes values in another way than
        /// the hub.
        public private(set) var followed: [String] = []
        /// Settings under which policies allow no one to read.
        public private(set) var refused: [String] = []

        public init() {}

        public init(_ rows: [[String?]]) {
            for row in rows where row.count == 2 {
                guard let name = row[0], let value = row[1], !isUsual(name, value) else { continue }
                if required[name] == nil {
                    followed.append("\(name) = \(value)")
                } else {
                    refused.append("\(name) = \(value)")
                }
            }
        }
    }

    /// True if this value of the setting `name` has the same meaning as the hub's own value.
    public static func isUsual(_ name: String, _ value: String) -> Bool {
        let value = value.lowercased().filter { $0 != " " }
        switch name {
        case "datestyle": return value == "iso,mdy"
        // From 1 on, PostgreSQL writes all numbers exactly.
        case "extra_float_digits": return (Int(value) ?? 0) > 0
        case "array_nulls", "standard_conforming_strings": return ["on", "true", "yes", "1", "t", "y"].contains(value)
        case "transform_null_equals": return ["off", "false", "no", "0", "f", "n"].contains(value)
        default: return own[name] == value
        }
    }
}
