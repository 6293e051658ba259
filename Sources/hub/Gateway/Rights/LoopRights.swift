import Auth
import Authorizing
import Bytes
import Catalog
import Channels
import Diagnostics
import Net
import Protocol
import Settings

/// Rights in the private channels of one project on one loop, as policies of `realtime.messages` define them.
final class LoopRights: LoopPart {
    /// Reason for asking PostgreSQL for a channel's read rights.
    enum ReadOccasion: Sendable {
        /// The client joins the channel.
        case join
        /// Another token is to replace the channel's token.
        case refresh(Claims)
        /// The channel tracks a presence, and the hub never asked if it may see other presences.
        case presenceTurnedOn
        /// The policies of `realtime.messages` have changed.
        case review
    }

    /// Work that waits for PostgreSQL's answer about rights.
    enum Waiting {
        case read(channel: UInt32, ReadOccasion)
        case write(PendingWrites)
        case post(Post, topic: [UInt8])
    }

    unowned let home: ProjectLoop
    /// Progress of asking again for the rights of private channels after policies changed.
    private var review = RightsReview()
    /// Work that waits for PostgreSQL's answers about rights, by ticket.
    private var waiting: [UInt64: Waiting] = [:]

    init(of home: ProjectLoop) { self.home = home }

    // MARK: Asking

    /// Asks PostgreSQL for the rights that the sender of a posted broadcast needs for a topic.
    func ask(_ question: ChannelQuestion, for post: Post, topic: [UInt8]) {
        let ticket = home.nextTicket()
        waiting[ticket] = .post(post, topic: topic)
        ask(question, ticket)
    }

    private func ask(_ question: ChannelQuestion, _ ticket: UInt64) {
        project.authorizer.ask(question) { [mailbox = home.mailbox] answer in
            mailbox.post(.authorized(ticket: ticket, answer))
        }
    }

    /// Returns the claims of the new token for which the hub is asking for read rights; nil if there is none.
    func claimsAskedAbout(for channel: Channel) -> Claims? {
        guard let ticket = channel.conversation.details?.readTicket,
            case .read(_, .refresh(let claims))? = waiting[ticket]
        else { return nil }
        return claims
    }

    // MARK: Reading

    /// Asks PostgreSQL for a channel's rights to read broadcasts and presence.
    func askForReadRights(_ channel: Channel, _ occasion: ReadOccasion) {
        let ticket = home.nextTicket()
        let details = channel.conversation.detailed()
        details.readTicket = ticket
        waiting[ticket] = .read(channel: channel.place, occasion)
        var claims = channel.claims
        if case .refresh(let newer) = occasion {
            claims = newer
            holdWrites(channel, details)
        }
        ask(channel, claims, .read(presence: looksAtPresence(channel, occasion)), ticket)
    }

    private func looksAtPresence(_ channel: Channel, _ occasion: ReadOccasion) -> Bool {
        switch occasion {
        case .join: channel.conversation.options.contains(.showsPresence)
        case .refresh:
            channel.conversation.options.contains(.showsPresence) || channel.conversation.details?.readsPresence != nil
                || channel.conversation.details?.tracker != nil
        case .review: channel.conversation.details?.readsPresence != nil
        case .presenceTurnedOn: true
        }
    }

    private func ask(_ channel: Channel, _ claims: Claims, _ probe: ChannelQuestion.Probe, _ ticket: UInt64) {
        ask(
            ChannelQuestion(
                topic: Array(channel.subTopic), role: claims.role.text, subject: claims.subject.text,
                claims: claims.json.text, headers: channel.session.terms.headers, probe: probe), ticket)
    }

    func authorized(_ ticket: UInt64, _ answer: ChannelAnswer) {
        switch waiting.removeValue(forKey: ticket) {
        case .read(let place, let occasion):
            if case .review = occasion { review.isAnswered() }
            guard let channel = home.channels[place], channel.conversation.details?.readTicket == ticket else { return }
            switch occasion {
            case .review: reviewed(channel, answer)
            case .join: mayJoin(channel, answer)
            case .refresh(let claims): mayStay(channel, claims, answer)
            case .presenceTurnedOn: seesPresence(channel, answer)
            }
        case .write(let pending): mayWrite(pending, answer)
        case .post(let post, let topic): home.authorized(post, topic, answer)
        case nil: break
        }
    }

