import Auth
import Bytes
import Channels
import Diagnostics
import Net
import Protocol
import Synchronization
import System
import WebSocket

/// Requests: a few pages for operators, and the way into a WebSocket.
extension ClientLoop {
    func receiveRequest(_ session: Session, _ bytes: inout MutableRawSpan) -> Int {
        guard case .request(let scanned) = session.stage else { return bytes.byteCount }
        switch HTTPRequestParser.parse(bytes.bytes, scanned: scanned, limits: .ofClients) {
        case .needMore(let scanned):
            session.stage = .request(scanned: scanned)
            return 0
        case .refuse(let refusal):
            Metrics.shared.refusals[.badRequest].add()
            answer(session, refusal.response, keepAlive: false)
            return bytes.byteCount
        case .request(let request, let headBytes):
            // Nothing here takes a body yet: what follows one is not looked at.
            guard request.body == .none else {
                answer(session, .error(.contentTooLarge, "no body is expected here"), keepAlive: false)
                return bytes.byteCount
            }
            serve(request, session)
            return headBytes
        }
    }

    private func serve(_ request: HTTPRequest, _ session: Session) {
        session.stage = .request(scanned: 0)
        let route = Route(request, echoes: shared.settings.echoes)
        switch route {
        case .socket: openSocket(request, session)
        case .echo: upgrade(request, session, as: .echo)
        default:
            var response = page(route, request)
            if request.method != "GET", request.method != "HEAD" {
                response = .error(.methodNotAllowed, "only GET is answered here")
                response.headers.append(HTTPHeader("allow", "GET, HEAD"))
            }
            if response.status == .notFound { Metrics.shared.refusals[.notFound].add() }
            answer(session, response, keepAlive: request.keepAlive, toHead: request.isHead)
        }
    }

    private func answer(_ session: Session, _ response: HTTPResponse, keepAlive: Bool, toHead: Bool = false) {
        writer.removeAll()
        response.append(to: &writer, keepAlive: keepAlive && !isDraining, toHead: toHead)
        Self.send(writer, to: session, on: loop)
        guard !keepAlive || isDraining else { return waitForRequest(session) }
        session.stage = .ending
        loop.close(session.connection, afterFlushing: Limits.farewellLimit)
    }

    private func waitForRequest(_ session: Session) {
        if let timer = session.timer { loop.cancel(timer) }
        session.timer = loop.after(
            nanoseconds: Limits.requestTimeLimit.wholeNanoseconds,
            token: TimerToken.request(session.connection).rawValue)
    }

    func requestTookTooLong(_ connection: ConnectionID) {
        guard Int(connection.slot) < sessions.count, let session = sessions[Int(connection.slot)],
            TimerToken.cut(session.connection.generation) == connection.generation
        else { return }
        session.timer = nil
        switch session.stage {
        case .refused(let response, let toHead): answer(session, response, keepAlive: false, toHead: toHead)
        case .request(let scanned):
            Metrics.shared.refusals[.timeout].add()
            // A client that never began its next request just goes.
            guard scanned > 0 else { return loop.close(session.connection, afterFlushing: .zero) }
            answer(session, .error(.requestTimeout, "the request took too long"), keepAlive: false)
        case .client, .echo, .ending: break
        }
    }

    // MARK: Pages

