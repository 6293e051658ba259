import Bytes
import Channels
import Delivery
import Diagnostics
import EventLog
import Net
import Positions
import Protocol
import WebSocket

/// Link between the loop and the state machines of its channels' positions: passes events to `ChannelPosition`, and
/// performs the actions that it returns.
extension ProjectLoop {
    func take(_ event: ChannelPosition.Event, _ channel: Channel) {
        for action in channel.position.take(event) { perform(action, channel) }
    }

    private func perform(_ action: ChannelPosition.Action, _ channel: Channel) {
        switch action {
        case .count(let resumption): count(resumption, channel)
        case .forgetReplay: channel.conversation.details?.forgetReplay()
        case .passOverMessages: passOverMessages(channel)
        case .boardLive: channel.delivery.follower = live
        case .board(let position): board(channel, at: position)
        case .awaitPass: catchUps.await(channel.place)
        case .goOn(let position): goOn(channel, at: position)
        case .park(let position): park(channel, at: position)
        case .leaveReader: leaveReader(channel)
        case .handOver: moveToLive(channel)
        case .tellCaughtUp: catchUps.sayCaughtUp(channel)
        case .sendRows: snapshots.goOn(channel)
        case .leaveOutSeen: snapshots.leaveOutSeen(channel)
        case .cutFeed(let refusal):
            guard let feed = channel.feed else { return }
            feeds.cut(feed, channel, "MustFetchAgain", "\(refusal.rawValue): fetch again what is shown")
        case .countLoss: metrics.drops[.unanswered].add()
        case .tellLoss(let reason): reports.tellLoss(reason, channel)
        }
    }

    // MARK: Input of the machine

    /// Returns the progress of the channel's follower in the log; nil if no follower serves the channel.
    private func progress(of channel: Channel) -> ReaderProgress? { channel.delivery.follower?.progress(for: channel) }

    /// Returns the progress of the channel's follower in the log; nil if the channel cannot be parked now.
    func parkingProgress(of channel: Channel) -> ReaderProgress? {
        channel.delivery.isResting ? nil : progress(of: channel)
    }

    /// Returns the state of the log from which the channel's position is computed.
    func view(of channel: Channel) -> LogView {
        let reader = progress(of: channel)
        let epoch =
            (channel.delivery.follower ?? live).pipeline.epochReached
            ?? project.delivery.log.end()?.state.position.epoch
        return LogView(reader: reader, liveFrontier: live.pipeline.frontier, epoch: epoch)
    }

    // MARK: Beginning

    /// Lets a follower serve the channel, unless its full socket, a commit or a snapshot holds it.
    func placeInReader(_ channel: Channel) {
        var end = channel.position.isUndecided ? project.delivery.log.end()?.state.position : nil
        if let known = end, catchUps.isAhead(channel, of: known) { end = nil }
        // Without a log, its beginning is not looked up.
        let beginning = end == nil ? nil : catchUps.logBeginning()
        let log = LogExtent(
            end: end, oldest: beginning?.offset, isBehindDamage: beginning?.isBehindDamage ?? false)
        take(.due(log: log), channel)
    }

    private func count(_ resumption: ChannelPosition.Resumption, _ channel: Channel) {
        guard let outcome = resumption.outcome else { return }
        (channel.position.isReturning ? metrics.returns : metrics.resumes)[outcome].add()
    }

    /// Makes the channel skip past messages of its topic, because the hub tells its client to fetch. The client may
    /// have received some of them, and the loop may be about to read others.
    private func passOverMessages(_ channel: Channel) {
        guard channel.conversation.details?.hasReplayed != true,
            let end = project.delivery.log.end()?.state.position.offset
        else { return }
        take(.messagesPassed(end), channel)
    }

    private func board(_ channel: Channel, at position: EventLogPosition) {
        guard let pass = catchUps.pass(from: position) else { return take(.passesFull, channel) }
        guard !pass.isLost else {
            catchUps.remove(pass)
            return take(.startUnreadable(end: project.logEnd), channel)
        }
        take(.boarded, channel)
        assert(pass.pipeline.frontier <= position.offset, "a channel that comes aboard has missed nothing")
        pass.catchUpChannels.insert(channel.place)
        channel.delivery.follower = pass
    }

    // MARK: Parking

    /// Parks all channels of a session whose socket takes no more data for now.
    func park(_ session: Session) {
        for case let place? in session.channels {
            guard let channel = channels[place] else { continue }
            park(channel, metrics.parked[.socket]) { .socketFull($0) }
        }
    }

    /// Lets the parked channels of a session continue, because its socket takes data again.
    func unpark(_ session: Session) {
        for case let place? in session.channels { if let channel = channels[place] { take(.socketDrained, channel) } }
    }

