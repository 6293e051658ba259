import WebSocket

/// How a project is, as the reference tells it.
public struct ProjectHealth: Sendable, Equatable {
    /// The database answers.
    public var isDatabaseConnected: Bool
    /// Changes stream.
    public var isReplicating: Bool
    /// Sockets of this project.
    public var clients: Int
    public var region: String
    /// A name of this hub.
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

    /// True while the database is connected and changes stream. The hub keeps its database connection without any client; the
    /// reference, which does not, is healthy then.
    public var isHealthy: Bool { isDatabaseConnected && isReplicating }

    /// 200 whether healthy or not: the body tells.
    public var response: HTTPResponse {
        let members = JSONObject([
            ("healthy", .bool(isHealthy)), ("db_connected", .bool(isDatabaseConnected)),
            ("replication_connected", .bool(isReplicating)), ("connected_cluster", .number(clients)),
            ("region", .string(region)), ("node", .string(node)),
        ])
        return .json(.ok, JSONValue.object(JSONObject([("data", .object(members))])).bytes)
    }
}
