import Bytes
import Channels
import Delivery
import Diagnostics
import EventLog
import Net
import WebSocket

/// Clients that take less than they are sent. What the log has for their channels stays there instead of in memory: each is
/// parked at its position, and comes back from there when its socket has taken everything, as those do whose socket was cut.
extension ProjectLoop {
    func park(_ session: Session) {
        for case let place? in session.channels {
            if let channel = channels[place] { park(channel, metrics.parked[.socket]) }
        }
    }

    /// More of what its filters and policies ask of PostgreSQL waits than is kept: it goes back to the first of that.
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
        // What waits is told of once more by the log, and truncations behind it.
        if firstHeld != nil { channel.untoldTruncations = [] }
        assert(channel.untoldTruncations.isEmpty, "a truncation that nothing is before is told")
        setApart(channel)
        keepMessages(of: channel, from: follower.pipeline.messageFrontier)
        channel.toldAt = channel.listener.flatMap { follower.pipeline.toldAt($0) }
        if let timer = channel.bindTimer { loop.cancel(timer) }
        channel.bindTimer = nil
        letGo(of: channel)
        channel.follower = nil
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

    /// It is known where it stood, and it is told: whether it comes back for all of that or fetches is for it to say.
    private func sendAway(_ channel: Channel, at position: EventLogPosition) {
        metrics.drops[.slowConsumer].add()
        clients.say(.tryAgainLater, "too slow: connect again and go on from \(position), or fetch", to: channel.session)
    }

    /// Those of the database wait in the log, too: what it has from here on is told when the channel comes there.
    private func keepMessages(of channel: Channel, from offset: UInt64) {
        guard let place = channel.conversation.place, topics[place].hearsBroadcasts else { return }
        let details = channel.conversation.detailed()
        details.pastEnd = max(details.pastEnd, offset)
        topics[place].hasReplayed = true
    }
}
