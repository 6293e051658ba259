/// Fault in the configuration or the state of a cluster's NATS servers, with the way to repair it.
public struct ClusterFinding: Sendable, Equatable {
    public enum Kind: String, Sendable, CaseIterable {
        case silent, foreign, version, jetStreamOff, lazySync, tooFewServers, differentClusters, noLeader, offline
        case payload, storage, sameName, sameServer, unchecked, clocks, plain, encrypted, loginWanted, open, connection
    }

    public enum Severity: Sendable, Equatable {
        /// The cluster could lose or refuse what the hub appends, so the hub does not use it.
        case refusal
        /// The servers do not answer, or have no leader: the hub waits for them.
        case wait
        case warning
    }

    public var kind: Kind
    public var severity: Severity
    /// Servers that the finding is about: their names, or the addresses of their monitoring ports.
    public var servers: [String]
    /// Description of the fault and of what follows from it.
    public var detail: String
    /// Advice in words. The lines in `configuration` follow it.
    public var repair: String
    /// Lines for the configuration file of the servers; nil if no line repairs the fault.
    public var configuration: String?

    public init(
        kind: Kind, severity: Severity, servers: [String], detail: String, repair: String, configuration: String?
    ) {
        self.kind = kind
        self.severity = severity
        self.servers = servers
        self.detail = detail
        self.repair = repair
        self.configuration = configuration
    }

    /// Names of the servers, followed by the description.
    public var message: String { servers.isEmpty ? detail : servers.joined(separator: ", ") + ": " + detail }

    /// Advice in words, followed by the lines of configuration.
    public var hint: String { configuration.map { "\(repair): \($0)" } ?? repair }
}

/// Needs of a hub that the servers of its cluster must meet.
public struct ClusterNeeds: Sendable {
    public static let minimumVersion = ServerVersion(2, 15, 1)
    /// Maximum size of a message in the cluster's stream, with its headers.
    public static let messageBytes = 768 << 10

    /// Number of servers that store each message.
    public var replicas: Int
    /// Bytes of the log that each server must be able to store; nil if the log has no limit.
    public var storedBytes: Int?
    /// True if the hub's connections are encrypted.
    public var isEncrypted: Bool
    /// True if the hub has a login for the servers.
    public var hasLogin: Bool
    /// True if findings that are refusals are only warnings.
    public var isTrial: Bool

    public init(replicas: Int, storedBytes: Int?, isEncrypted: Bool, hasLogin: Bool, isTrial: Bool) {
        self.replicas = replicas
        self.storedBytes = storedBytes
        self.isEncrypted = isEncrypted
        self.hasLogin = hasLogin
        self.isTrial = isTrial
    }
}

/// Answer of one monitoring port.
public struct MonitorAnswer: Sendable {
    public enum Outcome: Sendable, Equatable {
        case report(ServerReport)
        /// Answer that is no report of a NATS server.
        case foreign
        case silent(reason: String)
    }

    /// Address of the monitoring port.
    public var monitor: String
    public var outcome: Outcome
    /// Times of this machine's clock before the question and after the answer, in milliseconds since 1970.
    public var asked: Int64
    public var answered: Int64

    public init(monitor: String, outcome: Outcome, asked: Int64, answered: Int64) {
        self.monitor = monitor
        self.outcome = outcome
        self.asked = asked
        self.answered = answered
    }

    var report: ServerReport? { if case .report(let report) = outcome { report } else { nil } }

    /// Milliseconds by which the server's clock is certainly ahead of this machine's, negative if it is behind.
    var clockOffset: Int64 {
        guard let there = report?.unixMilliseconds else { return 0 }
        return there < asked ? there - asked : max(0, there - answered)
    }
}
