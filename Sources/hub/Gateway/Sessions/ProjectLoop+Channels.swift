import Auth
import Bytes
import Catalog
import Channels
import Delivery
import Diagnostics
import EventLog
import Net
import Positions
import Protocol
import Settings
import Snapshots
import System
import WebSocket

/// Joins of channels, and the life of their tokens.
extension ProjectLoop {
    var now: Int64 { loop.time.unixSeconds }

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
            if clients.isDraining { throw .reason("RealtimeRestarting: Realtime is restarting, please standby") }
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
                warnSometimes("ClientJoinRateLimitReached: a join was refused")
                throw .tooManyJoins
            }
            if join.hasTooManyBindings {
                throw .reason(
                    "TooManyBindings: A channel can have at most \(Limits.maximumBindingsPerChannel) postgres_changes")
            }
            if channels.count >= Limits.maximumChannelsPerLoop {
                throw .reason("ChannelRateLimitReached: Too many channels")
            }
            let claims = try claims(join.token, session)
            let channel = Channel(
                id, session, topic: address.topic, joinRef: address.joinRef, claims: claims, join,
                at: loop.now)
            if limits.presenceEnabled { channel.conversation.options.insert(.showsPresence) }
            if case .given(let text) = join.token { channel.joining.token = Array(text.utf8) }
            try checkReplay(join)
            if let position = try position(asked: join) { take(.asked(position), channel) }
            try takeFilterParts(of: channel)
            begin(channel)
        } catch {
            project.users.giveBack(session)
            ledger.noteRefusal(of: session, holder(of: join.token, session), address.topic, error.said)
            switch error {
            case .reason(let text): clients.refuse(id, text, session)
            case .tooManyJoins:
                // The reason is sent at once, because the socket ends with it.
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

        /// The `reason` in the reply to the join.
        var said: String {
            switch self {
            case .reason(let text): text
            case .tooManyJoins: "ClientJoinRateLimitReached: Too many joins per second"
            }
        }
    }

    /// Returns the holder who is refused with this token: the token may have been refused itself.
    private func holder(of token: JoinToken, _ session: Session) -> TokenHolder? {
        if case .given(let text) = token, let holder = tokens.holder(ofRefused: text) { return holder }
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
            case .given(let text): return try tokens.verify(Array(text.utf8))
            case .ofSocket:
                guard let claims = session.terms.claims else { preconditionFailure("a socket without a key") }
                return try tokens.stillGood(claims)
            }
        } catch {
            throw .reason(error.joinReason)
        }
    }

    /// Starts a join: first the rights, then past messages, then the bindings.
    func begin(_ channel: Channel) {
        let place = channels.add(channel)
        assert(Int(place) < Limits.maximumChannelsPerLoop, "a timer has room for each place")
        channel.session.set(place, for: channel.id)
        clients.isInUse(channel.session)
        channel.place = place
        channel.told.republishedUpTo = project.latestRepublication
        count(channel, 1)
        if case .client = channel.recipient {
            let topic = channel.topic
            channel.conversation.topic = talk.topics.join(
                topic.rawBytes.extracting(droppingFirst: 9), isPrivate: channel.conversation.isPrivate)
        }
        // While a private channel exists, a change of its rules matters.
        if channel.conversation.isPrivate { project.catalog.addBindings(1) }
        for action in channel.joining.first { perform(action, channel) }
    }

    /// Passes an event to the channel's join, and performs the actions that follow.
    func join(_ event: Join.Event, _ channel: Channel) {
        let wasOpen = channel.isOpen
        let actions = channel.join.take(event)
        if channel.join.isAnswered { take(.answered, channel) }
        if channel.isOpen, !wasOpen { take(.opened(isSocketFull: channel.session.isSlow), channel) }
        for action in actions { perform(action, channel) }
    }

    private func perform(_ action: Join.Action, _ channel: Channel) {
        switch action {
        case .askRights: rights.askReadRights(channel, .join)
        case .readPast: talk.askReplay(channel)
        case .bind: startBinding(channel)
        case .bePatient:
            channel.timers.join = loop.after(
                nanoseconds: Limits.joinPatience.wholeNanoseconds,
                token: token(channel) { .join(channel: $0, generation: $1) })
        case .promiseBindings: channel.delivery.follower?.promise(channel)
        case .reply: reply(to: channel)
        case .sayWhatBindingsCameTo:
            sayWhatBindingsCameTo(channel)
            beginSnapshot(channel)
        case .refuse(let reason): refuseJoin(channel, reason)
        }
    }

    /// Ends a refused join. The channel is forgotten at once, and the client is told after a pause.
    private func refuseJoin(_ channel: Channel, _ reason: String) {
        let (id, session) = (channel.id, channel.session)
        Log.shared.debug("refused a join", [.reason(reason), .project(project.name)])
        switch channel.recipient {
        case .client:
            ledger.noteRefusal(channel, reason)
            stop(id, session, .refused)
            clients.refuse(id, reason, session, waited: loop.now - channel.joining.begun)
        case .feed:
            // The request is told more, and its refusal is noted then.
            stop(id, session, .refused)
            clients.refuse(session, .unavailable(reason))
        }
    }

    func joinTookTooLong(_ place: UInt32, _ generation: UInt32) {
        guard let channel = channel(place, generation) else { return }
        channel.timers.join = nil
        if channel.position.isUndecided, !channel.position.isReturning {
            return join(
                .refused("UnableToResume: The event log has not begun, or cannot be read now: try again later"), channel
            )
        }
        join(.patienceEnded, channel)
    }

    private func startBinding(_ channel: Channel) {
        if channel.position.isResumed { channel.told.republishedUpTo = 0 }
        resumeFromKnownPosition(channel)
        placeInReader(channel)
        guard let follower = channel.delivery.follower, follower.take(aboard: channel) else {
            return join(.bindingsAwaited, channel)
        }
        follower.tellThatBound(channel)
    }

    func letGo(of channel: Channel) {
        channel.delivery.follower?.unbind(channel)
        catchUps.cancel(channel.place)
        letGoOfNextHolder(channel)
    }

    func letGoOfNextHolder(_ channel: Channel) {
        if let holder = channel.delivery.nextHolder { live.release(holder, of: channel) }
        channel.delivery.nextHolder = nil
    }

    func bindingIsDue(_ place: UInt32, _ generation: UInt32) {
        guard let channel = channel(place, generation) else { return }
        channel.timers.bind = nil
        channel.delivery.follower?.bindAgain(place, channel)
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
            if channels[channel.place] === channel { open(channel) }
        case .feed(let feed): if clients.begin(feed, channel) { open(feed, channel) }
        }
        clients.perform(accepted.waiting, for: session)
    }

    private func sendReply(_ accepted: AcceptedJoin, to channel: Channel) {
        let session = channel.session
        metrics.channelEvents[.joined].add()
        session.use.hasJoined = true
        let (bindings, standing) = (channel.joining.reply, standing(of: channel))
        channel.joining.reply = []
        clients.send(session) { encoder, writer in
            encoder.appendJoinReply(bindings, standing, accepted.address, to: &writer)
        }
        if let replaced = accepted.replaced { clients.perform(.close(replaced), for: session) }
    }

    /// Opens the channel after its join reply, and sends everything that follows the reply.
    private func open(_ channel: Channel) {
        join(.replied, channel)
        assert(channel.isOpen, "a channel opens after its reply")
        ledger.noteJoin(channel)
        expectBack(channel)
        tokens.watchExpiry(channel)
        listen(channel)
        talk.sendReplay(channel)
        for complaint in channel.joining.complaints { tell(channel, .error, complaint) }
        channel.joining.complaints = []
        for advice in channel.joining.advice { tell(channel, .ok, advice) }
        channel.joining.advice = []
        sayWhatBindingsCameTo(channel)
        sayCaughtUp(channel)
        talk.sayWhetherReplicationIsReady(channel)
        let conversation = channel.conversation
        if conversation.options.contains(.showsPresence),
            !conversation.isPrivate || conversation.details?.readsPresence == true
        {
            presence.sendState(to: channel)
        }
        beginSnapshot(channel)
    }

    /// Lets the channel receive its topic's messages from here on.
    private func listen(_ channel: Channel) {
        let details = channel.conversation.details
        let isPrivate = channel.conversation.isPrivate
        let place = channel.conversation.place ?? wait(channel)
        guard let place else { return }
        talk.topics[place].isCatchingUp = false
        talk.topics[place].hearsBroadcasts = !isPrivate || details?.readsBroadcasts == true
        talk.topics[place].hearsPresence = !isPrivate || details?.readsPresence == true
    }

    /// Adds the channel to the topic's members. The channel does not receive messages yet.
    @discardableResult
    func wait(_ channel: Channel) -> TopicPlace? {
        guard let topic = channel.conversation.topic, channel.conversation.place == nil else { return nil }
        let hearer = TopicListener(
            connection: channel.session.connection, channel: channel.place,
            speaksV2: channel.session.terms.version == .v2,
            wantsCompression: channel.session.terms.wantsCompression, hearsBroadcasts: false, hearsPresence: false,
            hasReplayed: channel.wantsReplay, isCatchingUp: channel.wantsReplay)
        let place = talk.topics.add(hearer, to: topic)
        channel.conversation.place = place
        return place
    }

    func stop(_ id: ChannelID, _ session: Session, _ reason: ChannelStop) {
        guard let place = session.channel(id) else { return }
        session.set(nil, for: id)
        guard let channel = channels.remove(place) else { return }
        assert(channel.id == id && channel.session === session, "a session stops its own channels")
        ledger.noteEnd(channel, reason)
        hasEnded(channel, comesBack: reason != .left)
        giveUpSnapshot(of: channel)
        count(channel, -1)
        if channel.conversation.isPrivate { project.catalog.addBindings(-1) }
        for timer in channel.timers.running { loop.cancel(timer) }
        letGo(of: channel)
        assert(
            channel.delivery.listener == nil && channel.delivery.holder == nil, "a channel that ended is bound nowhere")
        presence.untrack(channel)
        project.budgets.filters.give(back: channel.filterParts, of: session.use.filterParts)
        session.use.filterParts -= channel.filterParts
        // Held messages refer to the channel, so they are released here.
        channel.conversation.details?.writes = .unknown
        if let place = channel.conversation.place { talk.topics.remove(place) }
        channel.conversation.place = nil
        if let topic = channel.conversation.topic { talk.topics.leave(topic) }
        channel.conversation.topic = nil
        take(.ended, channel)
        project.users.giveBack(session)
        if session.channels.isEmpty { clients.watchIdleness(session) }
    }

    private func count(_ channel: Channel, _ change: Int64) {
        switch channel.recipient {
        case .client: metrics.channels.add(change)
        case .feed: metrics.feeds.add(change)
        }
    }

    func channel(_ place: UInt32, _ generation: UInt32) -> Channel? {
        guard let channel = channels[place], TimerToken.cut(channel.id.incarnation) == generation else { return nil }
        assert(channel.place == place, "a channel lies at its place")
        return channel
    }

    func token(_ channel: Channel, _ make: (ChannelPlace, UInt32) -> TimerToken) -> UInt64 {
        make(ChannelPlace(project: project.number, channel: channel.place), channel.id.incarnation).rawValue
    }

    // MARK: Messages to a channel

    /// Sends a system message about the channel's changes.
    func tell(_ channel: Channel, _ status: ReplyStatus, _ message: ClientText) {
        tell(channel, ChannelNotice(status, message))
    }

    /// Sends a system message about the channel.
    func tell(_ channel: Channel, _ notice: ChannelNotice) {
        if case .feed(let feed) = channel.recipient { return tell(feed, channel, notice) }
        if notice.code == .changesMissing {
            isToldOfLoss(channel)
            ledger.noteLoss(channel, notice.text)
        }
        clients.send(channel.session) { encoder, writer in
            encoder.appendSystem(notice, topic: channel.topic, channel.joinRef, to: &writer)
        }
    }

    func tellOfSubscription(_ channel: Channel) { tell(channel, ChannelNotice(.ok, "Subscribed to PostgreSQL")) }

    func push(
        _ id: ChannelID, _ message: borrowing ClientMessage, _ whole: RawSpan, isBinary: Bool, _ session: Session
    ) {
        tokens.closeExpired()
        guard let channel = session.channel(id).flatMap({ channels[$0] }) else { return }
        assert(channel.id == id && channel.isOpen, "only an open channel takes messages of its client")
        switch message.event {
        case .heartbeat:
            let reply = channel.address(ref: message.ref)
            clients.send(session) { encoder, writer in encoder.appendReply(.ok, reply, to: &writer) }
        case .broadcast: talk.broadcast(channel, message, whole, isBinary: isBinary)
        case .presence: presence.take(channel, message, whole, isBinary: isBinary, channel.address(ref: message.ref))
        case .join, .leave, .accessToken, .other:
            guard project.rates.events.take(at: loop.now) else { return expelForRate(channel) }
        }
    }

    // MARK: Limits

    func tellOfLimit(_ channel: Channel, _ message: String) {
        guard channel.conversation.options.contains(.hearsOfLimits), channel.isOpen else { return }
        tell(channel, ChannelNotice(.ok, message, .messageDropped, from: .system))
    }

    func expelForRate(_ channel: Channel) {
        metrics.drops[.rateLimit].add()
        warnSometimes("MessagePerSecondRateLimitReached: closed a channel")
        expel(channel, ClientText(.tooManyMessages, "Too many messages per second"))
    }

    /// Logs a warning now and then, for events that may repeat often. The metrics count all of them.
    func warnSometimes(_ sentence: StaticString) {
        guard project.rates.complaints.take(at: loop.now) else { return }
        Log.shared.warning(sentence, [.project(project.name)])
    }

    func expel(_ channel: Channel, _ message: ClientText) {
        project.reference.addError("ChannelShutdown")
        var actions: [ChannelAction] = []
        channel.session.machine?.expel(channel.id, message.ending, into: &actions)
        clients.perform(actions, for: channel.session)
    }
}
