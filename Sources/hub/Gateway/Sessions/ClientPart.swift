import Diagnostics
import Net

/// Part of a client loop, with a subject and state of its own. Only the loop's own thread may use it.
protocol ClientPart: AnyObject {
    var home: ClientLoop { get }
}

extension ClientPart {
    var shared: GatewayShared { home.shared }
    var loop: SocketLoop { home.loop }
    var metrics: ProcessMetrics { home.metrics }
}
