import Diagnostics
import System
import TestSupport
import Testing

@testable import Server

extension Gateways {
    /// What a publication leaves out is said to who waits for it.
    @Suite(.serialized) struct PublicationTests {
        private static let tables = """
            CREATE TABLE notes (id int PRIMARY KEY, team int, secret text,
                loud text GENERATED ALWAYS AS (upper(secret)) STORED, half int GENERATED ALWAYS AS (team / 2) STORED);
            GRANT SELECT ON notes TO READER;
            """

        private func answer(_ stage: GatewayStage, _ binding: String) throws -> Message {
            let caller = try stage.caller()
            try caller.join("realtime:a", [binding], token: stage.token(of: 1))
            return try caller.first { $0.event == "system" }
        }

        @Test func `a filter or a selection on a column that is left out is refused`() throws {
            let stage = try GatewayStage(Self.tables, publication: "FOR TABLE notes (id, team)")
            for one in [
                binding("notes", filter: "secret=eq.x"), binding("notes", filter: "loud=eq.X"),
                binding("notes", filter: "and=(team.eq.1,or(id.eq.3,secret.is.null))"),
                binding("notes", select: ["secret"]), binding("notes", select: ["team", "loud"]),
            ] {
                let said = try answer(stage, one)
                #expect(
                    said.status == "error" && said.said?.contains("publication supabase_realtime") == true, "\(said)")
                #expect(said.said?.contains("ALTER PUBLICATION supabase_realtime ADD TABLE public.notes") == true)
                #expect(said.said?.contains("secret") == true || said.said?.contains("loud") == true)
            }
            // What is there, or can be made of it, is not.
            let caller = try stage.caller()
            try caller.subscribe(
                "realtime:a", [binding("notes", filter: "half=eq.2", select: ["team", "half"])],
                token: stage.token(of: 1))
            try stage.run("INSERT INTO notes (id, team, secret) VALUES (1, 4, 'x')")
            let change = try caller.change()
            #expect(change.record.keys.sorted() == ["half", "id", "team"] && change.record["half"] as? Int == 2)
        }

        @Test func `who may not read a column is told that, and not what the publication has`() throws {
            let stage = try GatewayStage(
                Self.tables + "REVOKE SELECT ON notes FROM READER; GRANT SELECT (id, team) ON notes TO READER;",
                publication: "FOR TABLE notes (id, team)")
            let said = try answer(stage, binding("notes", filter: "secret=eq.x"))
            #expect(said.status == "error" && said.said?.contains("publication") == false, "\(said)")
        }

        @Test(arguments: [
            ("insert", "UPDATE", "UPDATE"), ("insert", "*", "UPDATE and DELETE"), ("insert, delete", "*", "UPDATE"),
            ("update", "DELETE", "DELETE"), ("insert, update, delete", "*", ""), ("insert", "INSERT", ""),
        ])
        func `operations that are not published are named`(publish: String, event: String, missing: String) throws {
            let stage = try GatewayStage(Self.tables, publication: "FOR TABLE notes WITH (publish = '\(publish)')")
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("notes", event)], token: stage.token(of: 1))
            try caller.fence()
            let said = caller.takeUnheard().filter {
                $0.event == "system" && $0.said?.contains("will not come") == true
            }
            #expect(said.count == (missing.isEmpty ? 0 : 1))
            #expect(said.allSatisfy { $0.status == "ok" && $0.said?.hasPrefix(missing + " of public.notes") == true })
            #expect(
                said.allSatisfy { $0.said?.contains("ALTER PUBLICATION supabase_realtime SET (publish = '") == true })
        }

        @Test(arguments: [true, false])
        func `where partitions are published as another table, that one is named`(viaRoot: Bool) throws {
            let stage = try GatewayStage(
                """
                CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id);
                CREATE TABLE leaf PARTITION OF parts FOR VALUES FROM (0) TO (100);
                GRANT SELECT ON parts, leaf TO READER;
                """, publication: "FOR TABLE parts WITH (publish_via_partition_root = \(viaRoot))")
            let said = try answer(stage, binding(viaRoot ? "leaf" : "parts"))
            #expect(said.status == "error")
            #expect(said.said?.contains("as rows of public.\(viaRoot ? "parts" : "leaf")") == true, "\(said)")
            #expect(try answer(stage, binding(viaRoot ? "parts" : "leaf")).isSubscription)
            #expect(try answer(stage, binding("nowhere")).said?.contains("as rows of") == false)
        }

        @Test func `that rows are filtered is said, and not by what`() throws {
            let stage = try GatewayStage(Self.tables, publication: "FOR TABLE notes WHERE (team > 1234)")
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("notes")], token: stage.token(of: 1))
            try caller.fence()
            let said = caller.takeUnheard().compactMap(\.said).filter { $0.contains("row filter") }
            #expect(said.count == 1 && said[0].contains("public.notes") && !said[0].contains("1234"), "\(said)")
        }
    }
}
