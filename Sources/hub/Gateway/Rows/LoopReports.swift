import Asking
import Bytes
import Catalog
import Channels
import Delivery
import Diagnostics
import EventLog
import Judging
import Net
import Policy
import Positions
import Protocol

/// Messages to channels about their bindings and about lost changes.
final class LoopReports: LoopPart {
    unowned let home: ProjectLoop

    init(of home: ProjectLoop) { self.home = home }

    // MARK: Saying

    /// Sends the outcome of all bindings again, because the channel has another token.
    func sayAgain(_ channel: Channel) {
        for index in channel.bindings.indices { channel.bindings[index].said = .nothing }
        sayWhatBindingsCameTo(channel)
    }

    /// Sends the outcome of the bindings. Errors of single bindings come first, then the subscription of the others,
    /// then its warnings.
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
            case .failed(let messages): for message in messages { home.tell(channel, .error, message) }
            }
        }
        if isNewlySubscribed { home.tellOfSubscription(channel) }
        // Warnings are not sent as errors: some clients join again at each error, for as long as the cause lasts.
        for warning in warnings { home.tell(channel, .ok, warning) }
    }

    // MARK: Losses

    /// Pauses the filters of a session that took more time than they may. The client is told, and its channels with
    /// filters receive no changes for a while.
    func rest(_ session: Session) {
        let places = session.channels.compactMap(\.self)
        let resting = places.compactMap { home.channels[$0] }.filter(\.hasFilters)
        guard !resting.isEmpty, session.use.rest.secondsLeft(loop.now) == nil else { return }
        let time = session.use.rest.begin(loop.now)
        metrics.filtersRested.add()
        for channel in resting {
            channel.delivery.follower?.rest(channel, for: time)
            home.tell(channel, .error, ClientText(.filtersRest, FilterRest.message(Int(time.components.seconds))))
        }
    }

    /// Tells the channel once that a table of its bindings was outside the publication after the channel's start in the
    /// log.
    func tellWhatWasUnpublished(_ channel: Channel) {
        let tables = channel.bindings.flatMap(\.tables).map(\.binding.table)
        let breaks = tables.map { (table: $0, wholeFrom: project.wholeFrom($0.oid)) }
        guard let since = channel.position.since,
            let (table, wholeFrom) = breaks.max(by: { $0.wholeFrom < $1.wholeFrom }),
            wholeFrom > max(since, channel.told.republishedUpTo)
        else { return }
        channel.told.republishedUpTo = wholeFrom
        metrics.drops[.unanswered].add()
        // The message follows the join's reply, if that is still to come.
        guard channel.isOpen else { return channel.position.owe(.unpublished) }
        home.tell(channel, .error, BindingMessages.wasUnpublished(table))
    }

    /// True if the log may have rows of the table that do not count, because the table was out of the publication, or
    /// the log has a gap, after they were written. The client cannot know this: its join only said that the log must
    /// have a deleted row.
    func mayHaveRowsInDoubt(_ table: UInt32) -> Bool {
        guard let beginning = home.catchUps.logBeginning(), let end = project.delivery.log.end()?.state.position else {
            return true
        }
        return beginning.epoch != end.epoch || project.wholeFrom(table) > beginning.offset
    }

    /// Notes that changes were not delivered to the channel, or may not have been. Its client is told when it knows that
    /// it has joined.
    func missed(_ channel: Channel, _ reason: LossReason) { home.take(.lossNoticed(reason), channel) }

    /// Reports pending losses now, because the channel is about to hear that everything before this point was sent.
    func tellWhatIsUntold(_ channel: Channel) {
        home.take(.reportsDue, channel)
        if channel.told.lacks.tellNow() != nil { tellOfLackingValues(channel) }
    }

    /// Tells the channel that records lack values. The delivered values are right, and such a table may lack values
    /// often. The client is told at once, and again after a while if more records lacked values.
    func lacksValues(_ channel: Channel) { if channel.told.lacks.take(()) != nil { tellOfLackingValues(channel) } }

    private func tellOfLackingValues(_ channel: Channel) {
        home.tell(
            channel, .ok,
            ClientText(
                .valuesMissing,
                "A large value that an update left unchanged is not in the server's event log, or one of a column's former type "
                    + "could not be converted, and is missing from its record: fetch the row (ALTER TABLE … REPLICA IDENTITY "
                    + "FULL)"))
        if let timer = channel.timers.lack { loop.cancel(timer) }
        channel.timers.lack = loop.after(
            nanoseconds: Limits.lackingValuesInterval.wholeNanoseconds,
            token: home.token(channel) { .lack(channel: $0, generation: $1) })
    }

    func lackIsDue(_ place: UInt32, _ generation: UInt32) {
        guard let channel = home.channel(place, generation) else { return }
        channel.timers.lack = nil
        if channel.told.lacks.pauseHasEnded() != nil { tellOfLackingValues(channel) }
    }

    /// Reports a loss. The next report comes at most as often as clients can sensibly fetch.
    func tellLoss(_ reason: LossReason, _ channel: Channel) {
        assert(channel.join.isAnswered, "a loss is told to a client that knows of its channel")
        // The cause may last. A client that joins again at each error would then do so without end, so the report is no
        // error.
        let isLasting = if case .refused = project.policyEvaluator.availability { true } else { false }
        home.tell(channel, isLasting || reason.mayLast ? .ok : .error, reason.message)
        if let timer = channel.timers.loss { loop.cancel(timer) }
        channel.timers.loss = loop.after(
            nanoseconds: Limits.lossInterval.wholeNanoseconds,
            token: home.token(channel) { .loss(channel: $0, generation: $1) })
    }

    func lossIsDue(_ place: UInt32, _ generation: UInt32) {
        guard let channel = home.channel(place, generation) else { return }
        channel.timers.loss = nil
        home.take(.lossPauseEnded, channel)
    }
}
