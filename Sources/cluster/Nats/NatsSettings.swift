/// Addresses of the NATS servers, and how a connection to them proves who it is.
public struct NatsSettings: Sendable {
    /// Addresses of servers, `nats://host:port` or `tls://host:port`. A connection goes to any of them.
    public var servers: [String]
    /// Name of the connection, which the servers show.
    public var name: String
    public var user: String?
    public var password: String?
    public var token: String?
    /// File with a user's JWT and seed.
    public var credentialsFile: String?
    /// File with the seed of an nkey, and the public key that belongs to it.
    public var nkey: (seedFile: String, publicKey: String)?
    /// File with the certificates of authorities that are trusted; nil for those of the system.
    public var authoritiesFile: String?
    /// Files with the connection's own certificate and its key.
    public var certificate: (chainFile: String, keyFile: String)?

    public init(servers: [String], name: String) {
        self.servers = servers
        self.name = name
    }

    /// True if the connections are encrypted.
    public var isSecure: Bool {
        authoritiesFile != nil || certificate != nil || servers.contains { $0.hasPrefix("tls://") }
    }
}
