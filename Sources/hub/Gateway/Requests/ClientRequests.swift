import Auth
import Bytes
import Channels
import Delivery
import Diagnostics
import Net
import Pages
import Protocol
import Settings
import Synchronization
import System
import WebSocket

/// HTTP requests, from their heads until their answers.
final class ClientRequests: ClientPart {
    unowned let home: ClientLoop
    private let pages: ClientPages
    private let upgrades: ClientUpgrades
    private let posts: ClientPosts
    let streams: OperatorStreams

    init(of home: ClientLoop) {
        self.home = home
        pages = ClientPages(of: home)
        upgrades = ClientUpgrades(of: home)
        posts = ClientPosts(of: home)
        streams = OperatorStreams(of: home)
    }

    func receiveHead(_ session: Session, _ bytes: inout MutableRawSpan) -> Int {
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
            return answer(session, pages.page(.unknown, request), keepAlive: false)
        }
        guard incoming.route.takesBody else {
            return answer(session, .error(.contentTooLarge, "no body is expected here"), keepAlive: false)
        }
        let refusal =
            switch incoming.route {
            case .tenants: shared.operators?.refusal(request, of: nil, at: now)
            case .console: consoleRefusal(request, session)
            default: posts.refusal(incoming, session)
            }
        if let refusal { return answer(session, refusal, keepAlive: false) }
        do throws(HTTPRefusal) {
            session.request.body = try HTTPBodyReader(request.body, limits: shared.settings.requestLimits)
        } catch {
            metrics.refusals[.badRequest].add()
            return answer(session, error.response, keepAlive: false)
        }
        if let project = try? home.served(request) { loop.bill(session.connection, to: project.project.budgets.input) }
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
        case .socket: upgrades.openSocket(request, session)
        case .echo: upgrades.upgrade(request, session, as: .echo)
        case _ where request.method == "OPTIONS" && incoming.route.isForBrowsers:
            answer(session, .preflight(incoming.route))
        case .broadcast, .broadcastOne: posts.post(incoming, session)
        case .changes: home.feeds.serveChanges(incoming, session)
        case .tenants: administer(incoming, session)
        case .console: serveConsole(incoming, session)
        default:
            var response = pages.page(incoming.route, request)
            if request.method != "GET", request.method != "HEAD" {
                response = .error(.methodNotAllowed, "only GET is answered here")
                response.headers.append(HTTPHeader("allow", "GET, HEAD"))
            }
            if response.status == .notFound { metrics.refusals[.notFound].add() }
            answer(session, response)
        }
    }

    /// Answers the session's current request. The connection stays open if the client asked for that.
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
        let stays = keepAlive && !home.farewells.haveBegun
        home.output.send(to: session) { writer in response.append(to: &writer, keepAlive: stays, toHead: toHead) }
        guard !stays else {
            session.stage = .request(scanned: 0)
            return waitForRequest(session)
        }
        session.stage = .ending
        loop.close(session.connection, afterFlushing: Limits.farewellLimit)
    }

    /// Marks the session as waiting for its answer. Until the hub has sent the answer, it reads no more bytes of the
    /// client.
    func awaitAnswer(_ session: Session) { session.stage = .answering }

    func answerLater(_ connection: ConnectionID, _ response: HTTPResponse) {
        guard let session = home.session(connection), case .answering = session.stage else { return }
        session.request.waiting = nil
        answer(session, response)
        loop.redeliverInput(connection)
    }

    func waitForRequest(_ session: Session) {
        if let timer = session.timer { loop.cancel(timer) }
        session.timer = loop.after(
            nanoseconds: Limits.requestTimeLimit.wholeNanoseconds,
            token: TimerToken.request(session.connection).rawValue)
    }

    func tookTooLong(_ connection: ConnectionID) {
        guard let session = home.session(ofTimer: connection) else { return }
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
        case .feed(let feed): home.feeds.feedIsDue(feed, session)
        case .echo, .ending, .streaming: break
        }
    }

    // MARK: Operators

    private var now: Int64 { loop.time.unixSeconds }

    /// Returns the refusal of a request of the web console whose body was not read yet; nil if the hub may read it.
    private func consoleRefusal(_ request: HTTPRequest, _ session: Session) -> HTTPResponse? {
        switch shared.settings.console?.outcome(request, from: session.peer, at: now) {
        case nil: pages.page(.unknown, request)
        case .response(let response): response
        case .operation(let asker, _, _): shared.operators?.refusal(request, of: asker, at: now)
        }
    }

    private func serveConsole(_ incoming: IncomingRequest, _ session: Session) {
        switch shared.settings.console?.outcome(incoming.request, from: session.peer, at: now) {
        case nil:
            metrics.refusals[.notFound].add()
            answer(session, pages.page(.unknown, incoming.request))
        case .response(let response): answer(session, response)
        case .operation(let asker, let headers, let isOver):
            incoming.add(headers)
            administer(incoming, session, of: asker, until: isOver)
        }
    }

    /// Starts an operator's request. Another thread does the work, which may take long.
    ///
    /// - Parameters:
    ///   - known: the operator, for a request of the web console.
    ///   - isOver: returns true once the operator may no longer get anything.
    private func administer(
        _ incoming: IncomingRequest, _ session: Session, of known: Operator? = nil,
        until isOver: @escaping @Sendable () -> Bool = { false }
    ) {
        guard let operators = shared.operators else {
            return answer(session, .error(.serviceUnavailable, "the hub is starting"))
        }
        let connection = session.connection
        let client = WaitingClient(until: isOver) { [mailbox = home.mailbox] part in
            mailbox.post(.streamed(connection, part))
        }
        let response = operators.answer(
            incoming.request, of: known, body: incoming.body, for: client, at: now
        ) { [mailbox = home.mailbox] response in mailbox.post(.answered(connection, response)) }
        if let response { return answer(session, response) }
        session.request.waiting = client
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
        home.say(.normal, "no channel was joined for too long", to: session)
    }
}

extension HTTPHeader {
    /// Value of Retry-After, which every answer of status 503 has.
    static let retryAfter = HTTPHeader("retry-after", "\(Limits.retryAfter.wholeSeconds)")
}