    private func mayJoin(_ channel: Channel, _ answer: ChannelAnswer) {
        assert(channel.join.stage == .askingRights, "rights come first in a join")
        let topic = String(decoding: channel.subTopic, as: UTF8.self)
        switch answer {
        case .failed(let error): home.joins.take(.refused(error.joinReason(topic: topic)), channel)
        case .rights(let broadcast, let presence):
            guard broadcast || presence == true else {
                return home.joins.take(
                    .refused("Unauthorized: " + ChannelAuthorizationError.mayNotRead(topic)), channel)
            }
            guard broadcast || channel.joining.replay == .none else {
                return home.joins.take(
                    .refused("Unauthorized: " + ChannelAuthorizationError.mayNotRead(topic)), channel)
            }
            setReads(channel, broadcast: broadcast, presence: presence)
            home.joins.take(.allowed, channel)
        }
    }

    /// Applies the rights of a new token. If the channel loses a right, closes the channel.
    private func mayStay(_ channel: Channel, _ claims: Claims, _ answer: ChannelAnswer) {
        assert(channel.isOpen, "only an open channel gets another token")
        let topic = String(decoding: channel.subTopic, as: UTF8.self)
        let details = channel.conversation.detailed()
        switch answer {
        case .failed(let error): home.expel(channel, error.systemMessage(topic: topic))
        case .rights(let broadcast, let presence):
            guard broadcast || presence == true else {
                return home.expel(channel, ClientText(.unauthorized, ChannelAuthorizationError.mayNotRead(topic)))
            }
            if details.readsBroadcasts && !broadcast || details.readsPresence == true && presence != true {
                return losesRights(channel)
            }
            setReads(channel, broadcast: broadcast, presence: presence)
            home.tokens.take(claims, channel)
            askWriteRightsAgain(channel, details)
        }
    }

    /// Applies the answer to a channel's question if it may see presence. The question may have replaced a review, so
    /// the answer about reading broadcasts is applied too.
    private func seesPresence(_ channel: Channel, _ answer: ChannelAnswer) {
        let details = channel.conversation.detailed()
        switch answer {
        case .failed(let error): guard isReviewedLater(channel, error) else { return }
        case .rights(let broadcast, let presence):
            guard broadcast || !details.readsBroadcasts else { return losesRights(channel) }
            setReads(channel, broadcast: broadcast, presence: presence)
        }
        // If the rights are unknown, the channel tracks its presence without seeing others.
        details.tracksUnseen = details.readsPresence == nil
        askWriteRightsAgain(channel, details)
    }

    func losesRights(_ channel: Channel) {
        let topic = String(decoding: channel.subTopic, as: UTF8.self)
        home.expel(
            channel,
            ClientText(.rightsLost, "You no longer have permission to read from this Channel topic: \(topic)"))
    }

    func setReads(_ channel: Channel, broadcast: Bool, presence: Bool?) {
        let details = channel.conversation.detailed()
        assert(channel.conversation.isPrivate, "rights are asked for in private channels")
        details.readsBroadcasts = broadcast
        details.readsPresence = presence
        guard let place = channel.conversation.place else { return }
        // A channel that still waits for past messages receives none before the join's reply, which applies the rights.
        guard !home.talk.topics[place].isCatchingUp else { return }
        home.talk.topics[place].hearsBroadcasts = broadcast
        home.talk.topics[place].hearsPresence = presence == true
    }

    // MARK: Writing

    enum Writing {
        /// The hub asks PostgreSQL for the rights, and the message waits for the answer.
        case unknown
        case known(broadcast: Bool, presence: Bool)
    }

    /// Returns the channel's rights to write. At the channel's first message the hub asks PostgreSQL for them, and
    /// messages wait until the answer. The message is `whole`.
    func mayWrite(_ channel: Channel, _ whole: RawSpan, isBinary: Bool) -> Writing {
        guard channel.conversation.isPrivate else { return .known(broadcast: true, presence: true) }
        let details = channel.conversation.detailed()
        switch details.writes {
        case .known(let broadcast, let presence): return .known(broadcast: broadcast, presence: presence)
        case .asked(let ticket):
            if case .write(let pending)? = waiting[ticket] { wait(pending, whole, isBinary, channel) }
        case .held(let pending): wait(pending, whole, isBinary, channel)
        case .unknown: wait(askWriteRights(channel, details), whole, isBinary, channel)
        }
        return .unknown
    }

