import Change
import Postgres
import TestSupport
import Testing

extension EndToEnd {
    @Suite(.serialized) struct TypesTests {
        /// One value of every built-in type and of user-defined types. The expected result is the server's own text of
        /// each value.
        static let values: [(type: String, literal: String)] = [
            ("boolean", "true"), ("smallint", "-32768"), ("integer", "2147483647"), ("bigint", "-9223372036854775808"),
            ("numeric", "'NaN'"), ("numeric", "0.00"),
            ("numeric", "1234567890123456789012345678901234567890.0123456789"),
            ("numeric", "'-Infinity'"), ("real", "'0.1'"), ("real", "'NaN'"), ("double precision", "'-0'"),
            ("double precision", "'Infinity'"), ("double precision", "0.30000000000000004"),
            ("double precision", "1e-320"),
            ("text", "''"), ("text", "'null'"), ("text", "E'quote '' back\\\\ \\n tab\\t {} é 🙂'"),
            ("varchar(20)", "'short'"), ("char(5)", "'ab'"), ("\"char\"", "'x'"), ("name", "'a_name'"),
            ("uuid", "'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'"), ("bytea", "'\\x00ff10'"), ("bytea", "''"),
            ("date", "'2026-11-21'"), ("date", "'0044-03-15 BC'"), ("date", "'infinity'"),
            ("time", "'03:04:05.000006'"),
            ("timetz", "'03:04:05+02'"), ("timestamp", "'2026-03-01 10:20:30.5'"), ("timestamp", "'-infinity'"),
            ("timestamptz", "'2026-03-01 10:20:30.5+02'"), ("timestamptz", "'0001-01-01 00:00:00+00 BC'"),
            ("interval", "'1 year -2 mons 3 days 04:05:06.7'"), ("json", "'{\"a\" :  [1, null]}'"),
            ("jsonb", "'{\"b\": 1.50, \"a\": [1,null,\"x\"]}'"), ("jsonpath", "'$.a[*] ? (@ > 1)'"),
            ("xml", "'<a>1</a>'"),
            ("inet", "'10.0.0.1/8'"), ("inet", "'::1'"), ("cidr", "'10.0.0.0/8'"), ("macaddr", "'08:00:2b:01:02:03'"),
            ("macaddr8", "'08:00:2b:01:02:03:04:05'"), ("money", "'1234.50'"), ("point", "'(1,2)'"),
            ("line", "'{1,2,3}'"), ("lseg", "'[(1,2),(3,4)]'"), ("box", "'(3,4),(1,2)'"), ("path", "'[(1,2),(3,4)]'"),
            ("polygon", "'((1,2),(3,4),(5,6))'"), ("circle", "'<(1,2),3>'"), ("bit(5)", "B'10101'"),
            ("varbit", "B'101'"), ("tsvector", "to_tsvector('simple', 'the quick fox')"), ("tsquery", "'fox & quick'"),
            ("int4range", "'[1,10)'"), ("int8range", "'empty'"), ("numrange", "'(,1.5]'"),
            ("daterange", "'[2026-01-01,)'"),
            ("tsrange", "'[2026-01-01 00:00,2026-01-02 00:00)'"), ("tstzrange", "'[2026-01-01 00:00+02,)'"),
            ("int4multirange", "'{[1,3),[7,9)}'"), ("oid", "4294967295"), ("regclass", "'pg_class'"),
            ("regtype", "'integer'"), ("pg_lsn", "'16/B374D848'"), ("xid8", "'18446744073709551615'"),
            ("integer[]", "'{1,NULL,3}'"), ("integer[]", "'{}'"), ("integer[]", "'[0:1]={7,8}'"),
            ("text[]", "ARRAY['a,b', 'q\"uote', '', NULL, 'NULL']"), ("integer[][]", "'{{1,2},{3,4}}'"),
            ("uuid[]", "'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'"), ("bytea[]", "ARRAY['\\x01'::bytea]"),
            ("jsonb[]", "ARRAY['{\"a\": 1}'::jsonb]"),
            ("timestamptz[]", "ARRAY['2026-03-01 10:20:30+00'::timestamptz]"),
            ("mood", "'so so'"), ("mood[]", "'{happy,NULL}'"), ("small_positive", "7"),
            ("word", "'a word'"), ("amount", "1.5"), ("person", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"),
            ("words", "'{a,NULL}'"), ("word[]", "'{a}'"), ("pair", "ROW(1, 'x,\"y')"),
            ("citext", "'MiXed'"), ("hstore", "'k=>v, n=>NULL'"), ("ltree", "'top.sub'"), ("text", "NULL"),
            ("integer", "NULL"), ("jsonb", "'null'"), ("integer[]", "NULL"),
        ]

        @Test func `every type comes through as the server writes it`() throws {
            let database = try TestDatabase()
            try database.run(
                """
                CREATE EXTENSION citext; CREATE EXTENSION hstore; CREATE EXTENSION ltree;
                CREATE TYPE mood AS ENUM ('sad', 'so so', 'happy');
                CREATE DOMAIN small_positive AS smallint CHECK (VALUE > 0);
                CREATE DOMAIN word AS text NOT NULL DEFAULT ''; CREATE DOMAIN amount AS numeric(8, 2) CHECK (VALUE <> 0);
                CREATE DOMAIN person AS uuid; CREATE DOMAIN words AS text[];
                CREATE TYPE pair AS (n integer, t text);
                """)
            let columns = Self.values.indices.map { "c\($0)" }
            let definitions = zip(columns, Self.values).map { "\($0) \($1.type)" }.joined(separator: ", ")
            try database.run(
                "CREATE TABLE everything (id integer PRIMARY KEY, \(definitions)); "
                    + "CREATE PUBLICATION supabase_realtime FOR TABLE everything")
            let hub = try HubUnderTest(database)
            try hub.start()
            try database.run("INSERT INTO everything VALUES (1, \(Self.values.map(\.literal).joined(separator: ", ")))")
            let change = try #require(try hub.caughtUp().changes(of: "public.everything").first)
            // The expected result is the same values as text, from a session with the same output settings.
            let row = try database.run("SELECT \(columns.joined(separator: ", ")) FROM everything")
            for (index, column) in columns.enumerated() {
                let expected = row.first?[index]
                let logged = try #require(change.new[column])
                #expect(logged == expected, "\(Self.values[index])")
            }
            #expect(change.types["c\(Self.values.firstIndex { $0.type == "mood" } ?? 0)"] == "mood")
            #expect(change.types["c\(Self.values.firstIndex { $0.type == "jsonb" } ?? 0)"] == "jsonb")
        }

        @Test func `fifty megabytes in one value come through whole`() throws {
            let database = try TestDatabase()
            try database.run(
                "CREATE TABLE big (id integer PRIMARY KEY, v text); CREATE PUBLICATION supabase_realtime FOR TABLE big")
            let hub = try HubUnderTest(database)
            try hub.start()
            try database.run(
                "INSERT INTO big SELECT 1, string_agg(md5(g::text), '') FROM generate_series(1, 1638400) g")
            let change = try #require(try hub.caughtUp().changes(of: "public.big").first)
            let text = try #require(change.new["v"] ?? nil)
            #expect(text.utf8.count == 52_428_800)
            let end = try database.value("SELECT right(v, 64) FROM big") ?? "nothing"
            #expect(text.hasPrefix("c4ca4238a0b923820dcc509a6f75849b") && text.hasSuffix(end))
        }

        @Test func `a large value that did not change is neither NULL nor empty`() throws {
            let database = try TestDatabase()
            try database.run(
                """
                CREATE TABLE toasted (id integer PRIMARY KEY, big text, small text, nothing text);
                ALTER TABLE toasted ALTER big SET STORAGE EXTERNAL;
                CREATE TABLE toasted_full (LIKE toasted INCLUDING ALL); ALTER TABLE toasted_full REPLICA IDENTITY FULL;
                CREATE PUBLICATION supabase_realtime FOR TABLE toasted, toasted_full
                """)
            let hub = try HubUnderTest(database)
            try hub.start()
            for table in ["toasted", "toasted_full"] {
                try database.run("INSERT INTO \(table) VALUES (1, repeat('x', 100000), '', NULL)")
                try database.run("UPDATE \(table) SET small = 'changed'")
            }
            let history = try hub.caughtUp()
            let plain = try #require(history.changes(of: "public.toasted").last)
            #expect(plain.new["big"] == LoggedChange.unchanged)
            #expect(plain.new["nothing"] == .some(nil) && plain.new["small"] == "changed")
            #expect(plain.oldImage == .none)
            let full = try #require(history.changes(of: "public.toasted_full").last)
            #expect(full.new["big"] == LoggedChange.unchanged)
            #expect(full.oldImage == .full && full.old["big"] == String(repeating: "x", count: 100_000))
            #expect(full.old["small"] == "")
        }
    }
}
