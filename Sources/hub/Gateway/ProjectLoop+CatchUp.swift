import Bytes
import Catalog
import Channels
import Delivery
import Diagnostics
import EventLog
import Net
import Protocol
import System

/// Catch-up of channels that come back with a position. A returning channel follows the log from there until it reaches
/// the live follower.
///
/// Channels that come back at about the same time share one pass over the log. A channel too late for the current pass
/// waits for the next one.
extension ProjectLoop {
    /// Returns whether the changes since the position can be sent; nil if that is not known yet.
    private func recovery(from position: EventLogPosition) -> Channel.Recovery? {
        guard let end = project.delivery.log.end()?.state.position else { return nil }
        if position.epoch != end.epoch { return .refused(.otherEpoch) }
        if position.offset > end.offset { return .refused(.unknown) }
        guard let oldest = oldestOffset() else { return nil }
        return position.offset < oldest ? .refused(.olderThanRetention) : .from(position)
    }

    /// Returns the log's first offset, looked up at most once per interval. Retention may pass a returning channel
    /// meanwhile; the channel is told when its follower begins.
    func oldestOffset() -> UInt64? {
        if let known = oldestKnown, loop.now < known.at + Limits.oldestOffsetInterval.wholeNanoseconds {
            return known.offset
        }
        do {
            let log = project.delivery.log
            let offset = try EventLogReader.oldestOffset(in: log.open(), end: log.end())
            oldestKnown = (offset, loop.now)
            return offset
        } catch {
            Log.shared.warning(
                "the event log's beginning cannot be read", [.reason("\(error)"), .project(project.name)])
            return nil
        }
    }

    /// Returns the follower in which the channel's bindings are placed; nil if the channel has to wait for one.
    func follower(for channel: Channel) -> Follower? {
        if case .asked(let position) = channel.recovery, let recovery = recovery(from: position) {
            channel.recovery = recovery
            if let outcome = recovery.outcome {
                (channel.isReturning ? metrics.returns : metrics.resumes)[outcome].add()
            }
            // A resumed channel has those rows already. A refused one gets a snapshot, or a message if it did not ask
            // for one.
            if recovery.isWanted {
                channel.snapshot = .none
                forgetReplay(of: channel)
            } else {
                passOverMessages(channel)
                if channel.isReturning, !hasEverything(channel) { channel.missesUntilBound = recovery.loss }
            }
        }
        guard channel.recovery.isWanted else { return live }
        guard case .from(let position) = channel.recovery else {
            waitingForPass.insert(channel.place)
            return nil
        }
        // A slow channel comes back when its socket has drained, and a channel with a snapshot when it has all rows.
        if channel.isOpen, channel.session.isSlow || channel.isToldRows || !channel.heldBy.isEmpty { return nil }
        channel.since = position.offset
        let details = channel.conversation.detailed()
        details.pastEnd = max(details.pastEnd, position.offset)
        if let known = behind.first(where: { $0.isOpenFor(position) }) { return known.takeAboard(channel) }
        if behind.count < Limits.maximumCatchUps {
            let pass = startPass(from: position)
            if !pass.isLost { return pass.takeAboard(channel) }
            behind.removeAll { $0 === pass }
            refuse(channel, .unreadable)
            passOverMessages(channel)
            if let feed = channel.session.feed, case .cut = feed.stage { return nil }
            return live
        }
        waitingForPass.insert(channel.place)
        return nil
    }

    /// Drops the channel's replay. A channel that receives everything since its position would get the last messages
    /// twice, and the replay would end later.
    private func forgetReplay(of channel: Channel) {
        guard channel.conversation.details?.hasReplayed == true else { return }
        channel.conversation.detailed().forgetReplay()
    }

    /// Skips the messages of the past for a channel that is told to fetch. The channel may have received some of them,
    /// and the loop may be about to read others.
    private func passOverMessages(_ channel: Channel) {
        guard channel.conversation.details?.hasReplayed != true,
            let end = project.delivery.log.end()?.state.position.offset
        else { return }
        let details = channel.conversation.detailed()
        details.pastEnd = max(details.pastEnd, end)
    }

    private func startPass(from position: EventLogPosition) -> Follower {
        lastFollower = FollowerNumber.next(after: lastFollower)
        if lastFollower == live.number { lastFollower = 1 }
        assert(self.follower(lastFollower) == nil, "no two followers have one number")
        let follower = Follower(of: self, number: lastFollower, from: position)
        follower.pipeline.unheardTables = heldTables.unheard
        follower.pipeline.openIfBegun(on: loop)
        if let snapshot = project.catalog.snapshot { follower.take(snapshot) }
        behind.append(follower)
        assert(behind.count <= Limits.maximumCatchUps, "there are no more passes than may be")
        watchStandings()
        metrics.catchUpPasses.add()
        return follower
    }

