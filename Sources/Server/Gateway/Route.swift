import WebSocket

/// What a path means. The public prefix of a Supabase project, `/realtime/v1`, means what the server's own paths mean, so
/// that clients reach the hub with a gateway in front of it and without one.
enum Route: Equatable {
    case socket
    case echo
    case health
    case ready
    case metrics
    case ping
    case tenantHealth
    case front
    case unknown

    init(_ request: HTTPRequest, echoes: Bool) {
        var segments = request.pathSegments[...]
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
        case ["metrics"]: self = .metrics
        case ["api", "ping"]: self = .ping
        case []: self = .front
        case let tenant
        where tenant.count == 4 && tenant[0] == "api" && tenant[1] == "tenants" && tenant[3] == "health":
            self = .tenantHealth
        default: self = .unknown
        }
    }
}