    /// Parks the channel at its first change that waits for PostgreSQL, because too many wait. The channel will read
    /// these changes from the log again.
    func goBack(_ channel: Channel) { park(channel, metrics.parked[.answers]) { .answersOverflowed($0) } }

    /// Passes an event to the channel's position that may park the channel. If the channel can be parked, counts it
    /// with `reason`.
    func park(_ channel: Channel, _ reason: Counter, _ event: (ReaderProgress?) -> ChannelPosition.Event) {
        let progress = parkingProgress(of: channel)
        if progress?.epoch != nil, channel.isOpen {
            channel.delivery.follower?.reports.tellOfTruncations(channel)
            // The channel will read the waiting changes from the log again, and the truncations after them.
            if progress?.firstHeld != nil { channel.told.truncationsDue = [] }
            assert(channel.told.truncationsDue.isEmpty, "a truncation with no change before it is told")
            returns.trackIndividually(channel)
            reason.add()
        }
        take(event(progress), channel)
    }

    private func park(_ channel: Channel, at position: EventLogPosition) {
        keepMessages(of: channel)
        leaveReader(channel)
        assert(
            channel.delivery.listener == nil && channel.delivery.nextHolder == nil, "a parked channel is bound nowhere")
        standings.watch()
        if isTooFarBehind(position) { sendAway(channel, at: position) }
    }

    private func leaveReader(_ channel: Channel) {
        if let timer = channel.timers.bind { loop.cancel(timer) }
        channel.timers.bind = nil
        letGo(of: channel)
        channel.delivery.follower = nil
    }

    private func goOn(_ channel: Channel, at position: EventLogPosition) {
        if isTooFarBehind(position) { return sendAway(channel, at: position) }
        catchUps.await(channel.place)
        loop.turnAgain()
    }

    private func isTooFarBehind(_ position: EventLogPosition) -> Bool {
        guard let limit = clients.shared.settings.outboxLag, let end = project.delivery.log.end()?.state.position else {
            return false
        }
        return end.epoch == position.epoch && end.offset > position.offset && end.offset - position.offset > limit
    }

    /// Closes the socket of a channel and tells the client its position. The client decides if it resumes from there or
    /// fetches its data again.
    private func sendAway(_ channel: Channel, at position: EventLogPosition) {
        metrics.drops[.slowConsumer].add()
        clients.say(.tryAgainLater, "too slow: connect again and go on from \(position), or fetch", to: channel.session)
    }

    /// Leaves the channel's database messages in the log. The channel receives them when it catches up.
    private func keepMessages(of channel: Channel) {
        guard let place = channel.conversation.place, talk.topics[place].hearsBroadcasts else { return }
        talk.topics[place].hasReplayed = true
    }

    // MARK: At the seam

    /// Moves the channel from its catch-up follower to the live one, which has delivered no change that the channel
    /// lacks.
    private func moveToLive(_ channel: Channel) {
        assert(channel.delivery.follower?.holds(channel) != true, "nothing waits for it")
        assert(channel.told.truncationsDue.isEmpty, "a truncation is told where it was met")
        channel.delivery.follower?.unbind(channel)
        channel.delivery.holder = channel.delivery.nextHolder
        channel.delivery.nextHolder = nil
        channel.delivery.follower = live
        if !live.bind(channel.place, channel) { live.promise(channel) }
        channel.delivery.holder?.newcomers.remove(channel.place)
        metrics.catchUps.add()
    }
}

extension Follower {
    /// True if changes for the channel wait on this follower for PostgreSQL. Only the follower that serves the channel
    /// can hold some, because listener numbers are its own.
    func holds(_ channel: Channel) -> Bool {
        guard channel.delivery.follower === self, let listener = channel.delivery.listener else { return false }
        return pipeline.isHeld(listener)
    }

    /// Returns the follower's progress in the log, including what it holds back for the channel and has sent to it.
    func progress(for channel: Channel) -> ReaderProgress {
        var progress = ReaderProgress(
            isLive: isAtEnd, epoch: pipeline.isOpen ? pipeline.epoch : nil, frontier: pipeline.frontier,
            messageFrontier: pipeline.messageFrontier)
        guard let listener = channel.delivery.listener else { return progress }
        progress.isHeld = pipeline.isHeld(listener)
        if progress.isHeld { progress.firstHeld = pipeline.firstHeld(listener) }
        progress.toldAt = pipeline.toldAt(listener)
        return progress
    }
}

extension ChannelPosition.Resumption {
    fileprivate var outcome: ProjectMetrics.Resume? {
        switch self {
        case .none, .asked: nil
        case .from: .recovered
        case .refused(.olderThanRetention): .olderThanRetention
        case .refused(.otherEpoch): .otherEpoch
        case .refused(.unknown): .unknown
        case .refused(.unreadable): .unreadable
        }
    }
}