    /// Runs a turn of the catch-up followers. Returns true if there is more to do at once.
    func catchUp() -> Bool {
        var more = false
        for follower in behind {
            more = follower.turn() || more
            if follower.isLost { giveUp(follower) } else { handOver(follower) }
        }
        // Deliveries of a finished follower are recorded before it is removed.
        if !behind.isEmpty { recordSent() }
        behind.removeAll { $0.catchUpChannels.isEmpty }
        if behind.count < Limits.maximumCatchUps, live.pipeline.isOpen, let first = takeWaiting() {
            more = board(first) || more
        }
        return more
    }

    /// Takes the channels that wait for a pass; nil if there are none.
    private func takeWaiting() -> [Channel]? {
        guard !waitingForPass.isEmpty else { return nil }
        defer { waitingForPass = [] }
        return waitingForPass.sorted().compactMap { channels[$0] }
    }

    /// Places waiting channels in a pass. Returns true if one was placed. While the log's first offset is unknown, all
    /// keep waiting.
    private func board(_ waiting: [Channel]) -> Bool {
        var hasBoarded = false
        defer { if !waitingForPass.isEmpty { lookAgainLater() } }
        guard let oldest = oldestOffset() else {
            for channel in waiting { waitingForPass.insert(channel.place) }
            return false
        }
        // Channels board in the order of their positions. The first position begins the pass, so the pass has skipped
        // none of the others.
        for channel in waiting.sorted(by: { ($0.since ?? 0, $0.place) < ($1.since ?? 0, $1.place) }) {
            // Answering an earlier one may have closed the socket that this one is on.
            guard channels[channel.place] === channel else { continue }
            if case .from(let position) = channel.recovery, position.offset < oldest { retentionOvertook(channel) }
            if let feed = channel.session.feed, case .cut = feed.stage { continue }
            guard let follower = follower(for: channel) else { continue }
            hasBoarded = true
            channel.follower = follower
            if follower.take(aboard: channel) { follower.tellThatBound(channel) }
        }
        return hasBoarded
    }

    /// Ends a follower whose past does not read. Its channels continue at the log's end, and no other client is told.
    private func giveUp(_ follower: Follower) {
        for place in follower.catchUpChannels.sorted() {
            guard let channel = channels[place] else { continue }
            if let timer = channel.bindTimer { loop.cancel(timer) }
            channel.bindTimer = nil
            letGo(of: channel)
            channel.follower = nil
            channel.untoldTruncations = []
            refuse(channel, .unreadable)
            passOverMessages(channel)
            waitingForPass.insert(place)
        }
        assert(follower.catchUpChannels.isEmpty, "nobody stays where nothing is told")
    }

    private func retentionOvertook(_ channel: Channel) { refuse(channel, .olderThanRetention) }

    /// Refuses a channel's resume because the missed changes cannot be sent. The refusal is part of the join's reply,
    /// or is sent as a loss if the reply is already out.
    private func refuse(_ channel: Channel, _ refusal: LogStanding.Refusal) {
        channel.recovery = .refused(refusal)
        channel.since = nil
        if let feed = channel.session.feed, channel.isOpen {
            // Position at which the channel continues after its fetch.
            channel.since = live.pipeline.isOpen ? live.pipeline.frontier : nil
            return cut(feed, channel, "MustFetchAgain", "\(refusal.rawValue): fetch again what is shown")
        }
        if channel.wantsSnapshot { channel.snapshot = .wanted }
        if !hasEverything(channel), channel.join.isAnswered || channel.isReturning {
            channel.missesUntilBound = channel.recovery.loss
        }
    }

    // MARK: At the seam

    /// Moves channels that have reached the live follower's position over to that follower. At this seam, the live
    /// follower has delivered no change that the channels lack. It will deliver no change that they have, except for
    /// changes that `since` excludes.
    private func handOver(_ follower: Follower) {
        // A gap takes no offset, so equal offsets do not prove that both followers have passed the same gap.
        guard follower.pipeline.isBetweenEntries, follower.rebinding == nil,
            follower.pipeline.frontier >= live.pipeline.frontier, follower.pipeline.epoch == live.pipeline.epoch,
            live.takesOver
        else { return }
        // All channels move at once, so that the questions about their bindings run in parallel.
        for place in follower.catchUpChannels.sorted() {
            guard let channel = channels[place], channel.isOpen, channel.ticket == 0, !channel.isResting else {
                continue
            }
            if let listener = channel.listener, follower.pipeline.isHeld(listener) { continue }
            if let feed = channel.session.feed, feed.isOver || feed.endsAtSeam {
                isAtSeam(feed, channel, follower)
                continue
            }
            guard live.prepare(channel) else { continue }
            handOver(channel, from: follower)
        }
    }

