import Bytes
import Diagnostics
import Gateway
import Settings
import WebSocket

/// Operators' API for the hub's projects. For a request below `/api/tenants` it returns an answer, or an operation that
/// the caller must carry out. The API only reads the store.
///
/// Paths and bodies are those of the reference server, which calls a project a tenant.
public struct TenantsAPI: Sendable {
    private let store: ProjectStore
    /// Project that the settings describe; nil if they name no database. A stored project of the same name replaces it.
    private let configured: ProjectRecord?
    private let operators: OperatorGate
    private let defaults: ProjectDefaults

    public init(
        _ store: ProjectStore, configured: ProjectRecord?, operators: OperatorGate, _ defaults: ProjectDefaults
    ) {
        self.store = store
        self.configured = configured
        self.operators = operators
        self.defaults = defaults
    }

    /// Target of a request, from its path and method.
    private enum Route {
        case all
        case one(String)
        case reload(String)
        case shutdown(String)
        case health(String)
        case log(String, command: String)
        /// Values of a row in the log, to count or to erase.
        case rows(String)
        case channels(String)
        case signal(String, name: String)
    }

    /// Returns the refusal of a request before its body is read; nil if the request is allowed.
    ///
    /// - Parameter now: Unix time in seconds.
    public func refusal(_ request: HTTPRequest, at now: Int64) -> HTTPResponse? {
        guard let route = route(request) else { return Self.unknown }
        // A question to the log names the form of its answer itself.
        switch route {
        case .log, .rows: break
        default:
            guard AcceptHeader(request.header("accept")).allowsJSON else { return .notAcceptable }
        }
        guard isAdmitted(request, route, at: now) else { return HTTPResponse(.forbidden) }
        return nil
    }

    public func handle(_ request: HTTPRequest, body: [UInt8], at now: Int64) -> TenantsOutcome {
        if let refusal = refusal(request, at: now) { return .response(refusal) }
        guard let route = route(request) else { return .response(Self.unknown) }
        switch (route, request.method) {
        case (.all, "POST"): return upsert(body, named: nil, at: now)
        case (.all, _): return .response(list)
        case (.one(let name), "PUT"), (.one(let name), "PATCH"): return upsert(body, named: name, at: now)
        case (.one(let name), "DELETE"): return delete(name, log: request.query("log"))
        case (.one(let name), _): return .response(record(name).map(told) ?? Self.notFound)
        case (.reload(let name), _): return operation(.reload(name), on: name)
        case (.shutdown(let name), _): return operation(.shutdown(name), on: name)
        case (.health(let name), _): return operation(.health(name), on: name)
        case (.channels(let name), _): return operation(.channels(name), on: name)
        case (.rows(let name), let method): return forgetting(request, of: name, isGo: method == "DELETE")
        case (.log(let name, let command), _): return question(command, request, of: name)
        case (.signal(let name, let signal), _): return self.signal(signal, body, to: name)
        }
    }

    /// Returns what a request is about, from its path and method; nil if the API has no such path or method.
    private func route(_ request: HTTPRequest) -> Route? {
        var segments = request.pathSegments.filter { !$0.isEmpty }[...]
        if segments.starts(with: ["realtime", "v1"]) { segments = segments.dropFirst(2) }
        guard segments.starts(with: ["api", "tenants"]) else { return nil }
        segments = segments.dropFirst(2)
        let isReading = request.method == "GET" || request.isHead
        guard let name = segments.popFirst() else {
            return isReading || request.method == "POST" ? .all : nil
        }
        switch (Array(segments), request.method) {
        case ([], "PUT"), ([], "PATCH"), ([], "DELETE"): return .one(name)
        case ([], _): return isReading ? .one(name) : nil
        case (["reload"], "POST"): return .reload(name)
        case (["shutdown"], "POST"): return .shutdown(name)
        case (["health"], _): return isReading ? .health(name) : nil
        case (["channels"], _): return isReading ? .channels(name) : nil
        case (["log", "rows"], let method) where isReading || method == "DELETE": return .rows(name)
        case (let rest, _) where isReading && rest.count == 2 && rest[0] == "log": return .log(name, command: rest[1])
        case (let rest, "POST") where rest.count == 2 && rest[0] == "signal": return .signal(name, name: rest[1])
        default: return nil
        }
    }

    /// True if the request is allowed. Without operators, everyone may ask for health, which contains nothing secret.
    private func isAdmitted(_ request: HTTPRequest, _ route: Route, at now: Int64) -> Bool {
        guard case .health = route else { return operators.admits(request, at: now) }
        return !operators.hasOperators || operators.admits(request, for: .health, at: now)
    }

    /// Returns the project of that name; nil if there is none.
    public func record(_ name: String) -> ProjectRecord? {
        store.record(named: name) ?? configured.flatMap { $0.externalID == name ? $0 : nil }
    }

    // MARK: Operations

    private func upsert(_ body: [UInt8], named name: String?, at now: Int64) -> TenantsOutcome {
        guard body.count <= Limits.maximumProjectBodyBytes else {
            return .response(.message(.contentTooLarge, "the description of a tenant is too large"))
        }
        do throws(ProjectBodyError) {
            let description = try ProjectDescription.read(body, named: name)
            assert(name == nil || description.externalID == name, "a description is of the project in the path")
            // `ProjectStore.apply` checks this again under its lock.
            try mistakes(in: description, at: now)
            return .operation(.upsert(description))
        } catch {
            switch error {
            case .notJSON: return .response(.message(.badRequest, "the body is not JSON"))
            case .noTenant: return .response(Self.blankTenant)
            case .mistakes(let mistakes): return .response(Self.refused(mistakes))
            }
        }
    }

