import Bytes
import Channels
import Delivery
import Diagnostics
import EventLog
import Net
import Positions
import Protocol

/// HTTP requests for changes of one project on one loop. Each has its own channel, which no client joined.
final class LoopFeeds: LoopPart {
    unowned let home: ProjectLoop
    /// Places (indices) of the channels of feeds that may have ended.
    private var due: Set<UInt32> = []

    init(of home: ProjectLoop) { self.home = home }

    /// Begins to serve a request for changes: its channel resumes from the start position as a client's channel does.
    func begin(_ request: FeedRequest, _ session: Session) throws(FeedRefusal) {
        guard let claims = session.terms.claims else { preconditionFailure("a feed of nobody") }
        assert(session.feed == nil, "a session answers one request for changes at a time")
        assert(!request.bindings.isEmpty, "a request for changes names a table")
        guard project.users.reserve(for: session) else { throw .tooMany("Too many connected users") }
        guard project.rates.joins.take(at: loop.now) else { throw .tooMany("Too many joins per second") }
        guard home.channels.count < Limits.maximumChannelsPerLoop else { throw .tooMany("Too many channels") }
        guard let id = session.joinOnly(Self.topicOfFeeds) else { throw .tooMany("Too many channels") }
        let feed = Feed(request, id, reach: project.delivery.log.end()?.state.position.offset ?? 0)
        session.stage = .feed(feed)
        let channel = Channel(
            id, session, topic: Self.topicOfFeeds, joinRef: [], claims: claims, JoinRequest(request), at: loop.now)
        if let after = request.after { home.take(.asked(after), channel) }
        do throws(LoopJoins.JoinRefusal) {
            try home.joins.takeFilterParts(of: channel)
        } catch {
            switch error {
            case .reason(let text): throw .tooMany(text)
            case .tooManyJoins: throw .tooMany("Too many joins per second")
            }
        }
        home.joins.begin(channel)
    }

    /// Topic of every feed's channel. Each channel is in the state machine of its own HTTP request only.
    private static let topicOfFeeds = Array("realtime:changes".utf8)

    /// Returns the channel of a feed; nil if it has ended.
    func channel(of feed: Feed, _ session: Session) -> Channel? {
        session.channel(feed.id).flatMap { home.channels[$0] }
    }

    // MARK: The answer's beginning

    /// Returns the reason why the hub cannot send changes to the feed's channel; nil if it can.
    func refusal(of channel: Channel) -> FeedRefusal? {
        // A client that receives all existing rows need not fetch its data again.
        if case .refused(let refusal) = channel.position.resumption, !channel.wantsSnapshot,
            let position = standing(of: channel)?.position
        {
            return .mustFetchAgain(refusal, from: position)
        }
        for binding in channel.bindings {
            switch binding.outcome {
            case .subscribed: continue
            case .failed(let texts): if let text = texts.first { return .binding(text) }
            // The bindings of a channel that waits for a catch-up are resolved when the catch-up begins.
            case .nothing where channel.delivery.follower == nil: continue
            case .nothing: return .unavailable("The database cannot be asked what the tables are: try again")
            }
        }
        return nil
    }

    /// Opens the feed's channel after the hub has begun the HTTP answer.
    func open(_ feed: Feed, _ channel: Channel) {
        home.joins.take(.replied, channel)
        assert(channel.isOpen, "a channel opens after the answer has begun")
        // The ledger records a page at its end, with the result.
        if !feed.isPage { home.ledger.noteJoin(channel) }
        home.tokens.watchExpiry(channel)
        for advice in channel.joining.advice { home.tell(channel, .ok, advice) }
        channel.joining.advice = []
        home.reports.sendBindingResults(channel)
        home.snapshots.begin(channel)
        if !channel.position.isResumed, !channel.position.awaitsRows { hasCaughtUp(feed, channel) }
    }

    // MARK: Notices and progress

    /// Returns the position before which the feed's client has received everything; nil until the log has begun.
    func standing(of channel: Channel) -> Feed.Standing? {
        guard let epoch = channel.position.epoch(home.view(of: channel)) else { return nil }
        return channel.position.awaitsRows
            ? .amongRows : .at("\(EventLogPosition(epoch: epoch, offset: offset(of: channel)))")
    }

    /// Returns the offset before which the hub has sent everything that is for the feed.
    func offset(of channel: Channel) -> UInt64 {
        guard let follower = channel.delivery.follower else { return offset(parked: channel) }
        let begins = channel.position.since ?? 0
        guard let listener = channel.delivery.listener else { return max(begins, follower.pipeline.frontier) }
        // A feed that has reached its limit has received nothing after its last change.
        if follower.pipeline.share(listener)?.isFull == true {
            return follower.pipeline.toldAt(listener) ?? begins
        }
        return max(begins, follower.pipeline.firstHeld(listener) ?? follower.pipeline.frontier)
    }

