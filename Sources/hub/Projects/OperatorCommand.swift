import Settings
import WebSocket

/// Request of an operator, with the values that its command needs.
struct OperatorRequest {
    let request: HTTPRequest
    /// Values of the path's variables, in order; the first is the project's name.
    let values: [String]
    var body: [UInt8] = []
    var `operator`: Operator
    /// Time of the request in Unix seconds.
    let now: Int64

    init(request: HTTPRequest, values: [String], operator: Operator, now: Int64) {
        (self.request, self.values, self.operator, self.now) = (request, values, `operator`, now)
    }

    var name: String { values.first ?? "" }
}

/// Command of the operators' API: HTTP methods, a path below `/api/tenants`, and the role that an operator needs.
///
/// Every request is answered through an entry of `all`, so no command can be used without a check of the role. Tests
/// compare the list with `/api/openapi`.
struct OperatorCommand: Sendable {
    /// Role that an operator needs for a command.
    enum Need: Sendable {
        case role(OperatorRole)
        /// Role that depends on the request, as the function returns it, but never a lower one than `atLeast`.
        case asked(atLeast: OperatorRole, @Sendable (OperatorRequest) -> OperatorRole?)
        /// Health check: also clients' tokens are accepted, as in the reference server.
        case health

        func role(_ asked: OperatorRequest) -> OperatorRole {
            switch self {
            case .role(let role): role
            // The role of a malformed question is unknown. The command refuses it later, with the reason.
            case .asked(let least, let role): max(least, role(asked) ?? least)
            case .health: .viewer
            }
        }
    }

    let methods: [String]
    /// Path below `/api/tenants`. A segment in braces is a variable.
    let path: [String]
    let need: Need
    /// False if the request chooses the format of the answer.
    var answersInJSON = true
    let handle: @Sendable (TenantsAPI, OperatorRequest) -> TenantsOutcome

    init(
        _ methods: String, _ path: String, _ need: Need, answersInJSON: Bool = true,
        _ handle: @escaping @Sendable (TenantsAPI, OperatorRequest) -> TenantsOutcome
    ) {
        self.methods = methods.split(separator: " ").map(String.init)
        self.path = path.split(separator: "/").map(String.init)
        self.need = need
        self.answersInJSON = answersInJSON
        self.handle = handle
    }

    /// All commands. The first one whose path fits a request is used.
    static let all: [OperatorCommand] = [
        OperatorCommand("GET", "/", .role(.viewer)) { api, _ in .response(api.list) },
        OperatorCommand("POST", "/", .role(.admin)) { api, asked in api.upsert(asked, named: nil) },
        OperatorCommand("GET", "/{id}", .role(.viewer)) { api, asked in api.shown(asked) },
        OperatorCommand("PUT PATCH", "/{id}", .role(.admin)) { api, asked in api.upsert(asked, named: asked.name) },
        OperatorCommand("DELETE", "/{id}", .role(.admin)) { api, asked in api.delete(asked) },
        OperatorCommand("POST", "/{id}/reload", .role(.admin)) { $0.operation(.reload($1.name), $1) },
        OperatorCommand("POST", "/{id}/shutdown", .role(.admin)) { $0.operation(.shutdown($1.name), $1) },
        OperatorCommand("GET", "/{id}/health", .health) { $0.operation(.health($1.name), $1) },
        OperatorCommand("GET", "/{id}/channels", .role(.analyst)) { $0.operation(.channels($1.name), $1) },
        OperatorCommand("GET", "/{id}/values", .role(.viewer)) { $0.operation(.values($1.name), $1) },
        OperatorCommand("GET", "/{id}/config", .role(.analyst)) { $0.operation(.config($1.name), $1) },
        OperatorCommand("GET", "/{id}/cluster", .role(.viewer)) { $0.operation(.cluster($1.name), $1) },
        OperatorCommand("POST", "/{id}/cluster/handover", .role(.admin)) { $0.operation(.handover($1.name), $1) },
        OperatorCommand("POST", "/{id}/signal/{signal}", .role(.admin)) { $0.signal($1) },
        OperatorCommand("POST", "/{id}/kick", .role(.admin)) { $0.kick($1) },
        OperatorCommand("GET", "/{id}/blocks", .role(.analyst)) { $0.operation(.blocks($1.name), $1) },
        OperatorCommand("DELETE", "/{id}/blocks", .role(.admin)) { $0.unblock($1) },
        OperatorCommand(
            "POST", "/{id}/log",
            .asked(atLeast: .viewer) { try? LogQuestion.several($0.body).role }, answersInJSON: false
        ) { $0.questions($1) },
        OperatorCommand("GET", "/{id}/log/rows", .role(.analyst), answersInJSON: false) {
            $0.forgetting($1, isGo: false)
        },
        OperatorCommand("DELETE", "/{id}/log/rows", .role(.admin), answersInJSON: false) {
            $0.forgetting($1, isGo: true)
        },
        // Only the operator who asked gets the name of an answer, and it cannot be guessed.
        OperatorCommand("GET", "/{id}/log/part", .role(.viewer), answersInJSON: false) { $0.part($1) },
        OperatorCommand(
            "GET", "/{id}/log/follow",
            .asked(atLeast: .analyst) { try? LogQuestion.following($0.request.queryItems).role }, answersInJSON: false
        ) { $0.follow($1) },
        OperatorCommand(
            "GET", "/{id}/log/{command}",
            .asked(atLeast: .viewer) { try? LogQuestion($0.values[1], $0.request.queryItems).role },
            answersInJSON: false
        ) { $0.question($1) },
    ]

    /// Returns the command of a request, with the values of its path's variables. Nil if the API has no such path or
    /// method. HEAD is accepted wherever GET is.
    ///
    /// - Parameter prefix: first part of the path before `/api/tenants`; nil for none.
    static func of(_ request: HTTPRequest, below prefix: String? = nil) -> (OperatorCommand, values: [String])? {
        var segments = request.pathSegments.filter { !$0.isEmpty }[...]
        if let prefix {
            guard segments.first == prefix else { return nil }
            segments = segments.dropFirst()
        } else if segments.starts(with: ["realtime", "v1"]) {
            segments = segments.dropFirst(2)
        }
        guard segments.starts(with: ["api", "tenants"]) else { return nil }
        let path = Array(segments.dropFirst(2))
        let method = request.isHead ? "GET" : request.method
        // A path that fits a command without variables does not also fit one with variables.
        let fitting = all.filter { $0.values(in: path) != nil }
        guard let most = fitting.map(\.fixedCount).max(),
            let command = fitting.first(where: { $0.fixedCount == most && $0.methods.contains(method) }),
            let values = command.values(in: path)
        else { return nil }
        return (command, values)
    }

    private var fixedCount: Int { path.count { !$0.hasPrefix("{") } }

    private func values(in segments: [String]) -> [String]? {
        guard segments.count == path.count else { return nil }
        var values: [String] = []
        for (wanted, given) in zip(path, segments) {
            if wanted.hasPrefix("{") { values.append(given) } else if wanted != given { return nil }
        }
        return values
    }
}
