import Auth
import Bytes
import Catalog
import Channels
import Delivery
import Diagnostics
import EventLog
import Matching
import Net
import Positions
import Protocol
import Settings
import System
import WebSocket

/// Joins of channels of one project on one loop.
final class LoopJoins: LoopPart {
    unowned let home: ProjectLoop

    init(of home: ProjectLoop) { self.home = home }

    // MARK: Joining

    func startJoin(_ id: ChannelID, _ payload: RawSpan, _ session: Session) {
        guard let address = session.machine?.address(of: id) else { return }
        let began = LargeInput.isLarge(payload.byteCount) ? loop.time.monotonicNanoseconds() : nil
        defer { if let began { clients.largeInput.note(join: loop.time.monotonicNanoseconds() - began) } }
        let subTopic = address.topic.rawBytes.extracting(droppingFirst: 9)
        var join = JoinRequest(payload, subTopic: subTopic, maximumBindings: Limits.maximumBindingsPerChannel)
        join.inherit(session.terms.options)
        for problem in join.problems { Log.shared.debug("InvalidJoinPayload", [.reason("\(problem)")]) }
        do throws(JoinRefusal) {
            if subTopic.isEmpty { throw .reason("TopicNameRequired: You must provide a topic name") }
            if clients.farewells.haveBegun {
                throw .reason("RealtimeRestarting: Realtime is restarting, please standby")
            }
            if limits.isSuspended {
                throw .reason("RealtimeDisabledForTenant: Realtime disabled for this tenant")
            }
            if limits.isPrivateOnly, !join.isPrivate {
                throw .reason("PrivateOnly: This project only allows private channels")
            }
            guard project.users.reserve(for: session) else {
                throw .reason("ConnectionRateLimitReached: Too many connected users")
            }
            guard project.rates.joins.take(at: loop.now) else {
                home.warnSometimes("ClientJoinRateLimitReached: a join was refused")
                throw .tooManyJoins
            }
            if join.hasTooManyBindings {
                throw .reason(
                    "TooManyBindings: A channel can have at most \(Limits.maximumBindingsPerChannel) postgres_changes")
            }
            if home.channels.count >= Limits.maximumChannelsPerLoop {
                throw .reason("ChannelRateLimitReached: Too many channels")
            }
            let claims = try claims(join.token, session)
            let channel = Channel(
                id, session, topic: address.topic, joinRef: address.joinRef, claims: claims, join,
                at: loop.now)
            if limits.presenceEnabled { channel.conversation.options.insert(.showsPresence) }
            if case .given(let text) = join.token { channel.joining.token = Array(text.utf8) }
            try checkReplay(join)
            if let position = try position(asked: join) { home.take(.asked(position), channel) }
            try takeFilterParts(of: channel)
            begin(channel)
        } catch {
            project.users.giveBack(session)
            home.ledger.noteRefusal(of: session, holder(of: join.token, session), address.topic, error.said)
            switch error {
            case .reason(let text): clients.refusals.refuse(id, text, session)
            case .tooManyJoins:
                // The reply is sent without a pause, because the socket closes now.
                var actions: [ChannelAction] = []
                session.machine?.joinFailed(
                    id, reason: error.said, into: &actions)
                clients.perform(actions, for: session)
                clients.say(.goingAway, "too many joins per second", to: session)
            }
        }
    }

    enum JoinRefusal: Error {
        case reason(String)
        /// Too many joins per second. The hub closes the socket.
        case tooManyJoins

        /// Text of the refusal, as the reply to the join contains it.
        var said: String {
            switch self {
            case .reason(let text): text
            case .tooManyJoins: "ClientJoinRateLimitReached: Too many joins per second"
            }
        }
    }

    /// Returns the holder of a refused join: the one that its token names, even if the token itself was refused.
    private func holder(of token: JoinToken, _ session: Session) -> TokenHolder? {
        if case .given(let text) = token, let holder = home.tokens.holder(ofRefused: text) { return holder }
        return session.terms.claims.map { TokenHolder($0) }
    }

