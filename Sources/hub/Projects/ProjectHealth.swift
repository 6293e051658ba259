import Bytes
import WebSocket

/// Health of a project, in the reference server's form.
public struct ProjectHealth: Sendable, Equatable {
    /// True if the database answers.
    public var isDatabaseConnected: Bool
    /// True if changes arrive from the database.
    public var isReplicating: Bool
    /// Number of the project's clients that have joined a channel or are joining one.
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

    /// True if the database answers and changes arrive. The hub stays connected without clients. The reference server
    /// does not, and then reports that it is healthy.
    public var isHealthy: Bool { isDatabaseConnected && isReplicating }

    /// HTTP answer with status 200 in every case; the body contains the health.
    public var response: HTTPResponse {
        let members = JSONObject([
            ("healthy", .bool(isHealthy)), ("db_connected", .bool(isDatabaseConnected)),
            ("replication_connected", .bool(isReplicating)), ("connected_cluster", .number(clients)),
            ("region", .string(region)), ("node", .string(node)),
        ])
        return .json(.ok, JSONValue.object(JSONObject([("data", .object(members))])).bytes)
    }
}
