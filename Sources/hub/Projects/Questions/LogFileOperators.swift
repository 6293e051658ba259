import Bytes
import Diagnostics
import Gateway
import Settings
import System
import WebSocket

/// Answers of a web console without a hub: about one bundle, or a copy of a log, by processes that read it.
///
/// Only requests of the console are answered. There is nothing that they could change.
public final class LogFileOperators: Operators {
    private let name: String
    private let place: QuestionPlace
    private let desk: QuestionDesk

    /// Starts the threads that answer. Must be called on the main thread.
    ///
    /// - Parameters:
    ///   - path: path of the bundle, or of a log's directory.
    ///   - name: name that the console shows.
    public init(_ path: String, name: String) throws(SystemError) {
        self.name = name
        place = QuestionPlace(log: path, environment: ProjectPlanner.surroundings)
        desk = try QuestionDesk(.questions)
    }

    public func refusal(_ request: HTTPRequest, of known: Operator?, at now: Int64) -> HTTPResponse? {
        known == nil ? HTTPResponse(.forbidden) : nil
    }

    public func answer(
        _ request: HTTPRequest, of known: Operator?, body: [UInt8], for client: WaitingClient, at now: Int64,
        later: @escaping @Sendable (HTTPResponse) -> Void
    ) -> HTTPResponse? {
        guard known != nil else { return HTTPResponse(.forbidden) }
        let path = request.pathSegments.filter { !$0.isEmpty }.dropFirst(3)
        do throws(LogQuestion.Refusal) {
            switch (request.method, Array(path)) {
            case ("GET", []):
                let project = JSONObject([("external_id", .string(name)), ("bundle", .bool(true))])
                let list = JSONObject([("data", .array([.object(project)]))])
                return .json(.ok, JSONValue.object(list).bytes)
            case ("GET", [name, "log", "part"]):
                try answer(.part(AnswerPart(request.queryItems)), client, later)
                return nil
            case ("GET", let path) where path.count == 3 && path[0] == name && path[1] == "log":
                try ask(LogQuestion(path[2], request.queryItems), client, later)
                return nil
            case ("POST", [name, "log"]):
                try ask(LogQuestion.several(body), client, later)
                return nil
            default: return .message(.notFound, "only a running hub knows this")
            }
        } catch {
            return .message(.badRequest, error.reason)
        }
    }

    private func ask(
        _ question: LogQuestion, _ client: WaitingClient, _ later: @escaping @Sendable (HTTPResponse) -> Void
    ) throws(LogQuestion.Refusal) {
        guard question.each.allSatisfy(\.readsLog), question.form != .bundle else {
            throw LogQuestion.Refusal(reason: "only a running hub answers this")
        }
        try answer(.question(question), client, later)
    }

    private func answer(
        _ what: QuestionRun.What, _ client: WaitingClient, _ later: @escaping @Sendable (HTTPResponse) -> Void
    ) throws(LogQuestion.Refusal) {
        guard let program = OwnProgram.path else { throw LogQuestion.Refusal(reason: "the program has no path") }
        let run = QuestionRun(what: what, place: place, program: program, client: client)
        desk.ask(beside: nil, for: "", { run.answer() }, then: later)
    }

    public func close() { desk.close() }
}
