import Bytes
import Change
import Channels
import Delivery
import Diagnostics
import Net
import Protocol
import Settings
import System

/// Presence in the topics of one project on one loop.
final class LoopPresence: LoopPart {
    unowned let home: ProjectLoop
    private var replica: PresenceReplica

    init(of home: ProjectLoop) {
        self.home = home
        replica = PresenceReplica(loop: home.clients.number)
    }

    // MARK: From a client

    /// Carries out a client's presence message (track or untrack), or replies with an error.
    func take(
        _ channel: Channel, _ message: borrowing ClientMessage, _ whole: RawSpan, isBinary: Bool,
        _ reply: ChannelAddress
    ) {
        let request = PresenceRequest(message)
        if request == .nothing { return answer(channel, reply) }
        if case .track = request, learnsFirst(channel, whole, isBinary: isBinary) { return }
        guard case .known(_, let mayWrite) = home.rights.mayWrite(channel, whole, isBinary: isBinary) else { return }
        guard admits(channel) else { return }
        guard mayWrite else {
            metrics.drops[.denied].add()
            return answer(channel, reply, failing: true)
        }
        switch request {
        case .track(let range):
            track(channel, message.payload.extracting(range), reply)
        case .untrack:
            untrack(channel)
            answer(channel, reply)
        case .payloadNotAnObject: answer(channel, reply, refusing: "\(PresenceRequest.notAnObjectReason)")
        case .unknownEvent: answer(channel, reply, failing: true)
        case .nothing: break
        }
    }

    /// Applies the rate limits for presence. Returns false if one is exceeded; the channel is then closed.
    private func admits(_ channel: Channel) -> Bool {
        let details = channel.conversation.detailed()
        let isInTime =
            limits.clientPresenceEvents.map { maximum in
                details.window.admit(
                    at: loop.now / 1_000_000, maximum: maximum,
                    window: limits.clientPresenceWindow.wholeNanoseconds / 1_000_000)
            } ?? true
        guard isInTime else {
            metrics.drops[.rateLimit].add()
            home.expel(channel, ClientText(.tooManyPresences, "Client presence rate limit exceeded"))
            return false
        }
        guard project.rates.presence.take(at: loop.now) else {
            metrics.drops[.rateLimit].add()
            home.warnSometimes("PresenceRateLimitReached: a channel was closed")
            home.expel(channel, ClientText(.tooManyPresences, "Too many presence messages per second"))
            return false
        }
        return true
    }

    private func track(_ channel: Channel, _ payload: RawSpan, _ reply: ChannelAddress) {
        guard payload.byteCount <= limits.maximumPayloadBytes else {
            metrics.drops[.tooLarge].add()
            return home.expel(channel, ClientText(.presenceTooLarge, "Track message size exceeded"))
        }
        guard let topic = channel.conversation.topic else { return }
        guard !project.mail.isBehind else {
            metrics.drops[.backlog].add()
            home.warnSometimes("UnableToTrackPresence: a loop is too far behind the others")
            return answer(channel, reply, failing: true)
        }
        let details = channel.conversation.detailed()
        let bytes = payload.byteCount + details.presenceKey.count + Limits.presenceBytesBeside
        do throws(HolderBudget.Refusal) {
            try takeRoom(bytes, details, channel.session)
        } catch {
            return answer(channel, reply, refusing: error.messageOfPresence)
        }
        let tracker = details.tracker ?? replica.newTracker()
        details.tracker = tracker
        if details.presenceKey.isEmpty { details.presenceKey = Array(UUIDText.random().utf8) }
        let ref = replica.nextRef(at: UInt64(loop.time.unixMicroseconds() / 1000))
        do throws(PresenceRefusal) {
            let change = try replica.book.track(
                tracker, in: home.talk.topics.name(of: topic), key: details.presenceKey.rawBytes, payload: payload,
                ref: ref)
            if let change { note(change) }
            let isTracked = replica.book.isTracking(tracker)
            assert(isTracked, "a presence that takes room is tracked")
            giveRoomBack(details.presenceBytes - bytes, details, channel.session)
            answer(channel, reply)
        } catch {
            if !replica.book.isTracking(tracker) {
                giveRoomBack(details.presenceBytes, details, channel.session)
            }
            refuse(error, channel, reply)
        }
    }

