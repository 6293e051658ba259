import Diagnostics
import Net
import Settings
import WebSocket

/// Settings of the gateway.
public struct GatewaySettings: Sendable {
    public var sockets: SocketSettings
    /// True if `/echo` sends every message back unchanged, for conformance runs.
    public var echoes = false
    public var deflates = false
    public var maximumMessageBytes = Limits.clientMessageBytes
    public var requestLimits = HTTPLimits(
        maximumHeadBytes: Limits.maximumRequestHeadBytes, maximumTargetBytes: Limits.maximumRequestTargetBytes,
        maximumHeaders: Limits.maximumRequestHeaders, maximumBodyBytes: Limits.maximumRequestBodyBytes)
    /// Delay of the answer to a refused upgrade. The delay protects the hub from clients that retry at once.
    public var connectErrorDelay = Limits.connectErrorBackoff
    /// Delay of the answer to a refused join.
    public var joinErrorDelay = Limits.channelErrorBackoff
    /// Longest time that a client may stay after it left its last channel; nil for no limit.
    public var idleChannelLimit: Duration? = Limits.idleChannelTimeout
    /// Largest number of changes that a slow client may be behind the log's end; nil for no limit.
    public var outboxLag: UInt64?
    /// Time over which clients are sent away when the hub stops.
    public var drainTime = Limits.drainTime
    /// Rule for host names that belong to no project. `mainProject` is the project that the settings themselves
    /// describe.
    public var unknownHosts = UnknownHosts.single
    public var mainProject = ""
    /// Access rule of `/metrics`; nil if everybody may read the metrics.
    public var metricsGate: OperatorGate?

    public init(sockets: SocketSettings) { self.sockets = sockets }
}