    func takeFilterParts(of channel: Channel) throws(JoinRefusal) {
        if channel.hasFilters, let seconds = channel.session.use.rest.secondsLeft(loop.now) {
            throw .reason("TooMuchFilterWork: \(FilterRest.message(seconds))")
        }
        do throws(HolderBudget.Refusal) {
            try project.budgets.filters.take(channel.filterParts, of: channel.session.use.filterParts)
        } catch {
            throw .reason(error.messageOfFilters)
        }
        channel.session.use.filterParts += channel.filterParts
    }

    private func checkReplay(_ join: JoinRequest) throws(JoinRefusal) {
        guard join.replay.isThere else { return }
        guard join.isPrivate || project.settings.replaysPublicChannels else {
            throw .reason("\(ReplayDemand.publicReason)")
        }
        if join.replay == .invalid { throw .reason("\(ReplayDemand.invalidReason)") }
        if !join.isPrivate, join.replay == .ignored { throw .reason("\(ReplayDemand.invalidReason)") }
    }

    /// Returns the position from which the client asked to resume; nil if it did not ask.
    private func position(asked join: JoinRequest) throws(JoinRefusal) -> EventLogPosition? {
        switch join.resumption {
        case .none: return nil
        case .invalid: break
        case .from(let text): if let position = EventLogPosition(text) { return position }
        }
        throw .reason("UnableToResume: A position reads epoch.offset, as it was told")
    }

    private func claims(_ token: JoinToken, _ session: Session) throws(JoinRefusal) -> Claims {
        do throws(TokenError) {
            switch token {
            case .given(let text): return try home.tokens.verify(Array(text.utf8))
            case .ofSocket:
                guard let claims = session.terms.claims else { preconditionFailure("a socket without a key") }
                return try home.tokens.stillGood(claims)
            }
        } catch {
            throw .reason(error.joinReason)
        }
    }

    /// Begins a join with its first actions: checking rights, searching past messages, or placing bindings.
    func begin(_ channel: Channel) {
        let place = home.channels.add(channel)
        assert(Int(place) < Limits.maximumChannelsPerLoop, "a timer has room for each place")
        channel.session.set(place, for: channel.id)
        clients.requests.isInUse(channel.session)
        channel.place = place
        channel.told.republishedUpTo = project.latestRepublication
        home.count(channel, 1)
        if case .client = channel.recipient {
            let topic = channel.topic
            channel.conversation.topic = home.talk.topics.join(
                topic.rawBytes.extracting(droppingFirst: 9), isPrivate: channel.conversation.isPrivate)
        }
        // While a private channel exists, the catalog must watch the policies of messages.
        if channel.conversation.isPrivate { project.catalog.addBindings(1) }
        for action in channel.joining.first { perform(action, channel) }
    }

    /// Passes an event to the channel's join, and takes the steps that follow.
    func take(_ event: Join.Event, _ channel: Channel) {
        let wasOpen = channel.isOpen
        let actions = channel.join.take(event)
        if channel.join.isAnswered { home.take(.answered, channel) }
        if channel.isOpen, !wasOpen { home.take(.opened(isSocketFull: channel.session.isSlow), channel) }
        for action in actions { perform(action, channel) }
    }

    private func perform(_ action: Join.Action, _ channel: Channel) {
        switch action {
        case .askRights: home.rights.askForReadRights(channel, .join)
        case .readPast: home.talk.askReplay(channel)
        case .bind: startBinding(channel)
        case .bePatient:
            channel.timers.join = loop.after(
                nanoseconds: Limits.joinPatience.wholeNanoseconds,
                token: home.token(channel) { .join(channel: $0, generation: $1) })
        case .promiseBindings: channel.delivery.follower?.promise(channel)
        case .reply: reply(to: channel)
        case .sendBindingResults:
            home.reports.sendBindingResults(channel)
            home.snapshots.begin(channel)
        case .refuse(let reason): refuseJoin(channel, reason)
        }
    }