    private func offset(parked channel: Channel) -> UInt64 {
        let begins = channel.position.parkedAt?.offset ?? channel.position.since ?? 0
        // A feed may have reached its limit before it was parked.
        return channel.feed?.share.isFull == true ? channel.position.toldAt ?? begins : begins
    }

    /// Sends a notice to the feed's client, or keeps it until the HTTP answer begins or ends.
    func tell(_ feed: Feed, _ channel: Channel, _ notice: ChannelNotice) {
        guard let standing = standing(of: channel), let code = notice.code else { return }
        var record = SystemRecord(notice.status, code: code.rawValue, notice.text, at: standing.position)
        record.rows = notice.rows
        if case .joining = feed.stage { return feed.notes.append(record) }
        guard feed.isPage else { return clients.feeds.write(record, to: channel.session, feed) }
        feed.notes.append(record)
        // A page contains all its changes first. Changes after a truncation belong to the next page.
        guard code == .truncated, case .telling = feed.stage else { return }
        feed.stage = .interrupted
        isDue(channel)
    }

    /// Updates the number of changes that a feed has received, after its channel received some.
    func isFed(_ channel: Channel) {
        guard let feed = channel.feed, let listener = channel.delivery.listener else { return }
        if let share = channel.delivery.follower?.pipeline.share(listener) {
            assert(share.told >= feed.share.told, "a change that was sent stays sent")
            feed.share = share
        }
        if feed.share.isFull || feed.isPage { isDue(channel) }
    }

    /// Acts on a feed that has received everything up to the log's end: ends it if it was to end there, else tells its
    /// client.
    func hasCaughtUp(_ feed: Feed, _ channel: Channel) {
        if feed.endsAtSeam { return isFinished(feed, channel) }
        guard !feed.isPage, let position = standing(of: channel)?.position else { return }
        home.reports.sendWaitingReports(channel)
        home.tell(channel, .ok, ClientText(.caughtUp, home.catchUps.caughtUpText(position)))
    }

    private func isFinished(_ feed: Feed, _ channel: Channel) {
        if !feed.isOver { feed.stage = .finished }
        isDue(channel)
    }

    /// Ends a feed early, for the given reason. Its ending contains the position from which another request can
    /// continue.
    func cut(_ feed: Feed, _ channel: Channel, _ code: String, _ text: String) {
        feed.stage = .cut(FeedEnding.Reason(code: code, text))
        isDue(channel)
    }

    /// Ends the feed if its follower has delivered at least up to the feed's `reach`.
    func isAtSeam(_ feed: Feed, _ channel: Channel, _ follower: Follower) {
        if feed.isOver || follower.pipeline.frontier >= feed.reach { isFinished(feed, channel) }
    }

    private func isDue(_ channel: Channel) {
        due.insert(channel.place)
        loop.turnAgain()
    }

    // MARK: The answer's end

    /// Ends those feeds of which `due` says that they may have ended. The loop calls this after the deliveries of a
    /// turn.
    func finishDue() {
        guard !due.isEmpty else { return }
        let places = due.sorted()
        due = []
        for place in places {
            guard let channel = home.channels[place], channel.isOpen, let feed = channel.feed else { continue }
            // A page that waited at the log's end has now received changes.
            if channel.delivery.follower === home.live, feed.endsAtSeam, !feed.isOver { feed.stage = .finished }
            guard feed.isOver else { continue }
            clients.feeds.finish(feed, channel.session)
        }
    }

    /// Returns the ending of a feed's HTTP answer, after all waiting reports; nil if the log has not begun.
    func ending(of feed: Feed, _ channel: Channel) -> FeedEnding? {
        // The follower may have read changes before the channel's bindings were placed, which is reported first.
        home.take(.owedLossDue, channel)
        home.reports.sendWaitingReports(channel)
        guard let position = standing(of: channel)?.position else { return nil }
        if case .cut(let reason) = feed.stage { return FeedEnding(at: position, hasMore: true, because: reason) }
        let isAtEnd = if case .finished = feed.stage { true } else { channel.delivery.follower === home.live }
        return FeedEnding(at: position, hasMore: feed.share.isFull || !isAtEnd)
    }
}

extension Session {
    /// Begins to join the topic as the only channel of the state machine. Returns nil if the machine has no room.
    fileprivate func joinOnly(_ topic: [UInt8]) -> ChannelID? {
        let isFirst = machine?.channelCount == 0
        assert(isFirst, "a request for changes has one channel")
        var actions: [ChannelAction] = []
        let none: [UInt8] = []
        let (name, empty) = (topic.rawBytes, none.rawBytes)
        machine?.handle(ChannelFrame(.join, topic: name, joinRef: empty, ref: empty, whole: empty), into: &actions)
        if case .startJoin(let id)? = actions.first { return id }
        return nil
    }
}
