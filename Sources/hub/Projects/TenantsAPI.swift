import Bytes
import Diagnostics
import Gateway
import Settings
import WebSocket

/// Operators' API for the hub's projects. For a request below `/api/tenants` it returns an answer, or an operation that
/// the caller must carry out. The API itself changes nothing.
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

    /// Returns the refusal of a request before its body is read; nil if the hub may read the body.
    ///
    /// - Parameters:
    ///   - known: the operator, for a request of the web console; nil if the request's token states the operator.
    ///   - now: Unix time in seconds.
    public func refusal(_ request: HTTPRequest, of known: Operator? = nil, at now: Int64) -> HTTPResponse? {
        switch check(request, of: known, at: now) {
        case .refused(let response): response
        case .command: nil
        }
    }

    public func handle(
        _ request: HTTPRequest, of known: Operator? = nil, body: [UInt8], at now: Int64
    ) -> TenantsOutcome {
        switch check(request, of: known, body: body, at: now) {
        case .refused(let response): .response(response)
        case .command(let command, let asked): command.handle(self, asked)
        }
    }

    /// Result of checking a request: a refusal, or the command with its request.
    private enum Check {
        case refused(HTTPResponse)
        case command(OperatorCommand, OperatorRequest)
    }

    /// Finds the command of a request, and checks that the operator has the role for it. Every command is reached
    /// through this check.
    ///
    /// - Parameter body: body of the request; empty before it is read.
    private func check(
        _ request: HTTPRequest, of known: Operator?, body: [UInt8] = [], at now: Int64
    ) -> Check {
        guard let (command, values) = OperatorCommand.of(request, below: known == nil ? nil : "console") else {
            return .refused(Self.unknown)
        }
        if command.answersInJSON, !AcceptHeader(request.header("accept")).allowsJSON {
            return .refused(.notAcceptable)
        }
        var asked = OperatorRequest(
            request: request, values: values, operator: Operator(subject: "", role: .viewer), now: now)
        asked.body = body
        if let known { return admitted(known, command, asked) }
        // Without operators' secrets, everybody may ask for health, which shows nothing confidential.
        if case .health = command.need {
            let isAdmitted = !operators.hasOperators || operators.admits(request, for: .health, at: now)
            return isAdmitted ? .command(command, asked) : .refused(HTTPResponse(.forbidden))
        }
        switch operators.admission(request, at: now) {
        case .refused: return .refused(HTTPResponse(.forbidden))
        case .noRole(let reason): return .refused(.message(.forbidden, reason))
        case .admitted(let given): return admitted(given, command, asked)
        }
    }

    /// Returns the command, unless it needs a higher role.
    private func admitted(_ given: Operator, _ command: OperatorCommand, _ asked: OperatorRequest) -> Check {
        var asked = asked
        asked.operator = given
        let needed = command.need.role(asked)
        guard given.role >= needed else {
            return .refused(
                .message(
                    .forbidden, "this needs the role \(needed.rawValue), and yours is \(given.role.rawValue)"))
        }
        return .command(command, asked)
    }

    /// Returns the project of that name; nil if there is none.
    public func record(_ name: String) -> ProjectRecord? {
        store.record(named: name) ?? configured.flatMap { $0.externalID == name ? $0 : nil }
    }

    // MARK: Operations

    func upsert(_ asked: OperatorRequest, named name: String?) -> TenantsOutcome {
        let (body, now) = (asked.body, asked.now)
        guard body.count <= Limits.maximumProjectBodyBytes else {
            return .response(.message(.contentTooLarge, "the description of a tenant is too large"))
        }
        do throws(ProjectBodyError) {
            let description = try ProjectDescription.read(body, named: name)
            assert(name == nil || description.externalID == name, "a description is of the project in the path")
            // `ProjectStore.apply` checks this again under its lock.
            try mistakes(in: description, at: now)
            return .operation(.upsert(description), by: asked.operator)
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

    /// Returns the outcome of a deletion. A project that does not exist counts as deleted. The project of the settings
    /// and its log are kept.
    func delete(_ asked: OperatorRequest) -> TenantsOutcome {
        let (name, log) = (asked.name, asked.request.query("log"))
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
        return .operation(.delete(name, log: fate), by: asked.operator)
    }

    func question(_ asked: OperatorRequest) -> TenantsOutcome {
        guard let record = record(asked.name) else { return .response(Self.notFound) }
        do throws(LogQuestion.Refusal) {
            return .question(try LogQuestion(asked.values[1], asked.request.queryItems), record, by: asked.operator)
        } catch {
            return .response(.message(.badRequest, error.reason))
        }
    }

    /// Returns the outcome of a request with several questions, which one process answers in order.
    func questions(_ asked: OperatorRequest) -> TenantsOutcome {
        guard let record = record(asked.name) else { return .response(Self.notFound) }
        do throws(LogQuestion.Refusal) {
            return .question(try LogQuestion.several(asked.body), record, by: asked.operator)
        } catch {
            return .response(.message(.badRequest, error.reason))
        }
    }

    func follow(_ asked: OperatorRequest) -> TenantsOutcome {
        guard let record = record(asked.name) else { return .response(Self.notFound) }
        do throws(LogQuestion.Refusal) {
            let question = try LogQuestion.following(asked.request.queryItems)
            if asked.request.isHead {
                return .response(HTTPResponse(.ok, contentType: question.form.contentType, body: []))
            }
            return .follow(question, record, by: asked.operator)
        } catch {
            return .response(.message(.badRequest, error.reason))
        }
    }

    func kick(_ asked: OperatorRequest) -> TenantsOutcome {
        do throws(OperatorKick.Refusal) {
            return operation(.kick(asked.name, try OperatorKick(asked.body)), asked)
        } catch {
            return .response(.message(.badRequest, error.reason))
        }
    }

    func unblock(_ asked: OperatorRequest) -> TenantsOutcome {
        do throws(OperatorKick.Refusal) {
            let target = try OperatorKick.target { asked.request.query($0) }
            guard case .socket = target else { return operation(.unblock(asked.name, target), asked) }
            return .response(.message(.badRequest, "a session is not blocked, but its login or user"))
        } catch {
            return .response(.message(.badRequest, error.reason))
        }
    }

    func part(_ asked: OperatorRequest) -> TenantsOutcome {
        guard let record = record(asked.name) else { return .response(Self.notFound) }
        do throws(LogQuestion.Refusal) {
            return .part(try AnswerPart(asked.request.queryItems), record)
        } catch {
            return .response(.message(.badRequest, error.reason))
        }
    }

    func forgetting(_ asked: OperatorRequest, isGo: Bool) -> TenantsOutcome {
        guard let record = record(asked.name) else { return .response(Self.notFound) }
        do throws(LogQuestion.Refusal) {
            let question = try LogQuestion.forgetting(asked.request.queryItems, isGo: isGo)
            return isGo
                ? .erasure(question, record, by: asked.operator) : .question(question, record, by: asked.operator)
        } catch {
            return .response(.message(.badRequest, error.reason))
        }
    }

    func signal(_ asked: OperatorRequest) -> TenantsOutcome {
        do throws(OperatorSignal.Refusal) {
            return operation(.signal(asked.name, try OperatorSignal(asked.values[1], asked.body)), asked)
        } catch {
            return .response(.message(.badRequest, error.reason))
        }
    }

    func operation(_ operation: TenantsOperation, _ asked: OperatorRequest) -> TenantsOutcome {
        record(asked.name) == nil ? .response(Self.notFound) : .operation(operation, by: asked.operator)
    }

    /// Returns the project's record as an answer.
    func shown(_ asked: OperatorRequest) -> TenantsOutcome {
        .response(record(asked.name).map(told) ?? Self.notFound)
    }

    // MARK: Answers

    /// HTTP answer with the records of all projects.
    var list: HTTPResponse {
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

    /// Returns the answer to a request that failed for a reason inside the hub. The sentence must not contain a secret.
    public static func failed(_ sentence: String) -> HTTPResponse { .message(.internalServerError, sentence) }

    private static let unknown = HTTPResponse.json(.notFound, Array(#""Not Found""#.utf8))

    private static let blankTenant = refused(ProjectMistakes([("tenant", "can't be blank")]))
}

/// Outcome of a request: the answer, or work that the caller must do for the answer.
public enum TenantsOutcome: Sendable {
    case response(HTTPResponse)
    /// The caller must carry out the operation and then answer.
    case operation(TenantsOperation, by: Operator)
    /// The caller must have the question answered from the project's log.
    case question(LogQuestion, ProjectRecord, by: Operator)
    /// The caller must erase the values of a row from the project's log.
    case erasure(LogQuestion, ProjectRecord, by: Operator)
    /// The caller must stream the log's new entries until the client disconnects.
    case follow(LogQuestion, ProjectRecord, by: Operator)
    /// The caller must send a further part of an earlier answer, which was too large for one response.
    case part(AnswerPart, ProjectRecord)
}

/// Choice what happens to the event log of a deleted project.
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
    /// Disconnect clients, and block them if the request has a duration. The answer is that of
    /// `RunningProject.carryOut`.
    case kick(String, OperatorKick)
    /// List the blocked users and logins.
    case blocks(String)
    /// End the block of a user or login.
    case unblock(String, CutOffTarget)
    /// Report the state of this node and its cluster. The answer is `RunningProject.clusterAnswer`.
    case cluster(String)
    /// Give the replication slot up to another node of the cluster. The answer is that of `RunningProject.handOver`.
    case handover(String)
    /// Return the settings of the hub.
    case config(String)
    /// Return the project's metrics of the last hour.
    case values(String)
}
