import Diagnostics
import Net
import Pages
import Settings
import WebSocket

/// Settings of the gateway: its sockets, and rules that all projects share.
public struct GatewaySettings: Sendable {
    public var sockets: SocketSettings
    /// True if `/echo` returns every message unchanged, for conformance tests.
    public var echoes = false
    /// True if the hub compresses messages for clients that offer permessage-deflate.
    public var deflates = false
    public var maximumMessageBytes = Limits.clientMessageBytes
    public var requestLimits = HTTPLimits(
        maximumHeadBytes: Limits.maximumRequestHeadBytes, maximumTargetBytes: Limits.maximumRequestTargetBytes,
        maximumHeaders: Limits.maximumRequestHeaders, maximumBodyBytes: Limits.maximumRequestBodyBytes)
    /// Delay before the hub refuses a connection, for clients that retry immediately.
    public var connectErrorDelay = Limits.connectErrorBackoff
    /// Delay before the hub refuses a join.
    public var joinErrorDelay = Limits.channelErrorBackoff
    /// Maximum time for which a connected client may have no channel; nil for no limit.
    public var idleChannelLimit: Duration? = Limits.idleChannelTimeout
    /// Maximum number of changes that a slow client may be behind the log's end; nil for no limit.
    public var outboxLag: UInt64?
    /// Duration over which the hub disconnects its clients when it stops.
    public var drainTime = Limits.drainTime
    /// Rule for clients whose host name belongs to no project.
    public var unknownHosts = UnknownHosts.single
    /// Name of the project that the settings describe.
    public var mainProject = ""
    /// Access rule of `/metrics`; nil if everyone may read the metrics.
    public var metricsGate: OperatorGate?

    /// Gate of the web console; nil if the hub does not serve it.
    public var console: ConsoleGate?

    public init(sockets: SocketSettings) { self.sockets = sockets }
}
