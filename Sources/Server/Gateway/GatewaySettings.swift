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
    /// Where a table has policies, of a deleted row only those are told who could see it. If not, everybody who asked for
    /// the table's deletes is told the primary key, as the reference does.
    public var deletesAreStrict = true
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
