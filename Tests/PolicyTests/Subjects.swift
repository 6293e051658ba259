import Policy
import TestSupport

/// Column type with the values on which it is tested.
struct Subject: Sendable {
    var column: ColumnFacts
    /// Type name in SQL, without a length.
    var sqlType: String
    var sqlCollation = ""
    /// Valid values of the type, as clients might write them.
    var values: [String]
    var operators: [FilterOperator] = Subject.ordering
    /// Operators that the hub always evaluates itself, without asking PostgreSQL.
    var neverAsks: Set<FilterOperator> = Set(Subject.ordering)

    static let equality: [FilterOperator] = [.eq, .neq, .in, .isdistinct]
    static let ordering: [FilterOperator] = equality + [.lt, .lte, .gt, .gte]
    static let patterns: [FilterOperator] = [.like, .ilike]

    init(
        _ oid: UInt32, _ name: String, sql: String? = nil, collation: Collation = .none, collate: String = "",
        shape: TypeFacts.Shape = .base, _ values: [String], operators: [FilterOperator] = Subject.ordering,
        neverAsks: [FilterOperator] = Subject.ordering
    ) {
        column = ColumnFacts(name: "c", type: TypeFacts(oid: oid, name: name, shape: shape), collation: collation)
        sqlType = sql ?? name
        sqlCollation = collate
        self.values = values
        self.operators = operators
        self.neverAsks = Set(neverAsks)
    }
}

extension Subject {
    static let all: [Subject] =
        numbers + texts.compactMap { hasICU ? $0 : $0.withoutICU } + times + others + arrays + [jsonb]

    /// True if the server was built with ICU. ICU collations are tested only in this case.
    private static let hasICU = (try? TestServer.hasICU()) ?? false
    private var withoutICU: Subject? {
        if sqlCollation.contains("nocase") { return nil }
        guard sqlCollation.contains("icu") else { return self }
        var plain = self
        plain.sqlCollation = ""
        plain.column = ColumnFacts(name: "c", type: column.type, collation: .deterministic(name: nil))
        return plain
    }

    /// True if the type and the collation exist in every database encoding.
    var isOfEveryEncoding: Bool {
        column.type.oid < 16_384 && (sqlCollation.isEmpty || sqlCollation == " COLLATE \"C\"")
    }

    /// SQL that creates the collation of one of the subjects.
    static let collationSQL =
        hasICU
        ? "CREATE COLLATION public.nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);" : ""

    private static let integers = ["0", "1", "-1", " 42 ", "+7", "007", "32767", "-32768"]
    private static let wide = integers + ["2147483647", "-2147483648"]
    private static let decimals = [
        "0", "-0", "0.00", "1.50", "1.5", "-1.5", "007.10", ".5", "1e3", "1000", "NaN", "Infinity", "-Infinity",
        "12345678901234567890.123456789", "12345678901234567890.12345678901", "-99999999999999999999", "1e-20", "9",
        "10",
        "-9.99", "-9.9",
    ]
    private static let floats = [
        "0", "-0", "NaN", "Infinity", "-Infinity", "0.1", "0.30000000000000004", "1e300", "-1e300", "5e-324", "1.5",
        "16777217", "9007199254740993", "100000", "1e15", "1e16", "-2.5e-7",
    ]
    private static let narrowFloats = [
        "0", "-0", "NaN", "Infinity", "-Infinity", "0.1", "0.3", "1e30", "-1e30", "1e-45", "1.5", "16777217",
        "3.4028235e38",
        "1.17549435e-38", "0.2",
    ]

    private static let numbers = [
        Subject(21, "smallint", integers), Subject(23, "integer", wide),
        Subject(20, "bigint", wide + ["9223372036854775807", "-9223372036854775808"]),
        Subject(26, "oid", ["0", "1", "4294967295", "2147483648", "10", "9"]),
        Subject(1700, "numeric", decimals), Subject(701, "double precision", floats),
        Subject(700, "real", narrowFloats),
        Subject(16, "boolean", ["t", "true", "yes", " on", "1", "f", "false", "n", "off", "0"]),
    ]

