import Change
import Embedded
import Postgres
import Replication
import Server
import TestSupport
import Testing

@testable import Ingest

extension EndToEnd {
    @Suite(.serialized) struct ShapesTests {
        @Test func `names that must be quoted and tables without a primary key`() throws {
            let database = try TestDatabase()
            try database.run(
                #"""
                CREATE SCHEMA "Ünï code"; CREATE TABLE "Ünï code"."select ""all""" ("user" text, "naïve col" int);
                ALTER TABLE "Ünï code"."select ""all""" REPLICA IDENTITY FULL;
                CREATE TABLE keyless (v int); ALTER TABLE keyless REPLICA IDENTITY NOTHING;
                CREATE PUBLICATION supabase_realtime FOR ALL TABLES WITH (publish = 'insert, truncate');
                """#)
            let hub = try HubUnderTest(database)
            try hub.start()
            try database.run("INSERT INTO \"Ünï code\".\"select \"\"all\"\"\" VALUES ('o''hara', 1), (NULL, NULL)")
            try database.run("INSERT INTO keyless VALUES (1), (2)")
            let history = try hub.caughtUp()
            #expect(
                history.changes(of: "Ünï code.select \"all\"").map(\.new) == [
                    ["user": "o'hara", "naïve col": "1"], ["user": nil, "naïve col": nil],
                ])
            #expect(history.changes(of: "public.keyless").map { $0.new["v"] } == ["1", "2"])
        }

        @Test func `old images follow the replica identity`() throws {
            let database = try TestDatabase()
            try database.run(
                """
                CREATE TABLE by_key (id int PRIMARY KEY, v text);
                CREATE TABLE by_index (a int NOT NULL, v text); CREATE UNIQUE INDEX i ON by_index (a);
                ALTER TABLE by_index REPLICA IDENTITY USING INDEX i;
                CREATE TABLE full_image (id int PRIMARY KEY, v text); ALTER TABLE full_image REPLICA IDENTITY FULL;
                CREATE PUBLICATION supabase_realtime FOR ALL TABLES
                """)
            let hub = try HubUnderTest(database)
            try hub.start()
            for table in ["by_key", "full_image"] {
                try database.run(
                    "INSERT INTO \(table) VALUES (1, 'a'); UPDATE \(table) SET v = 'b'; UPDATE \(table) SET id = 2; DELETE FROM \(table)"
                )
            }
            try database.run("INSERT INTO by_index VALUES (1, 'a'); UPDATE by_index SET a = 2; DELETE FROM by_index")
            let history = try hub.caughtUp()
            let byKey = history.changes(of: "public.by_key")
            #expect(byKey.map(\.operation) == ["INSERT", "UPDATE", "UPDATE", "DELETE"])
            #expect(byKey.map(\.oldImage) == [.none, .none, .key, .key])
            #expect(byKey[2].old == ["id": "1", "v": nil] && byKey[3].old == ["id": "2", "v": nil])
            let full = history.changes(of: "public.full_image")
            #expect(full.map(\.oldImage) == [.none, .full, .full, .full])
            #expect(full[2].old == ["id": "1", "v": "b"] && full[3].old == ["id": "2", "v": "b"])
            #expect(history.changes(of: "public.by_index").map(\.oldImage) == [.none, .key, .key])
        }

        @Test(arguments: [false, true])
        func `partitions come as leaf or as root, as the publication says`(viaRoot: Bool) throws {
            let database = try TestDatabase()
            try database.run(
                """
                CREATE TABLE events (id int, day int, v text, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
                CREATE TABLE events_1 PARTITION OF events FOR VALUES FROM (0) TO (10);
                CREATE TABLE events_2 (v text, day int NOT NULL, id int NOT NULL);
                ALTER TABLE events ATTACH PARTITION events_2 FOR VALUES FROM (10) TO (20);
                CREATE PUBLICATION supabase_realtime FOR TABLE events WITH (publish_via_partition_root = \(viaRoot))
                """)
            let hub = try HubUnderTest(database)
            try hub.start()
            try database.run(
                "INSERT INTO events VALUES (1, 5, 'a'), (2, 15, 'b'); UPDATE events SET day = 16 WHERE id = 1")
            let history = try hub.caughtUp()
            if viaRoot {
                // If the root is published, too, a row that moves to another partition is a delete and an insert.
                #expect(history.changes.map(\.table) == Array(repeating: "public.events", count: 4))
                #expect(history.changes[1].new == ["id": "2", "day": "15", "v": "b"])
            } else {
                #expect(
                    history.changes.map(\.table) == [
                        "public.events_1", "public.events_2", "public.events_1", "public.events_2",
                    ])
                #expect(history.changes.map(\.operation) == ["INSERT", "INSERT", "DELETE", "INSERT"])
                #expect(history.changes[3].new == ["id": "1", "day": "16", "v": "a"])
            }
        }

        @Test(.postgres(15)) func `a column list hides columns and generated ones are not in the stream`() throws {
            let database = try TestDatabase()
            try database.run(
                """
                CREATE TABLE secretive (id int PRIMARY KEY, open text, hidden text, doubled int GENERATED ALWAYS AS (id * 2) STORED);
                CREATE PUBLICATION supabase_realtime FOR TABLE secretive (id, open)
                """)
            let hub = try HubUnderTest(database)
            try hub.start()
            try database.run("INSERT INTO secretive VALUES (1, 'seen', 'unseen')")
            let change = try #require(try hub.caughtUp().changes.first)
            #expect(change.new == ["id": "1", "open": "seen"])
        }

        @Test func `the schema may change in the middle of the stream, and of a transaction`() throws {
            let database = try TestDatabase()
            try database.run(
                "CREATE TABLE t (id int PRIMARY KEY, a text); CREATE PUBLICATION supabase_realtime FOR ALL TABLES")
            let hub = try HubUnderTest(database)
            try hub.start()
            try database.run("INSERT INTO t VALUES (1, 'x')")
            try database.run("ALTER TABLE t ADD b int DEFAULT 7; INSERT INTO t VALUES (2, 'y', 8)")
            try database.run(
                "INSERT INTO t VALUES (3, 'z'); ALTER TABLE t RENAME a TO aa; INSERT INTO t VALUES (4, 'q', 9)")
            try database.run(
                "ALTER TABLE t DROP aa; ALTER TABLE t ALTER b TYPE text USING 'n' || b; INSERT INTO t VALUES (5, 'w')")
            try database.run("ALTER TABLE t RENAME TO renamed; INSERT INTO renamed VALUES (6, 'r')")
            try database.run(
                "DROP TABLE renamed; CREATE TABLE t (id int PRIMARY KEY, other bool); INSERT INTO t VALUES (1, true)")
            let changes = try hub.caughtUp().changes.filter { $0.operation == "INSERT" }
            #expect(
                changes.map(\.new) == [
                    ["id": "1", "a": "x"], ["id": "2", "a": "y", "b": "8"], ["id": "3", "a": "z", "b": "7"],
                    ["id": "4", "aa": "q", "b": "9"], ["id": "5", "b": "w"], ["id": "6", "b": "r"],
                    ["id": "1", "other": "t"],
                ])
            #expect(changes.map(\.table).suffix(2) == ["public.renamed", "public.t"])
            #expect(changes[4].types["b"] == "text" && changes[3].types["b"] == "int4")
        }

        @Test func `truncates, messages and savepoints`() throws {
            let database = try TestDatabase()
            try database.run(
                "CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY REFERENCES a); CREATE PUBLICATION supabase_realtime FOR ALL TABLES"
            )
            let hub = try HubUnderTest(database)
            try hub.start()
            try database.run(
                "BEGIN; INSERT INTO a VALUES (1); SAVEPOINT s; INSERT INTO a VALUES (2); ROLLBACK TO s; INSERT INTO a VALUES (3); COMMIT"
            )
            try database.run("BEGIN; INSERT INTO a VALUES (4); ROLLBACK")
            try database.run("TRUNCATE a, b CASCADE")
            try database.run(
                "SELECT pg_logical_emit_message(true, 'note', 'inside'), pg_logical_emit_message(false, 'note', 'alone')"
            )
            let history = try hub.caughtUp()
            #expect(
                history.changes(of: "public.a").filter { $0.operation == "INSERT" }.map { $0.new["id"] } == ["1", "3"])
            #expect(
                Set(history.changes.filter { $0.operation == "TRUNCATE" }.map(\.table)) == ["public.a", "public.b"])
            let messages = history.changes(of: "note")
            #expect(Set(messages.map { $0.new["content"] }) == ["inside", "alone"])
            #expect(history.changes.map(\.offset) == history.changes.map(\.offset).sorted())
        }

        @Test(arguments: [true, false])
        func `transactions larger than the server's memory arrive whole, without what was rolled back`(
            streaming: Bool
        ) throws {
            let database = try TestDatabase()
            try database.run(
                "CREATE TABLE t (id int PRIMARY KEY, v text); ALTER TABLE t REPLICA IDENTITY FULL; CREATE PUBLICATION supabase_realtime FOR ALL TABLES"
            )
            let hub = try HubUnderTest(database) { $0.replication.streaming = streaming }
            try hub.start()
            let other = try database.cluster.connect(database: database.name)
            // Two large transactions interleave, a third is rolled back, and small ones commit in between.
            try database.run("BEGIN; INSERT INTO t SELECT g, repeat('a', 50) FROM generate_series(1, 20000) g")
            try other.execute("BEGIN; INSERT INTO t SELECT g, repeat('b', 50) FROM generate_series(100001, 115000) g")
            try database.run(
                "SAVEPOINT s; INSERT INTO t SELECT g, 'gone' FROM generate_series(30001, 40000) g; ROLLBACK TO s")
            try other.execute(
                "CREATE TABLE made_inside (id int PRIMARY KEY); INSERT INTO made_inside SELECT generate_series(1, 5000)"
            )
            let third = try database.cluster.connect(database: database.name)
            try third.execute("BEGIN; INSERT INTO t SELECT g, 'never' FROM generate_series(200001, 215000) g; ROLLBACK")
            try third.execute("INSERT INTO t VALUES (-1, 'small')")
            try database.run("UPDATE t SET v = 'z' WHERE id BETWEEN 1 AND 10; COMMIT")
            try other.execute("COMMIT")
            let history = try hub.caughtUp()
            let ids = history.changes(of: "public.t").filter { $0.operation == "INSERT" }.compactMap {
                Int(($0.new["id"] ?? nil) ?? "")
            }
            #expect(ids == [-1] + Array(1...20_000) + Array(100_001...115_000))
            #expect(history.changes.filter { $0.operation == "UPDATE" }.count == 10)
            #expect(history.changes(of: "public.made_inside").count == 5000)
            #expect(
                history.changes.map(\.offset)
                    == Array(history.changes[0].offset..<history.changes[0].offset + UInt64(history.changes.count)))
            let xids = history.changes.map(\.xid)
            #expect(
                Set(xids).count == 3 && zip(xids, xids.dropFirst()).filter { $0 != $1 }.count == 2,
                "transactions stand whole, one after another")
            #expect(try database.value("SELECT count(*) FROM t") == "35001")
        }
    }
}
