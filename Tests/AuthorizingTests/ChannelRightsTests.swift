import Postgres
import TestSupport
import Testing

@testable import Authorizing

/// Tests of the rights that policies of `realtime.messages` give, with the rules of Supabase Realtime.
@Suite(.within(minutes: 10)) struct ChannelRightsTests {
    @Test func `members of a room read it, and write what a policy allows`() throws {
        let stage = try AuthorizingStage(AuthorizingStage.membership)
        try stage.run("INSERT INTO public.members VALUES ('\(SampleUUID.text(1))', 'room:1')")
        let authorizer = try stage.authorizer()
        #expect(authorizer.answer(stage.question(sub: 1)) == .all)
        #expect(authorizer.answer(stage.question(sub: 2)) == .nothing)
        #expect(authorizer.answer(stage.question("room:2", sub: 1)) == .nothing)
        #expect(authorizer.answer(stage.question()) == .nothing)
        #expect(authorizer.answer(stage.question(sub: 1, role: stage.other)) == .nothing)
        #expect(authorizer.answer(stage.question("room:2", .write, sub: 2)) == .read(true, false))
        #expect(authorizer.answer(stage.question("hall:2", .write, sub: 2)) == .nothing)
    }

    @Test func `broadcast and presence are different rights, and presence is asked only where it matters`() throws {
        let stage = try AuthorizingStage(
            """
            CREATE POLICY b ON realtime.messages FOR SELECT USING (extension = 'broadcast' AND topic LIKE '%b%');
            CREATE POLICY p ON realtime.messages FOR SELECT USING (extension = 'presence' AND topic LIKE '%p%');
            """)
        let authorizer = try stage.authorizer()
        #expect(authorizer.answer(stage.question("b")) == .read(true, false))
        #expect(authorizer.answer(stage.question("p")) == .read(false, true))
        #expect(authorizer.answer(stage.question("bp")) == .all)
        #expect(authorizer.answer(stage.question("p", .read(presence: false))) == .read(false, nil))
        #expect(authorizer.answer(stage.question("b", .read(presence: false))) == .read(true, nil))
    }

    @Test(arguments: [
        ("private", false), ("NOT private", true), ("private IS NULL", false), ("event IS NOT NULL", false),
        ("event = 'x'", false), ("event IS NULL AND payload IS NULL AND binary_payload IS NULL", true),
        ("payload ->> 'a' = 'b'", false), ("topic = realtime.topic()", true), ("realtime.topic() = 'room:1'", true),
        ("inserted_at > timezone('utc', now()) - interval '1 minute' AND updated_at <= timezone('utc', now())", true),
        ("id IS NOT NULL", true), ("(SELECT realtime.topic()) LIKE 'room:%'", true),
        ("auth.uid() = '00000000-0000-4000-8000-000000000007'", true),
        ("current_setting('request.jwt.claim.sub', true) = '00000000-0000-4000-8000-000000000007'", true),
        ("current_setting('request.jwt.claim.role', true) = current_user", true),
        ("auth.jwt() ->> 'role' = current_user AND session_user <> current_user", true),
        ("(current_setting('request.headers', true)::json ->> 'x-team') = 'a \"b\" \\ c'", true),
        ("current_setting('row_security') = 'on'", true),
        ("NOT (SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user)", true),
    ])
    func `a probe's row and settings are the reference's`(condition: String, isTrue: Bool) throws {
        let stage = try AuthorizingStage(
            """
            CREATE POLICY r ON realtime.messages FOR SELECT TO READER USING (\(condition));
            CREATE POLICY w ON realtime.messages FOR INSERT TO READER WITH CHECK (\(condition));
            """)
        let authorizer = try stage.authorizer()
        let headers = #"{"x-team": "a \"b\" \\ c"}"#
        for probe in [ChannelQuestion.Probe.read(presence: true), .write] {
            let question = stage.question("room:1", probe, sub: 7, headers: headers)
            let expected = isTrue ? ChannelAnswer.all : .nothing
            #expect(authorizer.answer(question) == expected)
            #expect(try stage.oracle(question) == expected)
        }
    }

    @Test func `who has no subject has an empty one`() throws {
        let stage = try AuthorizingStage(
            """
            CREATE POLICY r ON realtime.messages FOR SELECT TO READER
                USING (current_setting('request.jwt.claim.sub', true) = '' AND auth.uid() IS NULL);
            """)
        let authorizer = try stage.authorizer()
        // A question must not affect the next one.
        let answers = authorizer.answers([stage.question(sub: 1), stage.question(), stage.question(sub: 2)])
        #expect(answers == [.nothing, .all, .nothing])
    }

    @Test func `writing takes no right to read`() throws {
        let stage = try AuthorizingStage(
            """
            CREATE POLICY w ON realtime.messages FOR INSERT TO READER WITH CHECK (true);
            CREATE POLICY r ON realtime.messages FOR SELECT TO OTHER USING (true);
            """)
        try stage.run("REVOKE SELECT ON realtime.messages FROM READER; REVOKE INSERT ON realtime.messages FROM OTHER")
        let authorizer = try stage.authorizer()
        #expect(authorizer.answer(stage.question("t", .write)) == .all)
        #expect(authorizer.answer(stage.question("t")) == .failed(.policy(sqlState: "42501")))
        #expect(authorizer.answer(stage.question("t", role: stage.other)) == .all)
        #expect(authorizer.answer(stage.question("t", .write, role: stage.other)) == .nothing)
    }

    @Test func `a right to read the id is enough`() throws {
        let stage = try AuthorizingStage("CREATE POLICY r ON realtime.messages FOR SELECT TO READER USING (true)")
        try stage.run(
            "REVOKE SELECT ON realtime.messages FROM READER; GRANT SELECT (id) ON realtime.messages TO READER")
        #expect(try stage.authorizer().answer(stage.question()) == .all)
    }

    @Test func `nothing that is tried stays or is seen by anybody`() throws {
        let stage = try AuthorizingStage(
            """
            CREATE TABLE public.notes (what text);
            GRANT ALL ON public.notes TO PUBLIC;
            CREATE FUNCTION public.note() RETURNS boolean LANGUAGE plpgsql AS $$
                BEGIN
                    INSERT INTO public.notes VALUES ('was here');
                    PERFORM pg_notify('notes', 'was here');
                    RETURN (SELECT count(*) FROM public.notes) < 10;
                END $$;
            CREATE POLICY a ON realtime.messages FOR ALL USING (public.note()) WITH CHECK (public.note());
            """)
        try stage.run("SELECT pg_create_logical_replication_slot('\(stage.database.slot)', 'test_decoding')")
        defer { try? stage.run("SELECT pg_drop_replication_slot('\(stage.database.slot)')") }
        let authorizer = try stage.authorizer()
        let questions = (0..<40).map { stage.question("t\($0)", $0 % 2 == 0 ? .write : .read(presence: true)) }
        #expect(authorizer.answers(questions).allSatisfy { $0 == .all })
        #expect(try stage.database.value("SELECT count(*) FROM realtime.messages") == "0")
        #expect(try stage.database.value("SELECT count(*) FROM public.notes") == "0")
        let decoded = try stage.database.value(
            """
            SELECT count(*) FROM pg_logical_slot_peek_changes('\(stage.database.slot)', NULL, NULL)
            WHERE data LIKE 'table %'
            """)
        #expect(decoded == "0")
    }

    @Test func `askers see nothing of each other`() throws {
        // A function that bypasses the policies counts the rows of all users.
        let stage = try AuthorizingStage(
            """
            CREATE FUNCTION public.crowd() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS
                'SELECT count(*) FROM realtime.messages';
            CREATE POLICY a ON realtime.messages FOR SELECT USING (public.crowd() = 2);
            """)
        let authorizer = try stage.authorizer()
        let answers = authorizer.answers((0..<100).map { stage.question("t\($0)") })
        #expect(answers.allSatisfy { $0 == .all })
    }

    @Test func `rights that change are asked for anew`() throws {
        let stage = try AuthorizingStage(AuthorizingStage.membership)
        let authorizer = try stage.authorizer()
        let question = stage.question(sub: 1)
        #expect(authorizer.answer(question) == .nothing)
        try stage.run("INSERT INTO public.members VALUES ('\(SampleUUID.text(1))', 'room:1')")
        #expect(authorizer.answer(question) == .all)
        try stage.run(#"ALTER POLICY "members read" ON realtime.messages USING (extension = 'presence')"#)
        #expect(authorizer.answer(question) == .read(false, true))
        try stage.run(#"DROP POLICY "members read" ON realtime.messages"#)
        #expect(authorizer.answer(question) == .nothing)
        try stage.run("ALTER TABLE realtime.messages DISABLE ROW LEVEL SECURITY")
        #expect(authorizer.answer(question) == .all)
    }

    @Test func `becoming a member of a policy's role counts soon`() throws {
        let stage = try AuthorizingStage("CREATE POLICY a ON realtime.messages FOR SELECT TO OTHER USING (true)")
        let authorizer = try stage.authorizer()
        #expect(authorizer.answer(stage.question()) == .nothing)
        try stage.run("ALTER ROLE READER INHERIT; GRANT OTHER TO READER")
        #expect(eventually { authorizer.answer(stage.question()) == .all })
        try stage.run("REVOKE OTHER FROM READER")
        #expect(eventually { authorizer.answer(stage.question()) == .nothing })
    }

    @Test func `topics and claims are what they are, whatever they are made of`() throws {
        let stage = try AuthorizingStage(
            "CREATE POLICY a ON realtime.messages FOR SELECT USING (topic = auth.jwt() ->> 'topic')")
        let authorizer = try stage.authorizer()
        let topics = [
            #"a"b\c"#, "a'b", "{a,b}", "NULL", "", " ", "tab\there", "line\nbreak", "日本語 \u{1F600}", "$1", "%", "\u{1}",
            "$tidewire0$", String(repeating: "x", count: 100_000),
        ]
        for topic in topics {
            let question = stage.question(topic, claims: #"{"topic": \#(topic.asJSON)}"#)
            #expect(authorizer.answer(question) == .all, "\(topic.prefix(20))")
        }
        for bad in [[UInt8(ascii: "a"), 0], [0xff, 0xfe], [0xc3]] {
            var question = stage.question()
            question.topic = bad
            #expect(authorizer.answer(question) == .failed(.policy(sqlState: "22021")))
        }
        #expect(authorizer.answer(stage.question(claims: "not JSON")) == .failed(.policy(sqlState: "22P02")))
        #expect(authorizer.answer(stage.question(claims: "{}\0")) == .failed(.policy(sqlState: "22021")))
    }
}

extension String {
    fileprivate var asJSON: String {
        var text = "\""
        for scalar in unicodeScalars {
            switch scalar {
            case "\"", "\\": text += "\\\(scalar)"
            case _ where scalar.value < 0x20:
                let digits = String(scalar.value, radix: 16)
                text += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
            default: text.unicodeScalars.append(scalar)
            }
        }
        return text + "\""
    }
}