    private static let words = [
        "", " ", "a", "A", "ab", "a ", "abc", "aBc", "b", "ä", "Ä", "äb", "日本", "日本語", "😀", "a%b", "a_b", "a\\b",
        "null", "NULL", "{a,b}", "a,b", "\"q\"", "line\nbreak", "zebra", "İ", "ı", "K", "\u{212a}", "ß", "e\u{301}",
        "é", "Б", "Ц", "б", "бЦ",
    ]
    private static let textOperators = ordering + patterns + [.match, .imatch]

    private static let texts = [
        Subject(
            25, "text", collation: .bytewise, collate: " COLLATE \"C\"", words, operators: textOperators,
            neverAsks: ordering + patterns),
        Subject(
            25, "text", collation: .deterministic(name: nil), words, operators: textOperators,
            neverAsks: equality + [.like]),
        Subject(
            1043, "character varying", collation: .deterministic(name: "\"en-US-x-icu\""),
            collate: " COLLATE \"en-US-x-icu\"", words, operators: textOperators, neverAsks: equality + [.like]),
        Subject(
            1043, "character varying", collation: .deterministic(name: "\"tr-TR-x-icu\""),
            collate: " COLLATE \"tr-TR-x-icu\"", words + ["I", "i", "TITLE", "title"], operators: textOperators,
            neverAsks: equality + [.like]),
        Subject(
            25, "text", collation: .nondeterministic(name: "public.nocase"), collate: " COLLATE public.nocase", words,
            neverAsks: []),
        Subject(
            1042, "character", sql: "bpchar", collation: .bytewise, collate: " COLLATE \"C\"", words,
            operators: textOperators, neverAsks: ordering + patterns),
        Subject(
            1042, "character", sql: "bpchar", collation: .deterministic(name: nil), words, operators: textOperators,
            neverAsks: equality + [.like]),
        Subject(
            19, "name", collation: .bytewise, collate: " COLLATE \"C\"", words + [String(repeating: "n", count: 80)],
            operators: textOperators,
            neverAsks: ordering + patterns),
        Subject(18, "\"char\"", ["", "a", "b", "A", "~"], neverAsks: equality),
        Subject(
            17, "bytea", ["\\x", "\\x00", "\\x0001", "\\xff", "\\xFFee", "abc", "a\\\\b", "\\x61"],
            operators: ordering + [.like]),
    ]

    private static let dates = [
        "2026-03-01", "2026-02-28", "2024-02-29", "1999-12-31", "2000-01-01", "0044-03-15 BC", "0001-01-01",
        "0001-12-31 BC", "12345-06-07", "infinity", "-infinity", "4713-11-24 BC", "5874897-12-31", "1900-03-01",
        "March 3 2026",
    ]
    private static let instants = [
        "2026-03-01 10:20:30", "2026-03-01T10:20:30.5", "2026-03-01 10:20:30.45", "2026-03-01 10:20:30.123456",
        "0044-03-15 10:00:00 BC", "0044-03-15 11:00:00 BC", "12345-06-07 08:09:10", "9999-12-31 23:59:59.999999",
        "10000-01-01", "infinity", "-infinity", "294276-12-31 23:59:59.999999", "1999-12-31 23:59:59.999999",
        "2000-01-01", "0001-01-01", "2026-03-01 24:00:00", "4713-11-24 00:00:00 BC",
    ]
    private static let zoned =
        instants + [
            "2026-03-01 12:20:30+02", "2026-03-01 09:50:30-00:30", "2026-03-01T10:20:30Z",
            "0044-03-15 10:00:00+05:30 BC",
        ]
    private static let clocks = [
        "00:00", "24:00:00", "10:20:30", "10:20:30.5", "10:20:30.45", "23:59:59.999999", "9:5",
    ]
    private static let spans =
        [
            "0", "1 day", "24 hours", "30 days", "1 mon", "1 month -1 day", "-1 day 1 hour", "1 year", "12 mons",
            "360 days",
            "00:00:00.000001", "-00:00:01", "1 year 2 mons -3 days 04:05:06.7", "-1 year 1 day", "178000000 years",
            "-178000000 years", "29 days 24:00:00", "-1 mon 30 days",
        ] + longSpans
    /// Interval that PostgreSQL 14 refuses as too long.
    private static let longSpans = ((try? TestServer.major()) ?? 0) >= 15 ? ["2562047788 hours"] : []

