import Diagnostics
import Postgres
import System
import TestSupport
import Testing

@testable import Server
@testable import Settings

extension GatewayRows {
    /// Tests of generated columns that PostgreSQL does not send. The hub must compute their values and use them like
    /// sent ones.
    @Suite(.serialized, .postgres(before: 18)) struct GeneratedColumnTests {
        private static let tables = """
            CREATE TABLE notes (id int PRIMARY KEY, half int GENERATED ALWAYS AS (team / 2) STORED, owner uuid, team int,
                body text, size int GENERATED ALWAYS AS (length(body)) STORED);
            ALTER TABLE notes REPLICA IDENTITY FULL;
            CREATE TABLE fences (id int PRIMARY KEY);
            GRANT SELECT ON notes, fences TO READER;
            """

        private let fences = Fences()

        private final class Fences {
            var number = 0
        }

        private func stage(_ more: String = "", _ settings: [(Setting, String)] = []) throws -> GatewayStage {
            try GatewayStage(Self.tables + more, publication: "FOR TABLE notes, fences", settings)
        }

        private func follow(
            _ stage: GatewayStage, _ notes: [String] = [binding("notes")], user: Int = 1
        ) throws -> Caller {
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", notes + [binding("fences")], token: stage.token(of: user))
            return caller
        }

        /// Returns all messages about `notes` that the client has received so far.
        private func heard(_ caller: Caller, _ stage: GatewayStage) throws -> [Message] {
            fences.number += 1
            try stage.run("INSERT INTO fences VALUES (\(fences.number))")
            var heard: [Message] = []
            while true {
                let change = try caller.change()
                guard change.data["table"] as? String == "fences" else {
                    heard.append(change)
                    continue
                }
                if change.id == fences.number { return heard }
            }
        }

        private static func columns(_ change: Message) -> [String] {
            (change.data["columns"] as? [[String: Any]] ?? []).map {
                "\($0["name"] ?? "") \($0["type"] ?? "")"
            }
        }

        @Test func `they are in columns and rows as if they had been sent`() throws {
            let stage = try stage()
            let caller = try follow(stage)
            try stage.run("INSERT INTO notes (id, team, body) VALUES (1, 7, 'three'), (2, NULL, NULL)")
            try stage.run("UPDATE notes SET team = 9 WHERE id = 1")
            try stage.run("DELETE FROM notes WHERE id = 1")
            let heard = try heard(caller, stage)
            #expect(heard.map(\.type) == ["INSERT", "INSERT", "UPDATE", "DELETE"])
            let all = ["id int4", "half int4", "owner uuid", "team int4", "body text", "size int4"]
            for change in heard { #expect(Self.columns(change) == all) }
            #expect(heard[0].record["half"] as? Int == 3 && heard[0].record["size"] as? Int == 5)
            #expect(heard[1].record.count == 6 && heard[1].record["half"] as? Int == nil)
            #expect(heard[2].record["half"] as? Int == 4 && heard[2].old["half"] as? Int == 3)
            #expect(heard[3].old["half"] as? Int == 4 && heard[3].old["size"] as? Int == 5)
        }

        @Test func `filters and selections know them`() throws {
            let stage = try stage()
            let filtered = try follow(stage, [binding("notes", filter: "half=eq.3")])
            let several = try follow(stage, [binding("notes", filter: "size=gt.3"), binding("notes", "UPDATE")])
            let selected = try follow(stage, [binding("notes", select: ["size"])])
            try stage.run("INSERT INTO notes (id, team, body) VALUES (1, 7, 'three'), (2, 6, 'xx'), (3, 8, 'four')")
            try stage.run("UPDATE notes SET team = team - 1")
            try stage.run("DELETE FROM notes")
            #expect(
                try heard(filtered, stage).map { "\($0.type ?? "") \($0.id ?? $0.old["id"] as? Int ?? 0)" } == [
                    "INSERT 1", "INSERT 2", "UPDATE 1", "UPDATE 3", "DELETE 1", "DELETE 3",
                ])
            #expect(try heard(several, stage).filter { $0.type == "INSERT" }.map(\.id) == [1, 3])
            let first = try heard(selected, stage)[0]
            #expect(Self.columns(first) == ["id int4", "size int4"] && first.record["size"] as? Int == 5)
        }

        @Test(arguments: ["FULL", "DEFAULT"])
        func `a policy that reads them shows what it should`(identity: String) throws {
            let stage = try stage(
                """
                ALTER TABLE notes REPLICA IDENTITY \(identity); ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
                CREATE FUNCTION asks(n int) RETURNS boolean LANGUAGE plpgsql STABLE AS $$ BEGIN RETURN n = 9; END $$;
                CREATE POLICY p ON notes USING (half = 1); CREATE POLICY q ON notes USING (asks(size));
                """)
            // The hub finds these rows in the log when they are deleted.
            let early = try stage.caller()
            try early.subscribe("realtime:f", [binding("fences")], token: stage.token(of: 2))
            try stage.run("INSERT INTO notes (id, team, body) VALUES (10, 3, 'a'), (11, 4, 'b'), (12, 4, 'ninechars')")
            _ = try heard(early, stage)
            let caller = try follow(stage)
            try stage.run(
                "INSERT INTO notes (id, team, body) VALUES (1, 2, 'a'), (2, 9, 'no'), (3, 0, 'ninechars'), (4, NULL, NULL)"
            )
            try stage.run("UPDATE notes SET team = 5 WHERE id = 1; UPDATE notes SET team = 3 WHERE id = 2")
            try stage.run("DELETE FROM notes")
            let told = try heard(caller, stage).map { "\($0.type ?? "") \($0.id ?? $0.old["id"] as? Int ?? 0)" }
            #expect(told.prefix(3) == ["INSERT 1", "INSERT 3", "UPDATE 2"])
            #expect(told.dropFirst(3).sorted() == ["DELETE 10", "DELETE 12", "DELETE 2", "DELETE 3"])
            let warned = caller.takeUnheard().contains { $0.said?.contains("REPLICA IDENTITY FULL") == true }
            #expect(warned == (identity != "FULL"))
        }

        @Test func `their values are PostgreSQL's to the letter`() throws {
            let types = [
                ("bool", "a > 1"), ("numeric(10,2)", "a * 1.555"), ("char(25)", "s"), ("varchar(20)", "s || '!'"),
                ("text[]", "ARRAY[s, NULL, a::text]"), ("jsonb", "('{\"a\": ' || a::text || '}')::jsonb"),
                ("bytea", "decode(md5(s), 'hex')"),
                ("timestamptz", "t"), ("interval", "i * 2"), ("point", "point(a, 2)"), ("\"Odd Type\"", "upper(s)"),
                ("int4range", "int4range(a, a + 5)"), ("tsvector", "to_tsvector('english', s)"), ("inet", "ip"),
                ("float8", "a / 3.0"), ("\"char\"", "s::\"char\""), ("date", "(t AT TIME ZONE 'UTC')::date"),
                ("uuid", "md5(s)::uuid"), ("bigint", "a * 4000000000"), ("name", "s::name"),
            ]
            let generated = types.enumerated().map { number, type in
                "g\(number) \(type.0) GENERATED ALWAYS AS (\(type.1)) STORED, p\(number) \(type.0)"
            }.joined(separator: ", ")
            let stage = try GatewayStage(
                """
                CREATE DOMAIN "Odd Type" AS text CHECK (VALUE <> 'NO');
                CREATE TABLE "Odd table" (id int PRIMARY KEY, a int, s text, t timestamptz, i interval, ip inet, \(generated));
                GRANT SELECT ON "Odd table" TO READER;
                """, publication: "FOR TABLE \"Odd table\"")
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("Odd table")], token: stage.token(of: 1))
            try stage.run(
                "INSERT INTO \"Odd table\" VALUES (1, 3, 'it''s a \"cat\" \\', '2026-02-03 04:05:06.7+02', '1 day 2 hours', '10.0.0.1')"
            )
            // The stream contains plain columns with the same types and values, for comparison.
            let copies = types.indices.map { "p\($0) = g\($0)" }.joined(separator: ", ")
            try stage.run("UPDATE \"Odd table\" SET \(copies)")
            _ = try caller.change()
            let change = try caller.change()
            for number in types.indices {
                let (made, sent) = (change.record["g\(number)"], change.record["p\(number)"])
                #expect(made != nil && "\(made ?? 0)" == "\(sent ?? 1)", "\(types[number])")
            }
        }

        @Test func `one that cannot be computed is left out, and that is said once`() throws {
            let stage = try stage(
                """
                CREATE FUNCTION twice(n int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT n * 2';
                REVOKE EXECUTE ON FUNCTION twice FROM PUBLIC;
                ALTER TABLE notes ADD COLUMN twice int GENERATED ALWAYS AS (twice(team)) STORED;
                """)
            let failures = stage.metrics.generatedFailures.value
            let caller = try follow(stage)
            for id in 1...3 { try stage.run("INSERT INTO notes (id, team, body) VALUES (\(id), 4, 'x')") }
            let heard = try heard(caller, stage)
            #expect(heard.map(\.id) == [1, 2, 3])
            for change in heard {
                #expect(change.record["twice"] == nil && change.record["half"] as? Int == 2)
                #expect(change.record["size"] as? Int == 1)
            }
            #expect(stage.metrics.generatedFailures.value == failures + 3)
            let said = caller.takeUnheard().filter { $0.event == "system" && $0.said?.contains("twice") == true }
            #expect(said.count == 1 && said[0].status == "ok", "\(said)")
        }

        @Test func `one row that fails does not take the others with it`() throws {
            let stage = try stage(
                """
                CREATE FUNCTION odd(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
                BEGIN IF n = 13 AND current_user LIKE 'reader%' THEN RAISE 'bad luck'; END IF; RETURN n; END $$;
                ALTER TABLE notes ADD COLUMN luck int GENERATED ALWAYS AS (odd(team)) STORED;
                """)
            let caller = try follow(stage)
            try stage.run("INSERT INTO notes (id, team) SELECT g, g FROM generate_series(1, 20) g")
            let heard = try heard(caller, stage)
            #expect(heard.map { $0.record["luck"] as? Int } == (1...20).map { $0 == 13 ? nil : $0 })
            #expect(heard[12].record.keys.contains("luck") == false)
        }

        @Test func `an expression that hangs is left out, and what comes behind it comes`() throws {
            let stage = try stage(
                """
                CREATE FUNCTION slow(n int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
                BEGIN IF current_user LIKE 'reader%' THEN PERFORM pg_sleep(60); END IF; RETURN n; END $$;
                ALTER TABLE notes ADD COLUMN luck int GENERATED ALWAYS AS (slow(team)) STORED;
                """)
            let caller = try follow(stage)
            for id in 1...20 { try stage.run("INSERT INTO notes (id, team) VALUES (\(id), \(id))") }
            let heard = try heard(caller, stage)
            #expect(heard.map(\.id) == Array(1...20))
            #expect(heard.allSatisfy { !$0.record.keys.contains("luck") })
        }

        @Test func `an input that was not sent leaves them out, and never stands for NULL`() throws {
            let stage = try stage(
                """
                ALTER TABLE notes ALTER body SET STORAGE EXTERNAL; ALTER TABLE notes REPLICA IDENTITY DEFAULT;
                """)
            let caller = try follow(stage, [binding("notes")])
            let sized = try follow(stage, [binding("notes", filter: "size=is.null")])
            try stage.run("INSERT INTO notes (id, team, body) VALUES (1, 4, repeat('x', 9000))")
            try stage.run("UPDATE notes SET team = 6")
            try stage.run("ALTER TABLE notes REPLICA IDENTITY FULL")
            try stage.run("UPDATE notes SET team = 8")
            let heard = try heard(caller, stage)
            #expect(heard.map { $0.record["half"] as? Int } == [2, 3, 4])
            #expect(heard[0].record["size"] as? Int == 9000 && heard[2].record["size"] as? Int == 9000)
            #expect(!heard[1].record.keys.contains("size") || heard[1].record["size"] as? Int == 9000)
            #expect(try self.heard(sized, stage).isEmpty)
        }

        @Test func `many rows, several loops and large transactions come whole and in order`() throws {
            let stage = try stage(
                "", [(Setting(\.loops), "2"), (Setting(\.outboxAge), "60s"), (Setting(\.outboxBytes), "64MB")])
            let callers = try (1...4).map { try follow(stage, [binding("notes", filter: "half=gte.0")], user: $0) }
            try stage.run(
                "INSERT INTO notes (id, team, body) SELECT g, g, repeat('b', g % 50) FROM generate_series(1, 12000) g")
            for id in 12_001...12_100 { try stage.run("INSERT INTO notes (id, team) VALUES (\(id), \(id))") }
            for caller in callers {
                let heard = try heard(caller, stage)
                #expect(heard.map(\.id) == Array(1...12_100))
                #expect(heard.allSatisfy { $0.record["half"] as? Int == ($0.id ?? 0) / 2 })
            }
        }

        @Test func `columns and expressions that change are computed as they are`() throws {
            let stage = try stage()
            let caller = try follow(stage)
            var rows: [[String: Any]] = []
            for (id, step) in [
                "", "ALTER TABLE notes ADD COLUMN more int GENERATED ALWAYS AS (team + 1) STORED",
                "ALTER TABLE notes DROP COLUMN half", "ALTER TABLE notes ALTER owner TYPE text",
                "ALTER TABLE notes ALTER more DROP EXPRESSION",
            ].enumerated() {
                try stage.run(step + ";INSERT INTO notes (id, team) VALUES (\(id), 4)")
                rows += try heard(caller, stage).map(\.record)
            }
            #expect(rows.map { $0["half"] as? Int } == [2, 2, nil, nil, nil])
            #expect(rows.map { $0["more"] as? Int } == [nil, 5, 5, 5, nil])
            #expect(rows.map { $0.keys.contains("more") } == [false, true, true, true, true])
        }

        @Test func `those that the stream carries are not computed`() throws {
            let stage = try stage("ALTER TABLE notes REPLICA IDENTITY DEFAULT;")
            guard let version = try stage.database.value("SHOW server_version_num").flatMap({ Int($0) }),
                version >= 180_000
            else { return }
            let caller = try follow(stage, [binding("notes", filter: "half=gt.1")])
            try stage.run("INSERT INTO notes (id, team, body) VALUES (1, 7, 'three')")
            #expect(try heard(caller, stage).map { $0.record["half"] as? Int } == [3])
            let computed = stage.metrics.generatedValues.value
            try stage.run("ALTER PUBLICATION supabase_realtime SET (publish_generated_columns = stored)")
            try stage.run("ALTER TABLE notes REPLICA IDENTITY FULL")
            try stage.run("INSERT INTO notes (id, team, body) VALUES (2, 8, 'four')")
            try stage.run("UPDATE notes SET team = 11 WHERE id = 2")
            let sent = try heard(caller, stage)
            #expect(sent.map { $0.record["half"] as? Int } == [4, 5] && sent[1].old["half"] as? Int == 4)
            #expect(sent.map { $0.record["size"] as? Int } == [4, 4])
            #expect(stage.metrics.generatedValues.value == computed)
            // Virtual columns are in no stream.
            try stage.run("ALTER TABLE notes REPLICA IDENTITY DEFAULT")
            try stage.run("ALTER TABLE notes ADD COLUMN more int GENERATED ALWAYS AS (team * 2) VIRTUAL")
            try stage.run("UPDATE notes SET team = 12 WHERE id = 2")
            let virtual = try heard(caller, stage)
            #expect(virtual.map { $0.record["more"] as? Int } == [24] && virtual[0].record["half"] as? Int == 6)
        }

        @Test func `without a login to compute them they are said to be missing, and no filter waits for them`() throws
        {
            let stage = try stage(
                "DO $$ BEGIN EXECUTE 'ALTER ROLE policies_' || current_database() || ' CREATEROLE'; END $$;")
            let first = try follow(stage)
            _ = try heard(first, stage)
            #expect(eventually { stage.hub.policyLoginIsRefused })
            let caller = try follow(stage)
            let refused = try stage.caller()
            try refused.join("realtime:b", [binding("notes", filter: "half=eq.2")], token: stage.token(of: 1))
            let answer = try refused.first { $0.isTrouble }
            #expect(answer.said?.contains("half") == true && answer.said?.contains("policy_database_url") == true)
            try stage.run("INSERT INTO notes (id, team) VALUES (1, 4)")
            let heard = try heard(caller, stage)
            #expect(heard.map(\.id) == [1] && heard[0].record.keys.sorted() == ["body", "id", "owner", "team"])
            let said = caller.takeUnheard().compactMap(\.said).filter { $0.contains("half") }
            #expect(said.count == 1 && said[0].contains("policy_database_url"), "\(said)")
        }
    }
}
