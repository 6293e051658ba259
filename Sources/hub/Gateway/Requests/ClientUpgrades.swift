import Auth
import Bytes
import Channels
import Delivery
import Diagnostics
import Net
import Protocol
import Settings
import WebSocket

/// Requests that open a WebSocket.
final class ClientUpgrades: ClientPart {
    unowned let home: ClientLoop

    init(of home: ClientLoop) { self.home = home }

    func openSocket(_ request: HTTPRequest, _ session: Session) {
        guard request.method == "GET" else {
            return home.requests.answer(session, HTTPResponse(.badRequest), keepAlive: false, toHead: request.isHead)
        }
        guard let version = SerializerVersion(vsn: request.query("vsn")) else {
            metrics.refusals[.version].add()
            shared.refusals.note(.version, at: loop.now)
            return home.requests.answer(session, HTTPResponse(HTTPStatus.forbidden), keepAlive: false)
        }
        let project: ProjectLoop
        do throws(NotServed) {
            project = try home.served(request)
        } catch {
            metrics.refusals[error.refusal].add()
            switch error {
            case .unavailable(let sentence): return refuse(session, .error(.serviceUnavailable, sentence))
            case .unknown: return refuse(session, .error(.notFound, "Tenant not found"))
            }
        }
        guard !home.farewells.haveBegun, !project.live.pipeline.hasFailed else {
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

    /// Refuses an upgrade after a pause, because clients of this protocol retry immediately and without end.
    private func refuse(_ session: Session, _ response: HTTPResponse) {
        session.stage = .refused(response, toHead: false)
        if let timer = session.timer { loop.cancel(timer) }
        session.timer = loop.after(
            nanoseconds: shared.settings.connectErrorDelay.wholeNanoseconds,
            token: TimerToken.request(session.connection).rawValue)
    }

    func upgrade(_ request: HTTPRequest, _ session: Session, as stage: Session.Stage) {
        switch WebSocketHandshake.accept(request, offeringDeflate: shared.settings.deflates) {
        case .refused(let refusal):
            metrics.refusals[.badRequest].add()
            home.requests.answer(session, refusal.response, keepAlive: false)
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