    private static let times = [
        Subject(1082, "date", dates), Subject(1114, "timestamp without time zone", instants),
        Subject(1184, "timestamp with time zone", zoned), Subject(1083, "time without time zone", clocks),
        Subject(
            1266, "time with time zone",
            [
                "10:20:30+02", "08:20:30+00", "12:20:30+04", "10:20:30.5-03:30", "24:00:00+00", "00:00+15:59",
                "10:20:30+02:00:01",
            ]),
        Subject(1186, "interval", spans),
    ]

    private static let others = [
        Subject(
            2950, "uuid",
            [
                "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
                "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}", "00000000-0000-0000-0000-000000000000",
                "ffffffffffffffffffffffffffffffff", "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a12",
            ]),
        Subject(
            90000, "public.mood", shape: .enumeration(labels: ["sad", "ok", "happy", "Ünruhig", "a b"]),
            ["sad", "ok", "happy", "Ünruhig", "a b"]),
        Subject(829, "macaddr", ["08:00:2b:01:02:03", "08002b010203", "ff-ff-ff-00-00-00", "00:00:00:00:00:01"]),
        Subject(774, "macaddr8", ["08:00:2b:01:02:03:04:05", "ffffffffffffffff", "08:00:2b:01:02:03"]),
        Subject(
            869, "inet", ["10.0.0.1", "10.0.0.1/24", "10.0.0.1/32", "::1", "FE80::1/64", "10.0.0.0/8"],
            neverAsks: equality),
        Subject(650, "cidr", ["10.0.0.0/8", "10.0.0.0/24", "::/0", "192.168.1.1"], neverAsks: equality),
        Subject(1560, "bit", sql: "pg_catalog.\"bit\"", ["0", "1", "10", "101", "100000000", "10000000", "11111111"]),
        Subject(1562, "bit varying", ["", "0", "1", "10", "101", "100000000", "10000000", "11111111", "00"]),
        Subject(790, "money", ["1.5", "-2", "1,234.50", "0"], neverAsks: []),
        Subject(
            3904, "int4range", shape: .other, ["[1,5)", "empty", "(,3]", "[5,9]", "[1,1]", "(,)"],
            operators: ordering + [.cs, .cd, .ov, .sl, .sr, .nxr, .nxl, .adj], neverAsks: []),
        Subject(603, "box", ["(1,2),(3,4)", "(0,0),(1,1)"], operators: [.eq, .lt, .ov], neverAsks: []),
        Subject(3220, "pg_lsn", ["0/0", "16/B374D848", "FFFFFFFF/1"], neverAsks: []),
        Subject(3614, "tsvector", ["'a' 'b'", "a:1 b:2", ""], neverAsks: []),
    ]

    private static let sets = ordering.filter { $0 != .in } + [.cs, .cd, .ov]

    private static func array(
        _ oid: UInt32, _ element: TypeFacts, collation: Collation = .none, collate: String = "", _ values: [String],
        neverAsks: [FilterOperator]? = nil
    ) -> Subject {
        Subject(
            oid, element.name + "[]", collation: collation, collate: collate, shape: .array(of: element), values,
            operators: sets, neverAsks: neverAsks ?? sets)
    }

