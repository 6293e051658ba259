import Bytes
import Nats

/// Settings by which a hub takes part in a cluster: the servers that keep the cluster's stream, and this node's name.
public struct ClusterSettings: Sendable {
    public var servers: NatsSettings
    /// Name of this node. No other node has it.
    public var node: String
    /// Name of the project, from which the names of its stream and subjects are made.
    public var project: String
    /// Name of the project with the characters that NATS allows. If others were replaced, a checksum of the name follows,
    /// so that no two projects have the same key.
    public var key: String {
        let plain = String(
            project.unicodeScalars.map { scalar in
                let isPlain = scalar.isASCII && (Character(scalar).isLetter || Character(scalar).isNumber)
                return isPlain || scalar == "-" || scalar == "_" ? Character(scalar) : "_"
            })
        return plain == project
            ? plain : plain + "-" + String(CRC32C.of(Array(project.utf8).rawBytes), radix: 16)
    }

    /// Number of servers that store each message.
    public var replicas: Int

    public init(servers: NatsSettings, node: String, project: String, replicas: Int = 3) {
        self.servers = servers
        self.node = node
        self.project = project
        self.replicas = replicas
    }
}
