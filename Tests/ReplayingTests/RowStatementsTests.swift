import Change
import Postgres
import TestSupport
import Testing

@testable import History
@testable import Replaying

/// Column type, with an SQL expression for random values of it.
private struct KindOfValue {
    /// Type in CREATE TABLE, and the SQL that makes a random value.
    let type: String
    let value: String

    static let all: [KindOfValue] = [
        .init(
            type: "text",
            value:
                "(ARRAY['', 'o''clock', 'a\\b', E'two\\nlines', 'ünïcödé 🙂', '{\"k\":1}', '\\x41'])[1 + floor(random() * 7)]"
        ),
        .init(type: "varchar(12)", value: "left(md5(random()::text), 12)"),
        .init(type: "char(8)", value: "left(md5(random()::text), (random() * 8)::int)"),
        .init(type: "int2", value: "(random() * 60000 - 30000)::int2"),
        .init(type: "int4", value: "(random() * 4e9 - 2e9)::int4"),
        .init(type: "int8", value: "(random() * 1.8e19 - 9e18)::int8"),
        .init(type: "numeric", value: "(ARRAY[random()::numeric * 1e20, 'NaN', 1.500])[1 + floor(random() * 3)]"),
        .init(type: "numeric(6,2)", value: "(random() * 9999)::numeric(6,2)"),
        .init(type: "float4", value: "(ARRAY[random(), 'Infinity', 1e-30])[1 + floor(random() * 3)]::float4"),
        .init(type: "float8", value: "(ARRAY[random(), '-Infinity', 'NaN', 1e300])[1 + floor(random() * 4)]::float8"),
        .init(type: "bool", value: "random() < 0.5"),
        .init(type: "bytea", value: "decode(md5(random()::text), 'hex')"),
        .init(type: "uuid", value: "md5(random()::text)::uuid"),
        .init(type: "json", value: "json_build_object('a', random(), 'b\\\"', ARRAY[null, 'x''y'])"),
        .init(type: "jsonb", value: "jsonb_build_object('a', random(), 'b', 'x\\y')"),
        .init(
            type: "date",
            value:
                "(ARRAY[date '2026-02-28' + (random() * 9999)::int, 'infinity', '0044-03-15 BC'])[1 + floor(random() * 3)]"
        ),
        .init(type: "time", value: "time '00:00' + random() * interval '1 day'"),
        .init(type: "timetz", value: "timetz '12:30:15.5+05:30'"),
        .init(type: "timestamp", value: "timestamp '2026-01-01' + random() * interval '9 years'"),
        .init(type: "timestamptz", value: "timestamptz '2026-01-01 00:00:00+00' + random() * interval '9 years'"),
        .init(type: "interval", value: "make_interval(months => (random() * 99)::int, secs => random() * 1e6)"),
        .init(type: "inet", value: "('10.0.0.0'::inet + (random() * 1e6)::int)"),
        .init(type: "cidr", value: "cidr '10.1.0.0/16'"),
        .init(type: "macaddr", value: "macaddr '08:00:2b:01:02:03'"),
        .init(type: "macaddr8", value: "macaddr8 '08:00:2b:01:02:03:04:05'"),
        .init(type: "money", value: "(random() * 1e6)::numeric::money"),
        .init(type: "bit(5)", value: "(random() * 31)::int::bit(5)"),
        .init(type: "varbit", value: "(random() * 31)::int::bit(5)::varbit"),
        .init(type: "xml", value: "xmlelement(name a, random())"),
        .init(type: "point", value: "point(random(), random())"),
        .init(type: "int4range", value: "int4range(1, 2 + (random() * 9)::int)"),
        .init(
            type: "tstzrange",
            value: "tstzrange('2026-01-01', '2026-01-01'::timestamptz + random() * interval '9 days')"),
        .init(type: "tsvector", value: "to_tsvector('simple', md5(random()::text))"),
        .init(type: "text[]", value: "ARRAY['a,b', 'q\"', NULL, E'\\\\', md5(random()::text)]"),
        .init(type: "int4[][]", value: "ARRAY[[1, 2], [3, (random() * 9)::int]]"),
        .init(type: "uuid[]", value: "ARRAY[md5(random()::text)::uuid]"),
        .init(type: "mood", value: "(ARRAY['sad', 'it''s ok', 'glad'])[1 + floor(random() * 3)]::mood"),
        .init(type: "mood[]", value: "ARRAY['sad', 'glad']::mood[]"),
        .init(type: "score", value: "(random() * 99)::int"),
        .init(type: "pair", value: "ROW((random() * 9)::int, 'a,\"b\"')::pair"),
        .init(type: "pg_lsn", value: "pg_lsn '0/0' + (random() * 1e9)::bigint"),
    ]

    static let types = """
        CREATE TYPE mood AS ENUM ('sad', 'it''s ok', 'glad'); CREATE DOMAIN score AS int4 CHECK (VALUE < 2147483648::int8);
        CREATE TYPE pair AS (n int, t text);
        """
}

