import TestSupport
import Testing

@testable import Authorizing

/// Tests that ask many questions together, under random policies. Each must get the answer that PostgreSQL gives to a
/// single question.
@Suite(.within(minutes: 10)) struct ChannelOracleTests {
    private struct Grammar {
        var random: SeededRandom

        private static let atoms = [
            "extension = 'broadcast'", "extension = 'presence'", "extension IN ('broadcast', 'presence')",
            "topic LIKE 'room:%'", "realtime.topic() = topic", "split_part(topic, ':', 2) = auth.jwt() ->> 'room'",
            "private", "private IS NOT TRUE", "event IS NULL", "event = 'message'", "payload IS NULL",
            "auth.uid() IS NOT NULL", "auth.uid() = '\(SampleUUID.text(3))'", "(SELECT auth.uid()) IS NULL",
            "EXISTS (SELECT 1 FROM public.members m WHERE m.user_id = auth.uid() AND m.room = realtime.topic())",
            "realtime.topic() IN (SELECT m.room FROM public.members m)",
            "(auth.jwt() ->> 'level')::int > 2", "10 / ((auth.jwt() ->> 'level')::int - 1) > 2",
            "current_setting('request.headers', true)::json ->> 'x-team' = 'red'",
            "current_setting('request.jwt.claim.role', true) LIKE 'reader%'", "current_user LIKE 'other%'",
            "inserted_at <= timezone('utc', clock_timestamp())", "length(topic) % 2 = 0", "true", "false",
            "public.is_staff()", "public.fails_for(topic)",
        ]

        mutating func condition(_ depth: Int = 0) -> String {
            switch Int.random(in: 0..<(depth > 2 ? 3 : 6), using: &random) {
            case 0, 1, 2: random.pick(Self.atoms)
            case 3: "(\(condition(depth + 1)) AND \(condition(depth + 1)))"
            case 4: "(\(condition(depth + 1)) OR \(condition(depth + 1)))"
            default: "NOT (\(condition(depth + 1)))"
            }
        }

        mutating func policy(_ number: Int) -> String {
            let kind = random.pick(["PERMISSIVE", "PERMISSIVE", "PERMISSIVE", "RESTRICTIVE"])
            let role = random.pick(["READER", "READER", "OTHER", "PUBLIC", "READER, OTHER"])
            let clauses =
                switch Int.random(in: 0..<4, using: &random) {
                case 0, 1: "FOR SELECT TO \(role) USING (\(condition()))"
                case 2: "FOR INSERT TO \(role) WITH CHECK (\(condition()))"
                default: "FOR ALL TO \(role) USING (\(condition())) WITH CHECK (\(condition()))"
                }
            return "CREATE POLICY p\(number) ON realtime.messages AS \(kind) \(clauses);"
        }

        mutating func question(_ stage: AuthorizingStage) -> ChannelQuestion {
            let probe = random.pick([ChannelQuestion.Probe.read(presence: true), .read(presence: false), .write])
            let sub = random.pick([nil, 1, 2, 3, 4])
            let role = random.pick([stage.role, stage.role, stage.other])
            let subject = sub.map { #", "sub": "\#(SampleUUID.text($0))""# } ?? ""
            let level = random.pick(["", #", "level": 1"#, #", "level": 3"#, #", "level": "high""#])
            let room = random.pick(["", #", "room": "2""#])
            return stage.question(
                "\(random.pick(["room", "hall"])):\(Int.random(in: 1...4, using: &random))", probe, sub: sub,
                claims: #"{"role": "\#(role)"\#(subject)\#(level)\#(room)}"#,
                headers: random.pick(["{}", #"{"x-team": "red"}"#]), role: role)
        }
    }

    private static let functions = """
        CREATE TABLE public.members (user_id uuid, room text);
        INSERT INTO public.members SELECT ('00000000-0000-4000-8000-00000000000' || n)::uuid, 'room:' || m
            FROM generate_series(1, 3) n, generate_series(1, 4) m WHERE (n + m) % 2 = 0;
        ALTER TABLE public.members ENABLE ROW LEVEL SECURITY;
        CREATE POLICY own ON public.members FOR SELECT TO READER USING (user_id = auth.uid());
        CREATE POLICY few ON public.members FOR SELECT TO OTHER USING (room < 'room:3');
        GRANT SELECT ON public.members TO READER, OTHER;
        CREATE FUNCTION public.is_staff() RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER AS
            'SELECT EXISTS (SELECT 1 FROM public.members m WHERE m.user_id = auth.uid() AND m.room = ''room:4'')';
        CREATE FUNCTION public.fails_for(topic text) RETURNS boolean LANGUAGE plpgsql AS $$
            BEGIN
                IF topic LIKE '%3' THEN
                    RAISE EXCEPTION 'not for this one';
                END IF;
                RETURN topic LIKE 'room:%';
            END $$;
        """

    @Test(arguments: seeds(8))
    func `asked together is asked singly`(seed: Seed) throws {
        var grammar = Grammar(random: SeededRandom(seed: seed))
        let stage = try AuthorizingStage(Self.functions)
        for number in 0..<Int.random(in: 1...5, using: &grammar.random) { try stage.run(grammar.policy(number)) }
        // With this setting, PostgreSQL's planner treats both rounds of questions alike.
        try stage.run("ALTER DATABASE \(stage.database.name) SET plan_cache_mode = force_generic_plan")
        let authorizer = try stage.authorizer()
        let questions = (0..<125).map { _ in grammar.question(stage) }
        let answers = authorizer.answers(questions + questions)
        for (number, question) in questions.enumerated() {
            let expected = try stage.oracle(question)
            #expect(answers[number] == expected, "seed \(seed): \(question.probe) \(question.claims)")
            #expect(answers[questions.count + number] == answers[number])
        }
    }
}