    private static let arrays = [
        array(
            1007, TypeFacts(oid: 23, name: "integer"),
            [
                "{}", "{1}", "{1,2}", "{2,1}", "{1,2,3}", "{1,NULL}", "{NULL}", "{NULL,1}", "{{1,2},{3,4}}",
                "{{1},{2}}", "{1,2,3,4}", "[0:1]={1,2}", "[2:3]={1,2}", "{{{1}},{{2}}}", "{10,9}", "{1,1}",
            ]),
        array(
            1009, TypeFacts(oid: 25, name: "text"), collation: .deterministic(name: nil),
            [
                "{}", "{a}", "{\"a b\",c}", "{\"NULL\",NULL}", "{null}", "{\"q\\\"u\",\"\\\\o\"}", "{\"\"}", "{a,b}",
                "{b}",
                "{\"{\",\"}\",\",\"}", "{日本,é}", "{{a,\",\"},{\"{{\",d}}",
            ], neverAsks: [.eq, .neq, .isdistinct, .cs, .cd, .ov]),
        array(
            1015, TypeFacts(oid: 1043, name: "character varying"), collation: .bytewise, collate: " COLLATE \"C\"",
            [
                "{}", "{a}", "{\"a b\",c}", "{\"NULL\",NULL}", "{\"q\\\"u\",\"\\\\o\"}", "{\"\"}", "{a,b}", "{a,B}",
                "{a,b,c}",
            ]),
        array(
            1231, TypeFacts(oid: 1700, name: "numeric"),
            ["{1.50}", "{1.5}", "{NaN,0}", "{0.00}", "{-1,2}", "{}", "{10,9.99}", "{9.99,1.5}"]),
        array(1022, TypeFacts(oid: 701, name: "double precision"), ["{-0}", "{0}", "{NaN}", "{1e20,0.1}", "{0.1}"]),
        array(
            1185, TypeFacts(oid: 1184, name: "timestamp with time zone"),
            [
                "{\"2026-03-01 10:20:30+00\"}", "{infinity}", "{\"0044-03-15 10:00:00+00 BC\",NULL}",
                "{2026-03-01T12:20:30+02}",
            ]),
        array(
            2951, TypeFacts(oid: 2950, name: "uuid"),
            [
                "{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11}",
                "{00000000-0000-0000-0000-000000000000,a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}",
            ]),
        array(1001, TypeFacts(oid: 17, name: "bytea"), ["{\"\\\\x01\"}", "{\"\\\\x0102\",\"\\\\x\"}", "{}"]),
        array(1000, TypeFacts(oid: 16, name: "boolean"), ["{t,f}", "{true}", "{f}", "{t,NULL}"]),
        array(
            90001,
            TypeFacts(
                oid: 90000, name: "public.mood", shape: .enumeration(labels: ["sad", "ok", "happy", "Ünruhig", "a b"])),
            ["{sad,ok}", "{happy}", "{ok}", "{\"a b\",Ünruhig}"]),
        array(1014, TypeFacts(oid: 1042, name: "character"), collation: .bytewise, ["{a}"], neverAsks: []).with(
            sql: "bpchar[]", collate: " COLLATE \"C\"", ["{a,\"a \"}", "{\"a \",\"a  \"}", "{a}", "{b,a}"]),
        array(
            1187, TypeFacts(oid: 1186, name: "interval"),
            ["{1 mon}", "{30 days}", "{24:00:00,1 day}", "{1 day,24:00:00}"]),
        array(
            3807, TypeFacts(oid: 3802, name: "jsonb"), ["{1,1.0}", "{\"{\\\"a\\\": [1, 2]}\"}", "{\"1.0\",1}"],
            neverAsks: [.eq, .neq, .isdistinct]),
    ]

    private func with(sql: String, collate: String, _ values: [String]) -> Subject {
        var subject = self
        subject.sqlType = sql
        subject.sqlCollation = collate
        subject.values = values
        subject.neverAsks = Set(Subject.sets)
        return subject
    }

    private static let jsonb = Subject(
        3802, "jsonb",
        [
            "1", "1.0", "\"1\"", "null", "true", "[]", "{}", "[1]", "[1.00, 2]", "[2,1]", "[[1]]", "[1,[1]]",
            "{\"a\":1}", "{\"b\":2,\"a\":1.0}", "{\"a\":{\"b\":[1,2,{\"c\":null}]}}", "{\"a\":{\"b\":[]}}",
            "{\"a\":{\"b\":[{}]}}", "{\"a\":{\"b\":[2]}}", "[{\"a\":1},{\"b\":2}]", "[{\"a\":1,\"b\":2}]", "\"q\\\"u\"",
            "\"a, b: {\"", "[\"a\",\"b\"]", "\"a\"", "{\"x y\":\"\\u00e9\\n\"}", "-1.50", "[null]", "1e400",
            "{\"a\":null}",
            "{\"b\":[1]}", "{\"\":0}",
        ], operators: ordering + [.cs, .cd], neverAsks: equality + [.cs, .cd])
}
