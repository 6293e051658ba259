import Embedded
import System
import TestSupport
import Testing

@testable import Console
@testable import tidewire

private let commands: [any Command] = [WhyCommand()]

/// Database with a table like the one of the sample log, and the documented logins.
struct WhyStage {
    let database: TestDatabase
    let log: TemporaryLog
    let logins: DocumentedLogins

    init(_ sql: String, log: TemporaryLog? = nil) throws {
        database = try TestDatabase()
        self.log = try log ?? TemporaryLog()
        logins = try database.documentedLogins()
        try database.applyAuth()
        try database.run(
            """
            GRANT USAGE ON SCHEMA public TO anon, authenticated;
            CREATE TABLE readers (mail text, reader uuid, PRIMARY KEY (mail, reader));
            ALTER TABLE readers REPLICA IDENTITY FULL;
            INSERT INTO readers VALUES ('me@x', '\(WhyStage.reader)');
            CREATE TABLE fullrep (id int PRIMARY KEY, email text, body text, deleted_at timestamptz);
            ALTER TABLE fullrep REPLICA IDENTITY FULL;
            ALTER TABLE fullrep ENABLE ROW LEVEL SECURITY;
            CREATE TABLE unpublished (id int PRIMARY KEY);
            GRANT SELECT ON fullrep, readers TO authenticated;
            \(sql);
            CREATE PUBLICATION supabase_realtime FOR TABLE fullrep, readers;
            """)
    }

    static let reader = "00000000-0000-4000-8000-000000000002"

    func run(
        _ words: String..., claims: String? = nil, policies: Bool = true, unmasked: [String] = ["--unmask", "email"]
    ) async -> Run {
        let login = policies ? ["--policy-database-url", logins.policyURL] : []
        let claims = claims.map { (words: ["--claims", "c"], files: ["c": $0]) }
        return await tidewireTests.run(
            ["why", "--table", "fullrep", "--log", log.path, "--database-url", logins.hubURL] + login + unmasked
                + (claims?.words ?? []) + words,
            commands: commands, files: claims?.files ?? [:])
    }
}