    /// Makes new messages of the channel wait until the rights of its new token are known. The rights of the former
    /// token decide about messages that already wait.
    func holdWrites(_ channel: Channel, _ details: ConversationDetails) {
        switch details.writes {
        case .held:
            // The newest token does not apply yet.
            details.formerTokenQuestion?.isRenewed = false
            return
        case .asked(let ticket):
            assert(details.formerTokenQuestion == nil, "messages of one former token wait at a time")
            details.formerTokenQuestion = (ticket, isRenewed: false)
        case .unknown, .known: break
        }
        details.writes = .held(PendingWrites(channel, ticket: 0))
    }

    private func askWriteRights(_ channel: Channel, _ details: ConversationDetails) -> PendingWrites {
        assert(details.formerTokenQuestion == nil, "a new token is asked about when the former one is done")
        let ticket = home.nextTicket()
        details.writes = .asked(ticket: ticket)
        let pending = PendingWrites(channel, ticket: ticket)
        waiting[ticket] = .write(pending)
        ask(channel, channel.claims, .write, ticket)
        return pending
    }

    /// Asks PostgreSQL for the write rights of a channel's new token. Messages that wait keep their order.
    private func askWriteRightsAgain(_ channel: Channel, _ details: ConversationDetails) {
        if details.formerTokenQuestion != nil {
            details.formerTokenQuestion?.isRenewed = true
            return
        }
        guard case .held(let waiting) = details.writes, !waiting.frames.isEmpty else {
            return details.writes = .unknown
        }
        let pending = askWriteRights(channel, details)
        for frame in waiting.frames { _ = pending.add(frame) }
    }

    private func wait(_ pending: PendingWrites, _ whole: RawSpan, _ isBinary: Bool, _ channel: Channel) {
        guard pending.add(WaitingFrame(bytes: whole.copied(), isBinary: isBinary)) else {
            metrics.drops[.rateLimit].add()
            return home.tellOfLimit(channel, "A message was dropped: too many wait for your rights to be known")
        }
    }

    private func mayWrite(_ pending: PendingWrites, _ answer: ChannelAnswer) {
        var rights = (broadcast: false, presence: false)
        switch answer {
        case .rights(let broadcast, let presence): rights = (broadcast, presence ?? false)
        case .failed(let error):
            Log.shared.debug("cannot determine whether a channel may write", [.reason(error.code)])
        }
        let channel = pending.channel
        guard home.channels[channel.place] === channel else {
            return deliverLast(pending, mayWrite: rights.broadcast)
        }
        let details = channel.conversation.detailed()
        if let before = details.formerTokenQuestion, before.ticket == pending.ticket {
            return say(pending, before: details, rights, isRenewed: before.isRenewed)
        }
        // The rights have changed, so the messages are handled again with the current state.
        guard case .asked(pending.ticket) = details.writes else { return handleAgain(pending) }
        details.writes = .known(broadcast: rights.broadcast, presence: rights.presence)
        handleAgain(pending)
        // A failure is not stored, so that the next message asks again.
        if case .failed = answer, home.channels[channel.place] === channel, case .known = details.writes {
            details.writes = .unknown
        }
    }

    /// Sends a channel's messages that were queued before its token was replaced. Later messages stay queued.
    private func say(
        _ pending: PendingWrites, before details: ConversationDetails, _ rights: (broadcast: Bool, presence: Bool),
        isRenewed: Bool
    ) {
        assert(!details.handlesFormerToken, "messages of a former token are handled once")
        let since = details.writes
        details.formerTokenQuestion = nil
        details.writes = .known(broadcast: rights.broadcast, presence: rights.presence)
        details.handlesFormerToken = true
        handleAgain(pending)
        details.handlesFormerToken = false
        guard home.channels[pending.channel.place] === pending.channel else { return }
        details.writes = since
        if isRenewed { askWriteRightsAgain(pending.channel, details) }
    }

    private func handleAgain(_ pending: PendingWrites) {
        let session = pending.channel.session
        for frame in pending.frames {
            clients.frames.handle(frame.bytes.rawBytes, isBinary: frame.isBinary, session)
        }
    }