    private func page(_ route: Route, _ request: HTTPRequest) -> HTTPResponse {
        switch route {
        case .health: HTTPResponse(.ok, contentType: "text/plain; charset=utf-8", body: Array("ok".utf8))
        case .ready: readiness()
        case .metrics: metrics(request)
        case .ping: .json(.ok, Array(#"{"message":"Success"}"#.utf8))
        // The reference's own health check asks this; there is nothing in it to protect.
        case .tenantHealth: .json(.ok, shared.condition().tenantJSON)
        case .front:
            HTTPResponse(
                .ok, contentType: "text/plain; charset=utf-8",
                body: Array("Tidewire \(Product.version) is here. Clients connect to /realtime/v1.\n".utf8))
        case .unknown, .socket, .echo: .json(.notFound, Array(#""Not Found""#.utf8))
        }
    }

    private func readiness() -> HTTPResponse {
        var condition = shared.condition()
        condition.isLogReadable = !shared.cannotRead.load(ordering: .relaxed)
        return .json(condition.isReady && !isDraining ? .ok : .serviceUnavailable, condition.json)
    }

    private func metrics(_ request: HTTPRequest) -> HTTPResponse {
        if let verifier = shared.settings.metricsVerifier, !Self.isOperator(request, verifier) {
            return HTTPResponse(.forbidden)
        }
        return HTTPResponse(
            .ok, contentType: "text/plain; version=0.0.4; charset=utf-8", body: Metrics.shared.render())
    }

    private static func isOperator(_ request: HTTPRequest, _ verifier: TokenVerifier) -> Bool {
        guard let header = request.header("authorization"), header.hasPrefix("Bearer ") else { return false }
        let token = Array(header.utf8.dropFirst(7))
        // SAFETY: any byte is a valid UInt8, and the array outlives the call.
        return (try? verifier.authenticate(unsafe token.span.bytes, at: Clock.unixMicroseconds() / 1_000_000)) != nil
    }

    // MARK: The way into a WebSocket

    private func openSocket(_ request: HTTPRequest, _ session: Session) {
        guard request.method == "GET" else {
            return answer(session, HTTPResponse(.badRequest), keepAlive: false, toHead: request.isHead)
        }
        guard let version = SerializerVersion(vsn: request.query("vsn")) else {
            Metrics.shared.refusals[.version].add()
            return answer(session, HTTPResponse(.forbidden), keepAlive: false)
        }
        guard !isDraining, !pipeline.hasFailed else {
            Metrics.shared.refusals[.draining].add()
            return refuse(session, .error(.serviceUnavailable, "the server restarts, or its event log cannot be read"))
        }
        guard let key = request.header("x-api-key") ?? request.query("apikey") else {
            Metrics.shared.refusals[.token].add()
            return refuse(session, .error(.unauthorized, "API key is missing"))
        }
        do throws(TokenError) {
            session.claims = try verify(Array(key.utf8))
        } catch {
            Metrics.shared.refusals[.token].add()
            return refuse(
                session, .error(HTTPStatus(rawValue: UInt16(clamping: error.upgradeStatus)), error.upgradeText))
        }
        session.version = version
        upgrade(request, session, as: .client)
    }

    func verify(_ token: [UInt8]) throws(TokenError) -> Claims {
        // SAFETY: any byte is a valid UInt8, and the array outlives the call.
        try tokens.verify(unsafe token.span.bytes, at: Clock.unixMicroseconds() / 1_000_000)
    }

    /// Said after a pause: clients of this protocol try again for ever, and at once.
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
            Metrics.shared.refusals[.badRequest].add()
            answer(session, refusal.response, keepAlive: false)
        case .accepted(let response, let agreement):
            if let timer = session.timer { loop.cancel(timer) }
            session.timer = nil
            session.stage = stage
            // Shared frames look back 32 KiB; a client with a smaller window gets plain ones.
            session.wantsCompression = agreement?.serverWindowBits == 15
            if case .echo = stage {
                session.frames = FrameDecoder(.ofEcho(compressed: agreement != nil))
            } else {
                session.frames = FrameDecoder(shared.settings.frameRules(compressed: agreement != nil))
                session.machine = ChannelMachine(
                    shared.settings.channelLimits, closesReplaced: session.version == .v2)
                Metrics.shared.sessions.add(1)
            }
            // SAFETY: any byte is a valid UInt8, and the array outlives the call.
            loop.send(unsafe response.span.bytes, to: session.connection)
        }
    }
}

extension HTTPLimits {
    static let ofClients = HTTPLimits(
        maximumHeadBytes: Limits.maximumRequestHeadBytes, maximumTargetBytes: Limits.maximumRequestTargetBytes,
        maximumHeaders: Limits.maximumRequestHeaders, maximumBodyBytes: Limits.maximumRequestBodyBytes)
}

extension GatewaySettings {
    func frameRules(compressed: Bool) -> FrameDecoder.Rules {
        FrameDecoder.Rules(
            maximumMessageBytes: maximumMessageBytes, maximumFragments: Limits.maximumMessageFragments,
            allowsCompression: compressed)
    }

    var channelLimits: ChannelLimits {
        ChannelLimits(
            maximumChannels: UInt32(clamping: maximumChannels), maximumWaitingFrames: Limits.maximumWaitingFrames,
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
