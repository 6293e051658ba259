import Postgres

/// Reason why a snapshot cannot be taken or continued.
public enum SnapshotRefusal: Error, Sendable, Hashable {
    /// No login is fit to run policies.
    case noLogin
    /// The login may not switch to the role.
    case roleRefused
    case notReadable
    case noPrimaryKey
    case tableChanged
    /// A filter reads the row before a change.
    case onlyEvents
    case nothingWanted
    /// No binding that asks for a snapshot is subscribed to a table. The client has been told why.
    case noTable
    case tooManyRows(limit: Int)
    case tooManyBytes(limit: Int)
    case tookTooLong
    /// PostgreSQL has not yet written to its disk the changes that the snapshot shows. A crash could undo them.
    case notWritten
    /// The client did not accept the pages in time.
    case notTaken
    case databaseAway
    /// The server is a standby. A standby does not report which transactions a snapshot shows.
    case standby
    case logNotBegun
    /// A transaction that began before the log's first entry is still running. The snapshot may lack its changes, and
    /// the log does not have them.
    case unsettled
    case busy
    /// PostgreSQL failed to read the rows, with this error code.
    case failed(sqlState: String)
    /// The channel's token was replaced by one with another role or user.
    case tokenChanged
    /// The subscriber has gone, so the hub tells no client.
    case cancelled

    init(_ error: PostgresError) {
        // A server that refuses a connection reports an error code too.
        guard error.operation != "connect" else {
            self = .databaseAway
            return
        }
        switch error.sqlState {
        case SQLState.insufficientPrivilege?: self = .notReadable
        case SQLState.queryCanceled?, SQLState.lockNotAvailable?: self = .tookTooLong
        case "42P01"?, "42703"?, "3F000"?: self = .tableChanged
        case let state?: self = .failed(sqlState: state)
        case nil: self = .databaseAway
        }
    }

    /// True if another attempt soon may succeed.
    public var isPassing: Bool {
        switch self {
        case .tableChanged, .databaseAway, .logNotBegun, .unsettled, .busy, .tokenChanged, .notWritten: true
        case .failed(let state): SQLState.isPassing(state)
        case .noLogin, .roleRefused, .notReadable, .noPrimaryKey, .standby, .nothingWanted, .noTable, .tooManyRows,
            .tooManyBytes,
            .tookTooLong, .notTaken, .cancelled, .onlyEvents:
            false
        }
    }

    /// Message for the client, with the reason and a remedy.
    public var text: String {
        switch self {
        case .noLogin:
            "no login of the database is fit to run policies (policy_database_url): fetch the rows another way"
        case .roleRefused:
            "the login of policy_database_url cannot become the token's role: GRANT it the role if policies bind that, "
                + "and fetch the rows another way for one that they do not bind, such as service_role"
        case .notReadable:
            "the role may not read a table, or a column that is delivered or filtered by: check its GRANTs"
        case .noPrimaryKey: "a table has no primary key, which snapshots are ordered by: add one"
        case .tableChanged: "a table was just altered: join again"
        case .onlyEvents:
            "a filter with `changed` or `old.` selects changes and not rows: ask for the rows with another binding"
        case .nothingWanted: "no binding of the channel hears INSERT, as which rows are told: bind to * or INSERT"
        case .noTable: "no binding that wants one is subscribed to a table: see what was said of them"
        case .tooManyRows(let limit): "there are more than \(limit) rows: narrow the filter, or fetch them in parts"
        case .tooManyBytes(let limit):
            "the rows are larger than \(limit) bytes: narrow the filter or select fewer columns"
        case .tookTooLong: "PostgreSQL took too long to read the rows: narrow the filter, or index what it reads"
        case .notWritten: "PostgreSQL has not written to its disk yet what it showed: join again later"
        case .notTaken: "its rows were not taken in time: join again when the connection is faster"
        case .standby:
            "policy_database_url is a standby, and snapshots are taken of the primary: fetch the rows another way"
        case .databaseAway: "the database cannot be asked now: join again later"
        case .logNotBegun: "the event log has not begun: join again later"
        case .unsettled:
            "a transaction from before the event log's first entry is still open, or waits for a standby: join again "
                + "later, or end it (see pg_stat_activity and pg_prepared_xacts)"
        case .busy: "too many snapshots are asked for at once: join again later"
        case .failed(let state):
            "PostgreSQL could not read the rows (SQLSTATE \(state)): check the filter and the policies"
        case .tokenChanged: "the channel's token is of another role or user now: join again"
        case .cancelled: "it was given up"
        }
    }
}
