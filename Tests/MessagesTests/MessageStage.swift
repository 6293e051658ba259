import Change
import EventLog
import Postgres
import Replication
import System
import TestSupport
import Testing

@testable import Ingest
@testable import Messages

/// Ingest and message archive of a hub, on a database with a table of messages.
final class MessageStage {
    /// Parts that messages need from the result of Supabase Realtime's migrations.
    static let table = """
        CREATE SCHEMA IF NOT EXISTS realtime;
        CREATE TABLE realtime.messages (
            topic text NOT NULL, extension text NOT NULL, payload jsonb, event text, private boolean DEFAULT false,
            updated_at timestamp NOT NULL DEFAULT now(), inserted_at timestamp NOT NULL DEFAULT now(),
            id uuid NOT NULL DEFAULT gen_random_uuid(), binary_payload bytea, PRIMARY KEY (id, inserted_at)
        ) PARTITION BY RANGE (inserted_at);
        ALTER TABLE realtime.messages ENABLE ROW LEVEL SECURITY;
        DO $$ BEGIN
            FOR day IN -3..3 LOOP
                EXECUTE format('CREATE TABLE realtime.%I PARTITION OF realtime.messages FOR VALUES FROM (%L) TO (%L)',
                    to_char(current_date + day, '"messages_"YYYY_MM_DD'), current_date + day, current_date + day + 1);
            END LOOP;
        END $$;
        """
    /// Table of an older version, without partitions by day and without bytes.
    static let olderTable = """
        CREATE SCHEMA IF NOT EXISTS realtime;
        CREATE TABLE realtime.messages (
            id uuid PRIMARY KEY DEFAULT gen_random_uuid(), topic text NOT NULL, extension text NOT NULL,
            inserted_at timestamp NOT NULL DEFAULT now(), updated_at timestamp NOT NULL DEFAULT now(),
            payload jsonb, event text, private boolean DEFAULT false);
        """

    let database: TestDatabase
    private let dataDirectory = TemporaryDirectory.make("messages")
    var settings: IngestService.Settings
    var maximumPlaces = 1 << 20
    var hours = 72
    /// Connection settings of the archive.
    var archiveTarget: ConnectionTarget
    private(set) var service: IngestService?
    private(set) var archive: MessageArchive?

    init(_ sql: String = MessageStage.table) throws {
        database = try TestDatabase()
        try database.run("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION supabase_realtime FOR TABLE t")
        if !sql.isEmpty { try database.run(sql) }
        archiveTarget = database.target
        settings = IngestService.Settings(
            replication: ReplicationSettings(target: database.target, slot: database.slot),
            dataDirectory: dataDirectory, segmentBytes: 1 << 20)
    }

    deinit {
        stop()
        _ = try? database.run("SELECT pg_drop_replication_slot('\(database.slot)')")
    }

    func start(awaitingMessages: Bool = true) throws {
        // The hub uses only publications that it has found in this run.
        settings.replication.messages = StreamCoverage(publication: StreamCoverage.messages)
        let service = try IngestService(settings)
        self.service = service
        #expect(eventually { service.status.isStreaming })
        if awaitingMessages { try awaitMessages() }
        var archived = MessageArchive.Settings(
            logDirectory: IngestService.Settings.logDirectory(dataDirectory), target: archiveTarget)
        archived.maximumPlaces = maximumPlaces
        archived.hours = hours
        archive = try MessageArchive(archived, logEnd: { service.end }, followed: { service.messagesFollowed })
    }

