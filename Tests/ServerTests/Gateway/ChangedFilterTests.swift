import Diagnostics
import System
import TestSupport
import Testing

@testable import Server
@testable import Settings

extension GatewayPolicies {
    /// Tests of filters on what a change has changed, under policies, privileges and replica identities.
    @Suite(.serialized) struct ChangedFilterTests {
        private static let tables = """
            CREATE TABLE orders (id int PRIMARY KEY, owner uuid, status text, note text, secret text);
            CREATE TABLE fences (id int PRIMARY KEY);
            GRANT SELECT ON fences TO READER; GRANT SELECT (id, owner, status, note) ON orders TO READER;
            """
        private static let full = "ALTER TABLE orders REPLICA IDENTITY FULL;"
        private static let owners = """
            ALTER TABLE orders ENABLE ROW LEVEL SECURITY;
            CREATE POLICY own ON orders FOR SELECT USING (owner = auth.uid());
            """

        private func stage(_ sql: String, _ settings: [(Setting, String)] = []) throws -> GatewayStage {
            try GatewayStage(Self.tables + sql, publication: "FOR TABLE orders, fences", settings)
        }

        private func user(
            _ number: Int, _ stage: GatewayStage, _ filters: [String], more: String = ""
        ) throws -> Caller {
            let caller = try stage.caller()
            try caller.subscribe(
                "realtime:a", filters.map { binding("orders", filter: $0) } + [binding("fences")],
                token: stage.token(of: number), more: more)
            return caller
        }

        /// Returns, for each change of `orders` that the client has received so far, its type, its row's id and how many
        /// bindings matched.
        private func heard(_ caller: Caller, _ stage: GatewayStage, _ fence: Int) throws -> [String] {
            try stage.run("INSERT INTO fences VALUES (\(fence))")
            var heard: [String] = []
            while true {
                let change = try caller.change()
                if change.data["table"] as? String == "fences" {
                    if change.id == fence { return heard }
                } else {
                    let id = change.id ?? change.old["id"] as? Int ?? -1
                    heard.append("\(change.type ?? "?") \(id) \(change.bindings.count)")
                }
            }
        }

        private static func insert(_ id: Int, _ owner: Int, _ status: String, _ note: String = "n") -> String {
            "INSERT INTO orders VALUES (\(id), '\(GatewayStage.user(owner))', '\(status)', '\(note)', 's');"
        }

        // MARK: What matches

