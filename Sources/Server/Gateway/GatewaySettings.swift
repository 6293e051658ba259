import Auth
import Diagnostics
import Net

/// How clients are served.
public struct GatewaySettings: Sendable {
    public var sockets: SocketSettings
    public var logDirectory: String
    /// `/echo` sends every message back unchanged, for conformance runs.
    public var echoes = false
    public var deflates = false
    public var maximumMessageBytes = Limits.clientMessageBytes
    public var maximumBodyBytes = Limits.maximumChangeBodyBytes
    public var maximumChannels = Int(Limits.channelsPerClient)
    /// Refused upgrades are answered after this long, so that clients that try again at once do no harm.
    public var connectErrorDelay = Limits.connectErrorBackoff
    /// The same for refused joins.
    public var joinErrorDelay = Limits.channelErrorBackoff
    /// For `/metrics`; nil lets everybody read them.
    public var metricsVerifier: TokenVerifier?

    public init(sockets: SocketSettings, logDirectory: String) {
        self.sockets = sockets
        self.logDirectory = logDirectory
    }
}