    /// Reserves bytes of presence for this channel in place of those that it has reserved before.
    private func takeRoom(_ bytes: Int, _ details: ConversationDetails, _ session: Session) throws(HolderBudget.Refusal)
    {
        try project.budgets.presence.take(max(0, bytes - details.presenceBytes), of: session.use.presenceBytes)
        session.use.presenceBytes += max(0, bytes - details.presenceBytes)
        details.presenceBytes = max(bytes, details.presenceBytes)
        assert(session.use.presenceBytes >= details.presenceBytes, "a session counts the presence of all its channels")
    }

    private func giveRoomBack(_ bytes: Int, _ details: ConversationDetails, _ session: Session) {
        project.budgets.presence.give(back: bytes, of: session.use.presenceBytes)
        session.use.presenceBytes -= bytes
        details.presenceBytes -= bytes
        assert(
            details.presenceBytes >= 0 && details.presenceBytes <= session.use.presenceBytes,
            "a channel gives back only what it has")
    }

    private func refuse(_ refusal: PresenceRefusal, _ channel: Channel, _ reply: ChannelAddress) {
        switch refusal {
        case .notAnObject: answer(channel, reply, refusing: "\(PresenceRequest.notAnObjectReason)")
        case .tooLarge:
            metrics.drops[.tooLarge].add()
            home.expel(channel, ClientText(.presenceTooLarge, "Track message size exceeded"))
        case .topicFull, .tooManyTopics:
            metrics.drops[.tooLarge].add()
            home.warnSometimes("UnableToTrackPresence: there are as many presences as are kept")
            answer(channel, reply, failing: true)
        }
    }

    /// Returns true if the message must wait until the hub knows if the channel may see presence. A channel that tracks
    /// a presence also sees others, if its rights allow. The hub asks for these rights if it never did.
    private func learnsFirst(_ channel: Channel, _ whole: RawSpan, isBinary: Bool) -> Bool {
        guard channel.conversation.isPrivate, let place = channel.conversation.place,
            !home.talk.topics[place].hearsPresence
        else { return false }
        let details = channel.conversation.detailed()
        guard details.readsPresence == nil, !details.handlesFormerToken else { return false }
        if details.tracksUnseen {
            details.tracksUnseen = false
            return false
        }
        switch details.writes {
        // The message waits with those that were sent under the former token.
        case .asked, .held: return false
        case .known, .unknown: home.rights.holdWrites(channel, details)
        }
        // There is room for the message, because no other message waits.
        _ = home.rights.mayWrite(channel, whole, isBinary: isBinary)
        home.rights.askForReadRights(channel, .presenceTurnedOn)
        return true
    }

    func untrack(_ channel: Channel) {
        guard let details = channel.conversation.details, let tracker = details.tracker,
            let change = replica.book.untrack(tracker)
        else { return }
        giveRoomBack(details.presenceBytes, details, channel.session)
        note(change)
    }

    private func note(_ change: PresenceChange) {
        metrics.presenceChanges.add()
        if let timeline = project.stream.presenceTimeline {
            timeline([PresenceMark(change, at: loop.time.unixMicroseconds())])
        }
        if project.mail.hasOthers { replica.note(change) }
    }

    // MARK: Answers

    private func answer(_ channel: Channel, _ reply: ChannelAddress, failing: Bool = false) {
        guard !reply.ref.isEmpty else { return }
        clients.output.sendMessage(to: channel.session) { encoder, writer in
            encoder.appendReply(failing ? .error : .ok, reply, to: &writer)
        }
    }