@Suite(.within(minutes: 10)) struct WhyTests {
    private static let own = "CREATE POLICY own ON fullrep FOR SELECT USING (email = (auth.jwt() ->> 'email'))"

    @Test func `a client of the ledger is named by its session alone`() async throws {
        let stage = try WhyStage(Self.own)
        defer { stage.log.remove() }
        let both = await stage.run("--offset", "12", "--session", "1f/1", "--role", "authenticated")
        #expect(both.exitCode == .usage)
        #expect(both.errors.contains("--session and --role both say who is meant"))
        let unknown = await stage.run("--offset", "12", "--session", "1f/1")
        #expect(unknown.exitCode == .notFound)
        #expect(unknown.errors.contains("the ledger has no client 1f/1 around @12"))
        let malformed = await stage.run("--offset", "12", "--session", "ana")
        #expect(malformed.exitCode == .usage)
    }

    @Test func `who may read the row was told`() async throws {
        let stage = try WhyStage(Self.own)
        defer { stage.log.remove() }
        let result = await stage.run("--offset", "12", claims: #"{"role": "authenticated", "email": "me@x"}"#)
        #expect(result.exitCode == .ok, "\(result.errors)")
        #expect(
            result.output.hasSuffix(
                """

                me@x (authenticated) would have been told: policy "own" is true because email = (auth.jwt() ->> 'email'::text) is true

                """), "\(result.output)")
        #expect(result.output.contains(#"policy "own" (permissive, compiled)"#))
        #expect(result.output.contains("auth.jwt() ->> 'email'::text          me@x  me@x"))
        #expect(!result.output.contains("DIFFERENCE"))
    }

    @Test func `a table of it goes into tickets and spreadsheets`() async throws {
        let stage = try WhyStage(Self.own)
        defer { stage.log.remove() }
        let claims = #"{"role": "authenticated", "email": "me@x"}"#
        let csv = await stage.run("--offset", "13", "-o", "csv", claims: claims)
        #expect(csv.exitCode == .ok, "\(csv.errors)")
        let lines = csv.output.split(separator: "\n").map(String.init)
        #expect(
            lines.first == "STEP,ROW,PART,HUB,POSTGRESQL"
                && lines.last?.hasPrefix("result,,\"me@x (authenticated) would have been told: ") == true)
        #expect(
            lines.contains(
                #""policy ""own"" (permissive, compiled)",new,email = (auth.jwt() ->> 'email'::text),true,true"#),
            "\(csv.output)")
        #expect(lines.contains("together,old,all policies together,true,true"), "\(csv.output)")
        let markdown = await stage.run("--offset", "13", "-o", "md", claims: claims)
        let rows = markdown.output.split(separator: "\n")
        #expect(rows.dropFirst().first == "| --- | --- | --- | --- | --- |", "\(markdown.output)")
        #expect(rows.allSatisfy { $0.hasPrefix("| ") && $0.hasSuffix(" |") }, "\(markdown.output)")
        let masked = await stage.run("--offset", "13", "-o", "csv", claims: claims, unmasked: [])
        #expect(masked.exitCode == .ok && !masked.output.contains("me@x"), "\(masked.output)")
    }

    @Test func `what conditions read is not shown where it is masked`() async throws {
        let stage = try WhyStage(Self.own)
        defer { stage.log.remove() }
        for words in [[], ["--json"]] {
            let claims = #"{"role": "authenticated", "email": "me@x", "sub": "7"}"#
            let result = await run(
                [
                    "why", "--table", "fullrep", "--log", stage.log.path, "--database-url", stage.logins.hubURL,
                    "--policy-database-url", stage.logins.policyURL, "--offset", "12", "--claims", "c",
                ] + words, commands: commands, files: ["c": claims])
            #expect(result.exitCode == .ok, "\(result.errors)")
            #expect(!result.output.contains("me@x") && result.output.contains("is true because"), "\(result.output)")
        }
        let filtered = await stage.run(
            "--offset", "12", "--filter", "email=eq.me@x", claims: #"{"role": "authenticated"}"#, unmasked: [])
        #expect(
            filtered.exitCode == .usage && filtered.errors.contains("--filter names a masked column"), "\(filtered)")
    }

    @Test func `who may not read it was not, and the policy is named`() async throws {
        let stage = try WhyStage(Self.own)
        defer { stage.log.remove() }
        let result = await stage.run("--key", "id=6", claims: #"{"role": "authenticated", "email": "alice@x"}"#)
        #expect(result.exitCode == .notFound && result.errors.isEmpty)
        #expect(result.output.contains("DELETE public.fullrep key 6 @16"))
        #expect(
            result.output.contains(
                #"alice@x (authenticated) was NOT told: policy "own" is false because email = (auth.jwt() ->> 'email'::text) is false"#
            ), "\(result.output)")
    }

    @Test func `an update says what becomes of the old record, and whether the row moved`() async throws {
        let stage = try WhyStage("CREATE POLICY called ON fullrep FOR SELECT USING (body = 'called')")
        defer { stage.log.remove() }
        let result = await stage.run("--offset", "13", "--role", "authenticated")
        #expect(result.exitCode == .ok, "\(result.errors)")
        #expect(
            result.output.contains("old_record   empty: the user may not see the row as it was"), "\(result.output)")
        #expect(result.output.contains("moved        in"))
        let both = await stage.run("--offset", "14", "--role", "authenticated")
        #expect(both.output.contains("old_record   whole"), "\(both.output)")
        #expect(!both.output.contains("moved"))
    }

    @Test func `memberships are counted as they were, as far as the log goes, or as they are now`() async throws {
        let stage = try WhyStage(
            """
            CREATE POLICY shared ON fullrep FOR SELECT
                USING (email IN (SELECT r.mail FROM readers r WHERE r.reader = auth.uid()))
            """)
        defer { stage.log.remove() }
        let told = await stage.run("--offset", "12", "--role", "authenticated", "--sub", WhyStage.reader)
        #expect(told.exitCode == .ok, "\(told.errors)")
        #expect(told.output.contains("(permissive, membership)"), "\(told.output)")
        #expect(told.output.contains("membership   public.readers: 1 key, the row's key is among them"))
        #expect(
            told.output.contains("by the log; changes after the log's end are not included"), "\(told.output)")
        let now = await stage.run("--offset", "12", "--role", "authenticated", "--sub", WhyStage.reader, "--now")
        #expect(now.exitCode == .ok && now.output.contains("memberships are as they are now"), "\(now.output)")
        try stage.database.run("TRUNCATE readers")
        let hidden = await stage.run("--offset", "12", "--role", "authenticated", "--sub", WhyStage.reader)
        #expect(hidden.exitCode == .notFound)
        #expect(hidden.output.contains("0 keys, the row's key is not among them"))
    }

    @Test func `a filter's conditions are told one by one`() async throws {
        let stage = try WhyStage("CREATE POLICY all_rows ON fullrep FOR SELECT USING (true)")
        defer { stage.log.remove() }
        let result = await stage.run(
            "--offset", "13", "--role", "authenticated", "--filter", "body=eq.called,email=in.(a@x,b@x)")
        #expect(result.exitCode == .notFound)
        #expect(
            result.output.contains("was NOT told: filter email=in.(a@x,b@x) is false"), "\(result.output)")
        let bad = await stage.run("--offset", "13", "--role", "authenticated", "--filter", "nope=eq.1")
        #expect(bad.exitCode == .notFound && bad.output.contains("the subscription is refused"), "\(bad.output)")
    }

    @Test func `a filter on what changed is explained by both rows`() async throws {
        let stage = try WhyStage("CREATE POLICY called ON fullrep FOR SELECT USING (body = 'called')")
        defer { stage.log.remove() }
        // The update brings the row into the user's view, so that nothing of its past counts.
        for (filter, isTold) in [("changed=body", true), ("changed=id", true), ("old.body=not.eq.called", false)] {
            let result = await stage.run("--offset", "13", "--role", "authenticated", "--filter", filter)
            #expect(result.exitCode == (isTold ? .ok : .notFound), "\(filter): \(result.output) \(result.errors)")
            #expect(!result.output.contains("moved  "), "\(filter): \(result.output)")
            if !isTold { #expect(result.output.contains("was NOT told: filter \(filter) is"), "\(result.output)") }
        }
        // The row was and is in the user's view.
        for (filter, isTold) in [("old.body=eq.called", true), ("changed=id", false), ("old.id=gt.0", true)] {
            let result = await stage.run("--offset", "14", "--role", "authenticated", "--filter", filter)
            #expect(result.exitCode == (isTold ? .ok : .notFound), "\(filter): \(result.output) \(result.errors)")
        }
        for filter in ["old.email=eq.me@x", "changed=email", "or=(changed.in.(id,email))"] {
            let masked = await stage.run(
                "--offset", "13", "--role", "authenticated", "--filter", filter, unmasked: [])
            #expect(
                masked.exitCode == .usage && masked.errors.contains("--filter names a masked column"), "\(masked)")
        }
    }

    @Test func `where a filter is false nobody has to be asked about policies`() async throws {
        let stage = try WhyStage(
            """
            CREATE FUNCTION may(n int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN n > 0; END $$;
            CREATE POLICY asks ON fullrep FOR SELECT USING (may(id))
            """)
        defer { stage.log.remove() }
        let words = ["--offset", "12", "--role", "authenticated"]
        let open = await stage.run(words[0], words[1], words[2], words[3], policies: false)
        #expect(open.output.contains("only PostgreSQL can say whether"), "\(open.output)")
        let filtered = await stage.run(
            words[0], words[1], words[2], words[3], "--filter", "body=eq.nothing", policies: false)
        #expect(
            filtered.exitCode == .notFound
                && filtered.output.contains("was NOT told: filter body=eq.nothing is false"), "\(filtered.output)")
    }

    @Test func `what comes before policies is told too`() async throws {
        let stage = try WhyStage("REVOKE SELECT ON fullrep FROM authenticated; GRANT SELECT (body) ON fullrep TO anon")
        defer { stage.log.remove() }
        let role = await stage.run("--offset", "12", "--role", "nobody_at_all")
        #expect(role.output.contains("there is no role nobody_at_all"), "\(role.output)")
        let event = await stage.run("--offset", "12", "--role", "anon", "--event", "delete")
        #expect(event.output.contains("the subscription is for DELETE only"), "\(event.output)")
        let none = await stage.run("--offset", "12", "--role", "anon")
        #expect(none.output.contains("no policy lets the role SELECT"), "\(none.output)")
        try stage.database.run("CREATE POLICY p ON fullrep USING (true)")
        let key = await stage.run("--offset", "12", "--role", "anon")
        #expect(key.output.contains("Error 401: Unauthorized"), "\(key.output)")
        #expect(key.output.contains("anon: may SELECT body; not id, email, deleted_at"))
        try stage.database.run(
            "DROP PUBLICATION supabase_realtime; CREATE PUBLICATION supabase_realtime FOR TABLE readers")
        let gone = await stage.run("--offset", "12", "--role", "anon")
        #expect(gone.output.contains("publication supabase_realtime does not have the table"), "\(gone.output)")
    }

    @Test func `says why PostgreSQL was not asked`() async throws {
        let stage = try WhyStage(Self.own)
        defer { stage.log.remove() }
        let result = await stage.run(
            "--offset", "12", claims: #"{"role": "authenticated", "email": "me@x"}"#, policies: false)
        #expect(result.exitCode == .ok)
        #expect(result.output.contains("was not asked: no login is fit to run policies"), "\(result.output)")
    }

    /// Checks both columns of the answer: the hub's result and PostgreSQL's result. Policies and holders are of every
    /// kind, and all changes of the log are checked.
    @Test func `the hub and PostgreSQL agree in every part`() async throws {
        let policies = [
            "true", "email = (auth.jwt() ->> 'email')", "(SELECT auth.uid()) IS NOT NULL",
            "body = ANY (ARRAY['called', 'x'])", "deleted_at IS NULL OR email = 'me@x'",
            "id > 5 AND id % 2 = 0", "lower(email) = lower(auth.jwt() ->> 'email')", "NOT (body LIKE 'call%')",
            "COALESCE(deleted_at, now()) > now() - interval '1 day'", "id = (auth.jwt() ->> 'id')::int",
            "CASE WHEN deleted_at IS NULL THEN id < 6 ELSE email = (auth.jwt() ->> 'email') END",
            "email IN (SELECT r.mail FROM readers r WHERE r.reader = auth.uid())",
            "EXISTS (SELECT 1 FROM readers r WHERE r.mail = fullrep.email AND r.reader = (SELECT auth.uid()))",
            "body ~ '^call' AND length(email) = 4", "auth.uid() = NULL", "10 / (id - 5) > 0",
            "body IS DISTINCT FROM (auth.jwt() ->> 'body')", "deleted_at < '2026-06-01 00:00:00+00'",
        ]
        let stage = try WhyStage(
            policies.enumerated().map { "CREATE POLICY p\($0) ON fullrep FOR SELECT USING (\($1))" }
                .joined(separator: ";"))
        defer { stage.log.remove() }
        var known = 0
        for claims in [
            #"{"role":"authenticated","email":"ME@x","sub":"\#(WhyStage.reader)","id":"6"}"#,
            #"{"role":"authenticated","email":"me@x","sub":"broken","id":6,"body":null}"#,
        ] {
            for offset in ["12", "13", "14", "15", "16"] {
                let result = await stage.run("--offset", offset, "--json", claims: claims)
                #expect(
                    result.output.contains(#""differences":0"#), "\(offset) \(claims) \(result.output) \(result.errors)"
                )
                known += result.output.split(separator: #""differs":false"#).count { part in
                    !part.contains(#""hub":"left to PostgreSQL""#) && !part.contains(#""postgres":null"#)
                }
            }
        }
        #expect(known > 300)
    }

    @Test(
        arguments: [
            (["--role", "anon"], ExitCode.usage, "no change is named: give --offset"),
            (["--offset", "12"], .usage, "no user is named: give --claims"),
            (["--offset", "x", "--role", "anon"], .usage, "--offset x: expected a number"),
            (["--offset", "1", "--key", "id=1", "--role", "anon"], .usage, "give one of them"),
            (["--offset", "12", "--role", "anon", "--event", "CHANGE"], .usage, "--event CHANGE: expected"),
            (["--offset", "12", "--claims", "nowhere"], .usage, "--claims nowhere: no such file"),
            (["--offset", "12", "--claims", "array"], .usage, "the claims are not one JSON object"),
            (["--offset", "12", "--claims", "roleless"], .usage, "no role is given"),
            (["--offset", "12", "--claims", "full", "--role", "anon"], .usage, "another role than --role"),
            (["--offset", "3", "--role", "anon"], .outsideRetention, "the oldest kept is @12"),
            (["--offset", "99", "--role", "anon"], .notFound, "the log has no change at @99; it holds @12 to @18"),
            (["--offset", "17", "--role", "anon"], .notFound, "the change at @17 belongs to a message"),
            (["--key", "id=77", "--role", "anon"], .notFound, "the log has no change of this row"),
            (["--table", "fulrep", "--offset", "12", "--role", "anon"], .notFound, "did you mean public.fullrep?"),
            (["--offset", "12", "--role", "anon"], .unreachable, "cannot connect to the database"),
        ] as [([String], ExitCode, String)])
    func `says what is wrong`(words: [String], exitCode: ExitCode, message: String) async throws {
        let log = try TemporaryLog()
        defer { log.remove() }
        let result = await run(
            [
                "why", "--table", "fullrep", "--log", log.path, "--unmask", "email", "--database-url",
                "postgres://u@127.0.0.1:1/d",
            ] + words,
            commands: commands,
            files: ["array": "[]", "roleless": #"{"sub": "1"}"#, "full": #"{"role": "authenticated"}"#])
        #expect(result.exitCode == exitCode, "\(result.output)")
        #expect(result.errors.contains(message), "\(result.errors)")
    }

    @Test func `the manual has two examples and fits a screen`() async {
        let manual = await run(["help", "why"], commands: commands).output
        #expect(manual.components(of: "\n        tidewire why --table") == 2, "\(manual)")
        for line in manual.split(separator: "\n") where !line.contains("tidewire ") {
            #expect(line.count <= 80, "\(line)")
        }
    }
}

extension String {
    fileprivate func components(of part: String) -> Int {
        split(separator: part, omittingEmptySubsequences: false).count - 1
    }
}