@Suite(.within(minutes: 5)) struct RowStatementsTests {
    /// Table with columns of some types, and its rows as the log has them.
    private struct Stage {
        let database: TestDatabase
        let relation: Relation
        let target: TargetTable
        let columns: [String]

        init(_ kinds: [KindOfValue], isKeyed: Bool) throws {
            database = try TestDatabase()
            try database.run(KindOfValue.types)
            columns = kinds.indices.map { "c\($0) \"'x" }
            let list = zip(columns, kinds).map { ", \(SQLText.name($0)) \($1.type)" }.joined()
            for table in ["origin", "\"Copy of it\""] {
                try database.run("CREATE TABLE \(table) (id int \(isKeyed ? "PRIMARY KEY" : "")\(list))")
            }
            let name = TableName(schema: "public", name: "Copy of it")
            target = try #require(try TargetCatalog(database.connection).table(name))
            let rows = try database.run(
                """
                SELECT attname, atttypid, atttypmod, typname FROM pg_attribute JOIN pg_type t ON t.oid = atttypid
                WHERE attrelid = 'origin'::regclass AND attnum > 0 ORDER BY attnum
                """)
            relation = Relation(
                oid: 1, schema: "public", name: "origin", identity: .full,
                columns: rows.values.map { row in
                    Column(
                        name: row[0] ?? "", typeOID: UInt32(row[1] ?? "") ?? 0, typeModifier: Int32(row[2] ?? "") ?? -1,
                        typeName: row[3] ?? "", isIdentity: true, isPrimaryKey: isKeyed && row[0] == "id")
                })
        }

        var statements: RowStatements { RowStatements(of: relation, into: target) }

        func rows(of table: String) throws -> [[RowValue]] {
            try database.run("SELECT * FROM \(table) ORDER BY id").values.map { row in
                row.map { $0.map { .text(Array($0.utf8)) } ?? .null }
            }
        }

        func change(
            _ operation: Operation, old: [RowValue] = [], new: [RowValue] = []
        ) -> History.RecordedChange {
            History.RecordedChange(
                offset: 1, epoch: 1,
                transaction: TransactionInfo(xid: 1, commitLSN: .zero, endLSN: .zero, commitTime: 0),
                index: 0, operation: operation, oldImage: old.isEmpty ? .none : .full, options: 0,
                relation: RecordedRelation(relation, fingerprint: 1), old: old, new: new)
        }
    }

    @Test(arguments: seeds(4))
    func `rows of all types come back as they were, are found again and changed`(_ seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let kinds = KindOfValue.all.shuffled(using: &random)
        let isKeyed = Bool.random(using: &random)
        let stage = try Stage(kinds, isKeyed: isKeyed)
        try stage.database.run("SELECT setseed(\(Double(seed.number % 1000) / 1000))")
        for id in 1...6 {
            let values = kinds.map { Int.random(in: 0..<8, using: &random) == 0 ? "NULL" : $0.value }
            try stage.database.run("INSERT INTO origin VALUES (\(([String(id)] + values).joined(separator: ", ")))")
        }
        let rows = try stage.rows(of: "origin")
        let copy = "\"Copy of it\""
        for row in rows { try stage.database.run(stage.statements.insert(row)) }
        #expect(try stage.rows(of: copy) == rows)
        // Each row gets the values of another row, and keeps its number.
        for row in rows {
            var new = random.pick(rows)
            new[0] = row[0]
            let update = try #require(stage.statements.update(stage.change(.update, old: row, new: new)))
            #expect(try stage.database.run(update).affected == 1, "\(update)")
            let delete = try #require(stage.statements.delete(stage.change(.delete, old: new)))
            #expect(try stage.database.run(delete).affected == 1, "\(delete)")
        }
        #expect(try stage.rows(of: copy).isEmpty)
    }

    @Test func `what stands in for a value is one of its type, and is found again`() throws {
        let stage = try Stage(KindOfValue.all, isKeyed: false)
        var random = SeededRandom(seed: 7)
        for tag in [0, 1, .max] + (0..<20).map({ _ in random.next() }) as [UInt64] {
            let row = stage.relation.columns.indices.map { _ in RowValue.masked(tag) }
            try stage.database.run(stage.statements.insert(row))
            let stored = try #require(try stage.rows(of: "\"Copy of it\"").first)
            let empty = zip(stage.relation.columns, stored).filter { $1 == .null }.map(\.0.typeName)
            #expect(empty == ["pair"], "types without a stand-in")
            let delete = try #require(stage.statements.delete(stage.change(.delete, old: row)))
            #expect(try stage.database.run(delete).affected == 1, "\(delete)")
        }
    }

    @Test func `what is generated and what does not take a value is left out`() throws {
        let database = try TestDatabase()
        try database.run(
            """
            CREATE TABLE made (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n int, twice int GENERATED ALWAYS AS (n * 2)
            STORED, secret pg_node_tree NOT NULL)
            """)
        let name = TableName(schema: "public", name: "made")
        let target = try #require(try TargetCatalog(database.connection).table(name))
        let columns = [("id", 23), ("n", 23), ("twice", 23), ("gone", 25), ("secret", 194)] as [(String, UInt32)]
        let relation = Relation(
            oid: 1, schema: "public", name: "made", identity: .primaryKey,
            columns: columns.map {
                Column(
                    name: $0, typeOID: $1, typeName: BuiltInType.name(of: $1) ?? "", isIdentity: $0 == "id",
                    isPrimaryKey: $0 == "id")
            })
        let statements = RowStatements(of: relation, into: target)
        let row: [RowValue] = ["7", "1", "2", "x"].map { .text(Array($0.utf8)) } + [.unchanged]
        #expect(
            statements.insert(row)
                == #"INSERT INTO "public"."made" ("id", "n") OVERRIDING SYSTEM VALUE VALUES ('7', '1')"#)
        #expect(
            statements.obstacles { $0 == 4 } == [
                "public.made has no column gone",
                "public.made.secret takes no NULL, and its type has no stand-in for masked values",
            ])
    }
}
