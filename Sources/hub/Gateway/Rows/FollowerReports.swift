import Bytes
import Catalog
import Delivery
import Diagnostics
import Policy
import Positions
import Protocol

/// Reports of a follower to the clients of its channels, about changes that it could not deliver and losses in the log.
final class FollowerReports {
    unowned let follower: Follower
    /// Places (indices) of channels with messages about truncations that wait until earlier changes have been sent.
    private var truncationsUntold: Set<UInt32> = []

    init(of follower: Follower) { self.follower = follower }

    private var home: ProjectLoop { follower.home }

    /// Tells the channels' clients about changes that could not be delivered to them.
    func tell(of losses: DeliveryLosses) {
        for listener in losses.lacking {
            if let channel = follower.channel(ofListener: listener) { home.reports.lacksValues(channel) }
        }
        for listener in losses.unanswered {
            if let channel = follower.channel(ofListener: listener) { home.reports.missed(channel, .undecided) }
        }
        let inDoubt = losses.unknownRows.filter { $0.value.contains(where: home.reports.mayHaveRowsInDoubt) }
        for listener in inDoubt.keys.sorted() + losses.incompleteRows {
            if let channel = follower.channel(ofListener: listener) { home.reports.missed(channel, .deletedRowInDoubt) }
        }
        for account in losses.stopped {
            guard Int(account) < home.clients.sessions.count, let session = home.clients.sessions[Int(account)],
                session.project === home
            else { continue }
            home.reports.rest(session)
        }
        // These channels use the same filter as a stopped session.
        for listener in losses.skipped {
            if let channel = follower.channel(ofListener: listener), !channel.delivery.isResting {
                home.reports.missed(channel, .undecided)
            }
        }
        // This comes last, because parking a channel removes the listener by which its other losses are reported.
        for listener in losses.overfull {
            if let channel = follower.channel(ofListener: listener) { home.goBack(channel) }
        }
    }

    /// Tells each client once about generated columns that its rows lack, because PostgreSQL could not compute them.
    func tellOfUncomputed(_ missed: [UInt32: Set<String>]) {
        if missed.isEmpty { return }
        for place in follower.places {
            guard let channel = follower.channel(at: place), channel.isOpen else { continue }
            for binding in channel.bindings.flatMap({ $0.tables }).map(\.binding) {
                for column in (missed[binding.table.oid] ?? []).sorted() { tellOfUncomputed(column, binding, channel) }
            }
        }
    }

    private func tellOfUncomputed(_ column: String, _ binding: TableBinding, _ channel: Channel) {
        guard let slot = binding.table.slot(named: column) else { return }
        let isTold = binding.delivered.contains(slot)
        guard isTold || binding.isJudged(by: slot) else { return }
        let message = BindingMessages.couldNotCompute(isTold ? column : nil, of: binding.table)
        if channel.told.uncomputed.insert(message).inserted { home.tell(channel, .ok, message) }
    }

    /// Tells the clients of channels that listen to deletes about truncations. The protocol has no event for these, so
    /// the hub sends a message.
    func tellOfTruncations(_ truncated: [UInt32: UInt64]) {
        if !truncated.isEmpty {
            for place in follower.places {
                if let channel = follower.channel(at: place) { noteTruncations(truncated, channel) }
            }
        }
        for place in truncationsUntold.sorted() {
            if let channel = follower.channel(at: place) { tellOfTruncations(channel) }
        }
        truncationsUntold = truncationsUntold.filter { follower.channel(at: $0)?.told.truncationsDue.isEmpty == false }
    }

    /// Tells the clients of channels that read this part of the log about entries whose values an operator has removed.
    /// The hub no longer knows which channels were allowed to see these entries.
    func noteForgotten(_ forgotten: [UInt32: UInt64], messages: Bool) {
        if forgotten.isEmpty, !messages { return }
        for place in follower.places {
            guard let channel = follower.channel(at: place) else { continue }
            guard channel.isOpen else {
                if !follower.isAtEnd { channel.position.owe(.removed) }
                continue
            }
            if messages, !follower.isAtEnd { tellLater(BindingMessages.hasForgottenMessages, at: 0, channel) }
            if let listener = channel.delivery.listener, follower.pipeline.hasMissedNothing(listener) { continue }
            for binding in channel.bindings.lazy.flatMap(\.tables).map(\.binding) where binding.mayHearOfRows {
                guard let offset = forgotten[binding.table.oid] else { continue }
                tellLater(BindingMessages.hasForgotten(binding.table), at: offset, channel)
            }
        }
    }

    private func tellLater(_ message: ClientText, at offset: UInt64, _ channel: Channel) {
        // Several bindings may be on the same table, and the table may be truncated again before the message is sent.
        channel.told.truncationsDue.removeAll { $0.text == message }
        channel.told.truncationsDue.append((offset, message))
        truncationsUntold.insert(channel.place)
    }

    private func noteTruncations(_ truncated: [UInt32: UInt64], _ channel: Channel) {
        // The truncation is before the channel's first change.
        if let listener = channel.delivery.listener, follower.pipeline.hasMissedNothing(listener) { return }
        for binding in channel.bindings.lazy.flatMap(\.tables).map(\.binding) where binding.hearsOfTruncation {
            guard let offset = truncated[binding.table.oid] else { continue }
            tellLater(BindingMessages.isTruncated(binding.table), at: offset, channel)
        }
    }

    /// Sends messages about truncations. A message waits until the changes before it are sent: a client that has
    /// fetched its data again must not receive older changes.
    func tellOfTruncations(_ channel: Channel) {
        guard channel.isOpen, !channel.told.truncationsDue.isEmpty else { return }
        var reached = UInt64.max
        if let listener = channel.delivery.listener, follower.pipeline.isHeld(listener) {
            reached = follower.pipeline.firstHeld(listener) ?? 0
        }
        for truncation in channel.told.truncationsDue where truncation.at < reached {
            home.tell(channel, .ok, truncation.text)
        }
        channel.told.truncationsDue.removeAll { $0.at < reached }
    }

    /// Drops the changes that wait for PostgreSQL, because they were decided for another holder than the channel has
    /// now. The hub tells the client that changes may be missing.
    func dropWaiting(_ channel: Channel) {
        guard let listener = channel.delivery.listener, follower.pipeline.router.dropWaiting(listener) else { return }
        home.reports.missed(channel, .tokenChanged)
    }

    /// Tells every client that the log has a gap or begins, which concerns rows and messages from the database.
    /// Channels that catch up are told after their join. If the log only begins, a channel without bindings can have
    /// missed messages only, and most topics get none from the database. Its report is therefore no error.
    func tellOfGap(_ reason: String) {
        for place in follower.places {
            guard let channel = follower.channel(at: place) else { continue }
            guard channel.isOpen else {
                if !follower.isAtEnd { channel.position.owe(.gap) }
                continue
            }
            // The waiting changes are older than the gap. A client must not receive them after it has fetched its data
            // again.
            if let listener = channel.delivery.listener { _ = follower.pipeline.router.dropWaiting(listener) }
            channel.told.truncationsDue = []
            let text = "Changes may be missing (\(reason)): fetch again what is shown"
            if let feed = channel.feed {
                home.feeds.cut(feed, channel, TextCode.changesMissing.rawValue, text)
                continue
            }
            let isUnlikely = follower.isAtEnd && channel.bindings.isEmpty && reason == Pipeline.logHasBegun
            home.tell(channel, isUnlikely ? .ok : .error, ClientText(.changesMissing, text))
            // The client can no longer resume from its former position.
            home.catchUps.sayCaughtUp(channel)
        }
    }
}
