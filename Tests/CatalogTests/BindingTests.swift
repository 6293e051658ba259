import Policy
import Postgres
import TestSupport
import Testing

@testable import Catalog

@Suite(.within(minutes: 10)) struct BindingTests {
    private static let todos = """
        CREATE TABLE todos (id int PRIMARY KEY, subject text, due timestamptz, secret text);
        GRANT SELECT (id, subject, due) ON todos TO READER;
        """

    private func stage() throws -> CatalogStage {
        try CatalogStage(BindingTests.todos, publication: "FOR TABLE todos")
    }

    @Test func `a table is found with the columns that the role may see`() throws {
        let stage = try stage()
        let binding = try stage.binding(stage.request("todos"))
        #expect(binding.table.columns.map(\.name) == ["id", "subject", "due", "secret"])
        #expect(binding.delivered == [0, 1, 2])
        #expect(binding.predicate == nil)
        #expect(binding.access == .readable)
        #expect(binding.operations == .all)
        #expect(binding.table.primaryKey == [0])
    }

    @Test func `selected columns come with those of the primary key`() throws {
        let stage = try stage()
        #expect(try stage.binding(stage.request("todos", select: ["due"])).delivered == [0, 2])
    }

    /// Checks the reason for a missing table. It must not reveal more than the role may know about the table.
    @Test func `which it is where a table is not found`() throws {
        let stage = try CatalogStage(
            """
            CREATE TABLE there (id int PRIMARY KEY); CREATE TABLE hidden (id int PRIMARY KEY);
            CREATE TABLE "Odd name" (id int PRIMARY KEY);
            CREATE VIEW seen AS SELECT * FROM there; CREATE MATERIALIZED VIEW kept AS SELECT * FROM there;
            CREATE TABLE whole (id int PRIMARY KEY) PARTITION BY RANGE (id);
            CREATE TABLE part PARTITION OF whole FOR VALUES FROM (0) TO (10);
            CREATE SCHEMA apart; CREATE TABLE apart.there (id int PRIMARY KEY);
            GRANT SELECT ON there, "Odd name", seen, kept, whole, part, apart.there TO READER;
            """, publication: "FOR TABLE whole")
        let unknown = "that role \(stage.role) may read"
        let cases: [(BindingRequest, String)] = [
            (stage.request("there"), "(ALTER PUBLICATION supabase_realtime ADD TABLE public.there)"),
            (stage.request("Odd name"), "(ALTER PUBLICATION supabase_realtime ADD TABLE public.\"Odd name\")"),
            (stage.request("odd name"), unknown), (stage.request("hidden"), unknown), (stage.request("nope"), unknown),
            (stage.request("there", schema: "nope"), unknown), (stage.request("there", schema: "apart"), unknown),
            (stage.request("seen"), "is a view, of which there are no changes"),
            (stage.request("kept"), "is a materialized view, of which there are no changes"),
            (stage.request("whole"), "as rows of public.part: bind to that"),
            (stage.request("nul\u{0}nul"), "table: nul"),
        ]
        for (request, wanted) in cases {
            let message = try #require(stage.message(request))
            #expect(message.hasPrefix("Unable to subscribe to changes with given parameters. Please check Realtime"))
            #expect(message.contains(wanted), "\(message)")
            #expect(!message.contains("hidden is") && !message.contains("apart.there is"))
        }
    }

    @Test func `messages are the reference's to the letter`() throws {
        let stage = try stage()
        let exception =
            "Unable to subscribe to changes with given parameters. An exception happened so please check your connect "
            + "parameters: "
        let cases: [(BindingRequest, String)] = [
            (
                stage.request("nope", operations: .insert),
                "Unable to subscribe to changes with given parameters. Please check Realtime is enabled for the given "
                    + "connect parameters: [event: INSERT, schema: public, table: nope, filters: [], select: nil]"
                    + ". There is no table public.nope that role \(stage.role) may read: are both names written as the "
                    + "database has them (SELECT relname FROM pg_class), and is SELECT granted?"
            ),
            (
                stage.request("todos", filter: "nope=eq.1"),
                exception
                    + #"[event: *, schema: public, table: todos, filters: [{"nope", "eq", "1", false}], select: nil]. "#
                    + "Exception: ERROR P0001 (raise_exception) invalid column for filter nope"
            ),
            (
                stage.request("todos", filter: "secret=eq.1"),
                exception
                    + #"[event: *, schema: public, table: todos, filters: [{"secret", "eq", "1", false}], select: nil]. "#
                    + "Exception: ERROR P0001 (raise_exception) invalid column for filter secret"
            ),
            (
                stage.request("todos", filter: "id=not.gt.hey", select: ["id"]),
                exception
                    + #"[event: *, schema: public, table: todos, filters: [{"id", "gt", "hey", true}], "#
                    + #"select: ["id"]]. Exception: ERROR 22P02 (invalid_text_representation) "#
                    + #"invalid input syntax for type integer: "hey""#
            ),
            (
                stage.request("todos", filter: "due=gt.soon"),
                exception
                    + #"[event: *, schema: public, table: todos, filters: [{"due", "gt", "soon", false}], select: nil]. "#
                    + "Exception: ERROR 22007 (invalid_datetime_format) "
                    + #"invalid input syntax for type timestamp with time zone: "soon""#
            ),
            (
                stage.request("todos", filter: "subject=match.(("),
                exception
                    + #"[event: *, schema: public, table: todos, filters: [{"subject", "match", "((", false}], "#
                    + "select: nil]. Exception: ERROR P0001 (raise_exception) "
                    + "invalid regular expression for match filter: invalid regular expression: parentheses () not balanced"
            ),
            (
                stage.request("todos", select: ["secret"]),
                exception
                    + #"[event: *, schema: public, table: todos, filters: [], select: ["secret"]]. "#
                    + "Exception: ERROR P0001 (raise_exception) invalid column for select secret"
            ),
            (
                stage.request("todos", role: "nobody_at_all"),
                exception + "[event: *, schema: public, table: todos, filters: [], select: nil]. "
                    + #"Exception: ERROR 42704 (undefined_object) role "nobody_at_all" does not exist"#
            ),
            (
                stage.request("todos", filter: "subject=foo.hey"),
                #"Error parsing `filter` params: ["foo", "hey"]"#
            ),
            (
                stage.request("*", select: ["id"]),
                "Column selection is not supported for wildcard subscriptions. "
                    + "Provide an explicit schema and table name."
            ),
        ]
        for (request, message) in cases { #expect(stage.message(request) == message) }
    }

    @Test func `one request's bad value leaves the others be`() throws {
        let stage = try stage()
        let outcomes = stage.resolve([
            stage.request("todos", filter: "due=gt.2026-01-01"), stage.request("todos", filter: "due=gt.soon"),
            stage.request("todos", filter: "due=lt.2027-01-01"), stage.request("todos", filter: "subject=eq.a\0b"),
        ])
        #expect(outcomes.map(isReadable) == [true, false, true, false])
    }

    @Test func `a role without rights is told so by the binding`() throws {
        let stage = try CatalogStage(
            """
            CREATE TABLE hidden (id int PRIMARY KEY, t text);
            CREATE TABLE keyless (t text);
            CREATE TABLE half (a int, b int, t text, PRIMARY KEY (a, b));
            GRANT SELECT ON keyless TO READER;
            GRANT SELECT (a, t) ON half TO READER;
            CREATE SCHEMA closed;
            CREATE TABLE closed.t (id int PRIMARY KEY);
            GRANT SELECT ON closed.t TO READER;
            """, publication: "FOR ALL TABLES")
        let hidden = try stage.binding(stage.request("hidden"))
        #expect(hidden.access == .unauthorized && hidden.delivered.isEmpty)
        #expect(try stage.binding(stage.request("keyless")).access == .noPrimaryKey)
        let half = try stage.binding(stage.request("half"))
        #expect(half.access == .unauthorized && half.delivered == [0, 2])
        let closed = try stage.binding(stage.request("t", schema: "closed"))
        #expect(closed.access == .unauthorized && closed.delivered.isEmpty)
        try stage.run("GRANT USAGE ON SCHEMA closed TO READER")
        #expect(try stage.binding(stage.request("t", schema: "closed")).access == .readable)
    }

    @Test func `a star stands for any text, and an underscore for itself`() throws {
        let stage = try CatalogStage(
            """
            CREATE TABLE a_b (id int PRIMARY KEY); CREATE TABLE axb (id int PRIMARY KEY);
            CREATE TABLE other (id int PRIMARY KEY); CREATE SCHEMA s2; CREATE TABLE s2.a_b (id int PRIMARY KEY);
            GRANT USAGE ON SCHEMA s2 TO READER;
            GRANT SELECT ON ALL TABLES IN SCHEMA public, s2 TO READER;
            """, publication: "FOR ALL TABLES")
        func names(_ table: String, _ schema: String = "public") -> [String]? {
            guard case .tables(let bindings) = stage.resolve(stage.request(table, schema: schema)) else { return nil }
            return bindings.map { $0.table.schema + "." + $0.table.name }
        }
        #expect(names("a_b") == ["public.a_b"])
        #expect(names("a*b") == ["public.a_b", "public.axb"])
        #expect(names("*") == ["public.a_b", "public.axb", "public.other"])
        #expect(names("a_b", "*") == ["public.a_b", "s2.a_b"])
        #expect(names("*h*r") == ["public.other"])
        #expect(names("a%") == nil)
        #expect(names("*", "s*") == ["s2.a_b"])
    }

    @Test func `operations are those that the publication has`() throws {
        let stage = try CatalogStage(
            BindingTests.todos, publication: "FOR TABLE todos WITH (publish = 'insert, delete')")
        #expect(try stage.binding(stage.request("todos")).operations == [.insert, .delete])
        #expect(try stage.binding(stage.request("todos", operations: .update)).operations == [])
    }

    @Test func `what needs no cast is resolved without the database`() throws {
        let stage = try CatalogStage(
            """
            CREATE TABLE notes (id uuid PRIMARY KEY, n int, at date); GRANT SELECT ON notes TO READER;
            """, publication: "FOR TABLE notes")
        #expect(isReadable(stage.resolve(stage.request("notes"))))
        let id = "id=eq.A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"
        #expect(stage.service.resolved(stage.request("notes", filter: id)).map(isReadable) == true)
        let dated = stage.request("notes", filter: "at=gt.2026-01-01")
        #expect(stage.service.resolved(dated) == nil)
        #expect(isReadable(stage.resolve(dated)))
        #expect(stage.service.resolved(dated).map(isReadable) == true)
        // The service must not refuse on the basis of an outdated catalog.
        #expect(stage.service.resolved(stage.request("nope")) == nil)
        #expect(stage.service.resolved(stage.request("notes", filter: "id=eq.x")) == nil)
        // A malformed filter is refused immediately, because no catalog could make it valid.
        #expect(stage.service.resolved(stage.request("notes", filter: "id")) != nil)
    }

    @Test func `too much at once is refused at once`() throws {
        let stage = try stage()
        let requests = (0...65_536).map { stage.request("todos", filter: "id=eq.\($0)") }
        let outcomes = stage.resolve(requests)
        #expect(outcomes.count == requests.count)
        #expect(outcomes.allSatisfy { if case .unavailable = $0 { true } else { false } })
    }

    @Test func `names that cannot be a role's are no roles`() throws {
        let stage = try stage()
        for role in ["a\0b", #"";'"#, #"{a,b}"#, String(repeating: "r", count: 5000), ""] {
            let message = stage.message(stage.request("todos", role: role))
            #expect(message?.hasSuffix("role \"\(role)\" does not exist") == true)
        }
    }
}

func isReadable(_ outcome: BindingOutcome) -> Bool {
    guard case .tables(let bindings) = outcome else { return false }
    return bindings.allSatisfy { $0.access == .readable }
}
