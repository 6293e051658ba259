import Auth
import Bytes
import Channels
import Delivery
import Diagnostics
import Net
import Protocol
import Settings
import Synchronization
import System
import WebSocket

/// HTTP requests: pages for operators, and upgrades to WebSockets.
extension ClientLoop {
    func receiveRequest(_ session: Session, _ bytes: inout MutableRawSpan) -> Int {
        guard case .request(let scanned) = session.stage else { return bytes.byteCount }
        assert(session.request.incoming == nil, "a session serves one request at a time")
        switch HTTPRequestParser.parse(bytes.bytes, scanned: scanned, limits: shared.settings.requestLimits) {
        case .needMore(let searched):
            assert(searched >= scanned, "a search for the head goes on where it stopped")
            session.stage = .request(scanned: searched)
            return 0
        case .refuse(let refusal):
            metrics.refusals[.badRequest].add()
            answer(session, refusal.response, keepAlive: false)
            return bytes.byteCount
        case .request(let request, let headBytes):
            session.stage = .request(scanned: 0)
            let incoming = IncomingRequest(request, echoes: shared.settings.echoes)
            session.request.incoming = incoming
            if request.body == .none {
                serve(incoming, session)
            } else {
                expectBody(incoming, session)
            }
            return headBytes
        }
    }

    // MARK: Bodies

    /// Prepares to read a body. A request that no body could make valid is refused before its body is read.
    private func expectBody(_ incoming: IncomingRequest, _ session: Session) {
        let request = incoming.request
        if incoming.route == .unknown {
            metrics.refusals[.notFound].add()
            return answer(session, page(.unknown, request), keepAlive: false)
        }
        guard incoming.route.takesBody else {
            return answer(session, .error(.contentTooLarge, "no body is expected here"), keepAlive: false)
        }
        let refusal =
            incoming.route == .tenants
            ? shared.operators?.refusal(request, at: now) : refusal(incoming, session)
        if let refusal { return answer(session, refusal, keepAlive: false) }
        do throws(HTTPRefusal) {
            session.request.body = try HTTPBodyReader(request.body, limits: shared.settings.requestLimits)
        } catch {
            metrics.refusals[.badRequest].add()
            return answer(session, error.response, keepAlive: false)
        }
        if let project = try? served(request) { loop.bill(session.connection, to: project.project.budgets.input) }
        session.stage = .body
        guard request.expectsContinue else { return }
        let goAhead = HTTPResponse.continue
        loop.send(goAhead.rawBytes, to: session.connection)
    }

    func receiveBody(_ session: Session, _ bytes: inout MutableRawSpan) -> Int {
        guard var reader = session.request.body.take(), let incoming = session.request.incoming else {
            return bytes.byteCount
        }
        do throws(HTTPRefusal) {
            let count = try reader.read(bytes.bytes)
            guard reader.isComplete else {
                loop.hold(reader.bytes.byteCount, for: session.connection, restarting: false)
                session.request.body = consume reader
                return count
            }
            loop.hold(0, for: session.connection, restarting: true)
            incoming.body = reader.bytes.copied()
            session.stage = .request(scanned: 0)
            serve(incoming, session)
            return count
        } catch {
            metrics.refusals[.badRequest].add()
            answer(session, error.response, keepAlive: false)
            return bytes.byteCount
        }
    }

    // MARK: Answers

    private func serve(_ incoming: IncomingRequest, _ session: Session) {
        let request = incoming.request
        switch incoming.route {
        case .socket: openSocket(request, session)
        case .echo: upgrade(request, session, as: .echo)
        case _ where request.method == "OPTIONS" && incoming.route.isForBrowsers:
            answer(session, .preflight(incoming.route))
        case .broadcast, .broadcastOne: post(incoming, session)
        case .changes: serveChanges(incoming, session)
        case .tenants: administer(incoming, session)
        default:
            var response = page(incoming.route, request)
            if request.method != "GET", request.method != "HEAD" {
                response = .error(.methodNotAllowed, "only GET is answered here")
                response.headers.append(HTTPHeader("allow", "GET, HEAD"))
            }
            if response.status == .notFound { metrics.refusals[.notFound].add() }
            answer(session, response)
        }
    }

