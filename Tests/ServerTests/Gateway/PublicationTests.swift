import Diagnostics
import Foundation
import System
import TestSupport
import Testing

@testable import Server

extension GatewayTraffic {
    /// Tests of notices to clients about data that a publication leaves out.
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

        @Test(.postgres(15)) func `a filter or a selection on a column that is left out is refused`() throws {
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
            // Columns that are published, or that the hub can compute from published ones, cause no notice.
            let caller = try stage.caller()
            try caller.subscribe(
                "realtime:a", [binding("notes", filter: "half=eq.2", select: ["team", "half"])],
                token: stage.token(of: 1))
            try stage.run("INSERT INTO notes (id, team, secret) VALUES (1, 4, 'x')")
            let change = try caller.change()
            #expect(change.record.keys.sorted() == ["half", "id", "team"] && change.record["half"] as? Int == 2)
        }

        @Test(.postgres(15)) func `who may not read a column is told that, and not what the publication has`() throws {
            let stage = try GatewayStage(
                Self.tables + "REVOKE SELECT ON notes FROM READER; GRANT SELECT (id, team) ON notes TO READER;",
                publication: "FOR TABLE notes (id, team)")
            let said = try answer(stage, binding("notes", filter: "secret=eq.x"))
            #expect(said.status == "error" && said.said?.contains("publication") == false, "\(said)")
        }

        /// Checks that a client hears of each table whose changes it will not get, also if these are many.
        @Test(arguments: [2, 4, 6, 60]) func `tables with limits are all named`(count: Int) throws {
            let names = (1...count).map { "table\($0)x" }
            let stage = try GatewayStage(
                names.map { "CREATE TABLE \($0) (id int PRIMARY KEY); GRANT SELECT ON \($0) TO READER;" }.joined(),
                publication: "FOR TABLE \(names.joined(separator: ", ")) WITH (publish = 'insert')")
            let caller = try stage.caller()
            try caller.join("realtime:a", [binding("*")], token: stage.token(of: 1))
            var said: [Message] = []
            let last = count <= 4 ? "OperationsNotPublished" : "MoreWarnings"
            _ = try caller.first { message in
                if message.event == "system", message.payload["code"] as? String != nil { said.append(message) }
                return said.count == min(count, 4) && message.payload["code"] as? String == last
            }
            let words = said.compactMap(\.said).joined(separator: " ")
            let unnamed = names.filter { !words.contains("public.\($0)") }
            #expect(unnamed.count <= max(0, count - 53), "\(words)")
            #expect(unnamed.isEmpty || words.contains(" and \(unnamed.count) more"), "\(words)")
            #expect(count <= 4 || words.contains("OperationsNotPublished for public.table"), "\(words)")
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

        /// Checks a table with full old rows and a partition whose changes contain less: PostgreSQL sends NULL for the
        /// missing values.
        @Test(arguments: ["DEFAULT", "USING INDEX low_code"])
        func `what some partitions do not keep of old rows is not known of any`(identity: String) throws {
            let stage = try GatewayStage(
                """
                CREATE TABLE parts (id int PRIMARY KEY, code int NOT NULL, kind text, body text) PARTITION BY RANGE (id);
                CREATE TABLE low PARTITION OF parts FOR VALUES FROM (0) TO (100);
                CREATE TABLE high PARTITION OF parts FOR VALUES FROM (100) TO (200);
                CREATE UNIQUE INDEX low_code ON low (code); ALTER TABLE low ALTER body SET STORAGE EXTERNAL;
                ALTER TABLE parts REPLICA IDENTITY FULL; ALTER TABLE high REPLICA IDENTITY FULL;
                ALTER TABLE low REPLICA IDENTITY \(identity);
                GRANT SELECT ON parts TO READER; ALTER TABLE parts ENABLE ROW LEVEL SECURITY;
                CREATE POLICY shown ON parts FOR SELECT TO READER USING (kind IS NULL OR kind = 'a');
                """, publication: "FOR TABLE parts WITH (publish_via_partition_root = true)")
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("parts")], token: stage.token(of: 1))
            try caller.fence()
            let said = caller.takeUnheard().compactMap(\.said).filter { $0.hasPrefix("Deletes of public.parts") }
            #expect(said.count == 1 && said[0].contains("each of its partitions"), "\(said)")
            try stage.run(
                """
                INSERT INTO parts VALUES (1, 11, 'b', repeat('b', 9000)), (2, 12, 'a', repeat('a', 9000));
                UPDATE parts SET code = 13 WHERE id = 2; UPDATE parts SET code = 14, kind = 'a' WHERE id = 1;
                UPDATE parts SET kind = 'b'; DELETE FROM parts; INSERT INTO parts VALUES (150, 15, 'a', 'c');
                """)
            let changes = try (0..<4).map { _ in try caller.change() }
            #expect(changes.map(\.type) == ["INSERT", "UPDATE", "UPDATE", "INSERT"], "\(changes)")
            #expect(changes.map(\.id) == [2, 2, 1, 150])
            // The missing values are absent from the message, not NULL.
            #expect(changes[1].record["body"] == nil && changes[2].record["body"] == nil)
            #expect(
                changes.allSatisfy { Set($0.old.keys).isSubset(of: ["id"]) && !$0.old.values.contains { $0 is NSNull } }
            )

            try stage.run("ALTER TABLE low REPLICA IDENTITY FULL")
            try stage.run(
                "INSERT INTO parts VALUES (3, 16, 'a', 'd'); UPDATE parts SET code = 17 WHERE id = 3; DELETE FROM parts"
            )
            let later = try (0..<4).map { _ in try caller.change() }
            #expect(later.map(\.type) == ["INSERT", "UPDATE", "DELETE", "DELETE"], "\(later)")
        }

        @Test(.postgres(15)) func `that rows are filtered is said, and not by what`() throws {
            let stage = try GatewayStage(Self.tables, publication: "FOR TABLE notes WHERE (team > 1234)")
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("notes")], token: stage.token(of: 1))
            try caller.fence()
            let said = caller.takeUnheard().compactMap(\.said).filter { $0.contains("row filter") }
            #expect(said.count == 1 && said[0].contains("public.notes") && !said[0].contains("1234"), "\(said)")
        }
    }
}
