import Delivery
import Diagnostics
import Net
import Settings

/// Part of a project's work on one loop, with its own subject and state. Only the loop's thread may use it.
protocol LoopPart: AnyObject {
    var home: ProjectLoop { get }
}

extension LoopPart {
    var project: Project { home.project }
    var clients: ClientLoop { home.clients }
    var loop: SocketLoop { home.loop }
    var metrics: ProjectMetrics { home.metrics }
    var limits: ProjectLimits { home.limits }
}
