import Change
import Embedded
import EventLog
import Postgres
import Replication
import System
import TestSupport
import Testing

@testable import Ingest
@testable import Messages

/// Tests of the past messages that joining clients receive.
@Suite(.within(minutes: 10)) struct MessageArchiveTests {
    @Test func `the newest are told, oldest first, of the topic and namespace that was asked for`() throws {
        let stage = try MessageStage()
        try stage.start()
        for number in 1...30 { try stage.send("m\(number)") }
        try stage.send("public", isPrivate: false)
        try stage.send("elsewhere", topic: "room:2")
        try stage.catchUp()
        #expect(try stage.replay() == (6...30).map { "m\($0)" })
        #expect(try stage.replay(limit: 2) == ["m29", "m30"])
        #expect(try stage.replay(isPrivate: false) == ["public"])
        #expect(try stage.replay("room:2") == ["elsewhere"])
        #expect(try stage.replay("room:3") == [])
        #expect(try stage.replay(since: stage.now + 3000) == [])
    }

    @Test func `since is a moment in the table's own time`() throws {
        let stage = try MessageStage()
        try stage.start()
        func insert(_ text: String, _ at: String) throws {
            try stage.database.run(
                """
                INSERT INTO realtime.messages (topic, extension, payload, event, private, inserted_at)
                VALUES ('room:1', 'broadcast', jsonb_build_object('t', '\(text)'), 'note', true, \(at))
                """)
        }
        try insert("old", "now() - interval '2 hours'")
        try insert("new", "now() - interval '1 minute'")
        try insert("older, but committed later", "now() - interval '1 hour'")
        try insert("not yet", "now() + interval '2 hours'")
        try stage.database.run(
            """
            INSERT INTO realtime.messages (topic, extension, payload, event, private)
            VALUES ('room:1', 'presence', '{}', 'x', true)
            """)
        try stage.catchUp()
        // Messages are in the order of their commits. If there are too many, those with the newest times are kept.
        #expect(try stage.replay() == ["old", "new", "older, but committed later"])
        #expect(try stage.replay(limit: 2) == ["new", "older, but committed later"])
        #expect(try stage.replay(since: stage.now - 3_700_000) == ["new", "older, but committed later"])
        #expect(try stage.replay(since: stage.now - 120_000) == ["new"])
        #expect(try stage.replay(limit: 1) == ["new"])
    }

    @Test func `what came before the hub is in the table, and told once`() throws {
        let stage = try MessageStage()
        for number in 1...3 { try stage.send("before\(number)") }
        try stage.start()
        try stage.send("after")
        try stage.catchUp()
        #expect(try stage.replay() == ["before1", "before2", "before3", "after"])
        #expect(try stage.replay(limit: 2) == ["before3", "after"])
        #expect(try stage.replay(since: stage.now - 60_000) == ["before1", "before2", "before3", "after"])
    }

    @Test func `where the table may not be read, what the log has is told, and that it is not all`() throws {
        let stage = try MessageStage()
        try stage.send("before")
        let role = "blind_\(stage.database.name)"
        try stage.database.run(
            "CREATE ROLE \(role) LOGIN PASSWORD 'p'; GRANT USAGE ON SCHEMA realtime TO \(role)")
        stage.archiveTarget = .init(
            stage.database.cluster.url(user: role, password: "p", database: stage.database.name))
        try stage.start()
        try stage.send("after")
        try stage.catchUp()
        let query = ReplayQuery(topic: Array("room:1".utf8), isPrivate: true, since: 0, limit: 25)
        let blind = try stage.ask(query)
        #expect(blind.texts == ["after"] && !blind.isWhole)
        // The log has every message since the hub's start.
        let since = try #require(stage.service?.messagesFollowed).time / 1000 + 1
        var recent = query
        recent.since = since
        #expect(try stage.ask(recent).isWhole)
    }

    @Test func `rows that a policy would hide are not taken to be missing`() throws {
        let stage = try MessageStage()
        try stage.send("before")
        let role = "policed_\(stage.database.name)"
        try stage.database.run(
            """
            CREATE ROLE \(role) LOGIN PASSWORD 'p'; GRANT USAGE ON SCHEMA realtime TO \(role);
            GRANT SELECT ON realtime.messages TO \(role)
            """)
        stage.archiveTarget = .init(
            stage.database.cluster.url(user: role, password: "p", database: stage.database.name))
        try stage.start()
        let answer = try stage.ask(
            ReplayQuery(topic: Array("room:1".utf8), isPrivate: true, since: 0, limit: 25))
        #expect(answer.texts == [] && !answer.isWhole)
    }

    @Test func `messages are found across segments and restarts`() throws {
        let stage = try MessageStage()
        try stage.start()
        // Each message has one megabyte and needs a segment of its own.
        for number in 1...6 {
            try stage.send("m\(number)")
            try stage.database.run(
                """
                INSERT INTO realtime.messages (topic, extension, payload, event, private)
                SELECT 'filler', 'broadcast', to_jsonb(string_agg(md5(random()::text), '')), 'note', true
                FROM generate_series(1, 30000)
                """)
        }
        try stage.catchUp()
        #expect(try stage.replay() == (1...6).map { "m\($0)" })
        try stage.restart()
        // The hub does not read the table. The table is empty, but the log does not show that.
        try stage.database.run(
            """
            DO $$
            DECLARE
                today text := to_char(current_date, '"messages_"YYYY_MM_DD');
            BEGIN
                EXECUTE format('ALTER TABLE realtime.messages DETACH PARTITION realtime.%I', today);
                EXECUTE format('CREATE TABLE realtime.messages_1999_01_01 PARTITION OF realtime.messages FOR VALUES FROM (%L) TO (%L)',
                    current_date, current_date + 1);
            END $$
            """)
        try stage.send("m7")
        try stage.catchUp()
        let segments = try EventLogReader.segments(in: DiskDirectory(stage.logDirectory))
        #expect(segments.count > 4)
        #expect(try stage.replay() == (1...7).map { "m\($0)" })
        // Large messages are returned until the answer has no more room.
        #expect(try stage.replay("filler")?.count == 6)
    }

    @Test func `what retention took is in the table`() throws {
        let stage = try MessageStage()
        stage.settings.retentionBytes = 3 << 20
        try stage.start()
        try stage.send("first")
        for _ in 1...8 {
            try stage.database.run(
                """
                INSERT INTO realtime.messages (topic, extension, payload, event, private)
                SELECT 'filler', 'broadcast', to_jsonb(string_agg(md5(random()::text), '')), 'note', true
                FROM generate_series(1, 30000)
                """)
        }
        try stage.catchUp()
        // The log removes segments at intervals, and at each start.
        #expect(
            try eventually {
                try stage.touch()
                return try EventLogReader.segments(in: DiskDirectory(stage.logDirectory)).first?.sequence ?? 1 > 1
            })
        try stage.send("last")
        try stage.catchUp()
        #expect(try stage.replay() == ["first", "last"])
    }

    @Test func `few places are remembered, and the rest is asked for`() throws {
        let stage = try MessageStage()
        stage.maximumPlaces = 20
        try stage.start()
        for number in 1...10 { try stage.send("m\(number)") }
        for _ in 1...4 {
            try stage.database.run(
                """
                INSERT INTO realtime.messages (topic, extension, payload, event, private)
                SELECT 'crowd', 'broadcast', '{}', 'note', true FROM generate_series(1, 20)
                """)
            try stage.catchUp()
            #expect(try stage.replay("crowd", limit: 3)?.count == 3)
        }
        #expect(try stage.replay() == (1...10).map { "m\($0)" })
        try stage.send("m11")
        try stage.catchUp()
        #expect(try stage.replay(limit: 2) == ["m10", "m11"])
    }

    @Test(arguments: ["DEFAULT", "FULL"])
    func `what was deleted stays deleted, and what was rewritten is told as it is now`(identity: String) throws {
        let stage = try MessageStage()
        let partitions =
            "SELECT inhrelid::regclass AS t FROM pg_inherits WHERE inhparent = 'realtime.messages'::regclass"
        try stage.database.run(
            "DO $$ DECLARE t regclass; BEGIN FOR t IN \(partitions) LOOP "
                + "EXECUTE format('ALTER TABLE %s REPLICA IDENTITY \(identity)', t); END LOOP; END $$")
        try stage.start()
        let large = String(repeating: "x", count: 10)
        for number in 1...6 { try stage.send("m\(number)") }
        // If an update does not change a separately stored payload, PostgreSQL does not send it again.
        try stage.database.run(
            """
            ALTER TABLE realtime.messages ALTER payload SET STORAGE EXTERNAL;
            INSERT INTO realtime.messages (topic, extension, payload, event, private)
            VALUES ('room:1', 'broadcast', jsonb_build_object('t', repeat('\(large)', 1000)), 'note', true)
            """)
        try stage.catchUp()
        let long = String(repeating: large, count: 1000)
        #expect(try stage.replay() == (1...6).map { "m\($0)" } + [long])
        let table = "realtime.messages"
        try stage.database.run(
            """
            UPDATE \(table) SET payload = '{"t": "edited"}' WHERE payload->>'t' = 'm2';
            UPDATE \(table) SET payload = '{"t": "edited twice"}' WHERE payload->>'t' IN ('m3', 'm4');
            UPDATE \(table) SET payload = '{"t": "moved"}', topic = 'room:2' WHERE payload->>'t' = 'm5';
            UPDATE \(table) SET updated_at = now() WHERE length(payload->>'t') > 9999;
            DELETE FROM \(table) WHERE payload->>'t' = 'm1'
            """)
        try stage.send("after")
        try stage.database.run(
            "DELETE FROM \(table) WHERE payload->>'t' = 'edited twice' AND ctid IN (SELECT ctid FROM \(table) WHERE payload->>'t' = 'edited twice' LIMIT 1)"
        )
        try stage.catchUp()
        #expect(try stage.replay() == ["edited", "edited twice", "m6", long, "after"])
        // The newest messages that remain are returned.
        #expect(try stage.replay(limit: 4) == ["edited twice", "m6", long, "after"])
        // A second archive, which reads the log from its end, must find them, too.
        try stage.restart()
        #expect(try stage.replay() == ["edited", "edited twice", "m6", long, "after"])
        // A payload that was written twice keeps its last version when another column is written.
        try stage.database.run(
            """
            UPDATE \(table) SET payload = jsonb_build_object('t', repeat('y', 12000)) WHERE length(payload->>'t') > 9999;
            UPDATE \(table) SET updated_at = now() WHERE length(payload->>'t') > 9999
            """)
        try stage.catchUp()
        #expect(try stage.replay()?[3] == String(repeating: "y", count: 12000))
        try stage.database.run("UPDATE \(table) SET topic = 'room:2' WHERE length(payload->>'t') > 9999")
        try stage.catchUp()
        #expect(try stage.replay() == ["edited", "edited twice", "m6", "after"])
        try stage.database.run("TRUNCATE \(table)")
        try stage.send("first")
        try stage.catchUp()
        #expect(try stage.replay() == ["first"])
    }

    @Test func `what has become of each message is known by its offset`() throws {
        let stage = try MessageStage()
        stage.maximumPlaces = 40
        try stage.start()
        for number in 1...5 { try stage.send("m\(number)", topic: "room:\(number)") }
        let table = "realtime.messages"
        try stage.database.run(
            """
            DELETE FROM \(table) WHERE payload->>'t' = 'm2';
            UPDATE \(table) SET payload = '{"t": "edited"}' WHERE payload->>'t' = 'm3';
            UPDATE \(table) SET topic = 'room:9' WHERE payload->>'t' = 'm4';
            UPDATE \(table) SET updated_at = now() WHERE payload->>'t' = 'm5'
            """)
        let offsets = try stage.logged().map { $0.message.offset ?? 0 }
        func fates(since offset: UInt64) throws -> [String]? {
            try stage.revisions(since: offset).map { revisions in
                offsets.filter { $0 >= offset }.map { revisions.fate(of: $0).text }
            }
        }
        #expect(try fates(since: offsets[0]) == ["unchanged", "deleted", "edited", "deleted", "m5"])
        #expect(try fates(since: offsets[2]) == ["edited", "deleted", "m5"])
        #expect(try stage.revisions(since: offsets[0])?.offsets == offsets[0]..<stage.end.offset)
        let beyond = try #require(try stage.revisions(since: stage.end.offset + 7))
        #expect(beyond.offsets.isEmpty)
        // A message that the archive has forgotten does not count as unchanged.
        try stage.database.run(
            """
            INSERT INTO \(table) (topic, extension, payload, event, private)
            SELECT 'crowd', 'broadcast', '{}', 'note', true FROM generate_series(1, 60)
            """)
        try stage.catchUp()
        #expect(try fates(since: offsets[0]) == Array(repeating: "unknown", count: 5))
        try stage.database.run("TRUNCATE \(table)")
        try stage.catchUp()
        #expect(try fates(since: offsets[0]) == Array(repeating: "unknown", count: 5))
    }

    @Test func `messages of days that are not kept are not told`() throws {
        let stage = try MessageStage()
        stage.hours = 1
        try stage.start()
        try stage.database.run(
            """
            INSERT INTO realtime.messages (topic, extension, payload, event, private, inserted_at)
            VALUES ('room:1', 'broadcast', '{"t": "old"}', 'note', true, timezone('utc', now()) - interval '2 days')
            """)
        try stage.send("new")
        try stage.catchUp()
        #expect(try stage.replay() == ["new"])
    }

    @Test func `what became of many messages is remembered within the same room`() throws {
        let stage = try MessageStage()
        stage.maximumPlaces = 64
        try stage.start()
        try stage.database.run(
            """
            INSERT INTO realtime.messages (topic, extension, payload, event, private)
            SELECT 'room:1', 'broadcast', jsonb_build_object('t', 'm' || g), 'note', true FROM generate_series(1, 300) g
            """)
        try stage.database.run("DELETE FROM realtime.messages WHERE payload->>'t' <> 'm7'")
        try stage.send("last")
        try stage.catchUp()
        #expect(try stage.replay() == ["m7", "last"])
    }

    @Test func `an archive without a log fails, and one that is stopped answers`() throws {
        let stage = try MessageStage()
        try stage.start()
        let archive = try MessageArchive(
            .init(logDirectory: "/nowhere", target: stage.database.target), logEnd: { nil }, followed: { nil })
        let answer = Awaited<ReplayAnswer>()
        let query = ReplayQuery(topic: [], isPrivate: true, since: 0, limit: 1)
        archive.replay(query) { answer.set($0) }
        #expect(answer.wait() == .failed)
        let fate = Awaited<Bool>()
        archive.revisions(since: 1) { fate.set($0 == nil) }
        #expect(fate.wait() == true)
        archive.stop()
        let late = Awaited<ReplayAnswer>()
        archive.replay(query) { late.set($0) }
        #expect(late.wait() == .failed)
    }

    @Test(arguments: [Int64.min, -1, Int64.max])
    func `any moment may be asked for`(since: Int64) throws {
        let stage = try MessageStage()
        try stage.send("before")
        try stage.start()
        #expect(try stage.replay(since: since) == (since == .max ? [] : ["before"]))
    }
}