    private func mistakes(in description: ProjectDescription, at now: Int64) throws(ProjectBodyError) {
        do throws(ProjectMistakes) {
            _ = try description.record(
                replacing: description.externalID.flatMap { record($0) }, defaults, at: now)
        } catch {
            throw .mistakes(error)
        }
    }

    /// Checks a request to delete a project, and returns the operation for it. Deleting a project that does not exist
    /// succeeds. The settings' own project and its log cannot be deleted.
    private func delete(_ name: String, log: String?) -> TenantsOutcome {
        var mistakes = ProjectMistakes()
        let fate = log.map { LogFate(rawValue: $0) } ?? .keep
        let isConfigured = configured?.externalID == name
        if store.record(named: name) == nil, isConfigured {
            mistakes.add("external_id", "is described by the hub's settings and cannot be deleted")
        }
        if fate == nil { mistakes.add("log", "is keep or delete") }
        if fate == .delete, isConfigured {
            mistakes.add("log", "is that of the project of the hub's settings, and stays")
        }
        guard let fate, mistakes.isEmpty else { return .response(Self.refused(mistakes)) }
        assert(fate == .keep || !isConfigured, "the log of the settings' own project stays")
        return .operation(.delete(name, log: fate))
    }

    private func question(_ command: String, _ request: HTTPRequest, of name: String) -> TenantsOutcome {
        guard let record = record(name) else { return .response(Self.notFound) }
        do throws(LogQuestion.Refusal) {
            if command == "part" { return .part(try AnswerPart(request.queryItems), record) }
            return .question(try LogQuestion(command, request.queryItems), record)
        } catch {
            return .response(.message(.badRequest, error.reason))
        }
    }

    private func forgetting(_ request: HTTPRequest, of name: String, isGo: Bool) -> TenantsOutcome {
        guard let record = record(name) else { return .response(Self.notFound) }
        do throws(LogQuestion.Refusal) {
            let question = try LogQuestion.forgetting(request.queryItems, isGo: isGo)
            return isGo ? .erasure(question, record) : .question(question, record)
        } catch {
            return .response(.message(.badRequest, error.reason))
        }
    }

    private func signal(_ signal: String, _ body: [UInt8], to name: String) -> TenantsOutcome {
        do throws(OperatorSignal.Refusal) {
            return operation(.signal(name, try OperatorSignal(signal, body)), on: name)
        } catch {
            return .response(.message(.badRequest, error.reason))
        }
    }

    private func operation(_ operation: TenantsOperation, on name: String) -> TenantsOutcome {
        record(name) == nil ? .response(Self.notFound) : .operation(operation)
    }

    // MARK: Answers

    private var list: HTTPResponse {
        let stored = store.all
        let names = Set(stored.map(\.externalID))
        let others = [configured].compactMap(\.self).filter { !names.contains($0.externalID) }
        return data(.array((others + stored).map { $0.told(store.seal) }))
    }

    private func told(_ record: ProjectRecord) -> HTTPResponse { data(record.told(store.seal)) }

    private func data(_ value: JSONValue, _ status: HTTPStatus = .ok) -> HTTPResponse {
        .json(status, JSONValue.object(JSONObject([("data", value)])).bytes)
    }

    /// Returns the answer after a project was stored. Its header `Location` contains the project's address in the API.
    public func stored(_ record: ProjectRecord, isNew: Bool) -> HTTPResponse {
        var response = data(record.told(store.seal), isNew ? .created : .ok)
        response.headers.append(HTTPHeader("location", "/api/tenants/\(record.id)"))
        return response
    }

    public static func refused(_ mistakes: ProjectMistakes) -> HTTPResponse {
        .json(.unprocessableContent, mistakes.json)
    }

    /// Answer after a deletion, a reload or a shutdown.
    public static let done = HTTPResponse(.noContent)

    public static let notFound = HTTPResponse.message(.notFound, "not found")

    /// Returns the answer to a request that failed. The sentence must not contain a secret.
    public static func failed(_ sentence: String) -> HTTPResponse { .message(.internalServerError, sentence) }

    private static let unknown = HTTPResponse.json(.notFound, Array(#""Not Found""#.utf8))

    private static let blankTenant = refused(ProjectMistakes([("tenant", "can't be blank")]))
}

/// Outcome of a request: the answer, or work that the caller must do for the answer.
public enum TenantsOutcome: Sendable {
    case response(HTTPResponse)
    /// Carry out the operation, which gives the answer.
    case operation(TenantsOperation)
    /// Ask the log of the project.
    case question(LogQuestion, ProjectRecord)
    /// Erase values of a row from the project's log.
    case erasure(LogQuestion, ProjectRecord)
    /// Return another part of an earlier large answer.
    case part(AnswerPart, ProjectRecord)
}

/// Fate of a deleted project's event log.
public enum LogFate: String, Sendable, CaseIterable {
    case keep, delete
}

/// Operation on a project, carried out on the project's own thread.
public enum TenantsOperation: Sendable, Equatable {
    /// Store the description and apply it. The answer is `stored`, `refused` or `failed`.
    case upsert(ProjectDescription)
    /// Delete the project, and its log if `log` says so. The answer is `done` or `failed`.
    case delete(String, log: LogFate)
    /// Restart the project. The answer is `done`; `notFound` if the project was deleted in the meantime; or `failed`.
    case reload(String)
    /// Restart the project, as `reload` does.
    case shutdown(String)
    /// Report the project's health. The answer is `ProjectHealth.response`.
    case health(String)
    /// List the project's channels. The answer is `ChannelCensus.json`.
    case channels(String)
    /// Carry out a signal. The answer is that of `RunningProject.carryOut`.
    case signal(String, OperatorSignal)
}
