import Bytes
import Catalog
import Channels
import Delivery
import Diagnostics
import EventLog
import Net
import Positions
import Protocol
import System

/// Catch-up of channels whose clients return with a position. Such a channel follows the log from its position until it
/// reaches the live follower.
///
/// Channels that return at about the same time share one catch-up follower, which makes one pass over the log. A
/// channel whose position the current passes have left behind waits for the next pass.
final class LoopCatchUps: LoopPart {
    unowned let home: ProjectLoop
    /// Catch-up followers, and the channels that wait for one.
    private var passes = CatchUpPasses()
    /// Beginning of the log, with the monotonic time in nanoseconds at which it was looked up.
    private var oldestKnown: (beginning: EventLogBeginning, at: UInt64)?
    /// Times until which channels wait for the log to reach their position, by the channels' places.
    private var aheadUntil: [UInt32: UInt64] = [:]

    init(of home: ProjectLoop) { self.home = home }

    var followers: [Follower] { passes.followers }

    func follower(_ number: UInt32) -> Follower? { passes.follower(number) }

    /// Adds a channel to those that wait for a pass of a catch-up follower.
    func await(_ place: UInt32) { passes.await(place) }

    /// Removes a channel from those that wait for a pass of a catch-up follower.
    func cancel(_ place: UInt32) {
        passes.cancel(place)
        aheadUntil[place] = nil
    }

    func remove(_ follower: Follower) { passes.remove(follower) }

    /// True if a channel must wait, because another node of the cluster has sent its client more than the log of this
    /// node has yet. It waits for a limited time, because a client may also name a position that does not exist.
    func isAhead(_ channel: Channel, of end: EventLogPosition) -> Bool {
        guard project.delivery.log.isReplica, let asked = channel.position.asked, asked.epoch == end.epoch,
            asked.offset > end.offset
        else {
            aheadUntil[channel.place] = nil
            return false
        }
        let until = aheadUntil[channel.place] ?? loop.now + Limits.replicaPatience.wholeNanoseconds
        aheadUntil[channel.place] = until
        return loop.now < until
    }

    // MARK: The log's beginning

    /// Returns the first offset that the log still has, as of the last look-up; nil if it cannot be read. See
    /// `logBeginning`.
    func oldestOffset() -> UInt64? { logBeginning()?.offset }

    /// Returns the beginning of the log, looked up at most once per interval; nil if it cannot be read. Retention may
    /// delete more before a channel's pass begins; the hub then tells its client.
    func logBeginning() -> EventLogBeginning? {
        if let known = oldestKnown, loop.now < known.at + Limits.oldestOffsetInterval.wholeNanoseconds {
            return known.beginning
        }
        do {
            let log = project.delivery.log
            let beginning = try EventLogReader.beginning(in: log.open(), end: log.end())
            oldestKnown = (beginning, loop.now)
            return beginning
        } catch {
            Log.shared.warning(
                "cannot read the beginning of the event log", [.reason("\(error)"), .project(project.name)])
            return nil
        }
    }

    /// Returns a catch-up follower that has not passed the position; nil if the maximum number is running.
    func pass(from position: EventLogPosition) -> Follower? {
        if let known = passes.followers.first(where: { $0.isOpenFor(position) }) { return known }
        return passes.hasRoom ? startPass(from: position) : nil
    }

    private func startPass(from position: EventLogPosition) -> Follower {
        let follower = Follower(of: home, number: passes.nextNumber(), from: position)
        follower.pipeline.wait.passOver(unheard: home.held.unheard)
        follower.pipeline.openIfBegun(ringing: loop.bell)
        if let snapshot = project.catalog.snapshot { follower.take(snapshot) }
        passes.add(follower)
        home.standings.watch()
        metrics.catchUpPasses.add()
        return follower
    }

    /// Runs a turn of the catch-up followers. Returns true if there is more to do immediately.
    func turn() -> Bool {
        var more = false
        for follower in passes.followers {
            more = follower.turn() || more
            if follower.isLost { giveUp(follower) } else { handOver(follower) }
        }
        // Deliveries of a finished follower must be recorded before it is removed.
        if !passes.isEmpty { home.ledger.recordSent() }
        passes.removeFinished()
        if passes.hasRoom, passes.hasWaiting, home.live.pipeline.isOpen {
            more = board(passes.takeWaiting().compactMap { home.channels[$0] }) || more
        }
        return more
    }

