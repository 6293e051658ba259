import Nats

/// Settings of the cluster that this hub is a node of.
public struct ClusterConfiguration: Sendable, Equatable {
    /// Proof of who the hub is, for the NATS servers.
    public enum Login: Sendable, Equatable {
        case none
        case user(String, password: Secret)
        case token(Secret)
        /// File with a user's JWT and seed (`nsc` writes it, with the ending .creds).
        case credentials(file: String)
        /// File with the seed of a user's nkey, and the public key that belongs to it.
        case nkey(seedFile: String, publicKey: String)
    }

    /// Addresses of the NATS servers, `nats://host:port` or `tls://host:port`, without a login.
    public let servers: [String]
    /// Name of this node. It can be a token of a subject.
    public let node: String
    public let login: Login
    /// True if connections to the servers are encrypted.
    public let isEncrypted: Bool
    /// File with the authorities that may sign the servers' certificates; nil for those of the system.
    public let authoritiesFile: String?
    /// Files of the hub's own certificate and key; nil if it has none.
    public let certificate: CertificateFiles?
    /// Number of servers that store each message.
    public let replicas: Int
    /// True if the hub also runs on servers that can lose acknowledged messages.
    public let isTrial: Bool
    /// Addresses of the servers' monitoring ports, `http://host:port`.
    public let monitors: [String]
    /// Longest time and largest size for which the servers keep the log; nil is without limit.
    public let retentionAge: Duration?
    public let retentionBytes: Int?

    /// Files of a certificate with its chain, and of its private key.
    public struct CertificateFiles: Sendable, Equatable {
        public let chain: String
        public let key: String
    }
}

extension ClusterConfiguration {
    /// Settings of a connection to the servers. They contain the secrets.
    ///
    /// - Parameter name: the connection's name, which the servers show.
    public func connection(named name: String) -> NatsSettings {
        var settings = NatsSettings(servers: servers, name: name)
        switch login {
        case .none: break
        case .user(let name, let password): (settings.user, settings.password) = (name, password.revealed)
        case .token(let token): settings.token = token.revealed
        case .credentials(let file): settings.credentialsFile = file
        case .nkey(let file, let key): settings.nkey = (seedFile: file, publicKey: key)
        }
        settings.authoritiesFile = authoritiesFile
        settings.certificate = certificate.map { (chainFile: $0.chain, keyFile: $0.key) }
        return settings
    }
}

extension Configuration {
    /// Reads the files that the settings of the cluster name, and checks them. Returns nil if the hub is not a node of a
    /// cluster.
    public func cluster(
        surroundings: ConfigurationSurroundings = .ofThisProcess, hostName: String
    ) throws(ConfigurationFailure) -> ClusterConfiguration? {
        guard let addresses = self.clusterServers, !addresses.servers.isEmpty else { return nil }
        let monitors =
            self.clusterMonitors?.urls
            ?? addresses.servers.map {
                "http://" + ListenAddress(host: $0.host, port: MonitorAddresses.usualPort).description
            }
        for setting in [Setting(\.clusterAuthorities), Setting(\.clusterCertificate), Setting(\.clusterKey)] {
            if let path = path(of: setting) { _ = try read(path, setting, surroundings) }
        }
        var certificate: ClusterConfiguration.CertificateFiles?
        if let chain = self.clusterCertificate, let key = self.clusterKey {
            certificate = ClusterConfiguration.CertificateFiles(chain: chain, key: key)
        }
        return ClusterConfiguration(
            servers: addresses.urls, node: self.clusterNode ?? NodeName.derived(from: hostName),
            login: try clusterLogin(addresses, surroundings),
            isEncrypted: addresses.isEncrypted || certificate != nil || self.clusterAuthorities != nil,
            authoritiesFile: self.clusterAuthorities, certificate: certificate, replicas: self.clusterReplicas,
            isTrial: self.isClusterTrial, monitors: monitors, retentionAge: self.retentionAge,
            retentionBytes: self.retentionBytes)
    }

    private func path(of setting: Setting) -> String? {
        switch setting {
        case Setting(\.clusterAuthorities): self.clusterAuthorities
        case Setting(\.clusterCertificate): self.clusterCertificate
        default: self.clusterKey
        }
    }

    private func clusterLogin(
        _ addresses: ClusterAddresses, _ surroundings: ConfigurationSurroundings
    ) throws(ConfigurationFailure) -> ClusterConfiguration.Login {
        if let path = self.clusterCredentials {
            let text = try read(path, Setting(\.clusterCredentials), surroundings)
            guard text.contains("BEGIN NATS USER JWT"), text.contains("BEGIN USER NKEY SEED") else {
                throw clusterFailure(
                    Setting(\.clusterCredentials), path, "it does not have a user's JWT and seed, as nsc writes them")
            }
            return .credentials(file: path)
        }
        if let path = self.clusterNkey {
            let lines = try read(path, Setting(\.clusterNkey), surroundings).split(whereSeparator: \.isNewline)
            guard let seed = lines.lazy.compactMap({ NkeySeed(String($0.filter { !$0.isWhitespace })) }).first else {
                throw clusterFailure(Setting(\.clusterNkey), path, "it has no seed of a user's nkey (SU…)")
            }
            return .nkey(seedFile: path, publicKey: seed.publicKey)
        }
        if let path = self.clusterTokenFile {
            let text = try read(path, Setting(\.clusterTokenFile), surroundings)
            let lines = text.split(whereSeparator: \.isNewline)
            guard lines.count == 1, let token = lines.first else {
                throw clusterFailure(Setting(\.clusterTokenFile), path, "it must have one line, the token")
            }
            return .token(Secret(String(token)))
        }
        return switch addresses.login {
        case .user(let name, let password): .user(name, password: password)
        case .token(let token): .token(token)
        case nil: .none
        }
    }

    private func read(
        _ path: String, _ setting: Setting, _ surroundings: ConfigurationSurroundings
    ) throws(ConfigurationFailure) -> String {
        switch surroundings.readFile(path) {
        case .bytes(let bytes): return String(decoding: bytes, as: UTF8.self)
        case .missing: throw clusterFailure(setting, path, "there is no such file")
        case .unreadable(let reason): throw clusterFailure(setting, path, "it cannot be read: \(reason)")
        }
    }

    private func clusterFailure(_ setting: Setting, _ path: String, _ message: String) -> ConfigurationFailure {
        ConfigurationFailure(
            problems: [.init(place: source(of: setting).description, message: "\(setting.name): \(path): \(message)")])
    }
}

/// Name of a node of a cluster: what may stand between two dots of a NATS subject.
enum NodeName {
    static let maximumBytes = 63

    static func isValid(_ text: String) -> Bool {
        !text.isEmpty && text.utf8.count <= maximumBytes && text.utf8.allSatisfy(isNameByte)
    }

    /// Returns a host name as a node's name. It keeps the whole name, because first labels of two hosts may be equal.
    static func derived(from hostName: String) -> String {
        let bytes = hostName.utf8.prefix(maximumBytes).map { isNameByte($0) ? $0 : UInt8(ascii: "-") }
        return bytes.isEmpty ? "localhost" : String(decoding: bytes, as: UTF8.self)
    }

    private static func isNameByte(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"): true
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"): true
        default: false
        }
    }
}
