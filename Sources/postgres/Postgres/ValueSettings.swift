/// Settings of databases and roles by which PostgreSQL reads and writes values, and their effect on the hub.
///
/// The hub writes and reads values by its own settings (`Connection.outputSettings`). While a policy is evaluated the settings
/// are those of a client's session: the hub's texts mean the same under all that are `followed`.
public enum ValueSettings {
    /// Settings under which an expression may have another value, while the hub's texts keep theirs.
    public static let followed: Set<String> = writing.union([
        "search_path", "timezone", "lc_time", "lc_numeric", "default_text_search_config",
    ])
    /// Settings under which values are written as other texts.
    private static let writing: Set<String> = [
        "datestyle", "intervalstyle", "bytea_output", "extra_float_digits", "xmlbinary",
    ]
    /// Settings under which the hub's own texts would mean something else, with the value that each must have. Policies let
    /// nobody read if a client's session has another value.
    public static let required = [
        "array_nulls": "on", "xmloption": "content", "standard_conforming_strings": "on",
        "transform_null_equals": "off",
    ]
    /// Values of the hub's own sessions in which it reads and writes texts.
    public static let own = [
        "datestyle": "ISO, MDY", "intervalstyle": "postgres", "bytea_output": "hex", "extra_float_digits": "3",
        "xmlbinary": "base64", "timezone": "UTC", "lc_monetary": "C", "array_nulls": "on", "xmloption": "content",
        "standard_conforming_strings": "on", "transform_null_equals": "off", "quote_all_identifiers": "off",
    ]

    // MARK: What differs

    /// Rows of a name and a value: those of the session as the server began it, of the database, and of the roles that may
    /// read in it. For a session that began with nothing of the hub's own. Roles and their settings are the whole server's:
    /// those of roles that have nothing in this database say nothing about it.
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

    /// True of a role that may read in the database, by its own rights, another role's or everybody's.
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

    /// Settings that differ from the hub's own, found by the answer to `question`.
    public struct Differences: Sendable, Equatable {
        /// Settings, such as `DateStyle = ISO, DMY`, under which values are written or read in another way than by the hub.
        public private(set) var followed: [String] = []
        /// Settings under which policies let nobody read.
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

    /// True if the value has the same meaning as the hub's own.
    public static func isUsual(_ name: String, _ value: String) -> Bool {
        let value = value.lowercased().filter { $0 != " " }
        switch name {
        case "datestyle": return value == "iso,mdy"
        // From 1 on all numbers are written so that they are read as the same.
        case "extra_float_digits": return (Int(value) ?? 0) > 0
        case "array_nulls", "standard_conforming_strings": return ["on", "true", "yes", "1", "t", "y"].contains(value)
        case "transform_null_equals": return ["off", "false", "no", "0", "f", "n"].contains(value)
        default: return own[name] == value
        }
    }
}