    /// Waits until the stream covers messages. The stream learns its position only from new changes.
    func awaitMessages() throws {
        let service = service
        #expect(
            try eventually {
                if service?.isFollowingMessages == true { return true }
                try touch()
                return false
            })
    }

    func touch() throws { try database.run("INSERT INTO t SELECT coalesce(max(id), 0) + 1 FROM t") }

    func stop() {
        archive?.stop()
        archive = nil
        service?.stop()
        service = nil
    }

    func restart() throws {
        stop()
        try start()
    }

    // MARK: Sending

    func send(_ text: String, topic: String = "room:1", isPrivate: Bool = true, more: String = "") throws {
        try database.run(Self.sending(text, topic: topic, isPrivate: isPrivate) + more)
    }

    static func sending(_ text: String, topic: String = "room:1", isPrivate: Bool = true) -> String {
        """
        INSERT INTO realtime.messages (topic, extension, payload, event, private)
        VALUES ('\(topic)', 'broadcast', jsonb_build_object('t', '\(text)'), 'note', \(isPrivate));
        """
    }

    // MARK: The log

    var logDirectory: String { IngestService.Settings.logDirectory(dataDirectory) }

    /// Waits until the log has everything that the database has done so far.
    func catchUp() throws {
        let service = try #require(service)
        let position = try #require(try database.value("SELECT pg_current_wal_insert_lsn()::text").flatMap { LSN($0) })
        try touch()
        #expect(eventually { service.end.map { $0.state.lsn > position.rawValue } ?? false })
    }

    /// Returns all messages in the log in order, with the names of their relations.
    func logged() throws -> [(table: String, message: ArchivedMessage)] {
        try catchUp()
        var found: [(table: String, message: ArchivedMessage)] = []
        var reader = try EventLogReader(directory: DiskDirectory(logDirectory), end: service?.end, from: .oldest)
        var layouts = MessageLayouts()
        var names: [UInt64: String] = [:]
        while try reader.next() {
            if reader.entry.kind == .relation {
                let relation = try RelationCodec.decode(reader.payload)
                let fingerprint = RelationCodec.fingerprint(of: reader.payload)
                if layouts.learn(fingerprint, relation) { names[fingerprint] = relation.name }
            }
            guard reader.entry.kind == .transaction else { continue }
            var part = try TransactionPart(reader.payload)
            var offset = reader.entry.offset
            while let change = try part.next() {
                if let layout = layouts.layout(of: change.relation),
                    case .message(let message) = try DatabaseMessage.read(change, layout)
                {
                    found.append((names[change.relation] ?? "", ArchivedMessage(message, offset: offset)))
                }
                offset += 1
            }
        }
        return found
    }

    // MARK: Asking

    func ask(_ query: ReplayQuery) throws -> ReplayAnswer {
        let answer = Awaited<ReplayAnswer>()
        try #require(archive).replay(query) { answer.set($0) }
        return try #require(answer.wait())
    }

    /// Returns the current state of the log's messages from the offset on.
    func revisions(since offset: UInt64) throws -> MessageRevisions? {
        let answer = Awaited<MessageRevisions?>()
        try #require(archive).revisions(since: offset) { answer.set($0) }
        return try #require(answer.wait())
    }

    /// Returns the texts sent since that time, oldest first; nil if the question failed.
    func replay(
        _ topic: String = "room:1", isPrivate: Bool = true, since: Int64 = 0, limit: Int = 25
    ) throws -> [String]? {
        let query = ReplayQuery(
            topic: Array(topic.utf8), isPrivate: isPrivate, since: since, limit: limit)
        return try ask(query).texts
    }

    var end: EventLogPosition {
        get throws { try #require(service?.end).state.position }
    }

    /// Server's clock in milliseconds.
    var now: Int64 {
        get throws {
            try #require(
                try database.value("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").flatMap {
                    Int64($0)
                })
        }
    }
}

extension ReplayAnswer {
    var messages: [ArchivedMessage]? {
        guard case .messages(let messages, _, _) = self else { return nil }
        return messages
    }

    var texts: [String]? { messages?.map(\.text) }

    var isWhole: Bool {
        guard case .messages(_, _, let isWhole) = self else { return false }
        return isWhole
    }
}

extension ArchivedMessage {
    /// Text between the quotes of `{"t": "…"}`.
    var text: String {
        guard case .json(let json) = payload else { return "bytes" }
        return String(decoding: json.dropFirst(7).dropLast(2), as: UTF8.self)
    }
}

extension MessageRevisions.Fate {
    var text: String {
        switch self {
        case .unchanged: "unchanged"
        case .deleted: "deleted"
        case .rewritten(let message): message.text
        case .unknown: "unknown"
        }
    }
}
