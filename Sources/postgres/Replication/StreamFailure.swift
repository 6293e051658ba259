import Bytes
import Change
import Diagnostics
import Postgres

/// Reason for which the stream does not run, in words for the person who can fix it.
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
    static let pause = StreamFailure(
        .paused, "paused by an operator", hint: "run 'tidewire signal resume', or wait for the end of the pause")

    /// Creates the failure for an error that ended or prevented a connection.
    static func from(_ error: any Error, _ settings: ReplicationSettings) -> StreamFailure {
        switch error {
        case let trouble as StreamFailure: trouble
        case let error as PostgresError: from(error, settings)
        case let stall as StorageStall:
            StreamFailure(.diskStall, "\(stall.operation) \(stall.path): \(stall.reason)", hint: stall.hint)
        case let error as ByteError:
            StreamFailure(
                .protocolError, "the server sent something that is not pgoutput: \(error)",
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

    /// Creates the failure for a slot that another process uses. If that process has just ended, PostgreSQL may not
    /// have noticed yet.
    init(slotBusy slot: String, _ text: String, sqlState: String? = nil) {
        self.init(
            .slotBusy, text, hint: "another process streams from slot \(slot): stop it, or set another slot",
            sqlState: sqlState)
    }

    private static func from(_ error: PostgresError, _ settings: ReplicationSettings) -> StreamFailure {
        let text = "\(error.operation): \(error.message)"
        if error.operation == "connect" { return StreamFailure(connecting: error) }
        switch error.sqlState {
        case SQLState.objectInUse:
            return StreamFailure(slotBusy: settings.slot, text, sqlState: error.sqlState)
        case SQLState.configurationLimitExceeded:
            return StreamFailure(
                .other, text, hint: "raise max_replication_slots and max_wal_senders, or drop slots nobody uses",
                sqlState: error.sqlState)
        default:
            let reason: ProjectMetrics.ReconnectReason = error.isConnectionLost ? .connectionLost : .other
            return StreamFailure(reason, text, hint: error.hint, sqlState: error.sqlState)
        }
    }

    /// Creates the failure for a connection that could not be opened.
    public init(connecting error: PostgresError) {
        let (reason, hint) = error.connecting
        self.init(reason, error.message, hint: hint ?? error.hint, sqlState: error.sqlState)
    }
}
