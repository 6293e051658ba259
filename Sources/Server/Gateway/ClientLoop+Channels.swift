import Auth
import Bytes
import Channels
import Diagnostics
import Net
import Protocol
import System
import WebSocket

/// Joins, tokens and their ends.
extension ClientLoop {
    private var now: Int64 { Clock.unixMicroseconds() / 1_000_000 }

    // MARK: Joining

    func startJoin(_ id: ChannelID, _ payload: RawSpan, _ session: Session) {
        guard let address = session.machine?.address(of: id) else { return }
        // SAFETY: any byte is a valid UInt8, and the array outlives the call.
        let subTopic = unsafe address.topic.span.bytes.extracting(droppingFirst: 9)
        let join = JoinRequest(payload, subTopic: subTopic, maximumBindings: Limits.maximumBindingsPerChannel)
        for problem in join.problems { Log.shared.debug("InvalidJoinPayload", [.reason("\(problem)")]) }
        do throws(JoinRefusal) {
            if subTopic.isEmpty { throw .reason("TopicNameRequired: You must provide a topic name") }
            if isDraining { throw .reason("RealtimeRestarting: Realtime is restarting, please standby") }
            if join.hasTooManyBindings {
                throw .reason(
                    "TooManyBindings: A channel can have at most \(Limits.maximumBindingsPerChannel) postgres_changes")
            }
            if join.isPrivate {
                let topic = String(decoding: address.topic.dropFirst(9), as: UTF8.self)
                throw .reason("Unauthorized: You do not have permissions to read from this Channel topic: \(topic)")
            }
            if channels.count >= Limits.maximumChannelsPerLoop {
                throw .reason("ChannelRateLimitReached: Too many channels")
            }
            let claims = try claims(join.token, session)
            let channel = Channel(
                id, session, topic: address.topic, joinRef: address.joinRef, claims: claims, join)
            if case .given(let text) = join.token { channel.joinToken = Array(text.utf8) }
            begin(channel)
        } catch {
            refuse(id, error.text, session)
        }
    }

    private enum JoinRefusal: Error {
        case reason(String)

        var text: String { if case .reason(let text) = self { text } else { "" } }
    }

    private func claims(_ token: JoinToken, _ session: Session) throws(JoinRefusal) -> Claims {
        do throws(TokenError) {
            switch token {
            case .given(let text): return try verify(Array(text.utf8))
            case .ofSocket:
                guard let claims = session.claims else { preconditionFailure("a socket without a key") }
                try claims.check(at: now)
                return claims
            }
        } catch {
            throw .reason(error.joinReason)
        }
    }

    /// Told after a pause, as clients try again at once and for ever.
    private func refuse(_ id: ChannelID, _ reason: String, _ session: Session) {
        Metrics.shared.channelEvents[.refused].add()
        later(.join(session.connection, id, reason), session)
    }

    func refuseLater(_ address: ChannelAddress, _ reason: String, _ session: Session) {
        Metrics.shared.channelEvents[.refused].add()
        guard session.surplusJoins < Limits.maximumSurplusJoins else {
            return say(.policyViolation, "too many joins beyond the number of channels", to: session)
        }
        session.surplusJoins += 1
        later(.surplus(session.connection, address, reason), session)
    }

    /// A refusal that is to be told later.
    enum Refusal {
        case join(ConnectionID, ChannelID, String)
        case surplus(ConnectionID, ChannelAddress, String)
    }

    private func later(_ refusal: Refusal, _ session: Session) {
        guard refusals.count < Limits.maximumRefusalsPerLoop else {
            return say(.tryAgainLater, "too many joins are refused", to: session)
        }
        let place = refusals.add(refusal)
        loop.after(
            nanoseconds: shared.settings.joinErrorDelay.wholeNanoseconds, token: TimerToken.refusal(place).rawValue)
    }

    func refusalIsDue(_ place: UInt32) {
        switch refusals.remove(place) {
        case .join(let connection, let id, let reason):
            guard let session = session(connection) else { return }
            var actions: [ChannelAction] = []
            session.machine?.joinFailed(id, reason: reason, into: &actions)
            perform(actions, for: session)
        case .surplus(let connection, let address, let reason):
            guard let session = session(connection) else { return }
            session.surplusJoins -= 1
            send(session) { encoder, writer in encoder.appendErrorReply(reason, address, to: &writer) }
        case nil: break
        }
    }

    /// The bindings are placed before the reply goes out, if the catalog answers soon: then nothing that is committed
    /// after the reply is missed, even by clients that do not wait for "Subscribed to PostgreSQL".
    private func begin(_ channel: Channel) {
        let place = channels.add(channel)
        channel.session.set(place, for: channel.id)
        channel.place = place
        Metrics.shared.channels.add(1)
        if bind(place, channel) { return finishJoin(channel) }
        channel.joinTimer = loop.after(
            nanoseconds: Limits.joinPatience.wholeNanoseconds,
            token: token(channel) { .join(channel: $0, generation: $1) })
    }

    func joinTookTooLong(_ place: UInt32, _ generation: UInt32) {
        guard let channel = channel(place, generation) else { return }
        channel.joinTimer = nil
        finishJoin(channel)
    }