        @Test(arguments: ["FULL", "DEFAULT"])
        func `changes are selected by what they change`(identity: String) throws {
            let stage = try stage("ALTER TABLE orders REPLICA IDENTITY \(identity);")
            let closing = try user(1, stage, ["old.status=eq.open,status=eq.done"])
            let status = try user(1, stage, ["changed=status"])
            let either = try user(1, stage, ["or=(changed.note,and(old.status.eq.open,changed.status))"])
            try stage.run(Self.insert(1, 1, "open") + Self.insert(2, 1, "done"))
            try stage.run("UPDATE orders SET note = 'm'")
            try stage.run("UPDATE orders SET status = 'done'")
            try stage.run("UPDATE orders SET status = NULL WHERE id = 2")
            try stage.run("DELETE FROM orders WHERE id = 1")
            #expect(try heard(closing, stage, 1) == ["UPDATE 1 1"])
            #expect(
                try heard(status, stage, 2) == [
                    "INSERT 1 1", "INSERT 2 1", "UPDATE 1 1", "UPDATE 2 1", "DELETE 1 1",
                ])
            #expect(
                try heard(either, stage, 3) == [
                    "INSERT 1 1", "INSERT 2 1", "UPDATE 1 1", "UPDATE 2 1", "UPDATE 1 1", "DELETE 1 1",
                ])
        }

        @Test func `large values that did not change have not changed`() throws {
            for identity in ["FULL", "DEFAULT"] {
                let stage = try stage(
                    "ALTER TABLE orders ALTER note SET STORAGE EXTERNAL;"
                        + "ALTER TABLE orders REPLICA IDENTITY \(identity);")
                let note = try user(1, stage, ["changed=note"])
                try stage.run(Self.insert(1, 1, "open", String(repeating: "x", count: 9_000)))
                try stage.run("UPDATE orders SET status = 'done'")
                try stage.run("UPDATE orders SET note = note || 'y'")
                #expect(try heard(note, stage, 1) == ["INSERT 1 1", "UPDATE 1 1"])
            }
        }

        @Test func `where nothing has the old row, the client is told that changes may be missing`() throws {
            let stage = try stage(Self.insert(1, 1, "open") + Self.insert(2, 1, "open"))
            let caller = try stage.caller()
            try caller.subscribe(
                "realtime:a", [binding("orders", filter: "changed=status")], token: stage.token(of: 1))
            let warning = try caller.first { $0.event == "system" && $0.payload["code"] as? String == "OldRowsFromLog" }
            #expect(warning.status == "ok" && warning.said?.contains("REPLICA IDENTITY FULL") == true)
            try stage.run("UPDATE orders SET note = 'm' WHERE id = 1")
            let told = try caller.first { $0.event == "system" && $0.payload["code"] as? String == "ChangesMissing" }
            #expect(told.topic == "realtime:a")
            // The log has the row now.
            try stage.run("UPDATE orders SET note = 'o' WHERE id = 1")
            try stage.run("UPDATE orders SET status = 'done' WHERE id = 1")
            let change = try caller.change()
            #expect(change.record["status"] as? String == "done" && change.record["note"] as? String == "o")
            #expect(change.old.isEmpty || change.old.count == 1)
        }

        @Test func `a filter by age is held against the time of the commit`() throws {
            let stage = try stage(
                Self.full + "ALTER TABLE orders ADD made timestamptz; GRANT SELECT ON orders TO READER;")
            let young = try user(1, stage, ["made=gt.now-10min"], more: #","tidewire":{"moves":true}"#)
            let warning = try young.first { $0.event == "system" && $0.payload["code"] as? String == "RowsAge" }
            #expect(warning.status == "ok" && warning.said?.contains("as time passes") == true)
            try stage.run(
                """
                INSERT INTO orders (id, made) VALUES (1, now()), (2, now() - interval '9 min'),
                  (3, now() - interval '11 min'), (4, NULL);
                UPDATE orders SET made = now() - interval '1 hour' WHERE id = 1;
                """)
            #expect(try heard(young, stage, 1) == ["INSERT 1 1", "INSERT 2 1", "DELETE 1 1"])
            // The existing rows are read by the same rule.
            let other = try stage.caller()
            try other.subscribe(
                "realtime:b", [binding("orders", filter: "made=gt.now-10min")], token: stage.token(of: 1),
                more: #","tidewire":{"snapshot":true}"#)
            #expect(try other.change().id == 2)
            _ = try other.first { $0.event == "system" && $0.payload["code"] as? String == "SnapshotComplete" }
            #expect(try refusal(stage, "made=gt.now-10m").hasSuffix("with the unit s, min, h or d"))
        }

        // MARK: What is not told

        /// Checks that a subscriber who sees a row from now on cannot find out what the row was: two histories that
        /// differ only in a hidden row give the same events under every filter.
        @Test(arguments: ["FULL", "DEFAULT"])
        func `filters tell nothing of an old row that was another's`(identity: String) throws {
            let stage = try stage("ALTER TABLE orders REPLICA IDENTITY \(identity);" + Self.owners)
            let filters = [
                "old.note=eq.guess", "old.note=neq.guess", "old.note=not.eq.guess", "old.note=is.null",
                "old.note=not.is.null", "changed=note", "changed=not.note", "old.owner=not.eq.\(GatewayStage.user(2))",
                "or=(old.note.eq.guess,changed.note)", "not.or=(old.note.eq.guess,id.eq.9)", "changed=not.in.(note,id)",
                "old.note=like.g%", "old.id=gt.0",
            ]
            // Each filter has a channel of its own, so that bindings do not share a message.
            let callers = try filters.map { try user(1, stage, [$0]) }
            let mine = "owner = '\(GatewayStage.user(1))'"
            try stage.run(Self.insert(1, 2, "x", "guess") + Self.insert(2, 2, "x", "other"))
            try stage.run("INSERT INTO orders VALUES (3, '\(GatewayStage.user(2))', 'x', NULL)")
            try stage.run("UPDATE orders SET note = 'guess', \(mine)")
            for (place, caller) in callers.enumerated() {
                let heard = try heard(caller, stage, place)
                let perRow = (1...3).map { id in heard.filter { $0.contains(" \(id) ") } }
                let counts = Set(perRow.map(\.count))
                #expect(counts.count == 1, "\(filters[place]): \(heard)")
                #expect(
                    heard.allSatisfy { $0.hasPrefix("UPDATE ") },
                    "only the new row is told: \(filters[place]): \(heard)")
            }
            // The same filters see what changes in rows that were the subscriber's own.
            try stage.run("UPDATE orders SET note = 'changed'")
            let own = try heard(callers[0], stage, 100)
            #expect(own.map { $0.prefix(8) } == ["UPDATE 1", "UPDATE 2", "UPDATE 3"])
            #expect(try heard(callers[6], stage, 101).isEmpty)
        }

        @Test func `a row that arrives is told to a filter on changes, whatever it was`() throws {
            let stage = try stage(Self.full + Self.owners)
            let (changed, old) = (try user(1, stage, ["changed=status"]), try user(1, stage, ["old.status=eq.open"]))
            try stage.run(Self.insert(1, 2, "open"))
            try stage.run("UPDATE orders SET owner = '\(GatewayStage.user(1))'")
            #expect(try heard(changed, stage, 1) == ["UPDATE 1 1"])
            try stage.run("UPDATE orders SET note = 'm'")
            #expect(try heard(changed, stage, 2).isEmpty)
            // Only the second update has an old row that the subscriber could see.
            #expect(try heard(old, stage, 3) == ["UPDATE 1 1"])
            // A row that leaves is not told: its new row is another's.
            try stage.run("UPDATE orders SET status = 'left', owner = '\(GatewayStage.user(2))'")
            #expect(try heard(changed, stage, 4).isEmpty)
            #expect(try heard(old, stage, 5).isEmpty)
        }

        @Test func `deletes are told to who could see the row`() throws {
            let stage = try stage(Self.full + Self.owners)
            let (one, two) = (try user(1, stage, ["old.note=eq.a"]), try user(2, stage, ["changed=note"]))
            try stage.run(Self.insert(1, 1, "x", "a") + Self.insert(2, 1, "x", "b") + Self.insert(3, 2, "x", "a"))
            try stage.run("DELETE FROM orders")
            #expect(try heard(one, stage, 1) == ["DELETE 1 1"])
            #expect(try heard(two, stage, 2) == ["INSERT 3 1", "DELETE 3 1"])
        }

        // MARK: What is refused

        private func refusal(_ stage: GatewayStage, _ filter: String, _ event: String = "*") throws -> String {
            let caller = try stage.caller()
            try caller.join(
                "realtime:a", [binding("orders", event, filter: filter)], token: stage.token(of: 1))
            let told = try caller.first { $0.event == "system" && $0.status == "error" }
            #expect(told.payload["code"] as? String == "InvalidFilter")
            return told.said ?? ""
        }

        @Test func `columns that the role may not read are none`() throws {
            let stage = try stage(Self.full)
            for (filter, name) in [
                ("old.secret=eq.s", "old.secret"), ("changed=secret", "secret"), ("changed=in.(id,secret)", "secret"),
                ("or=(changed.secret)", "secret"), ("changed=nothing", "nothing"),
            ] {
                #expect(try refusal(stage, filter).hasSuffix("invalid column for filter \(name)"), "\(filter)")
            }
        }

        @Test func `what only PostgreSQL decides is refused in words`() throws {
            let stage = try stage(
                Self.full + """
                    ALTER TABLE orders ENABLE ROW LEVEL SECURITY;
                    CREATE FUNCTION sees(note text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
                    BEGIN RETURN note <> 'hidden'; END $$;
                    CREATE POLICY asked ON orders FOR SELECT USING (sees(note));
                    """)
            #expect(try refusal(stage, "old.note=match.^a").contains("no conditions that only PostgreSQL can decide"))
            #expect(try refusal(stage, "changed=note").contains("need row level security that the server can decide"))
            // An ordinary filter is served as before.
            let caller = try user(1, stage, ["note=match.^a"])
            try stage.run(Self.insert(1, 2, "x", "ab"))
            #expect(try heard(caller, stage, 1) == ["INSERT 1 1"])
        }

        @Test func `a table whose changes never say what a row was is refused`() throws {
            let stage = try stage("ALTER TABLE orders REPLICA IDENTITY NOTHING;")
            try stage.run("ALTER PUBLICATION supabase_realtime SET (publish = 'insert, update')")
            try stage.awaitCatalog()
            let said = try refusal(stage, "changed=status")
            #expect(said.contains("its changes do not say it") && said.contains("REPLICA IDENTITY FULL"), "\(said)")
            let caller = try stage.caller()
            try caller.subscribe(
                "realtime:a", [binding("orders", "INSERT", filter: "changed=status")], token: stage.token(of: 1))
        }

        @Test func `moves and snapshots of events are answered in words`() throws {
            let stage = try stage(Self.full)
            let caller = try user(1, stage, ["changed=status"], more: #","tidewire":{"moves":true}"#)
            let moves = try caller.first { $0.event == "system" && $0.payload["code"] as? String == "MovesHidden" }
            #expect(moves.status == "ok" && moves.said?.contains("selects events") == true)
            try stage.run(Self.insert(1, 1, "open") + "UPDATE orders SET status = 'done'; UPDATE orders SET note = 'm'")
            #expect(try heard(caller, stage, 1) == ["INSERT 1 1", "UPDATE 1 1"])
            let other = try stage.caller()
            try other.subscribe(
                "realtime:b", [binding("orders", filter: "old.status=eq.open")], token: stage.token(of: 1),
                more: #","tidewire":{"snapshot":true}"#)
            let failed = try other.first { $0.event == "system" && $0.payload["code"] as? String == "SnapshotFailed" }
            #expect(failed.said?.contains("selects changes and not rows") == true)
        }

        @Test func `a column that is called like the words keeps its filters`() throws {
            let stage = try stage(
                Self.full + "ALTER TABLE orders ADD changed text, ADD \"old.status\" text;"
                    + "GRANT SELECT ON orders TO READER;")
            let caller = try user(1, stage, ["changed=in.(a,b),old.status=eq.c"])
            try stage.run("INSERT INTO orders (id, changed, \"old.status\") VALUES (1, 'a', 'c'), (2, 'a', 'd')")
            #expect(try heard(caller, stage, 1) == ["INSERT 1 1"])
            let words = try user(1, stage, ["changed=status"])
            try stage.run("UPDATE orders SET status = 'x' WHERE id = 2; UPDATE orders SET note = 'x' WHERE id = 1")
            #expect(try heard(words, stage, 2) == ["UPDATE 2 1"])
        }
    }
}
