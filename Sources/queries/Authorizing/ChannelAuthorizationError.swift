import Protocol

/// Reason why a client's rights in a private channel could not be determined.
public enum ChannelAuthorizationError: Error, Sendable, Hashable {
    /// A policy, or a function that it calls, failed.
    case policy(sqlState: String)
    /// The token names a role that does not exist, or to which the login for policies may not switch.
    case role
    /// A policy took too long. The text is PostgreSQL's message.
    case canceled(String)
    /// `realtime.messages` has no partition for today.
    case missingPartition
    /// The database lacks objects that the hub needs to test rights. The hub has logged the remedy for an operator.
    case unprepared
    /// The database is unreachable.
    case unavailable
    /// The database is starting.
    case initializing
    case tooManyConnections
    /// The question waited too long, because the hub's connections for these questions could not keep up.
    case exhausted
}

// MARK: Messages for clients

extension ChannelAuthorizationError {
    /// Returns the message for a client that lacks rights, or whose rights could not be determined.
    public static func mayNotRead(_ topic: String) -> String {
        "You do not have permissions to read from this Channel topic: \(topic)"
    }

    private static let noConnection = "Realtime was unable to connect to the project database"

    /// Returns the `reason` in the reply to a refused join.
    public func joinReason(topic: String) -> String {
        switch self {
        case .policy, .role: "Unauthorized: " + Self.mayNotRead(topic)
        case .canceled(let message): "QueryCanceled: " + message
        case .missingPartition:
            "MissingPartition: Realtime was unable to find the expected messages partition"
        case .unprepared: Self.noConnection
        case .unavailable: "UnableToConnectToProject: " + Self.noConnection
        case .initializing: "InitializingProjectConnection: Realtime is initializing the project connection"
        case .tooManyConnections:
            "DatabaseLackOfConnections: Database can't accept more connections, Realtime won't connect"
        case .exhausted: "IncreaseConnectionPool: Please increase your connection pool size"
        }
    }

    /// Status and message of the HTTP response that refuses a broadcast request.
    public var restAnswer: (status: Int, message: String) {
        switch self {
        case .policy: (422, "RLS policy error")
        case .role: (403, "Unauthorized")
        case .canceled: (422, "Query canceled")
        case .missingPartition: (422, "Missing messages partition")
        case .unprepared, .unavailable: (422, "Tenant database unavailable")
        case .initializing: (422, "Tenant database initializing")
        case .tooManyConnections: (422, "Tenant database has too many connections")
        case .exhausted: (429, "Connection pool exhausted")
        }
    }

    /// Returns the `system` error message that the client receives before the hub closes a channel because it refuses
    /// the channel's new token.
    public func systemMessage(topic: String) -> ClientText { ClientText(textCode, text(topic: topic)) }

    private var textCode: TextCode {
        switch self {
        case .policy, .role: .unauthorized
        case .canceled, .missingPartition, .unprepared, .unavailable, .initializing, .tooManyConnections, .exhausted:
            .rightsUnknown
        }
    }

    private func text(topic: String) -> String {
        switch self {
        case .policy, .role: Self.mayNotRead(topic)
        case .canceled: "Query was cancelled, please try again"
        case .missingPartition: "Realtime was unable to find the expected messages partition"
        case .unprepared, .unavailable: Self.noConnection
        case .initializing: "Realtime is initializing the project connection"
        case .tooManyConnections: "Database can't accept more connections, Realtime won't connect"
        case .exhausted: "Please increase your connection pool size"
        }
    }

    /// Name of the error in the log. Supabase's Realtime server uses the same names.
    public var code: String {
        switch self {
        case .policy: "RlsPolicyError"
        case .role: "Unauthorized"
        case .canceled: "QueryCanceled"
        case .missingPartition: "MissingPartition"
        case .unprepared: "UnableToSetPolicies"
        case .unavailable: "UnableToConnectToProject"
        case .initializing: "InitializingProjectConnection"
        case .tooManyConnections: "DatabaseLackOfConnections"
        case .exhausted: "IncreaseConnectionPool"
        }
    }
}
