import Diagnostics
import Net

/// Component of a client loop with one subject, such as requests or frames, and its own state. Only the loop's own
/// thread may use it.
protocol ClientPart: AnyObject {
    var home: ClientLoop { get }
}

extension ClientPart {
    var shared: GatewayShared { home.shared }
    var loop: SocketLoop { home.loop }
    var metrics: ProcessMetrics { home.metrics }
}