    func finishJoin(_ channel: Channel) {
        guard channel.reply != nil, !channel.isAnswered else { return }
        channel.isAnswered = true
        if let timer = channel.joinTimer { loop.cancel(timer) }
        channel.joinTimer = nil
        var actions: [ChannelAction] = []
        let session = channel.session
        let token = channel.joinToken
        channel.joinToken = []
        // SAFETY: any byte is a valid UInt8, and the array outlives the call.
        session.machine?.joinSucceeded(channel.id, token: unsafe token.span.bytes, into: &actions)
        perform(actions, for: session)
    }

    func acceptJoin(_ id: ChannelID, _ address: ChannelAddress, _ session: Session) {
        guard let channel = session.channel(id).flatMap({ channels[$0] }), let bindings = channel.reply else { return }
        channel.reply = nil
        Metrics.shared.channelEvents[.joined].add()
        send(session) { encoder, writer in encoder.appendJoinReply(bindings, address, to: &writer) }
    }

    /// The reply is out: what else the client is to know.
    func open(_ id: ChannelID, _ session: Session) {
        guard let channel = session.channel(id).flatMap({ channels[$0] }) else { return }
        channel.isOpen = true
        watchExpiry(channel)
        for complaint in channel.complaints { tell(channel, .error, complaint) }
        channel.complaints = []
        sayWhatBindingsCameTo(channel)
        if channel.wantsPresence { sendEmptyPresence(channel) }
    }

    /// Nobody can be present before presence is tracked here; clients wait for the state all the same.
    private func sendEmptyPresence(_ channel: Channel) {
        send(channel.session) { encoder, writer in
            encoder.appendEmptyPresence(topic: channel.topic, channel.joinRef, to: &writer)
        }
    }

    func stop(_ id: ChannelID, _ session: Session) {
        guard let place = session.channel(id) else { return }
        session.set(nil, for: id)
        guard let channel = channels.remove(place) else { return }
        Metrics.shared.channels.add(-1)
        if let timer = channel.expiry { loop.cancel(timer) }
        if let timer = channel.joinTimer { loop.cancel(timer) }
        if let timer = channel.bindTimer { loop.cancel(timer) }
        if let timer = channel.lossTimer { loop.cancel(timer) }
        unbind(channel)
    }

    func channel(_ place: UInt32, _ generation: UInt32) -> Channel? {
        guard let channel = channels[place], TimerToken.cut(channel.id.incarnation) == generation else { return nil }
        return channel
    }

    private func token(_ channel: Channel, _ make: (UInt32, UInt32) -> TimerToken) -> UInt64 {
        make(channel.place, channel.id.incarnation).rawValue
    }

    // MARK: Messages to a channel

    func push(_ id: ChannelID, _ message: borrowing ClientMessage, _ session: Session) {
        guard let address = session.machine?.address(of: id) else { return }
        let reply = ChannelAddress(topic: address.topic, joinRef: address.joinRef, ref: message.ref.copied())
        switch message.event {
        case .heartbeat: send(session) { encoder, writer in encoder.appendReply(.ok, reply, to: &writer) }
        case .broadcast, .presence:
            // Nothing is accepted that would go nowhere.
            guard !reply.ref.isEmpty else { return }
            let what = message.event == .broadcast ? "Broadcast" : "Presence"
            send(session) { encoder, writer in
                encoder.appendErrorReply("\(what)NotAvailable: This server does not offer it yet", reply, to: &writer)
            }
        case .join, .leave, .accessToken, .other: break
        }
    }

    // MARK: Tokens

    func refresh(_ id: ChannelID, _ number: UInt16, _ token: [UInt8], _ session: Session) {
        var actions: [ChannelAction] = []
        do throws(TokenError) {
            let claims = try verify(token)
            guard session.machine?.refreshSucceeded(id, number: number) == true,
                let place = session.channel(id), let channel = channels[place]
            else { return }
            // SAFETY: any byte is a valid UInt8, and the array outlives the call.
            if channel.claims.areFrom(unsafe token.span.bytes) { return }
            let isSameRole = channel.claims.role.equals(claims.role)
            let isSame = isSameRole && channel.claims.json.equals(claims.json)
            let isSomebodyElse = !isSameRole || !channel.claims.subject.equals(claims.subject)
            channel.claims = claims
            watchExpiry(channel)
            if isSomebodyElse { dropWaiting(channel) }
            // Where policies count, every claim does.
            let isJudgedAsBefore = isSame || isSameRole && channel.holder == nil
            if isJudgedAsBefore { sayAgain(channel) } else { resubscribe(place, channel) }
        } catch {
            session.machine?.refreshFailed(id, number: number, message: error.systemMessage, into: &actions)
        }
        perform(actions, for: session)
    }

    private func watchExpiry(_ channel: Channel) {
        if let timer = channel.expiry { loop.cancel(timer) }
        let left = max(0, channel.claims.expiry - now)
        let wait = min(left, Limits.tokenCheckInterval.components.seconds)
        channel.expiry = loop.after(
            nanoseconds: UInt64(wait) * 1_000_000_000, token: token(channel) { .expiry(channel: $0, generation: $1) })
    }

    func tokenIsDue(_ place: UInt32, _ generation: UInt32) {
        guard let channel = channel(place, generation) else { return }
        channel.expiry = nil
        do throws(TokenError) {
            try channel.claims.check(at: now)
            watchExpiry(channel)
        } catch {
            var actions: [ChannelAction] = []
            channel.session.machine?.expel(channel.id, message: error.systemMessage, into: &actions)
            perform(actions, for: channel.session)
        }
    }
}
