import Bytes
import Channels
import Delivery
import Diagnostics
import EventLog
import Net
import WebSocket

/// Parking of slow clients' channels. Changes for them stay in the log instead of in memory. Each channel is parked at
/// its position, and catches up from there when its socket has drained, like a channel whose socket was cut.
extension ProjectLoop {
    func park(_ session: Session) {
        for case let place? in session.channels {
            if let channel = channels[place] { park(channel, metrics.parked[.socket]) }
        }
    }

    /// Parks the channel at the first change that still waits for PostgreSQL, because more of its changes wait than the
    /// hub keeps. Later the channel reads these changes from the log again.
    func goBack(_ channel: Channel) {
        park(channel, metrics.parked[.answers])
        if !channel.session.isSlow { unpark(channel) }
    }

    func unpark(_ session: Session) {
        for case let place? in session.channels { if let channel = channels[place] { unpark(channel) } }
    }

    func unpark(_ channel: Channel) {
        guard channel.isOpen, channel.follower == nil, channel.heldBy.isEmpty,
            case .from(let position) = channel.recovery
        else { return }
        if channel.isToldRows { return goOnTelling(channel) }
        if isTooFarBehind(position) { return sendAway(channel, at: position) }
        waitingForPass.insert(channel.place)
        loop.turnAgain()
    }

    func park(_ channel: Channel, _ reason: Counter) {
        guard channel.isOpen, !channel.isResting, let follower = channel.follower,
            follower.pipeline.isOpen, let epoch = follower.pipeline.epoch
        else { return }
        let frontier = follower.pipeline.frontier
        let firstHeld = channel.listener.flatMap { follower.pipeline.firstHeld($0) }
        let offset = max(channel.since ?? 0, firstHeld ?? frontier)
        assert(firstHeld ?? 0 <= frontier, "what waits was read")
        follower.tellOfTruncations(channel)
        // The channel reads the waiting changes from the log again, and the truncations behind them.
        if firstHeld != nil { channel.untoldTruncations = [] }
        assert(channel.untoldTruncations.isEmpty, "a truncation that nothing is before is told")
        trackIndividually(channel)
        keepMessages(of: channel, from: follower.pipeline.messageFrontier)
        channel.toldAt = channel.listener.flatMap { follower.pipeline.toldAt($0) }
        if let timer = channel.bindTimer { loop.cancel(timer) }
        channel.bindTimer = nil
        letGo(of: channel)
        channel.follower = nil
        assert(channel.listener == nil && channel.nextHolder == nil, "a parked channel is bound nowhere")
        channel.since = offset
        let position = EventLogPosition(epoch: epoch, offset: offset)
        channel.recovery = .from(position)
        reason.add()
        watchStandings()
        if isTooFarBehind(position) { sendAway(channel, at: position) }
    }

    private func isTooFarBehind(_ position: EventLogPosition) -> Bool {
        guard let limit = clients.shared.settings.outboxLag, let end = project.delivery.log.end()?.state.position else {
            return false
        }
        return end.epoch == position.epoch && end.offset > position.offset && end.offset - position.offset > limit
    }

    /// Closes the socket and tells the client its position. The client decides whether it resumes from there or
    /// fetches.
    private func sendAway(_ channel: Channel, at position: EventLogPosition) {
        metrics.drops[.slowConsumer].add()
        clients.say(.tryAgainLater, "too slow: connect again and go on from \(position), or fetch", to: channel.session)
    }

    /// Leaves the channel's database messages in the log, too. From this offset on, the channel receives them when it
    /// catches up.
    private func keepMessages(of channel: Channel, from offset: UInt64) {
        guard let place = channel.conversation.place, topics[place].hearsBroadcasts else { return }
        let details = channel.conversation.detailed()
        details.pastEnd = max(details.pastEnd, offset)
        topics[place].hasReplayed = true
    }
}
