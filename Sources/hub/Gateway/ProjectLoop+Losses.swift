import Asking
import Auth
import Bytes
import Catalog
import Channels
import Delivery
import Diagnostics
import EventLog
import Judging
import Matching
import Net
import Policy
import Protocol
import System
import WebSocket

/// What channels are told of their bindings, and of what was kept from them.
extension ProjectLoop {
    // MARK: Saying

    /// Another token: what the channel has is said again.
    func sayAgain(_ channel: Channel) {
        for index in channel.bindings.indices { channel.bindings[index].said = .nothing }
        sayWhatBindingsCameTo(channel)
    }

    /// Errors of single bindings first; then that the others are subscribed, and what they may not expect.
    func sayWhatBindingsCameTo(_ channel: Channel) {
        guard channel.isOpen else { return }
        var isNewlySubscribed = false
        var warnings: [ClientText] = []
        for index in channel.bindings.indices where channel.bindings[index].said != channel.bindings[index].outcome {
            let outcome = channel.bindings[index].outcome
            channel.bindings[index].said = outcome
            switch outcome {
            case .nothing: break
            case .subscribed(let more):
                isNewlySubscribed = true
                warnings += more.filter { !warnings.contains($0) }
            case .failed(let messages): for message in messages { tell(channel, .error, message) }
            }
        }
        if isNewlySubscribed { tellOfSubscription(channel) }
        // Not as errors: some clients join again at each of those, for as long as they last.
        for warning in warnings { tell(channel, .ok, warning) }
    }

    // MARK: Losses

    /// Its filters took more time than there was for them. It is told, and hears no changes for a while.
    func rest(_ session: Session) {
        let places = session.channels.compactMap(\.self)
        let resting = places.compactMap { channels[$0] }.filter(\.hasFilters)
        guard !resting.isEmpty, session.rest.secondsLeft(loop.now) == nil else { return }
        let time = session.rest.begin(loop.now)
        metrics.filtersRested.add()
        for channel in resting {
            channel.follower?.rest(channel, for: time)
            tell(channel, .error, ClientText(.filtersRest, FilterRest.message(Int(time.components.seconds))))
        }
    }

    /// A table of its bindings was out of the publication behind where the channel's past begins: it is told once for each time.
    func tellWhatWasUnpublished(_ channel: Channel) {
        let tables = channel.bindings.flatMap(\.tables).map(\.binding.table)
        let breaks = tables.map { (table: $0, wholeFrom: project.wholeFrom($0.oid)) }
        guard let since = channel.since, let (table, wholeFrom) = breaks.max(by: { $0.wholeFrom < $1.wholeFrom }),
            wholeFrom > max(since, channel.knowsRepublishedUpTo)
        else { return }
        channel.knowsRepublishedUpTo = wholeFrom
        metrics.drops[.unanswered].add()
        // Behind the join's reply, where that is still to come.
        guard channel.isOpen else { return channel.missesUntilBound = .unpublished }
        tell(channel, .error, BindingMessages.wasUnpublished(table))
    }

    /// Something was not delivered to the channel, or may not have been: it is told.
    ///
    /// Not before it knows that it has joined: until then nobody takes what is said of a channel for this one's.
    func missed(_ channel: Channel, _ reason: LossReason) {
        guard channel.join.isAnswered else {
            channel.missesUntilBound = reason
            return
        }
        metrics.drops[.unanswered].add()
        channel.untoldLoss = reason
        if channel.lossTimer == nil { tellOfLoss(channel) }
    }

    /// What it misses is told now: it is about to hear that everything before this has been said.
    func tellWhatIsUntold(_ channel: Channel) {
        tellOfLoss(channel)
        if channel.lacksUntold { tellOfLackingValues(channel) }
    }

    /// What is delivered is right as far as it goes; who follows such a table would hear it often. It is told at once, and
    /// after a while again where there was more of it.
    func lacksValues(_ channel: Channel) {
        channel.lacksUntold = true
        if channel.lackTimer == nil { tellOfLackingValues(channel) }
    }

    private func tellOfLackingValues(_ channel: Channel) {
        channel.lacksUntold = false
        if let timer = channel.lackTimer { loop.cancel(timer) }
        tell(
            channel, .ok,
            ClientText(
                .valuesMissing,
                "A large value that an update left unchanged is not in the server's event log, or one of a column's former type "
                    + "could not be converted, and is missing from its record: fetch the row (ALTER TABLE … REPLICA IDENTITY "
                    + "FULL)"))
        channel.lackTimer = loop.after(
            nanoseconds: Limits.lackingValuesInterval.wholeNanoseconds,
            token: token(channel) { .lack(channel: $0, generation: $1) })
    }

    func lackIsDue(_ place: UInt32, _ generation: UInt32) {
        guard let channel = channel(place, generation) else { return }
        channel.lackTimer = nil
        if channel.lacksUntold { tellOfLackingValues(channel) }
    }

    /// At once, and after that not more often than clients can sensibly fetch.
    private func tellOfLoss(_ channel: Channel) {
        guard let reason = channel.untoldLoss else { return }
        channel.untoldLoss = nil
        if let timer = channel.lossTimer { loop.cancel(timer) }
        // Where it will not be otherwise soon, a client that joins again at each error would do so for good.
        let isLasting = if case .refused = project.policyEvaluator.availability { true } else { false }
        tell(channel, isLasting || reason.mayLast ? .ok : .error, reason.message)
        channel.lossTimer = loop.after(
            nanoseconds: Limits.lossInterval.wholeNanoseconds,
            token: token(channel) { .loss(channel: $0, generation: $1) })
    }

    func lossIsDue(_ place: UInt32, _ generation: UInt32) {
        guard let channel = channel(place, generation) else { return }
        channel.lossTimer = nil
        tellOfLoss(channel)
    }
}
