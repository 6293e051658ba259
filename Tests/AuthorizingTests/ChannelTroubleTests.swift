import Diagnostics
import Embedded
import Postgres
import System
import TestSupport
import Testing

@testable import Authorizing

/// Tests of policies that fail, block or do harm, which must refuse only their own channels. If the database lacks a
/// needed object, the refusal must state that.
@Suite(.within(minutes: 10)) struct ChannelTroubleTests {
    /// Returns policies that call a function for topics that begin alike.
    private static func policies(_ topic: String, _ call: String) -> String {
        let condition = "CASE WHEN topic LIKE '\(topic)%' THEN \(call) ELSE topic LIKE 'room:%' END"
        return """
            CREATE POLICY r ON realtime.messages FOR SELECT TO READER USING (\(condition));
            CREATE POLICY w ON realtime.messages FOR INSERT TO READER WITH CHECK (\(condition));
            """
    }

    private static let functions = """
        CREATE FUNCTION public.raises(state text) RETURNS boolean LANGUAGE plpgsql AS $$
            BEGIN
                RAISE EXCEPTION 'the secret of %', current_user USING ERRCODE = state;
            END $$;
        CREATE FUNCTION public.recurses(n int) RETURNS boolean LANGUAGE plpgsql AS $$
            BEGIN
                RETURN public.recurses(n + 1);
            END $$;
        CREATE FUNCTION public.asserts() RETURNS boolean LANGUAGE plpgsql AS $$
            BEGIN
                ASSERT false, 'never';
                RETURN true;
            END $$;
        CREATE FUNCTION public.attempt(what text) RETURNS boolean LANGUAGE plpgsql AS $$
            BEGIN
                EXECUTE what;
                RETURN true;
            END $$;
        """

    private func stage(_ topic: String, _ call: String, on cluster: PrivateCluster? = nil) throws -> AuthorizingStage {
        try AuthorizingStage(on: cluster, Self.functions + Self.policies(topic, call))
    }

    private func questions(
        _ stage: AuthorizingStage, bad: String, every distance: Int, of count: Int
    )
        -> [ChannelQuestion]
    {
        (0..<count).map { number in
            stage.question(
                number % distance == 0 ? "\(bad)\(number)" : "room:\(number)",
                number % 3 == 0 ? .write : .read(presence: number % 2 == 0))
        }
    }

    private func isAllowed(_ answer: ChannelAnswer?) -> Bool {
        guard case .rights(true, let presence)? = answer else { return false }
        return presence ?? true
    }

    @Test(arguments: [
        ("public.raises('P0001')", "P0001"), ("public.raises('23514')", "23514"), ("public.recurses(1)", "54001"),
        ("public.asserts()", "P0004"), ("1 / (length(topic) - length(topic)) > 1", "22012"),
        ("topic::uuid IS NULL", "22P02"), ("public.raises('TWUND')", "TWUND"),
        ("public.attempt('COMMIT')", "0A000"), ("public.attempt('ROLLBACK')", "0A000"),
    ])
    func `a policy that fails refuses its own channels`(call: String, state: String) throws {
        let stage = try stage("bad:", call)
        let authorizer = try stage.authorizer()
        let asked = questions(stage, bad: "bad:", every: 10, of: 300)
        for (number, answer) in authorizer.answers(asked).enumerated() {
            if number % 10 == 0 {
                #expect(answer == .failed(.policy(sqlState: state)), "\(number)")
            } else {
                #expect(isAllowed(answer), "\(number)")
            }
        }
    }

    @Test func `a policy that refuses to be asked lets nobody write, and nobody in`() throws {
        let stage = try stage("bad:", "public.raises('42501')")
        let authorizer = try stage.authorizer()
        #expect(authorizer.answer(stage.question("bad:1", .write)) == .nothing)
        #expect(authorizer.answer(stage.question("bad:1")) == .failed(.policy(sqlState: "42501")))
    }

    @Test func `a policy that reads its own table refuses everybody and does no harm`() throws {
        let stage = try AuthorizingStage(
            """
            CREATE POLICY r ON realtime.messages FOR SELECT TO READER
                USING (EXISTS (SELECT 1 FROM realtime.messages m WHERE m.topic = realtime.topic()));
            CREATE POLICY o ON realtime.messages FOR SELECT TO OTHER USING (true);
            """)
        let authorizer = try stage.authorizer()
        let asked = (0..<60).map { stage.question("t\($0)", role: $0 % 2 == 0 ? stage.role : stage.other) }
        for (number, answer) in authorizer.answers(asked).enumerated() {
            #expect(answer == (number % 2 == 0 ? .failed(.policy(sqlState: "42P17")) : .all))
        }
    }

    @Test func `a policy that hangs refuses its own channels while others are answered`() throws {
        let stage = try stage("slow:", "pg_sleep(600) IS NULL")
        let authorizer = try stage.authorizer()
        let asked = questions(stage, bad: "slow:", every: 50, of: 1000)
        let answers = authorizer.answersAtOnce(asked)
        for number in stride(from: 0, to: asked.count, by: 50) {
            // The slow questions run one after another. The last of them are not asked any more.
            let own = ChannelAnswer.failed(.canceled("canceling statement due to statement timeout"))
            #expect(answers[number] == own || answers[number] == .failed(.exhausted), "\(number)")
        }
        // The others do not wait for the slow ones: with these before them most would take too long. On a busy machine a
        // few do.
        let unanswered = asked.indices.filter { $0 % 50 != 0 && !isAllowed(answers[$0]) }
        #expect(unanswered.count < asked.count / 2)
        #expect(authorizer.answers(unanswered.map { asked[$0] }).allSatisfy(isAllowed))
        // The authorizer now knows the slow topics, so that no other question waits for them.
        #expect(isAllowed(authorizer.answer(stage.question("room:1", .write))))
    }

    @Test func `a policy that is merely slow is waited for`() throws {
        let stage = try stage("slow:", "pg_sleep(0.6) IS NOT NULL")
        let authorizer = try stage.authorizer()
        let answers = authorizer.answers([
            stage.question("room:1"), stage.question("slow:1", .read(presence: false)), stage.question("room:2"),
        ])
        #expect(answers == [.all, .read(true, nil), .all])
    }

    @Test func `a slow policy's channels are let in one after the other`() throws {
        let stage = try stage("slow:", "pg_sleep(0.4) IS NOT NULL")
        let authorizer = try stage.authorizer()
        // Together they take longer than a batch may take, but far less than a client waits, even on a busy machine.
        let slow = (0..<12).map { stage.question("slow:\($0)", .read(presence: false)) }
        #expect(authorizer.answers(slow).allSatisfy { $0 == .read(true, nil) })
    }

    @Test func `what is like others that took too long is asked beside the rest`() throws {
        let pace = ChannelPace()
        func question(_ topic: String, of subject: String = "", role: String = "r") -> ChannelQuestion {
            ChannelQuestion(
                topic: Array(topic.utf8), role: role, subject: subject, claims: "{}", headers: "{}", probe: .write)
        }
        for number in 1..<Limits.channelSuspicion { pace.tookTooLong(question("slow:\(number):x", of: "ana"), at: 1) }
        #expect(pace.standing(question("slow:9:x"), at: 2) == .plain)
        #expect(pace.standing(question("slow:1:x"), at: 2) == .slow)
        pace.tookTooLong(question("slow:a1-b2:x", of: "ana"), at: 2)
        #expect(pace.standing(question("slow:9:x"), at: 3) == .suspect)
        #expect(pace.standing(question("slow:9:x", role: "other"), at: 3) == .plain)
        #expect(pace.standing(question("slow:9:y"), at: 3) == .plain)
        #expect(pace.standing(question("elsewhere", of: "ana"), at: 3) == .suspect)
        #expect(pace.standing(question("elsewhere", of: "ben"), at: 3) == .plain)
        let later = 3 + Limits.channelPenalty.wholeNanoseconds
        #expect(pace.standing(question("slow:1:x", of: "ana"), at: later) == .plain)
    }

    @Test func `what a cancelled policy says of it is for nobody else`() throws {
        let stage = try stage("bad:", "public.raises('57014')")
        let answer = try stage.authorizer().answersAtOnce([stage.question("bad:1")])[0]
        #expect(answer == .failed(.canceled("canceling statement due to statement timeout")))
    }

    @Test(arguments: [
        "PREPARE x AS SELECT 1", "DEALLOCATE ALL",
        "DO $x$ BEGIN DEALLOCATE surroundings; PREPARE surroundings AS SELECT 1; END $x$",
    ])
    func `a function that leaves something in the session answers for nobody`(what: String) throws {
        let stage = try stage("bad:", "public.attempt($w$\(what)$w$)")
        let authorizer = try stage.authorizer()
        for _ in 0..<2 {
            let asked = questions(stage, bad: "bad:", every: 40, of: 120)
            for (number, answer) in authorizer.answers(asked).enumerated() {
                if number % 40 == 0 {
                    #expect(answer == .failed(.policy(sqlState: "2F003")), "\(number)")
                } else {
                    #expect(isAllowed(answer), "\(number)")
                }
            }
        }
    }

    @Test func `a function becomes nothing and leaves nothing behind`() throws {
        let stage = try stage("do:", "public.attempt(substr(topic, 4))")
        try stage.run("CREATE TABLE public.trail (what text); GRANT ALL ON public.trail TO PUBLIC")
        let authorizer = try stage.authorizer()
        for refused in [
            "SET ROLE postgres", "SET SESSION AUTHORIZATION postgres", "RESET ROLE; SET ROLE postgres",
            "GRANT postgres TO \(stage.login)", "RESET ROLE; DROP POLICY r ON realtime.messages",
            "RESET ROLE; DELETE FROM realtime.messages", "DROP FUNCTION public.asserts()",
        ] {
            let answer = authorizer.answer(stage.question("do:" + refused))
            #expect(answer == .failed(.policy(sqlState: "42501")), "\(refused)")
        }
        for allowed in [
            "RESET ROLE", "SET search_path = public", "SET row_security = off", "SET statement_timeout = 0",
            "INSERT INTO public.trail VALUES ('x')", "CREATE TEMP TABLE t ()", "LISTEN x", "SET lock_timeout = 1",
            "SELECT pg_advisory_lock(4712)", "SELECT set_config('realtime.topic', 'room:other', false)",
            "CREATE OR REPLACE FUNCTION pg_temp.tidewire_0() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        ] {
            #expect(
                authorizer.answer(stage.question("do:" + allowed, .read(presence: false))) == .read(true, nil),
                "\(allowed)")
            #expect(authorizer.answer(stage.question("hall")) == .nothing)
        }
        #expect(try stage.database.value("SELECT count(*) FROM public.trail") == "0")
        #expect(try stage.database.value("SELECT pg_try_advisory_lock(4712)") == "t")
    }

    @Test func `who kills the connection is refused, and nobody else`() throws {
        let stage = try stage("kill:", "public.attempt('RESET ROLE; SELECT pg_terminate_backend(pg_backend_pid())')")
        let authorizer = try stage.authorizer()
        #expect(isAllowed(authorizer.answer(stage.question())))
        let asked = questions(stage, bad: "kill:", every: 60, of: 120)
        for (number, answer) in authorizer.answers(asked).enumerated() {
            if number % 60 == 0 {
                #expect(answer == .failed(.unavailable), "\(number)")
            } else {
                #expect(isAllowed(answer), "\(number)")
            }
        }
    }

    @Test func `a connection that is lost meanwhile is made again`() throws {
        let stage = try stage("bad:", "false")
        let authorizer = try stage.authorizer()
        for _ in 0..<3 {
            #expect(isAllowed(authorizer.answer(stage.question())))
            try stage.run(
                """
                SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
                WHERE application_name = 'tidewire channels' AND datname = current_database()
                """)
        }
    }

    // MARK: Roles

    @Test func `a role that is none, or that the login may not become, is refused`() throws {
        let stage = try stage("bad:", "false")
        let authorizer = try stage.authorizer()
        for role in ["no such role", "postgres; --", "none", "", stage.login, "pg_monitor", "x'", "\""] {
            #expect(authorizer.answer(stage.question(role: role)) == .failed(.role), "\(role)")
        }
        #expect(isAllowed(authorizer.answer(stage.question())))
        try stage.run("REVOKE READER FROM LOGIN_ROLE")
        #expect(authorizer.answer(stage.question()) == .failed(.role))
        try stage.run("GRANT READER TO LOGIN_ROLE")
        #expect(isAllowed(authorizer.answer(stage.question())))
    }

    @Test func `a role that no policy binds has what its privileges say`() throws {
        let stage = try stage("bad:", "false")
        let authorizer = try stage.authorizer()
        let reads = stage.question("hall", role: stage.trusted)
        let readsBroadcasts = stage.question("hall", .read(presence: false), role: stage.trusted)
        let writes = stage.question("hall", .write, role: stage.trusted)
        #expect(authorizer.answers([reads, readsBroadcasts, writes]) == [.all, .read(true, nil), .all])
        #expect(authorizer.answer(stage.question("hall", role: "postgres")) == .all)
        try stage.run("REVOKE INSERT ON realtime.messages FROM TRUSTED")
        #expect(authorizer.answers([reads, writes]) == [.all, .nothing])
        try stage.run("REVOKE USAGE ON SCHEMA realtime FROM TRUSTED")
        #expect(authorizer.answers([reads, writes]) == [.nothing, .nothing])
        try stage.run("ALTER ROLE TRUSTED NOBYPASSRLS")
        #expect(authorizer.answer(reads) == .failed(.role))
    }

    @Test func `a superuser's login works too, with and without the function for probes`() throws {
        let stage = try stage("bad:", "public.raises('P0001')")
        for _ in 0..<2 {
            let authorizer = try stage.authorizer(stage.database.target)
            #expect(authorizer.answer(stage.question()) == .all)
            #expect(authorizer.answer(stage.question("hall")) == .nothing)
            #expect(authorizer.answer(stage.question("room:1", .write)) == .all)
            #expect(authorizer.answer(stage.question("bad:1")) == .failed(.policy(sqlState: "P0001")))
            #expect(authorizer.answer(stage.question("hall", role: stage.trusted)) == .all)
            #expect(authorizer.answer(stage.question("hall", role: "no such role")) == .failed(.role))
            try stage.run("DROP FUNCTION IF EXISTS tidewire.add_channel_probes(text[], text[], uuid[])")
        }
        #expect(try stage.database.value("SELECT count(*) FROM realtime.messages") == "0")
    }

    // MARK: Missing objects in the database

    @Test func `without a partition the join says so`() throws {
        let stage = try stage("bad:", "false")
        let authorizer = try stage.authorizer()
        #expect(authorizer.answer(stage.question()) == .all)
        try stage.run("DROP TABLE realtime.messages_now")
        for probe in [ChannelQuestion.Probe.read(presence: true), .write] {
            #expect(authorizer.answer(stage.question("room:1", probe)) == .failed(.missingPartition))
        }
        try stage.run("CREATE TABLE realtime.later PARTITION OF realtime.messages DEFAULT")
        #expect(authorizer.answer(stage.question()) == .all)
    }

    @Test func `a database that is not prepared lets nobody in until it is`() throws {
        let stage = try stage("bad:", "false")
        let authorizer = try stage.authorizer()
        let question = stage.question()
        #expect(authorizer.answer(question) == .all)
        let steps = [
            ("ALTER TABLE realtime.messages RENAME TO hidden", "ALTER TABLE realtime.hidden RENAME TO messages"),
            ("ALTER SCHEMA realtime RENAME TO hidden", "ALTER SCHEMA hidden RENAME TO realtime"),
            (
                "REVOKE EXECUTE ON FUNCTION tidewire.add_channel_probes(text[], text[], uuid[]) FROM LOGIN_ROLE",
                "GRANT EXECUTE ON FUNCTION tidewire.add_channel_probes(text[], text[], uuid[]) TO LOGIN_ROLE"
            ),
        ]
        for (change, undo) in steps {
            try stage.run(change)
            #expect(eventually { authorizer.answer(question) == .failed(.unprepared) }, "\(change)")
            #expect(authorizer.answer(question) == .failed(.unprepared), "\(change)")
            try stage.run(undo)
            #expect(eventually { authorizer.answer(question) == .all }, "\(undo)")
        }
    }

    @Test func `a login that may make no temporary functions is told so`() throws {
        let stage = try stage("bad:", "false")
        try stage.run("REVOKE TEMPORARY ON DATABASE \(stage.database.name) FROM PUBLIC")
        let authorizer = try stage.authorizer()
        #expect(authorizer.answer(stage.question()) == .failed(.unprepared))
        try stage.run("GRANT TEMPORARY ON DATABASE \(stage.database.name) TO LOGIN_ROLE")
        #expect(eventually { authorizer.answer(stage.question()) == .all })
    }

    // MARK: The way to the database

    @Test func `a database that is away refuses at once, and is asked again when it is back`() throws {
        let stage = try stage("bad:", "false")
        let nobody = try stage.authorizer(ConnectionTarget("postgresql://127.0.0.1:1/nowhere"))
        #expect(nobody.answers((0..<50).map { stage.question("t\($0)") }).allSatisfy { $0 == .failed(.unavailable) })
        try stage.run("ALTER ROLE LOGIN_ROLE NOLOGIN")
        let authorizer = try stage.authorizer()
        #expect(authorizer.answer(stage.question()) == .failed(.unavailable))
        try stage.run("ALTER ROLE LOGIN_ROLE LOGIN")
        #expect(eventually { authorizer.answer(stage.question()) == .all })
    }

    @Test func `a database without connections to spare says so`() throws {
        let stage = try stage("bad:", "false")
        try stage.run("ALTER ROLE LOGIN_ROLE CONNECTION LIMIT 0")
        #expect(try stage.authorizer().answer(stage.question()) == .failed(.tooManyConnections))
    }

    @Test func `too many questions are refused at once, and stopping answers all`() throws {
        let stage = try stage("slow:", "pg_sleep(600) IS NULL")
        let authorizer = try ChannelAuthorizer(
            ChannelAuthorizer.Settings(database: stage.logins.hub, policies: stage.logins.policies))
        let results = (0..<40).map { _ in Awaited<ChannelAnswer>() }
        for (number, result) in results.enumerated() {
            let headers = String(repeating: "x", count: number == 20 ? Limits.maximumWaitingChannelBytes : 10)
            authorizer.ask(stage.question("slow:\(number)", headers: headers)) { result.set($0) }
        }
        authorizer.stop()
        let answers = results.map { $0.wait() }
        #expect(answers[20] == .failed(.exhausted))
        #expect(answers.allSatisfy { if case .failed? = $0 { true } else { false } })
    }
}