    /// Answers the request at hand. The connection stays open if the client wants that.
    func answer(_ session: Session, _ response: HTTPResponse) {
        let request = session.request.incoming?.request
        answer(session, response, keepAlive: request?.keepAlive ?? false, toHead: request?.isHead ?? false)
    }

    func answer(_ session: Session, _ response: HTTPResponse, keepAlive: Bool, toHead: Bool = false) {
        assert(session.stage.takesAnswer, "an answer goes to a request that waits for one")
        var response = response
        if response.status == .serviceUnavailable, !response.headers.contains(where: { $0.name == "retry-after" }) {
            response.headers.append(.retryAfter)
        }
        if let incoming = session.request.incoming { response.headers += incoming.headers }
        session.request.incoming = nil
        writer.removeAll()
        response.append(to: &writer, keepAlive: keepAlive && !isDraining, toHead: toHead)
        Self.send(writer, to: session, on: loop)
        writer.shrink(to: Limits.keptWriterBytes)
        guard !keepAlive || isDraining else {
            session.stage = .request(scanned: 0)
            return waitForRequest(session)
        }
        session.stage = .ending
        loop.close(session.connection, afterFlushing: Limits.farewellLimit)
    }

    /// Marks the answer as coming later. Until then the client's bytes are not read.
    func awaitAnswer(_ session: Session) { session.stage = .answering }

    func answerLater(_ connection: ConnectionID, _ response: HTTPResponse) {
        guard let session = session(connection), case .answering = session.stage else { return }
        answer(session, response)
        loop.showAgain(connection)
    }

    func waitForRequest(_ session: Session) {
        if let timer = session.timer { loop.cancel(timer) }
        session.timer = loop.after(
            nanoseconds: Limits.requestTimeLimit.wholeNanoseconds,
            token: TimerToken.request(session.connection).rawValue)
    }

    func requestTookTooLong(_ connection: ConnectionID) {
        guard Int(connection.seat) < sessions.count, let session = sessions[Int(connection.seat)],
            TimerToken.cut(session.connection.generation) == connection.generation
        else { return }
        session.timer = nil
        switch session.stage {
        case .refused(let response, let toHead): answer(session, response, keepAlive: false, toHead: toHead)
        case .request(let scanned):
            metrics.refusals[.timeout].add()
            // An idle connection without a new request is closed without an answer.
            guard scanned > 0 else { return loop.close(session.connection, afterFlushing: .zero) }
            answer(session, .error(.requestTimeout, "the request took too long"), keepAlive: false)
        case .body:
            metrics.refusals[.timeout].add()
            answer(session, .error(.requestTimeout, "the request took too long"), keepAlive: false)
        case .answering: answer(session, .error(.serviceUnavailable, "the answer took too long"), keepAlive: false)
        case .client: hasNoChannels(session)
        case .feed(let feed): feedIsDue(feed, session)
        case .echo, .ending: break
        }
    }

    // MARK: Operators

    private var now: Int64 { loop.time.unixSeconds }

    /// Starts an operator's request. Another thread does the work, which may take long.
    private func administer(_ incoming: IncomingRequest, _ session: Session) {
        guard let operators = shared.operators else {
            return answer(session, .error(.serviceUnavailable, "the hub is starting"))
        }
        let connection = session.connection
        let client = WaitingClient()
        let response = operators.answer(
            incoming.request, body: incoming.body, for: client, at: now
        ) { [mailbox] response in mailbox.post(.answered(connection, response)) }
        session.request.waiting = client
        if let response { return answer(session, response) }
        awaitAnswer(session)
        // A long operation has a longer time limit.
        if let timer = session.timer { loop.cancel(timer) }
        session.timer = loop.after(
            nanoseconds: Limits.operatorAnswerLimit.wholeNanoseconds, token: TimerToken.request(connection).rawValue)
    }

