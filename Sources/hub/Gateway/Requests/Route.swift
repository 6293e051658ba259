import WebSocket

/// Meaning of a request's path. The public prefix of a Supabase project, `/realtime/v1`, is optional, so that clients
/// reach the hub both through a gateway and directly.
enum Route: Equatable {
    case socket
    case echo
    case health
    case ready
    /// Readiness of one project, by its name.
    case readyOne(String)
    case metrics
    case ping
    case broadcast
    case changes
    case broadcastOne(topic: String, event: String)
    case tenants
    case openAPI
    case front
    /// The web console: its pages, and what they ask.
    case console
    case unknown

    init(_ request: HTTPRequest, echoes: Bool) {
        var segments = request.pathSegments[...]
        // Gateways forward what is below the public prefix, and the console is not.
        if segments.first == "console" {
            self = .console
            return
        }
        if segments.starts(with: ["realtime", "v1"]) {
            segments = segments.dropFirst(2)
            if segments == ["websocket"] {
                self = .socket
                return
            }
        }
        switch Array(segments) {
        case ["socket", "websocket"]: self = .socket
        case ["echo"] where echoes: self = .echo
        case ["healthcheck"]: self = .health
        case ["ready"]: self = .ready
        case let one where one.count == 2 && one[0] == "ready" && !one[1].isEmpty: self = .readyOne(one[1])
        case ["metrics"]: self = .metrics
        case ["api", "ping"]: self = .ping
        case ["api", "broadcast"]: self = .broadcast
        case ["api", "changes"]: self = .changes
        case let one
        where one.count == 5 && one[0] == "api" && one[1] == "broadcast" && one[3] == "events" && !one[2].isEmpty
            && !one[4].isEmpty:
            self = .broadcastOne(topic: one[2], event: one[4])
        case []: self = .front
        case ["api", "openapi"]: self = .openAPI
        case let path where path.starts(with: ["api", "tenants"]): self = .tenants
        case let path where path.count == 2 && path[0] == "metrics": self = .metrics
        default: self = .unknown
        }
    }

    var takesBody: Bool {
        switch self {
        case .broadcast, .broadcastOne, .tenants, .console: true
        default: false
        }
    }

    /// True if pages of other hosts may send such requests.
    var isForBrowsers: Bool {
        switch self {
        case .broadcast, .broadcastOne, .changes: true
        default: false
        }
    }
}
