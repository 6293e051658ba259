import Protocol

/// Why it could not be found out what somebody may do in a private channel.
public enum ChannelAuthorizationError: Error, Sendable, Hashable {
    /// A policy, or a function that it calls, failed.
    case policy(sqlState: String)
    /// The token names a role that is none, or that the login for policies may not become.
    case role
    /// A policy took too long; what the server said of it.
    case canceled(String)
    /// `realtime.messages` has no partition for today.
    case missingPartition
    /// The database lacks what probes need: the operator was told what to do.
    case unprepared
    case unavailable
    /// The database is starting.
    case initializing
    case tooManyConnections
    /// Others waited too, and the connections for such questions could not keep up.
    case exhausted
}

// MARK: What clients are told

extension ChannelAuthorizationError {
    /// Whoever has no rights is told the same as whoever's rights could not be evaluated.
    public static func mayNotRead(_ topic: String) -> String {
        "You do not have permissions to read from this Channel topic: \(topic)"
    }

    private static let noConnection = "Realtime was unable to connect to the project database"

    /// The `reason` of a refused join.
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

    /// What a REST request is answered with.
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

    /// The `message` of the system error before a channel is closed whose new token could not be used.
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

    /// The name under which it is logged (and the reference logs it).
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
