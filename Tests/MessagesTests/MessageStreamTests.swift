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

/// Tests of how messages enter the log.
@Suite(.within(minutes: 10)) struct MessageStreamTests {
    @Test func `what is inserted is in the log in the order of commits, and what is rolled back is not`() throws {
        let stage = try MessageStage()
        try stage.start()
        try stage.send("one")
        try stage.database.run("BEGIN; \(MessageStage.sending("never")) ROLLBACK")
        let other = try stage.database.cluster.connect(database: stage.database.name)
        try other.execute("BEGIN; \(MessageStage.sending("late"))")
        try stage.send("two")
        try other.execute("COMMIT")
        try stage.database.run("BEGIN; \(MessageStage.sending("three")) \(MessageStage.sending("four")) COMMIT")
        let logged = try stage.logged()
        #expect(logged.map(\.message).texts == ["one", "two", "late", "three", "four"])
        #expect(logged.allSatisfy { MessageTable.holds(named($0.table)) && $0.table != "messages" })
        #expect(try stage.replay() == ["one", "two", "late", "three", "four"])
    }

    private func named(_ name: String) -> Relation {
        Relation(oid: 0, schema: "realtime", name: name, identity: .primaryKey, columns: [])
    }

    @Test func `a publication by way of the root gives the root's name`() throws {
        let stage = try MessageStage(
            MessageStage.table + """
                CREATE PUBLICATION supabase_realtime_messages_publication FOR TABLE realtime.messages
                    WITH (publish_via_partition_root = true)
                """)
        try stage.start()
        try stage.send("one")
        let logged = try stage.logged()
        #expect(logged.map(\.table) == ["messages"] && logged.map(\.message).texts == ["one"])
        #expect(try stage.replay() == ["one"])
    }

    @Test func `an older table without partitions and bytes is read`() throws {
        let stage = try MessageStage(MessageStage.olderTable)
        try stage.start()
        try stage.send("one")
        #expect(try stage.logged().map(\.message).texts == ["one"])
        #expect(try stage.replay() == ["one"])
    }

    @Test func `what is committed while the hub is down is in the log after its start`() throws {
        let stage = try MessageStage()
        try stage.start()
        try stage.send("one")
        try stage.catchUp()
        stage.stop()
        try stage.send("two")
        try stage.start()
        #expect(try stage.logged().map(\.message).texts == ["one", "two"])
        // The answer is from the log, because the table no longer exists. A delete of its rows would be in the log.
        try stage.database.run("DROP TABLE realtime.messages")
        #expect(try stage.replay() == ["one", "two"])
    }

    @Test func `the publication is made where there is a table, and found when the table comes later`() throws {
        let stage = try MessageStage("")
        try stage.start(awaitingMessages: false)
        try stage.catchUp()
        #expect(stage.service?.isFollowingMessages == false && stage.service?.messagesFollowed == nil)
        try stage.database.run(MessageStage.table)
        try stage.awaitMessages()
        #expect(
            try stage.database.value(
                "SELECT tablename FROM pg_publication_tables WHERE pubname = '\(StreamCoverage.messages)' LIMIT 1")
                != nil)
        try stage.send("one")
        #expect(try stage.logged().map(\.message).texts == ["one"])
        #expect(stage.service?.messagesFollowed != nil)
    }

    @Test func `a publication that says less than all messages is not followed until it is put right`() throws {
        let stage = try MessageStage(
            MessageStage.table + "CREATE PUBLICATION \(StreamCoverage.messages) FOR TABLE t")
        try stage.start(awaitingMessages: false)
        try stage.catchUp()
        #expect(stage.service?.isFollowingMessages == false)
        try stage.database.run("ALTER PUBLICATION \(StreamCoverage.messages) SET TABLE realtime.messages")
        try stage.awaitMessages()
        try stage.send("one")
        #expect(try stage.logged().map(\.message).texts == ["one"])
    }

    @Test func `another publication of the same name is followed from its own beginning`() throws {
        let stage = try MessageStage()
        try stage.start()
        let first = try #require(stage.service?.messagesFollowed)
        try stage.send("one")
        try stage.catchUp()
        try stage.database.run("DROP PUBLICATION \(StreamCoverage.messages)")
        try stage.send("lost to the log")
        try stage.touch()
        // The hub creates the publication again, or the test does.
        _ = try? stage.database.run("CREATE PUBLICATION \(StreamCoverage.messages) FOR TABLE realtime.messages")
        #expect(
            try eventually {
                try stage.touch()
                return stage.service?.isFollowingMessages == true
                    && stage.service?.messagesFollowed?.number != first.number
            })
        let second = try #require(stage.service?.messagesFollowed)
        #expect(second.since > first.since && second.time > first.time && second.offset > first.offset)
        try stage.send("two")
        #expect(try stage.logged().map(\.message).texts == ["one", "two"])
        // The table has the message that is missing from the log.
        #expect(try stage.replay() == ["one", "lost to the log", "two"])
    }

    @Test func `a login that may make no publication streams all the same`() throws {
        let stage = try MessageStage()
        let role = "poor_\(stage.database.name)"
        try stage.database.run(
            """
            CREATE ROLE \(role) LOGIN REPLICATION PASSWORD 'p';
            GRANT CREATE ON DATABASE \(stage.database.name) TO \(role)
            """)
        stage.settings.replication.target = .init(
            stage.database.cluster.url(user: role, password: "p", database: stage.database.name))
        try stage.start(awaitingMessages: false)
        try stage.catchUp()
        #expect(stage.service?.isFollowingMessages == false && stage.service?.status.isStreaming == true)
        try stage.database.run("CREATE PUBLICATION \(StreamCoverage.messages) FOR TABLE realtime.messages")
        try stage.awaitMessages()
        try stage.send("one")
        #expect(try stage.logged().map(\.message).texts == ["one"])
    }

    @Test func `large messages, in large transactions, come whole`() throws {
        let stage = try MessageStage()
        try stage.start()
        // The payloads are stored outside the row, and are so many that the server streams them before the commit.
        try stage.database.run(
            """
            INSERT INTO realtime.messages (topic, extension, payload, event, private)
            SELECT 'big', 'broadcast', jsonb_build_object('n', n, 't', repeat(md5(n::text), 4000)), 'note', true
            FROM generate_series(1, 40) n;
            INSERT INTO realtime.messages (topic, extension, binary_payload, event, private)
            VALUES ('bytes', 'broadcast', decode(repeat('00ff', 100000), 'hex'), 'blob', false)
            """)
        let logged = try stage.logged().map(\.message)
        #expect(logged.count == 41)
        let whole = logged.prefix(40).allSatisfy { message in
            guard case .json(let json) = message.payload else { return false }
            return json.count > 128_000
        }
        #expect(whole)
        let bytes = [UInt8]((0..<100_000).flatMap { _ in [0, 255] as [UInt8] })
        let isSame = logged.last?.payload == .binary(bytes)
        #expect(isSame)
        let answer = try stage.ask(
            ReplayQuery(topic: Array("big".utf8), isPrivate: true, since: 0, limit: 25))
        #expect(answer.messages?.count == 25)
        let isLast = answer.messages?.last?.offset == logged[39].offset
        #expect(isLast)
        #expect(try stage.replay("bytes", isPrivate: false) == ["bytes"])
    }

    @Test func `rows that lack what a message needs harm nobody`() throws {
        let stage = try MessageStage()
        try stage.start()
        try stage.database.run(
            """
            INSERT INTO realtime.messages (topic, extension, private) VALUES ('room:1', 'broadcast', true);
            INSERT INTO realtime.messages (topic, extension, event, private) VALUES ('room:1', 'presence', 'x', true);
            INSERT INTO realtime.messages (topic, extension, event, payload, private)
                VALUES ('room:1', 'broadcast', 'x', '{}', NULL);
            """)
        try stage.send("one")
        try stage.database.run("UPDATE realtime.messages SET event = 'other' WHERE payload IS NOT NULL")
        try stage.database.run("DELETE FROM realtime.messages")
        #expect(try stage.logged().map(\.message).texts == ["one"])
        // The message is deleted. No other row was a message.
        #expect(try stage.replay() == [])
        try stage.send("two")
        try stage.catchUp()
        #expect(try stage.replay() == ["two"])
    }
}

extension [ArchivedMessage] {
    var texts: [String] { ReplayAnswer.messages(self, upTo: .init(epoch: 0, offset: 0), isWhole: true).texts ?? [] }
}
