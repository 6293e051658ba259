import Bytes
import Change
import Diagnostics
import Postgres

/// Something that keeps the stream from running, in words for the person who can mend it.
public struct StreamFailure: Error, Sendable {
    public let reason: ProjectMetrics.ReconnectReason
    public let message: String
    public let hint: String?
    public let sqlState: String?

    public init(
        _ reason: ProjectMetrics.ReconnectReason, _ message: String, hint: String? = nil, sqlState: String? = nil
    ) {
        self.reason = reason
        self.message = message
        self.hint = hint
        self.sqlState = sqlState
    }
}

extension StreamFailure {
    /// What to make of an error that ended a connection or kept one from being made.
    static func from(_ error: any Error, _ settings: ReplicationSettings) -> StreamFailure {
        switch error {
        case let trouble as StreamFailure: trouble
        case let error as PostgresError: from(error, settings)
        case let stall as StorageStall:
            StreamFailure(.diskStall, "\(stall.operation) \(stall.path): \(stall.reason)", hint: stall.hint)
        case let error as ByteError:
            StreamFailure(
                .protocolError, "the server sent what is not pgoutput: \(error)",
                hint: "the stream is read again from the last stored transaction")
        case SchemaBook.Refusal.unknownRelation(let oid):
            StreamFailure(.protocolError, "a change of relation \(oid) came before its schema")
        case SchemaBook.Refusal.tooMany:
            StreamFailure(.protocolError, "more than \(Limits.maximumCachedRelations) relations on one connection")
        case TransactionAssembler.Refusal.unexpected(let what): StreamFailure(.protocolError, "unexpected: \(what)")
        case is TransactionSpool.TooMany:
            StreamFailure(
                .protocolError, "more than \(Limits.maximumStreamedTransactions) large transactions at once",
                hint: "set streaming = off, so that they are sent at their commit")
        default: StreamFailure(.other, String(describing: error))
        }
    }

    private static func from(_ error: PostgresError, _ settings: ReplicationSettings) -> StreamFailure {
        let text = "\(error.operation): \(error.message)"
        switch error.sqlState {
        case SQLState.objectInUse:
            return StreamFailure(
                .slotBusy, text,
                hint: "another process streams from slot \(settings.slot): stop it, or set another slot",
                sqlState: error.sqlState)
        case SQLState.configurationLimitExceeded:
            return StreamFailure(
                .other, text, hint: "raise max_replication_slots and max_wal_senders, or drop slots nobody uses",
                sqlState: error.sqlState)
        case nil where error.operation == "connect": return StreamFailure(connecting: error)
        default:
            let reason: ProjectMetrics.ReconnectReason = error.isConnectionLost ? .connectionLost : .other
            return StreamFailure(reason, text, hint: error.hint, sqlState: error.sqlState)
        }
    }

    /// What to make of a connection that could not be had. A refused one has no SQLSTATE in libpq, only words.
    public init(connecting error: PostgresError) {
        let words = error.message
        if let known = StreamFailure.refusals.first(where: { $0.words.contains(where: words.contains) }) {
            self.init(known.reason, words, hint: known.hint)
            return
        }
        // A server that speaks is running at the right address: its own words say best what is wrong.
        let hint = words.contains("FATAL:") ? nil : "is the database running, and the address right?"
        self.init(.connectionRefused, words, hint: error.hint ?? hint)
    }

    private struct Refusal {
        var words: [String]
        var reason: ProjectMetrics.ReconnectReason
        var hint: String
    }

    /// The first that fits counts: the narrow ones before the wide ones.
    private static let refusals = [
        Refusal(
            words: ["password authentication failed", "no password supplied"], reason: .authentication,
            hint: "check user and password in the database URL (TIDEWIRE_DATABASE_URL or DB_USER, DB_PASSWORD)"),
        Refusal(
            words: ["pg_hba.conf"], reason: .authentication,
            hint: "allow the hub's role and address in the server's pg_hba.conf"),
        Refusal(
            words: ["root certificate file", "certificate verify failed", "server certificate for"],
            reason: .authentication,
            hint: "name the server's authority with sslrootcert=FILE in the database URL, or choose another sslmode"),
        Refusal(
            words: ["server does not support SSL"], reason: .connectionRefused,
            hint: "set ssl = on in the server, or sslmode=prefer in the database URL"),
        Refusal(
            words: ["too many c", "max_wal_senders", "remaining connection slots"], reason: .connectionRefused,
            hint: "the hub needs two connections, one of them of max_wal_senders: raise the limit or end others"),
        Refusal(
            words: ["is starting up", "is shutting down", "in recovery mode", "not yet accepting connections"],
            reason: .connectionRefused, hint: "the database is running, but not ready yet"),
        Refusal(
            words: ["must be superuser or replication role", "REPLICATION"], reason: .authentication,
            hint: "ALTER ROLE the hub's role WITH REPLICATION"),
        Refusal(
            words: ["permission denied for database"], reason: .authentication,
            hint: "GRANT CONNECT ON DATABASE to the hub's role"),
        Refusal(
            words: ["FATAL:  role "], reason: .authentication,
            hint: "check the user in the database URL (TIDEWIRE_DATABASE_URL or DB_USER)"),
        Refusal(
            words: ["FATAL:  database "], reason: .other,
            hint: "check the database in the database URL (TIDEWIRE_DATABASE_URL or DB_NAME)"),
    ]
}