    /// Sends the waiting broadcasts of a channel that was left before its rights were known. The sender is gone, so those
    /// that may not be sent are only counted.
    private func deliverLast(_ pending: PendingWrites, mayWrite: Bool) {
        let name = pending.topic
        for frame in pending.frames {
            clients.frames.read(frame, pending.channel.session) { message in
                guard message.event == .broadcast, let broadcast = try? Broadcast.said(by: message) else { return }
                if let reason = dropReason(message.payload.byteCount, mayWrite) { return metrics.drops[reason].add() }
                home.talk.say(broadcast, name.subTopic, isPrivate: true, except: nil)
            }
        }
    }

    private func dropReason(_ bytes: Int, _ mayWrite: Bool) -> ProjectMetrics.DropReason? {
        guard mayWrite else { return .denied }
        guard bytes <= limits.maximumPayloadBytes else { return .tooLarge }
        return project.rates.events.take(at: loop.now) ? nil : .rateLimit
    }
}

/// Review of joined channels after the policies of `realtime.messages` changed.
extension LoopRights {
    /// Begins a review of all private channels if a new snapshot has other policies. The hub asks about a few channels
    /// at a time.
    func takeRules(of snapshot: CatalogSnapshot) {
        review.take(snapshot.messageRules)
    }

    /// Asks about the next channels of a review.
    func continueReview() {
        while let place = review.takeNext(before: home.channels.indices.upperBound, now: loop.now) {
            if let channel = home.channels[place], channel.conversation.isPrivate { review(channel) }
        }
        if review.continuesLater { home.lookAgainLater() }
    }

    /// Asks for the channel's read rights again. If a question is already open, its answer may be based on the former
    /// policies, so the same question is asked again.
    private func review(_ channel: Channel) {
        let ticket = channel.conversation.detailed().readTicket
        if case .read(_, let occasion)? = waiting[ticket], !occasion.isReview {
            return askForReadRights(channel, occasion)
        }
        review.isAsked()
        askForReadRights(channel, .review)
    }

    /// Applies the answer about a channel under review. If the channel has lost a right, closes the channel.
    func reviewed(_ channel: Channel, _ answer: ChannelAnswer) {
        switch answer {
        case .failed(let error): _ = isReviewedLater(channel, error)
        case .rights(let broadcast, let presence):
            let details = channel.conversation.detailed()
            let keeps = (broadcast || !details.readsBroadcasts) && (presence == true || details.readsPresence != true)
            guard keeps, broadcast || presence == true else {
                return losesRights(channel)
            }
            setReads(channel, broadcast: broadcast, presence: presence)
            if case .known = details.writes { details.writes = .unknown }
        }
    }

    /// Decides what follows if a channel's rights could not be found out: the hub asks again, or closes the channel.
    /// Returns true if it will ask again.
    func isReviewedLater(_ channel: Channel, _ error: ChannelAuthorizationError) -> Bool {
        if error.isPassing, review.tryAgain(channel.place, now: loop.now) { return true }
        home.expel(channel, error.systemMessage(topic: String(decoding: channel.subTopic, as: UTF8.self)))
        return false
    }
}

extension LoopRights.ReadOccasion {
    fileprivate var isReview: Bool { if case .review = self { true } else { false } }
}

extension ChannelAuthorizationError {
    /// True if the error is temporary and not caused by the policies.
    fileprivate var isPassing: Bool {
        switch self {
        case .policy, .role: false
        case .canceled, .missingPartition, .unprepared, .unavailable, .initializing, .tooManyConnections, .exhausted:
            true
        }
    }
}

/// Messages of a channel that wait until its write rights are known.
final class PendingWrites {
    let channel: Channel
    let ticket: UInt64
    let topic: TopicName
    private(set) var frames: [WaitingFrame] = []
    private var bytes = 0

    init(_ channel: Channel, ticket: UInt64) {
        self.channel = channel
        self.ticket = ticket
        topic = TopicName(String(decoding: channel.subTopic, as: UTF8.self), isPrivate: true)
    }

    /// Adds a message that waits. Returns false if the queue is full.
    func add(_ frame: WaitingFrame) -> Bool {
        guard frames.count < Limits.maximumPendingWrites, bytes + frame.bytes.count <= Limits.maximumPendingWriteBytes
        else { return false }
        bytes += frame.bytes.count
        frames.append(frame)
        return true
    }
}
