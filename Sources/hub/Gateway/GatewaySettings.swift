import Diagnostics
import Net
import Settings
import WebSocket

/// How clients are served.
public struct GatewaySettings: Sendable {
    public var sockets: SocketSettings
    /// `/echo` sends every message back unchanged, for conformance runs.
    public var echoes = false
    public var deflates = false
    public var maximumMessageBytes = Limits.clientMessageBytes
    public var requestLimits = HTTPLimits(
        maximumHeadBytes: Limits.maximumRequestHeadBytes, maximumTargetBytes: Limits.maximumRequestTargetBytes,
        maximumHeaders: Limits.maximumRequestHeaders, maximumBodyBytes: Limits.maximumRequestBodyBytes)
    /// Refused upgrades are answered after this long, so that clients that try again at once do no harm.
    public var connectErrorDelay = Limits.connectErrorBackoff
    /// The same for refused joins.
    public var joinErrorDelay = Limits.channelErrorBackoff
    /// How long a client that has left its last channel may stay; nil is without limit.
    public var idleChannelLimit: Duration? = Limits.idleChannelTimeout
    /// How many changes a slow client may be behind the log's end; nil is without limit.
    public var outboxLag: UInt64?
    /// Where the hub ends, clients are sent away over this time.
    public var drainTime = Limits.drainTime
    /// Who answers for host names that are no project's, and which project that is where it is the settings' own.
    public var unknownHosts = UnknownHosts.single
    public var mainProject = ""
    /// For `/metrics`; nil lets everybody read them.
    public var metricsGate: OperatorGate?

    public init(sockets: SocketSettings) { self.sockets = sockets }
}
