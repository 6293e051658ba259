import Bytes
import Catalog
import Channels
import Delivery
import Diagnostics
import Net
import Positions
import Protocol
import System

/// Ends of the loop's channels, and messages that the hub sends to single channels.
extension ProjectLoop {
    var now: Int64 { loop.time.unixSeconds }

    /// Removes the channel from its follower, and from the channels that wait for a pass of a catch-up follower.
    func letGo(of channel: Channel) {
        channel.delivery.follower?.unbind(channel)
        catchUps.cancel(channel.place)
        letGoOfNextHolder(channel)
    }

    func letGoOfNextHolder(_ channel: Channel) {
        if let holder = channel.delivery.nextHolder { live.policies.release(holder, of: channel) }
        channel.delivery.nextHolder = nil
    }

    func bindingIsDue(_ place: UInt32, _ generation: UInt32) {
        guard let channel = channel(place, generation) else { return }
        channel.timers.bind = nil
        channel.delivery.follower?.bindAgain(place, channel)
    }

    /// Makes the channel a member of its topic that does not receive messages yet. Returns its place among the members.
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

    /// Ends a channel and releases everything that belongs to it.
    func stop(_ id: ChannelID, _ session: Session, _ reason: ChannelStop) {
        guard let place = session.channel(id) else { return }
        session.set(nil, for: id)
        guard let channel = channels.remove(place) else { return }
        assert(channel.id == id && channel.session === session, "a session stops its own channels")
        ledger.noteEnd(channel, reason)
        returns.hasEnded(channel, comesBack: reason != .left)
        snapshots.giveUp(channel)
        count(channel, -1)
        if channel.conversation.isPrivate { project.catalog.addBindings(-1) }
        for timer in channel.timers.running { loop.cancel(timer) }
        letGo(of: channel)
        assert(
            channel.delivery.listener == nil && channel.delivery.holder == nil, "a channel that ended is bound nowhere")
        presence.untrack(channel)
        project.budgets.filters.give(back: channel.filterParts, of: session.use.filterParts)
        session.use.filterParts -= channel.filterParts
        // Waiting messages refer to the channel. They are released so that the memory is freed.
        channel.conversation.details?.writes = .unknown
        if let place = channel.conversation.place { talk.topics.remove(place) }
        channel.conversation.place = nil
        if let topic = channel.conversation.topic { talk.topics.leave(topic) }
        channel.conversation.topic = nil
        take(.ended, channel)
        project.users.giveBack(session)
        if session.channels.isEmpty { clients.requests.watchIdleness(session) }
    }

    /// Adds `change` to the number of channels or feeds in the metrics, depending on what the channel is.
    func count(_ channel: Channel, _ change: Int64) {
        switch channel.recipient {
        case .client: metrics.channels.add(change)
        case .feed: metrics.feeds.add(change)
        }
    }

    /// Returns the channel at the place; nil if another channel has taken that place since.
    func channel(_ place: UInt32, _ generation: UInt32) -> Channel? {
        guard let channel = channels[place], TimerToken.cut(channel.id.incarnation) == generation else { return nil }
        assert(channel.place == place, "a channel lies at its place")
        return channel
    }

    func token(_ channel: Channel, _ make: (ChannelPlace, UInt32) -> TimerToken) -> UInt64 {
        make(ChannelPlace(project: project.number, channel: channel.place), channel.id.incarnation).rawValue
    }

    // MARK: Messages to a channel

    /// Sends a system message about the channel's changes; if the channel is a feed's, sends it as a record.
    func tell(_ channel: Channel, _ status: ReplyStatus, _ message: ClientText) {
        tell(channel, ChannelNotice(status, message))
    }

    /// Sends a notice as a system message; if the channel is a feed's, sends it as a record.
    func tell(_ channel: Channel, _ notice: ChannelNotice) {
        if case .feed(let feed) = channel.recipient { return feeds.tell(feed, channel, notice) }
        if notice.code == .changesMissing {
            returns.isToldOfLoss(channel)
            ledger.noteLoss(channel, notice.text)
        }
        clients.output.sendMessage(to: channel.session) { encoder, writer in
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
            clients.output.sendMessage(to: session) { encoder, writer in encoder.appendReply(.ok, reply, to: &writer) }
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

    /// Logs a warning unless one was logged very recently, for events that may repeat often. The metrics count all of
    /// them.
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