    // MARK: Idle clients

    /// Starts the timer that closes a client without channels, unless it joins one in time.
    func watchIdleness(_ session: Session) {
        guard session.timer == nil, case .client = session.stage, let limit = shared.settings.idleChannelLimit else {
            return
        }
        session.timer = loop.after(
            nanoseconds: limit.wholeNanoseconds, token: TimerToken.request(session.connection).rawValue)
    }

    func isInUse(_ session: Session) {
        if let timer = session.timer { loop.cancel(timer) }
        session.timer = nil
    }

    private func hasNoChannels(_ session: Session) {
        guard session.machine?.channelCount == 0 else { return }
        say(.normal, "no channel was joined for too long", to: session)
    }

    // MARK: Pages

    private func page(_ route: Route, _ request: HTTPRequest) -> HTTPResponse {
        switch route {
        case .health: HTTPResponse(.ok, contentType: "text/plain; charset=utf-8", body: Array("ok".utf8))
        case .ready: readiness(request)
        case .readyOne(let name): readiness(of: name)
        case .metrics: metricsPage(request)
        case .ping: ping(request)
        case .openAPI: HTTPResponse(.ok, contentType: HTTPResponse.jsonContentType, body: OpenAPI.document)
        case .front:
            HTTPResponse(
                .ok, contentType: "text/plain; charset=utf-8",
                body: Array("Tidewire \(Product.version) is here. Clients connect to /realtime/v1.\n".utf8))
        case .unknown, .socket, .echo, .broadcast, .broadcastOne, .changes, .tenants:
            .json(.notFound, Array(#""Not Found""#.utf8))
        }
    }

    private func ping(_ request: HTTPRequest) -> HTTPResponse {
        do throws(NotServed) {
            let project = try project(of: request)
            var response = HTTPResponse.json(.ok, Array(#"{"message":"Success"}"#.utf8))
            response.headers += project.rates.headers(at: loop.now)
            return response
        } catch {
            return error.response
        }
    }

    /// Answers for all projects. One project that is down does not make the hub unready, because that would send the
    /// others' clients away. Names of projects that are down go only to clients that may read the metrics.
    private func readiness(_ request: HTTPRequest) -> HTTPResponse {
        let running = shared.directory.all.map { (name: $0.name, condition: $0.condition()) }
        let conditions = running + shared.directory.absent.map { ($0.name, ProjectHealthReport(absent: $0.absence)) }
        guard let best = conditions.first(where: \.condition.isReady) ?? conditions.first else {
            return .json(.serviceUnavailable, Array(#"{"ready":false}"#.utf8))
        }
        var report = best.condition
        if conditions.count > 1 {
            let down = conditions.filter { !$0.condition.isReady }.map(\.name)
            report.others = ProjectHealthReport.Others(
                count: conditions.count, notReady: down.count, names: mayReadMetrics(request) ? down : nil)
        }
        return readiness(report)
    }

    private func readiness(of name: String) -> HTTPResponse {
        switch shared.directory.entry(named: name) {
        case .running(let project): readiness(project.condition())
        case .absent(let absence): readiness(ProjectHealthReport(absent: absence))
        case .deleted, nil: .message(.notFound, "there is no such project")
        }
    }

    private func readiness(_ report: ProjectHealthReport) -> HTTPResponse {
        .json(report.isReady && !isDraining ? .ok : .serviceUnavailable, report.json)
    }

    /// Returns the project of the host name that a request asks for. For a name without a project, the settings decide.
    /// A known project that does not run is never replaced by another.
    func project(of request: HTTPRequest) throws(NotServed) -> Project {
        let host = request.host?.text ?? ""
        switch shared.directory.project(
            label: request.host?.label, unknown: shared.settings.unknownHosts, main: shared.settings.mainProject)
        {
        case .known(let project): return project
        case .standIn(let project):
            shared.refusals.note(.unknownHostServed, host: host, at: loop.now)
            return project
        case .absent(let absence): throw .unavailable(absence.sentence)
        case .none:
            guard shared.operators != nil else { throw .unavailable("the hub is starting") }
            shared.refusals.note(.unknownHost, host: host, at: loop.now)
            throw .unknown
        }
    }

    private func mayReadMetrics(_ request: HTTPRequest) -> Bool {
        shared.settings.metricsGate?.admits(request, at: loop.time.unixSeconds) ?? true
    }

    private func metricsPage(_ request: HTTPRequest) -> HTTPResponse {
        guard mayReadMetrics(request) else { return HTTPResponse(HTTPStatus.forbidden) }
        shared.process.look(at: loop.now)
        let projects = shared.directory.all
        // Projects that do not run show zeros, so that alerts on them still work.
        let absent = shared.directory.absent.map { absent in
            ProjectMetrics(of: absent.name == shared.settings.mainProject ? nil : absent.name)
        }
        return HTTPResponse(
            .ok, contentType: "text/plain; version=0.0.4; charset=utf-8",
            body: metrics.render(projects.map(\.metrics) + absent) + ReferenceMetrics.render(projects))
    }

    // MARK: WebSocket upgrades

    private func openSocket(_ request: HTTPRequest, _ session: Session) {
        guard request.method == "GET" else {
            return answer(session, HTTPResponse(.badRequest), keepAlive: false, toHead: request.isHead)
        }
        guard let version = SerializerVersion(vsn: request.query("vsn")) else {
            metrics.refusals[.version].add()
            shared.refusals.note(.version, at: loop.now)
            return answer(session, HTTPResponse(HTTPStatus.forbidden), keepAlive: false)
        }
        let project: ProjectLoop
        do throws(NotServed) {
            project = try served(request)
        } catch {
            metrics.refusals[error.refusal].add()
            switch error {
            case .unavailable(let sentence): return refuse(session, .error(.serviceUnavailable, sentence))
            case .unknown: return refuse(session, .error(.notFound, "Tenant not found"))
            }
        }
        guard !isDraining, !project.live.pipeline.hasFailed else {
            metrics.refusals[.draining].add()
            return refuse(session, .error(.serviceUnavailable, "the server restarts, or its event log cannot be read"))
        }
        if project.limits.isSuspended {
            metrics.refusals[.suspended].add()
            project.project.refused(.suspended, at: loop.now)
            return refuse(session, .error(.forbidden, "Realtime was disabled for this tenant"))
        }
        guard let key = request.header("x-api-key") ?? request.query("apikey") else {
            metrics.refusals[.token].add()
            project.project.refused(.missing, at: loop.now)
            return refuse(session, .error(.unauthorized, "API key is missing"))
        }
        func refuseKnown(_ status: HTTPStatus, _ sentence: String) {
            project.ledger.noteRefusal(
                of: session, project.tokens.holder(ofRefused: key), [], "\(status.rawValue): \(sentence)")
            refuse(session, .error(status, sentence))
        }
        do throws(TokenError) {
            session.terms.claims = try project.tokens.verify(Array(key.utf8))
        } catch {
            metrics.refusals[.token].add()
            return refuseKnown(HTTPStatus(rawValue: UInt16(clamping: error.upgradeStatus)), error.upgradeText)
        }
        guard project.project.users.hasRoom else {
            metrics.refusals[.limit].add()
            project.project.refused(.tooManyUsers, at: loop.now)
            return refuseKnown(.tooManyRequests, "Too many connected users")
        }
        guard !project.project.rates.joins.isExhausted(at: loop.now) else {
            metrics.refusals[.limit].add()
            project.project.refused(.tooManyJoins, at: loop.now)
            return refuseKnown(.tooManyRequests, "Too many joins per second")
        }
        assert(session.project == nil, "a session belongs to one project")
        session.terms.version = version
        session.terms.options = ExtensionOptions(parameters: request.queryItems.lazy.map { ($0.name, $0.value) })
        session.terms.clientID = request.query("client_id").flatMap { $0.utf8.count <= Limits.clientIDBytes ? $0 : nil }
        session.project = project
        upgrade(request, session, as: .client)
    }

    /// Refuses an upgrade after a pause, because clients of this protocol retry at once and without end.
    private func refuse(_ session: Session, _ response: HTTPResponse) {
        session.stage = .refused(response, toHead: false)
        if let timer = session.timer { loop.cancel(timer) }
        session.timer = loop.after(
            nanoseconds: shared.settings.connectErrorDelay.wholeNanoseconds,
            token: TimerToken.request(session.connection).rawValue)
    }

    private func upgrade(_ request: HTTPRequest, _ session: Session, as stage: Session.Stage) {
        switch WebSocketHandshake.accept(request, offeringDeflate: shared.settings.deflates) {
        case .refused(let refusal):
            metrics.refusals[.badRequest].add()
            answer(session, refusal.response, keepAlive: false)
        case .accepted(let response, let agreement):
            if let timer = session.timer { loop.cancel(timer) }
            session.timer = nil
            session.stage = stage
            session.terms.headers = request.headersForPolicies { $0.hasPrefix("x-") && $0 != "x-api-key" }
            session.request.incoming = nil
            // Shared frames are compressed with a window of 32 KiB. A client with a smaller window receives
            // uncompressed frames.
            session.terms.wantsCompression = agreement?.serverWindowBits == 15
            if case .echo = stage {
                session.frames = FrameDecoder(.ofEcho(compressed: agreement != nil))
            } else {
                session.frames = FrameDecoder(shared.settings.frameRules(compressed: agreement != nil))
                guard let limits = session.project?.limits.channelLimits else {
                    preconditionFailure("a client without a project")
                }
                let isFirst = session.machine == nil
                assert(isFirst, "a connection becomes a WebSocket once")
                if let project = session.project?.project { loop.bill(session.connection, to: project.budgets.input) }
                session.machine = ChannelMachine(limits, closesReplaced: session.terms.version == .v2)
                metrics.sessions.add(1)
            }
            loop.send(response.rawBytes, to: session.connection)
        }
    }
}

/// Reason why no project serves a request.
enum NotServed: Error {
    /// The project does not run at the moment; the text says why.
    case unavailable(String)
    /// The request is not for any known project.
    case unknown

    /// Response for paths that have the reference's form.
    var response: HTTPResponse {
        switch self {
        case .unavailable(let sentence): .message(.serviceUnavailable, sentence)
        case .unknown: HTTPResponse(.unknownTenant)
        }
    }

    var refusal: ProcessMetrics.Refusal {
        switch self {
        case .unavailable: .draining
        case .unknown: .notFound
        }
    }
}

extension HTTPHeader {
    /// Value of Retry-After, which every answer of status 503 has.
    static let retryAfter = HTTPHeader("retry-after", "\(Limits.retryAfter.wholeSeconds)")
}

extension GatewaySettings {
    func frameRules(compressed: Bool) -> FrameDecoder.Rules {
        FrameDecoder.Rules(
            maximumMessageBytes: maximumMessageBytes, maximumFragments: Limits.maximumMessageFragments,
            allowsCompression: compressed)
    }
}

extension ProjectLimits {
    var channelLimits: ChannelLimits {
        ChannelLimits(
            maximumChannels: UInt32(clamping: maximumChannelsPerClient),
            maximumWaitingFrames: Limits.maximumWaitingFrames,
            maximumWaitingBytes: Limits.maximumWaitingFrameBytes)
    }
}

extension FrameDecoder.Rules {
    static func ofEcho(compressed: Bool) -> FrameDecoder.Rules {
        FrameDecoder.Rules(
            maximumMessageBytes: Limits.maximumEchoBytes, maximumFragments: Limits.maximumEchoBytes,
            allowsCompression: compressed, validatesText: true)
    }
}