    private func handOver(_ channel: Channel, from follower: Follower) {
        assert(
            follower.pipeline.frontier >= live.pipeline.frontier, "what nobody has delivered to it is still to come")
        // A channel parked by a follower that was further continues from there, not earlier.
        let offset = max(follower.pipeline.frontier, channel.since ?? 0)
        assert(channel.listener.map { !follower.pipeline.isHeld($0) } ?? true, "what waits for it is told before")
        assert(channel.untoldTruncations.isEmpty, "a truncation is told where it was met")
        follower.unbind(channel)
        channel.holder = channel.nextHolder
        channel.nextHolder = nil
        channel.since = offset
        channel.follower = live
        if channel.wantsReplay {
            let details = channel.conversation.detailed()
            details.pastEnd = max(details.pastEnd, offset)
        }
        if !live.bind(channel.place, channel) { live.promise(channel) }
        metrics.catchUps.add()
        sayCaughtUp(channel)
    }

    /// Tells the client that everything before its position has been sent. A pending loss is reported first.
    func sayCaughtUp(_ channel: Channel) {
        if let feed = channel.session.feed {
            if channel.isOpen, channel.follower === live, !channel.isSnapshotDue { hasCaughtUp(feed, channel) }
            return
        }
        guard channel.conversation.options.contains(.hearsPosition), channel.isOpen, channel.follower === live,
            channel.missesUntilBound == nil, !channel.isSnapshotDue, let position = position(of: channel)
        else { return }
        tellWhatIsUntold(channel)
        channel.conversation.detailed().markedAt = position.offset
        watchStandings()
        let text = caughtUpText("\(position)")
        clients.send(channel.session) { encoder, writer in
            encoder.appendSystem(
                .ok, .system, text, .caughtUp, position: "\(position)",
                topic: channel.topic, channel.joinRef, to: &writer)
        }
    }

    func caughtUpText(_ position: String) -> String {
        "Caught up to \(position) at \(WallTime(millisecondsSince1970: loop.time.unixMicroseconds() / 1000))"
    }

    /// Returns the epoch of what the channel last received. The log's end may already be behind a gap, in another
    /// epoch.
    func epoch(of channel: Channel) -> UInt64? {
        if channel.follower == nil, case .from(let position) = channel.recovery { return position.epoch }
        return (channel.follower ?? live).pipeline.epoch ?? project.delivery.log.end()?.state.position.epoch
    }

    /// Returns the position from which the channel would resume now; nil while the log has not begun.
    func position(of channel: Channel) -> EventLogPosition? {
        guard let epoch = epoch(of: channel) else { return nil }
        let reached = channel.follower.map { $0.pipeline.frontier } ?? 0
        return EventLogPosition(epoch: epoch, offset: max(channel.since ?? 0, reached))
    }

    func standing(of channel: Channel) -> LogStanding? {
        let hasAsked = channel.recovery != .none && !channel.isReturning
        guard channel.conversation.options.contains(.hearsPosition) || hasAsked else { return nil }
        guard let epoch = epoch(of: channel) else { return LogStanding(position: nil, recovery: nil) }
        let position = EventLogPosition(epoch: epoch, offset: channel.since ?? live.pipeline.frontier)
        let recovery: Result<Void, LogStanding.Refusal>? =
            switch channel.recovery {
            case .none, .asked: nil
            case .from: .success(())
            case .refused(let refusal): .failure(refusal)
            }
        return LogStanding(position: "\(position)", recovery: recovery)
    }
}

extension Follower {
    /// True if the follower has not passed the position, so that a channel placed now misses nothing.
    fileprivate func isOpenFor(_ position: EventLogPosition) -> Bool {
        guard pipeline.isOpen else { return false }
        let frontier = pipeline.frontier
        // A gap takes no offset, so the follower may already have passed one at the same offset.
        return frontier < position.offset || frontier == position.offset && pipeline.epoch == position.epoch
    }

    fileprivate func takeAboard(_ channel: Channel) -> Follower {
        assert(channel.since.map { pipeline.frontier <= $0 } ?? false, "who comes aboard has missed nothing")
        catchUpChannels.insert(channel.place)
        return self
    }
}

/// Numbers of followers, which take the channel's place in timers.
enum FollowerNumber {
    /// Returns the number after another one. Numbers begin again at zero where a channel's place in a timer ends.
    static func next(after number: UInt32) -> UInt32 { (number &+ 1) & (1 << ChannelPlace.channelBits - 1) }
}
