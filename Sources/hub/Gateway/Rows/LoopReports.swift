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

    /// Sends the results of all bindings of a channel to its client again, because the channel has another token.
    func sayAgain(_ channel: Channel) {
        for index in channel.bindings.indices { channel.bindings[index].said = .nothing }
        sendBindingResults(channel)
    }

    /// Sends to the client those results of its bindings that it does not know yet. First come the errors of single
    /// bindings, then the subscription of the others, then warnings.
    func sendBindingResults(_ channel: Channel) {
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
        // Warnings are not sent as errors, because some clients join again at each error, which would repeat endlessly.
        for warning in warnings { home.tell(channel, .ok, warning) }
    }

    // MARK: Losses

    /// Pauses the filters of a session that took more work than allowed, and tells the client. The session's channels
    /// with filters receive no changes during the pause.
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

    /// Tells the client once if a table of its bindings was outside the publication after the channel's start in the
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
        // If the join's reply has not been sent, the message follows it.
        guard channel.isOpen else { return channel.position.owe(.unpublished) }
        home.tell(channel, .error, BindingMessages.wasUnpublished(table))
    }

    /// True if the log may have outdated rows of the table: after they were written, the table was outside the
    /// publication or the log has a gap. The join's reply did not tell this to the client: it only said that deletes
    /// depend on rows in the log.
    func mayHaveRowsInDoubt(_ table: UInt32) -> Bool {
        guard let beginning = home.catchUps.logBeginning(), let end = project.delivery.log.end()?.state.position else {
            return true
        }
        return beginning.epoch != end.epoch || project.wholeFrom(table) > beginning.offset
    }

    /// Records that changes were not delivered to the channel, or may not have been. The hub tells the client once its
    /// join has been answered.
    func missed(_ channel: Channel, _ reason: LossReason) { home.take(.lossNoticed(reason), channel) }

    /// Sends the channel's waiting reports of losses now, because the hub is about to tell the client that it has
    /// received everything.
    func sendWaitingReports(_ channel: Channel) {
        home.take(.reportsDue, channel)
        if channel.told.lacks.tellNow() != nil { tellOfLackingValues(channel) }
    }

    /// Tells the client that records lack values: immediately the first time, and again after a pause if more records
    /// do. This is no error, because the other values are right and such a table may lack values often.
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

    /// Reports a loss to the client, and starts the pause before the next report.
    func tellLoss(_ reason: LossReason, _ channel: Channel) {
        assert(channel.join.isAnswered, "a loss is told to a client that knows of its channel")
        // The cause may last, and some clients join again at each error. The report is then no error, so that they do
        // not do so endlessly.
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