    /// Places waiting channels in passes of catch-up followers. Returns true if at least one was placed. If the log's
    /// first offset cannot be read, all channels keep waiting.
    private func board(_ waiting: [Channel]) -> Bool {
        var hasBoarded = false
        defer { if passes.hasWaiting { home.lookAgainLater() } }
        guard let oldest = oldestOffset() else {
            for channel in waiting { passes.await(channel.place) }
            return false
        }
        // Channels are placed in the order of their positions. A new pass begins at the lowest position, so that it
        // skips nothing that the other channels need.
        for channel in waiting.sorted(by: { ($0.position.since ?? 0, $0.place) < ($1.position.since ?? 0, $1.place) }) {
            // Placing an earlier channel may have closed this channel's socket.
            guard home.channels[channel.place] === channel else { continue }
            if let position = channel.position.parkedAt, position.offset < oldest {
                home.take(.retentionPassed(end: project.logEnd), channel)
            }
            if let feed = channel.feed, case .cut = feed.stage { continue }
            home.placeInReader(channel)
            guard let follower = channel.delivery.follower else { continue }
            hasBoarded = true
            if follower.take(aboard: channel) { follower.tellThatBound(channel) }
        }
        return hasBoarded
    }

    /// Ends a follower that cannot read on. Its channels continue at the log's end; other clients are not affected.
    private func giveUp(_ follower: Follower) {
        for place in follower.catchUpChannels.sorted() {
            guard let channel = home.channels[place] else { continue }
            channel.told.truncationsDue = []
            home.take(.pastUnreadable(end: project.logEnd), channel)
        }
        assert(follower.catchUpChannels.isEmpty, "nobody stays where nothing is told")
    }

    // MARK: At the seam

    /// Moves channels to the live follower when their catch-up follower has reached its position: the seam. At this
    /// position the live follower has delivered no change that the channels lack. It will deliver no change that they
    /// have, because it respects each channel's `since`.
    private func handOver(_ follower: Follower) {
        // A gap takes no offset, so followers at the same offset may have passed different gaps.
        guard follower.pipeline.isBetweenEntries, follower.rebinding == nil,
            follower.pipeline.frontier >= home.live.pipeline.frontier,
            follower.pipeline.epoch == home.live.pipeline.epoch,
            home.live.takesOver
        else { return }
        // All channels move together, so that the questions about their bindings run in parallel.
        for place in follower.catchUpChannels.sorted() {
            guard let channel = home.channels[place], channel.isOpen, channel.ticket == 0, !channel.delivery.isResting
            else {
                continue
            }
            if follower.holds(channel) { continue }
            if let feed = channel.feed, feed.isOver || feed.endsAtSeam {
                home.feeds.isAtSeam(feed, channel, follower)
                continue
            }
            if home.live.prepare(channel) { home.take(.reachedSeam(follower.pipeline.frontier), channel) }
        }
    }

    /// Tells the client that it has received everything before its position. Waiting reports of losses are sent first.
    func sayCaughtUp(_ channel: Channel) {
        if let feed = channel.feed {
            if channel.isOpen, channel.delivery.follower === home.live, !channel.position.awaitsRows {
                home.feeds.hasCaughtUp(feed, channel)
            }
            return
        }
        guard channel.conversation.options.contains(.hearsPosition), channel.isOpen,
            channel.delivery.follower === home.live,
            channel.position.owedLoss == nil, !channel.position.awaitsRows, let position = position(of: channel)
        else { return }
        home.reports.sendWaitingReports(channel)
        home.take(.marked(position.offset), channel)
        home.standings.watch()
        var notice = ChannelNotice(.ok, caughtUpText("\(position)"), .caughtUp, from: .system)
        notice.position = "\(position)"
        home.tell(channel, notice)
    }

    func caughtUpText(_ position: String) -> String {
        "Caught up to \(position) at \(WallTime(millisecondsSince1970: loop.time.unixMicroseconds() / 1000))"
    }

    /// Returns the position from which the channel could resume now; nil until the log has begun.
    func position(of channel: Channel) -> EventLogPosition? { channel.position.position(home.view(of: channel)) }

    func standing(of channel: Channel) -> LogStanding? {
        let hasAsked = channel.position.resumption != .none && !channel.position.isReturning
        guard channel.conversation.options.contains(.hearsPosition) || hasAsked else { return nil }
        return channel.position.standing(home.view(of: channel))
    }
}

extension Follower {
    /// True if the follower has not passed the position, so that a channel placed now misses nothing.
    fileprivate func isOpenFor(_ position: EventLogPosition) -> Bool {
        guard pipeline.isOpen else { return false }
        let frontier = pipeline.frontierForNewcomers
        // A gap takes no offset, so the follower may have passed one at the same offset.
        return frontier < position.offset || frontier == position.offset && pipeline.epoch == position.epoch
    }
}

/// Numbers of followers. A follower's timers carry its number where a channel's timers carry the channel's place.
enum FollowerNumber {
    /// Returns the number of the follower that is made after another one. Numbers restart at zero when they exceed the
    /// bits that timers have for a place.
    static func next(after number: UInt32) -> UInt32 { (number &+ 1) & (1 << ChannelPlace.channelBits - 1) }
}
