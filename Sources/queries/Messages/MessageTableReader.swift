import Bytes
import Diagnostics
import Postgres
import System

/// Reader of the messages table, for messages that are older than the log. The hub's login needs the right to read it.
///
/// The archive's thread uses the reader. It has its own connection, opened when first needed.
final class MessageTableReader {
    private let target: ConnectionTarget
    private let interrupt: Wake
    private var connection: Connection?
    private var hasBinary = false
    private var refusedAt: UInt64?

    init(_ target: ConnectionTarget, _ interrupt: Wake) {
        self.target = target
        self.interrupt = interrupt
    }

    /// Returns the broadcasts of a topic that were inserted in a time range (microseconds since 1970), oldest first. If
    /// they exceed the query's limit or `Limits.maximumReplayedBytes`, returns only the newest ones that fit. Returns nil
    /// if the login may not read the table.
    func messages(_ query: ReplayQuery, from start: Int64, before end: Int64) throws -> [ArchivedMessage]? {
        if let refusedAt, Clock.monotonicNanoseconds() - refusedAt < Limits.publicationRetryInterval.wholeNanoseconds {
            return nil
        }
        do throws(PostgresError) {
            let rows = try ask(query, from: start, before: end)
            if refusedAt != nil { Log.shared.info("the hub can read realtime.messages now") }
            refusedAt = nil
            return Self.bounded(rows.values.compactMap(Self.message))
        } catch {
            // The error may also mean that the table's columns have changed, so a new connection reads them again.
            connection = nil
            switch error.sqlState {
            case "42501": return refuse(error)
            // Without the table or its schema there are no messages.
            case "42P01", "3F000": return []
            default: throw ArchiveError.table(error.message)
            }
        }
    }

    private func refuse(_ error: PostgresError) -> [ArchivedMessage]? {
        if refusedAt == nil {
            Log.shared.warning(
                "cannot replay messages older than the event log: the hub's login may not read realtime.messages",
                [
                    .relation("realtime.messages"), .error(error.message),
                    .hint("GRANT SELECT ON realtime.messages TO the hub's login, and ALTER ROLE that login BYPASSRLS"),
                ])
        }
        refusedAt = Clock.monotonicNanoseconds()
        return nil
    }

    private func ask(_ query: ReplayQuery, from start: Int64, before end: Int64) throws(PostgresError) -> Rows {
        let connection = try connected()
        let binary = hasBinary ? "m.binary_payload" : "NULL"
        let either = hasBinary ? "(m.payload IS NOT NULL OR m.binary_payload IS NOT NULL)" : "m.payload IS NOT NULL"
        return try connection.query(
            """
            SELECT m.id, m.event, m.payload, \(binary), m.inserted_at FROM realtime.messages m
            WHERE m.topic = $1 AND m.private IS \(query.isPrivate ? "TRUE" : "FALSE") AND m.extension = 'broadcast'
                AND m.event IS NOT NULL AND \(either)
                AND m.inserted_at >= timestamp '1970-01-01' + $2::bigint * interval '1 microsecond'
                AND m.inserted_at < timestamp '1970-01-01' + $3::bigint * interval '1 microsecond'
            ORDER BY m.inserted_at DESC LIMIT $4::int
            """,
            [
                String(decoding: query.topic, as: UTF8.self), String(Self.bounded(start)),
                String(min(Self.bounded(end), Self.horizon)), String(query.limit),
            ])
    }

    private static var horizon: Int64 {
        Clock.unixMicroseconds() + Limits.replayHorizon.components.seconds * 1_000_000
    }

    /// Returns the time, limited to the range that PostgreSQL's timestamps have: about the years 1 to 9999.
    private static func bounded(_ time: Int64) -> Int64 {
        min(max(time, -62_000_000_000_000_000), 250_000_000_000_000_000)
    }

    private func connected() throws(PostgresError) -> Connection {
        if let connection { return connection }
        let timeout = Limits.replayStatementTimeout.wholeMilliseconds
        let made = try Connection(
            target, applicationName: "tidewire messages", timeoutSeconds: Limits.connectTimeout.wholeSeconds,
            settings: [
                "search_path=pg_catalog", "default_transaction_read_only=on", "statement_timeout=\(timeout)",
                // With row security on, PostgreSQL would silently omit rows that a policy hides.
                "row_security=off", "jit=off",
            ],
            interrupt: interrupt)
        hasBinary = try !made.query(
            """
            SELECT FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = 'realtime' AND c.relname = 'messages' AND a.attname = 'binary_payload'
                AND NOT a.attisdropped
            """
        ).isEmpty
        connection = made
        return made
    }

    /// Returns the newest messages that fit into the size limit, oldest first. The parameter has the newest first.
    private static func bounded(_ newest: [ArchivedMessage]) -> [ArchivedMessage] {
        var bytes = 0
        let fitting = newest.prefix { message in
            bytes += message.byteCount
            return bytes <= Limits.maximumReplayedBytes
        }
        return fitting.reversed()
    }

    private static func message(_ row: [String?]) -> ArchivedMessage? {
        guard row.count == 5, let id = row[0], let event = row[1], let time = row[4].flatMap(Self.time) else {
            return nil
        }
        let payload: ArchivedMessage.Payload
        if let json = row[2] {
            payload = .json(Array(json.utf8))
        } else if let text = row[3], let bytes = Self.binary(Array(text.utf8)) {
            payload = .binary(bytes)
        } else {
            return nil
        }
        return ArchivedMessage(
            id: Array(id.utf8), event: Array(event.utf8), payload: payload, insertedAt: time, offset: nil)
    }

    private static func time(_ text: String) -> Int64? {
        let bytes = Array(text.utf8)
        return MessageTime.parse(bytes.rawBytes)
    }

    private static func binary(_ text: [UInt8]) -> [UInt8]? {
        var bytes = ByteWriter(capacity: text.count / 2)
        guard BinaryText.append(text.rawBytes, to: &bytes) else { return nil }
        return bytes.copied()
    }
}