    /// Ends a refused join. The channel is removed now; the hub sends the refusal after a pause.
    private func refuseJoin(_ channel: Channel, _ reason: String) {
        let (id, session) = (channel.id, channel.session)
        Log.shared.debug("refused a join", [.reason(reason), .project(project.name)])
        switch channel.recipient {
        case .client:
            home.ledger.noteRefusal(channel, reason)
            home.stop(id, session, .refused)
            clients.refusals.refuse(id, reason, session, waited: loop.now - channel.joining.begun)
        case .feed:
            // A request learns more from its answer, and the ledger records the refusal with that.
            home.stop(id, session, .refused)
            clients.feeds.refuse(session, .unavailable(reason))
        }
    }

    func tookTooLong(_ place: UInt32, _ generation: UInt32) {
        guard let channel = home.channel(place, generation) else { return }
        channel.timers.join = nil
        if channel.position.isUndecided, !channel.position.isReturning {
            return take(
                .refused("UnableToResume: The event log has not begun, or cannot be read now: try again later"), channel
            )
        }
        take(.patienceEnded, channel)
    }

    /// Begins to bind a channel: recognizes a returning client, lets a follower serve the channel, and places its
    /// bindings.
    private func startBinding(_ channel: Channel) {
        if channel.position.isResumed { channel.told.republishedUpTo = 0 }
        home.returns.recognize(channel)
        home.placeInReader(channel)
        guard let follower = channel.delivery.follower, follower.take(aboard: channel) else {
            return take(.bindingsAwaited, channel)
        }
        follower.tellThatBound(channel)
    }

    private func reply(to channel: Channel) {
        assert(channel.join.stage == .answered, "a join is answered once")
        if let timer = channel.timers.join { loop.cancel(timer) }
        channel.timers.join = nil
        let session = channel.session
        let token = channel.joining.token
        channel.joining.token = []
        guard let accepted = session.machine?.joinSucceeded(channel.id, token: token.rawBytes) else { return }
        switch channel.recipient {
        case .client:
            sendReply(accepted, to: channel)
            if home.channels[channel.place] === channel { open(channel) }
        case .feed(let feed): if clients.feeds.begin(feed, channel) { home.feeds.open(feed, channel) }
        }
        clients.perform(accepted.waiting, for: session)
    }

    private func sendReply(_ accepted: AcceptedJoin, to channel: Channel) {
        let session = channel.session
        metrics.channelEvents[.joined].add()
        session.use.hasJoined = true
        let (bindings, standing) = (channel.joining.reply, home.catchUps.standing(of: channel))
        channel.joining.reply = []
        clients.output.sendMessage(to: session) { encoder, writer in
            encoder.appendJoinReply(bindings, standing, accepted.address, to: &writer)
        }
        if let replaced = accepted.replaced { clients.perform(.close(replaced), for: session) }
    }

    /// Opens the channel after the join's reply, and sends what follows the reply.
    private func open(_ channel: Channel) {
        take(.replied, channel)
        assert(channel.isOpen, "a channel opens after its reply")
        home.ledger.noteJoin(channel)
        home.returns.expectBack(channel)
        home.tokens.watchExpiry(channel)
        listen(channel)
        home.talk.sendReplay(channel)
        for complaint in channel.joining.complaints { home.tell(channel, .error, complaint) }
        channel.joining.complaints = []
        for advice in channel.joining.advice { home.tell(channel, .ok, advice) }
        channel.joining.advice = []
        home.reports.sendBindingResults(channel)
        home.catchUps.sayCaughtUp(channel)
        home.talk.sayWhetherReplicationIsReady(channel)
        let conversation = channel.conversation
        if conversation.options.contains(.showsPresence),
            !conversation.isPrivate || conversation.details?.readsPresence == true
        {
            home.presence.sendState(to: channel)
        }
        home.snapshots.begin(channel)
    }

    /// Lets the channel receive its topic's messages from now on.
    private func listen(_ channel: Channel) {
        let details = channel.conversation.details
        let isPrivate = channel.conversation.isPrivate
        let place = channel.conversation.place ?? home.wait(channel)
        guard let place else { return }
        home.talk.topics[place].isCatchingUp = false
        home.talk.topics[place].hearsBroadcasts = !isPrivate || details?.readsBroadcasts == true
        home.talk.topics[place].hearsPresence = !isPrivate || details?.readsPresence == true
    }
}
