import Postgres
import TestSupport
import Testing

@Suite(.within(minutes: 10)) struct ChangeFunctionTests {
    let stage: RealtimeStage

    init() throws { stage = try RealtimeStage() }

    // MARK: Values

    @Test(arguments: [
        ("9223372036854775807", "int8", "9223372036854775807"), ("1.50", "numeric", "1.50"),
        ("abc", "text", "\"abc\""), ("abc", "bpchar", "\"abc\""), ("101", "bit", "\"101\""), ("t", "boolean", "true"),
        ("{1,NULL,3}", "int[]", "[1, null, 3]"), ("010203", "bytea", "\"010203\""),
        ("{\"k\": [1]}", "jsonb", "{\"k\": [1]}"),
        ("2026-03-01 10:20:30.5", "timestamp", "\"2026-03-01T10:20:30.5\""),
    ])
    func `cast reads a value as its type`(text: String, type: String, json: String) throws {
        #expect(
            try stage.connection.query("SELECT realtime.cast($1, $2::regtype)", [text, type]).first == [json])
        #expect(try stage.connection.query("SELECT realtime.cast(NULL, $1::regtype)", [type]).first == [nil])
    }

    @Test func `names are quoted for wal2json`() throws {
        #expect(try stage.value(#"SELECT realtime.wal2json_escape_identifier(E'a b.c,d\\e')"#) == #"a\ b\.c\,d\\e"#)
        try stage.run(#"CREATE SCHEMA "s.1"; CREATE TABLE "s.1"."my table" (id int)"#)
        #expect(try stage.value(#"SELECT realtime.quote_wal2json('"s.1"."my table"')"#) == #"s\.1.my\ table"#)
    }

    // MARK: Operators

    /// Test cases: operator, type, value, argument, expected answer, expected answer if negated.
    static let operators: [(String, String, String?, String, String?, String?)] = [
        ("eq", "int4", "7", "7", "t", "f"), ("eq", "int4", nil, "7", nil, nil), ("neq", "text", "a", "b", "t", "f"),
        ("lt", "int8", "9", "10", "t", "f"), ("lte", "numeric", "1.0", "1", "t", "f"),
        ("gt", "timestamptz", "2026-01-01 00:00+00", "2026-01-01 00:30+01", "t", "f"),
        ("gte", "text", "a", "b", "f", "t"), ("in", "text", "a", "{\"a,b\",c}", "f", "t"),
        ("in", "int4", "2", "{1,2}", "t", "f"), ("in", "int4", "2", "{1,NULL}", nil, nil),
        ("like", "text", "milk", "m%", "t", "f"), ("like", "varchar", "Milk", "m%", "f", "t"),
        ("ilike", "text", "Milk", "m%", "t", "f"), ("match", "text", "milk", "^m.l", "t", "f"),
        ("imatch", "text", "Milk", "^m", "t", "f"), ("is", "text", nil, "null", "t", "f"),
        ("is", "bool", "t", "true", "t", "f"), ("is", "bool", nil, "unknown", "t", "f"),
        ("is", "bool", "t", "false", "f", "t"), ("isdistinct", "int4", nil, "1", "t", "f"),
        ("isdistinct", "int4", "1", "1", "f", "t"), ("eq", "bpchar", "abc", "abd", "f", "t"),
        ("eq", "uuid", "00000000-0000-4000-8000-00000000a0a0", "00000000-0000-4000-8000-00000000A0A0", "t", "f"),
    ]

    @Test func `every operator answers as SQL does`() throws {
        for (op, type, value, argument, plain, negated) in Self.operators {
            let row = try stage.connection.query(
                """
                SELECT realtime.check_equality_op($1::realtime.equality_op, $2::regtype, $3, $4),
                    realtime.check_equality_op($1::realtime.equality_op, $2::regtype, $3, $4, false),
                    realtime.check_equality_op($1::realtime.equality_op, $2::regtype, $3, $4, true)
                """, [op, type, value, argument])
            #expect(row.first == [plain, plain, negated], "\(value ?? "NULL") \(op) \(argument) as \(type)")
        }
        let tested = Set(Self.operators.map(\.0))
        let all = try stage.column("SELECT unnest(enum_range(NULL::realtime.equality_op))").compactMap { $0 }
        #expect(tested == Set(all))
    }

    @Test func `is takes four words and no others`() throws {
        #expect(
            try stage.refusal("SELECT realtime.check_equality_op('is', 'bool', 't', 'TRUE', false)")
                == "invalid value for is filter: must be null, true, false, or unknown")
    }

    @Test(arguments: [
        ("{}", "t"), ("{\"(id,eq,7,f)\"}", "t"), ("{\"(id,eq,7,f)\",\"(title,eq,oat,f)\"}", "f"),
        ("{\"(id,eq,7,t)\"}", "f"), ("{\"(title,eq,milk,)\"}", "t"), ("{\"(gone,eq,7,f)\"}", "f"),
        ("{\"(note,eq,x,f)\"}", "f"), ("{\"(note,eq,x,t)\"}", "f"), ("{\"(note,is,null,f)\"}", "t"),
    ])
    func `a row is seen through all of its filters or not at all`(filters: String, answer: String) throws {
        let row = try stage.connection.query(
            """
            SELECT realtime.is_visible_through_filters(ARRAY[
                ('id', 'int4', 23, '7', true, true), ('title', 'text', NULL, '"milk"', false, true),
                ('note', 'text', 25, NULL, false, true)]::realtime.wal_column[], $1::realtime.user_defined_filter[])
            """, [filters])
        #expect(row.first == [answer])
    }

    // MARK: Subscriptions

    private func makeNotes() throws {
        try stage.run(
            """
            CREATE TABLE public.notes (id int PRIMARY KEY, title text, done boolean, code varchar(9), secret text);
            REVOKE ALL ON public.notes FROM anon; GRANT SELECT (id, title, done, code) ON public.notes TO anon;
            """)
    }

    private func subscribe(
        _ filters: String, columns: String = "NULL", role: String = "anon", action: String = "*"
    ) -> String {
        """
        INSERT INTO realtime.subscription (subscription_id, entity, filters, claims, selected_columns, action_filter)
        VALUES (gen_random_uuid(), 'public.notes', ARRAY[\(filters)]::realtime.user_defined_filter[],
            '{"role": "\(role)", "sub": "x"}', \(columns), '\(action)') RETURNING subscription_id
        """
    }

    @Test func `a subscription is put in order`() throws {
        try makeNotes()
        try stage.run(subscribe("('title','eq','b',false), ('id','eq','1',false)", columns: "'{title,id}'"))
        #expect(
            try stage.run("SELECT filters, selected_columns, claims_role, action_filter FROM realtime.subscription")
                .values
                == [["{\"(id,eq,1,f)\",\"(title,eq,b,f)\"}", "{id,title}", "anon", "*"]])
    }

    @Test func `a subscription is refused with the reason`() throws {
        try makeNotes()
        let many = "{" + (0...100).map { String($0) }.joined(separator: ",") + "}"
        let cases: [(String, String)] = [
            ("'nope','eq','1',false", "invalid column for filter nope"),
            ("'secret','eq','1',false", "invalid column for filter secret"),
            ("'id','eq','hey',false", "invalid input syntax for type integer: \"hey\""),
            ("'id','in','\(many)',false", "too many values for `in` filter. Maximum 100"),
            ("'title','is','nil',false", "invalid value for is filter: must be null, true, false, or unknown"),
            ("'title','is','true',false", "is true filter requires a boolean column, got text"),
            ("'id','like','1%',false", "operator like requires a text-compatible column type, got integer"),
            ("'id','imatch','1',false", "operator imatch requires a text-compatible column type, got integer"),
            (
                "'title','match','(',false",
                "invalid regular expression for match filter: invalid regular expression: parentheses () not balanced"
            ),
        ]
        for (filter, message) in cases { #expect(try stage.refusal(subscribe("(\(filter))")) == message) }
        #expect(try stage.refusal(subscribe("", columns: "'{secret}'")) == "invalid column for select secret")
        #expect(try stage.refusal(subscribe("", role: "nobody_here")) == "role \"nobody_here\" does not exist")
        #expect(try stage.refusal(subscribe("", action: "TRUNCATE"))?.contains("action_filter") == true)
        for filter in ["'done','is','true',false", "'code','like','a%',true", "'title','is','null',true"] {
            #expect(try stage.refusal(subscribe("(\(filter))")) == nil)
        }
    }

    // MARK: apply_rls

    private func change(_ action: String, title: String = "milk") -> String {
        let id = #"{"name": "id", "type": "integer", "typeoid": 23, "value": 7}"#
        let columns =
            action == "D"
            ? "" : #""columns": [\#(id), {"name": "title", "type": "text", "typeoid": 25, "value": "\#(title)"}],"#
        let identity = action == "I" ? "" : #""identity": [\#(id)],"#
        return #"""
            {"action": "\#(action)", "timestamp": "2026-03-01 10:20:30.456789+00", "schema": "public", "table": "notes",
             \#(columns) \#(identity) "pk": [{"name": "id", "type": "integer", "typeoid": 23}]}
            """#
    }

    private func apply(_ change: String, maximum: Int = 1 << 20) throws -> [[String?]] {
        try stage.connection.query(
            """
            SELECT wal - 'columns', is_rls_enabled, subscription_ids, errors FROM realtime.apply_rls($1, $2)
            """, [change, String(maximum)]
        ).values
    }

    @Test func `a change goes to those whose filters it meets`() throws {
        try makeNotes()
        let id = try #require(try stage.value(subscribe("('title','eq','milk',false)")))
        try stage.run(subscribe("('title','eq','oat',false)", action: "DELETE"))
        #expect(
            try apply(change("I")) == [
                [
                    #"{"type": "INSERT", "table": "notes", "record": {"id": 7, "title": "milk"}, "schema": "public", "commit_timestamp": "2026-03-01T10:20:30.456Z"}"#,
                    "f", "{\(id)}", nil,
                ]
            ])
        #expect(try apply(change("I", title: "tea")).map { $0[2] } == ["{}"])
        #expect(try apply(change("T")) == [])
    }

    @Test func `row level security is asked for each subscriber`() throws {
        try makeNotes()
        try stage.run(
            """
            ALTER TABLE public.notes ENABLE ROW LEVEL SECURITY;
            CREATE POLICY p ON public.notes USING (title = current_setting('request.jwt.claims', true)::jsonb ->> 'sub');
            INSERT INTO public.notes VALUES (7, 'x');
            """)
        let id = try #require(try stage.value(subscribe("")))
        #expect(try apply(change("U")).map { $0[2] } == ["{\(id)}"])
        try stage.run("UPDATE public.notes SET title = 'y'")
        #expect(try apply(change("U")).map { $0[2] } == ["{}"])
        #expect(try apply(change("D")).map { $0[2] } == ["{\(id)}"], "deletes are not asked about")
        #expect(try stage.value("SELECT current_user = session_user") == "t")
    }

    @Test func `what cannot be shown is said`() throws {
        try makeNotes()
        try stage.run(subscribe(""))
        let large = try apply(change("I", title: String(repeating: "x", count: 80)), maximum: 100)
        #expect(large.first?[0]?.contains(#""record": {"id": 7}"#) == true)
        #expect(large.first?[3] == "{\"Error 413: Payload Too Large\"}")
        try stage.run("REVOKE SELECT (id) ON public.notes FROM anon")
        let refused = try apply(change("U"))
        #expect(refused.first?[3] == "{\"Error 401: Unauthorized\"}")
        #expect(refused.first?[0]?.contains(#""record": {}"#) == true)
        let keyless = change("I").replacing(
            #""pk": [{"name": "id", "type": "integer", "typeoid": 23}]"#, with: #""pk": []"#)
        #expect(try apply(keyless).first?[3] == "{\"Error 400: Bad Request, no primary key\"}")
    }

    @Test func `the prepared statement asks for the row by its key`() throws {
        try makeNotes()
        #expect(
            try stage.value(
                """
                SELECT realtime.build_prepared_statement_sql('s', 'public.notes', ARRAY[
                    ('id', 'int4', 23, '7', true, true), ('title', 'text', 25, '"a"', false, true)]::realtime.wal_column[])
                """) == "PREPARE s AS SELECT EXISTS (SELECT 1 FROM notes WHERE id = '7')")
    }
}