    private func answer(_ channel: Channel, _ reply: ChannelAddress, refusing reason: String) {
        guard !reply.ref.isEmpty else { return }
        clients.output.sendMessage(to: channel.session) { encoder, writer in
            encoder.appendErrorReply(reason, reply, to: &writer)
        }
    }

    // MARK: To members

    func sendState(to channel: Channel) {
        guard let topic = channel.conversation.topic else { return }
        var state = ByteWriter(capacity: 256)
        replica.book.appendState(of: home.talk.topics.name(of: topic), to: &state)
        let (name, joinRef) = (channel.topic, channel.joinRef)
        clients.output.sendMessage(to: channel.session) { encoder, writer in
            encoder.appendPresenceState(
                state.bytes, topic: name.rawBytes, joinRef: joinRef.rawBytes,
                to: &writer)
        }
    }

    /// Applies presence changes that another loop sent.
    func hear(_ changes: [PresenceChange]) {
        project.mail.hasTaken(changes, on: clients.number)
        for change in changes {
            assert(Int(change.tracker.loop) != clients.number, "a loop reports only its own channels to others")
            replica.book.apply(change)
        }
    }

    /// Sends the presence differences of a turn to members: at most one for each topic.
    func tellDifferences() {
        guard replica.book.hasDiffs else { return }
        var difference = ByteWriter(capacity: 1024)
        while let name = replica.book.takeDiff(into: &difference, isWanted: { home.talk.topics.find($0) != nil }) {
            if let topic = home.talk.topics.find(name) { tell(difference.bytes, topic, name) }
            difference.removeAll()
        }
    }

    /// Sends this turn's presence changes to the other loops.
    func passOn() {
        let changes = replica.takeChanges()
        guard !changes.isEmpty else { return }
        assert(project.mail.hasOthers, "changes are gathered only for other loops")
        project.mail.post(changes, from: clients.number)
    }

    private func tell(_ difference: RawSpan, _ topic: TopicID, _ name: TopicName) {
        // SAFETY: any byte is a valid UInt8, and the name outlives the call.
        let full = unsafe name.full.span.bytes
        let count = home.talk.deliver(difference: difference, to: topic, of: full)
        project.rates.presence.take(count, at: loop.now)
        metrics.presenceDeliveries.add(count)
    }
}

extension PresenceMark {
    init(_ change: PresenceChange, at time: Int64) {
        let event: Event = change.joined == nil ? .left : change.left == nil ? .joined : .updated
        let shown = change.joined ?? change.left
        var ref = ByteWriter(capacity: 16)
        shown?.ref.append(to: &ref)
        var meta = ByteWriter(capacity: 256)
        shown?.appendPayload(to: &meta)
        self.init(
            event: event, isPrivate: change.topic.isPrivate, time: time, topic: change.topic.subTopic.copied(),
            key: Array(change.key.dropFirst().dropLast()), ref: ref.copied(), meta: meta.copied())
    }
}

extension PresenceLimits {
    static let ofProjects = PresenceLimits(
        maximumTopics: Limits.maximumPresenceTopics, maximumMetasPerTopic: Limits.maximumPresencesPerTopic,
        maximumMetaBytes: Limits.presenceBytesOfConnection)
}

extension HolderBudget.Rules {
    static let presence = HolderBudget.Rules(
        limit: Limits.presenceBytes, ofHolder: Limits.presenceBytesOfConnection, few: Limits.fewPresenceBytes,
        timesForFew: Limits.presenceBytesForFew)
}

extension HolderBudget.Refusal {
    fileprivate var messageOfPresence: String {
        switch self {
        case .connection:
            "TooMuchPresence: What a connection tracks can be at most \(Limits.presenceBytesOfConnection >> 20) MiB in all its "
                + "channels together: track less, or untrack what is not needed"
        case .project:
            "TooMuchPresence: All connections together track as much as there is room for: track less, or try again later"
        }
    }
}
