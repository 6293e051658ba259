import WebSocket

/// Health of a project, in the form of the reference server.
public struct ProjectHealth: Sendable, Equatable {
    /// True if the database answers.
    public var isDatabaseConnected: Bool
    /// True if changes stream.
    public var isReplicating: Bool
    /// Number of the project's sockets.
    public var clients: Int
    public var region: String
    /// Name of this hub.
    public var node: String

    public init(
        isDatabaseConnected: Bool, isReplicating: Bool, clients: Int, region: String, node: String
    ) {
        self.isDatabaseConnected = isDatabaseConnected
        self.isReplicating = isReplicating
        self.clients = clients
        self.region = region
        self.node = node
    }

    /// True while the database is connected and changes stream. The hub keeps its database connection without any
    /// client; the reference server does not, and is healthy then.
    public var isHealthy: Bool { isDatabaseConnected && isReplicating }

    /// Answer with status 200, healthy or not: the body tells.
    public var response: HTTPResponse {
        let members = JSONObject([
            ("healthy", .bool(isHealthy)), ("db_connected", .bool(isDatabaseConnected)),
            ("replication_connected", .bool(isReplicating)), ("connected_cluster", .number(clients)),
            ("region", .string(region)), ("node", .string(node)),
        ])
        return .json(.ok, JSONValue.object(JSONObject([("data", .object(members))])).bytes)
    }
}
