import Diagnostics

/// Classification of errors by the reason for which the database cannot be reached, with advice for the operator.
extension PostgresError {
    public typealias Meaning = (reason: ProjectMetrics.ReconnectReason, hint: String?)

    /// Reason for a failed connection attempt, with advice for the operator.
    public var connecting: Meaning {
        switch sqlState {
        case nil where lacksPassword, SQLState.invalidPassword:
            return (
                .authentication,
                "check user and password in the database URL (TIDEWIRE_DATABASE_URL or DB_USER, DB_PASSWORD; of the login for "
                    + "policies TIDEWIRE_POLICY_DATABASE_URL)"
            )
        case SQLState.invalidAuthorization:
            return (
                .authentication,
                "check the user in the database URL (TIDEWIRE_DATABASE_URL or DB_USER): the role has to be there and to have "
                    + "LOGIN, and the server's pg_hba.conf has to allow it from this address"
            )
        case SQLState.insufficientPrivilege:
            return (
                .authentication,
                "the role in the database URL needs CONNECT on the database (GRANT CONNECT ON DATABASE … TO …), and for the "
                    + "stream ALTER ROLE … WITH REPLICATION"
            )
        case SQLState.invalidCatalogName:
            return (.other, "check the database in the database URL (TIDEWIRE_DATABASE_URL or DB_NAME)")
        case SQLState.tooManyConnections:
            return (
                .connectionRefused,
                "the hub needs two connections, one of them of max_wal_senders: raise the limit or end others"
            )
        case SQLState.cannotConnectNow: return (.connectionRefused, "the database is running, but not ready yet")
        // If a server answers, the address is right and the server runs. Its own message explains the problem best.
        case .some: return (.connectionRefused, nil)
        case nil: return Self.meaning(ofOwnWords: message)
        }
    }

    /// Returns the reason and the advice for an error of libpq itself. Such an error has a text but no code, because no
    /// server answered. The text is always English: libpq translates only for programs that set a locale, and the hub
    /// sets none.
    private static func meaning(ofOwnWords words: String) -> Meaning {
        if ["root certificate file", "certificate verify failed", "server certificate for"].contains(
            where: words.contains)
        {
            return (
                .authentication,
                "name the server's authority with sslrootcert=FILE in the database URL, or choose another sslmode"
            )
        }
        if words.contains("server does not support SSL") {
            return (
                .connectionRefused,
                "set ssl = on in the server, or sslmode=prefer in the database URL (ssl_enforced false of a project)"
            )
        }
        return (.connectionRefused, "is the database running, and the address right?")
    }

    /// Key that is the same for all connections with the same outage. Nil if the error is not an outage: the server was
    /// reached and refused a statement.
    var outage: String? {
        guard isConnectionLost else { return nil }
        guard operation == "connect" else { return Self.away }
        switch sqlState {
        case nil where !lacksPassword && connecting.reason == .connectionRefused, SQLState.cannotConnectNow:
            return Self.away
        case .some(let state) where state.hasPrefix("57P") || state.hasPrefix("08"): return Self.away
        default: return message
        }
    }

    private static let away = "away"
}
