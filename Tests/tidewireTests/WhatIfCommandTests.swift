import Console
import TestSupport
import Testing

@testable import tidewire

private let commands: [any Command] = [WhatIfCommand()]

@Suite(.within(minutes: 5)) struct WhatIfCommandTests {
    private static let own = "CREATE POLICY own ON fullrep FOR SELECT USING (email = (auth.jwt() ->> 'email'))"

    private static func run(
        _ stage: WhyStage, _ words: String..., sql: String, claims: String? = nil
    ) async -> Run {
        let forWhom = claims == nil ? [] : ["--claims", "claims"]
        return await tidewireTests.run(
            ["whatif", "--policy", "new.sql", "--on", stage.database.url, "--log", stage.log.path] + forWhom + words,
            commands: commands, files: ["new.sql": sql, "claims": claims ?? ""])
    }

    private static let other = #"{"role": "authenticated", "email": "no@x"}"#
    private static let me = #"{"role": "authenticated", "email": "me@x"}"#

    @Test func `gains and losses are counted, with examples, and the policy's texts`() async throws {
        let stage = try WhyStage(Self.own)
        defer { stage.log.remove() }
        let open = await Self.run(stage, sql: "ALTER POLICY own ON fullrep USING (true)", claims: Self.other)
        #expect(open.exitCode == .notFound && open.errors.isEmpty, "\(open.errors)")
        let lines = open.output.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
        #expect(
            lines.first
                == #"public.fullrep for authenticated: policy "own": (email = (auth.jwt() ->> 'email'::text)) → true"#,
            "\(open.output)")
        #expect(lines.contains { $0.hasPrefix("no@x  authenticated  public.fullrep") }, "\(open.output)")
        #expect(lines.contains("Gains, for example") && !lines.contains("Losses, for example"))
        #expect(
            lines.contains {
                $0.hasPrefix("  no@x: @") && $0.contains("public.fullrep key") && $0.hasSuffix("shown by own")
            })
        let heading = lines.firstIndex { $0.hasPrefix("CHANGE  ROWS  CLIENTS  TABLE") }
        #expect(
            heading.map { lines[$0 + 1].split(separator: " ").map(String.init) }
                == ["gained", "5", "1", "public.fullrep", "authenticated", "own", "(no", "policy)"], "\(open.output)")
        let csv = await Self.run(
            stage, "-o", "csv", sql: "ALTER POLICY own ON fullrep USING (true)", claims: Self.other)
        #expect(
            csv.output == """
                USER,ROLE,TABLE,CHANGE,ROWS,SHOWN BY,KEPT BY
                no@x,authenticated,public.fullrep,gained,5,own,(no policy)

                """ && csv.errors.contains("1 client would gain 5 and lose 0"), "\(csv)")
        let closed = await Self.run(stage, "--json", sql: "DROP POLICY own ON fullrep", claims: Self.me)
        #expect(closed.exitCode == .notFound)
        let objects = closed.output.split(separator: "\n").map(String.init)
        #expect(
            objects.first
                == #"{"kind":"catalog","schema":"public","table":"fullrep","role":"authenticated","changes":["policy \"own\" is dropped"]}"#
        )
        #expect(objects.contains { $0.hasPrefix(#"{"kind":"loss","user":"me@x","role":"authenticated","offset":"#) })
        #expect(
            objects.contains {
                $0.hasPrefix(#"{"kind":"policy","change":"loss","role":"authenticated","schema":"public","#)
                    && $0.contains(#""shown_by":["own"],"shown_how":"policies","kept_by":[],"kept_how":"no_policy""#)
            }, "\(objects)")
        #expect(
            objects.last?.hasPrefix(#"{"kind":"total","from":"#) == true
                && objects.last?.contains(#""gains":0"#) == true)
    }

    @Test func `what changes nothing for anybody ends well`() async throws {
        let stage = try WhyStage(Self.own)
        defer { stage.log.remove() }
        let result = await Self.run(stage, sql: "CREATE TABLE elsewhere (id int PRIMARY KEY)", claims: Self.me)
        #expect(result.exitCode == .ok, "\(result.errors)")
        #expect(
            result.output.hasPrefix("The proposal changes nothing that decides what clients are told."),
            "\(result.output)")
        #expect(result.output.contains("1 client would gain none and lose none"))
    }

    /// Checks a copy of the database that publishes no tables. An answer that no client receives anything would not
    /// help there.
    @Test func `tables that the database does not publish are named`() async throws {
        let stage = try WhyStage(Self.own)
        defer { stage.log.remove() }
        try stage.database.run("ALTER PUBLICATION supabase_realtime DROP TABLE fullrep")
        let nothing = await Self.run(stage, sql: "DROP POLICY own ON fullrep", claims: Self.me)
        #expect(
            nothing.exitCode == .ok && nothing.output.contains("nobody is told of them, now or then: "), "\(nothing)")
        #expect(nothing.output.contains("public.fullrep"), "\(nothing)")
        let json = await Self.run(stage, "--json", sql: "SELECT 1", claims: Self.me)
        #expect(json.output.contains(#""not_published":[""#) && json.output.contains("public.fullrep"), "\(json)")
        // The answer does not name a table that another publication or the proposal publishes.
        let proposed = await Self.run(
            stage, sql: "ALTER PUBLICATION supabase_realtime ADD TABLE fullrep", claims: Self.me)
        #expect(proposed.exitCode == .notFound && proposed.output.contains("is published"), "\(proposed)")
        #expect(!proposed.output.contains("public.fullrep, ") && !proposed.output.contains("then: public.fullrep"))
        try stage.database.run("CREATE PUBLICATION internal FOR TABLE fullrep")
        let internally = await Self.run(stage, "--json", sql: "SELECT 1", claims: Self.me)
        #expect(!internally.output.contains(#""public.fullrep""#), "\(internally)")
    }

    @Test func `other filters are a proposal by themselves`() async throws {
        let stage = try WhyStage(Self.own)
        defer { stage.log.remove() }
        func asked(_ bindings: String..., words: [String] = []) async -> Run {
            await tidewireTests.run(
                ["whatif", "--on", stage.database.url, "--log", stage.log.path, "--claims", "claims"] + words
                    + bindings.flatMap { ["--binding", $0] }, commands: commands, files: ["claims": Self.me])
        }
        let whole = await asked("fullrep")
        #expect(whole.exitCode == .ok && whole.output.contains("1 client would gain none and lose none"), "\(whole)")
        let fewer = await asked("INSERT public.fullrep body=eq.call back")
        #expect(fewer.exitCode == .notFound, "\(fewer)")
        #expect(
            fewer.output.hasPrefix(
                "public.fullrep for all clients: INSERT where body=eq.call back instead of their present subscriptions\n"
            ),
            "\(fewer)")
        #expect(fewer.output.contains("(not asked for)") && fewer.output.contains("gain 0 and lose"), "\(fewer)")
        let json = await asked("INSERT public.fullrep body=eq.call back", words: ["--json"])
        #expect(
            json.output.hasPrefix(
                #"{"kind":"binding","schema":"public","table":"fullrep","asked":"INSERT where body=eq.call back"}"#
                    + "\n"),
            "\(json)")
        #expect(json.output.contains(#""kept_by":[],"kept_how":"not_asked_for""#), "\(json)")
        for (binding, reason) in [("fullrep nothing=eq.1", "nothing"), ("fullrep id=eq.x", "x")] {
            let refused = await asked(binding)
            #expect(refused.exitCode == .notFound && refused.errors.contains("the hub would refuse it"), "\(refused)")
            #expect(refused.errors.contains(reason), "\(refused)")
        }
        let typo = await asked("fulrep id=eq.1")
        #expect(
            typo.exitCode == .notFound && typo.errors.contains("no table public.fulrep in the publication"), "\(typo)")
        #expect(await asked("").exitCode == .usage)
        let nothing = await tidewireTests.run(
            ["whatif", "--on", stage.database.url, "--log", stage.log.path], commands: commands)
        #expect(nothing.exitCode == .usage && nothing.errors.contains("or --binding BINDING"), "\(nothing)")
    }

    /// Checks a bundle with masked values. A mark is not a value, so the result of a policy on it is unknown, and the
    /// answer must state that.
    @Test func `of a bundle what is masked counts as shown to nobody, unless it was left readable`() async throws {
        let stage = try WhyStage(Self.own)
        defer { stage.log.remove() }
        let place = TemporaryDirectory.make("whatif")
        func answer(_ name: String, _ words: [String]) async -> Run {
            let made = await tidewireTests.run(
                ["bundle", "\(place)/\(name)", "--log", stage.log.path] + words, commands: commands + [BundleCommand()])
            #expect(made.exitCode == .ok, "\(made.errors)")
            return await tidewireTests.run(
                [
                    "whatif", "--policy", "new.sql", "--on", stage.database.url, "--log", "\(place)/\(name)",
                    "--claims",
                    "claims",
                ], commands: commands,
                files: ["new.sql": "ALTER POLICY own ON fullrep USING (email <> 'nobody@x')", "claims": Self.other])
        }
        let masked = await answer("masked", [])
        #expect(masked.output.contains("would gain none and lose none"), "\(masked)")
        #expect(masked.output.contains("count as shown to nobody: public.fullrep.email."), "\(masked)")
        let open = await answer("open", ["--unmask", "email"])
        let here = await Self.run(
            stage, sql: "ALTER POLICY own ON fullrep USING (email <> 'nobody@x')", claims: Self.other)
        #expect(open.output == here.output && open.output.contains("Gains, for example"), "\(open) \(here)")
    }

    /// Checks a bundle: it does not have the changes after its end, so the command cannot undo them.
    @Test func `a bundle says that it cannot take back what came after it`() async throws {
        let stage = try WhyStage("")
        try stage.database.run(
            """
            CREATE TABLE watchers (who text PRIMARY KEY, post int NOT NULL);
            ALTER TABLE watchers REPLICA IDENTITY FULL; GRANT SELECT ON watchers TO authenticated;
            ALTER PUBLICATION supabase_realtime ADD TABLE watchers;
            CREATE POLICY own ON fullrep FOR SELECT
                USING (id IN (SELECT w.post FROM watchers w WHERE w.who = (auth.jwt() ->> 'email')))
            """)
        defer { stage.log.remove() }
        let bundle = TemporaryDirectory.make("whatif") + "/cut"
        let made = await tidewireTests.run(
            ["bundle", bundle, "--log", stage.log.path], commands: commands + [BundleCommand()])
        #expect(made.exitCode == .ok, "\(made.errors)")
        let words = ["whatif", "--policy", "new.sql", "--on", stage.database.url, "--claims", "claims", "--log"]
        let files = ["new.sql": "CREATE POLICY more ON fullrep FOR SELECT USING (id = 1)", "claims": Self.me]
        let sentence = "Memberships that changed after the end of the bundle count as they are now"
        let ofBundle = await tidewireTests.run(words + [bundle], commands: commands, files: files)
        #expect(ofBundle.output.contains(sentence), "\(ofBundle)")
        let forPrograms = await tidewireTests.run(words + [bundle, "--json"], commands: commands, files: files)
        #expect(forPrograms.output.contains(#""memberships_of_now":true"#), "\(forPrograms)")
        let ofLog = await tidewireTests.run(words + [stage.log.path], commands: commands, files: files)
        #expect(!ofLog.output.contains(sentence), "\(ofLog)")
    }

    @Test func `what cannot be done is said`() async throws {
        let stage = try WhyStage(Self.own)
        defer { stage.log.remove() }
        let nobody = await Self.run(stage, sql: "SELECT 1")
        #expect(nobody.exitCode == .notFound && nobody.errors.contains("the ledger of this log has no users"))
        let refused = await Self.run(stage, sql: "ALTER POLICY mine ON fullrep USING (true)", claims: Self.me)
        #expect(refused.exitCode == .notFound)
        #expect(
            refused.errors.contains("the database does not accept new.sql: ")
                && refused.errors.contains("SQLSTATE 42704"),
            "\(refused.errors)")
        let forbidden = await tidewireTests.run(
            [
                "whatif", "--policy", "new.sql", "--on", stage.logins.hubURL, "--log", stage.log.path, "--role",
                "authenticated",
            ], commands: commands, files: ["new.sql": "ALTER POLICY own ON fullrep USING (true)"])
        #expect(
            forbidden.exitCode == .notFound
                && forbidden.errors.contains("Does the login of --on have the rights that it needs?"),
            "\(forbidden.errors)")
        let nowhere = await tidewireTests.run(
            ["whatif", "--policy", "new.sql", "--log", stage.log.path], commands: commands, files: ["new.sql": ""])
        #expect(nowhere.exitCode == .usage && nowhere.errors.contains("--on URL is missing"))
        let unreachable = await tidewireTests.run(
            [
                "whatif", "--policy", "new.sql", "--on", "postgresql://127.0.0.1:1/x", "--log", stage.log.path,
                "--role", "a",
            ], commands: commands, files: ["new.sql": ""])
        #expect(unreachable.exitCode == .unreachable, "\(unreachable.errors)")
    }
}
