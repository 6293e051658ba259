import Bytes
import Catalog
import Channels
import Delivery
import Diagnostics
import EventLog
import Messages
import Net
import Policy
import System
import WebSocket

/// Reader of the log for channels on one loop of a project. It has a pipeline, and the channels whose bindings are
/// placed in the pipeline.
///
/// Only the loop's own thread may use a Follower. Other threads send mail that contains the follower's number.
final class Follower: LoopPart {
    unowned let home: ProjectLoop
    /// Number of the follower on its loop; 0 for the live follower.
    let number: UInt32
    var pipeline: Pipeline
    /// Places (indices) of the channels that catch up on this follower; empty for the live follower.
    var catchUpChannels: Set<UInt32> = []
    private(set) lazy var policies = HolderPolicies(of: self)
    private(set) lazy var reports = FollowerReports(of: self)
    /// Progress of binding the channels again after a new catalog; nil if that is not under way.
    var rebinding: Rebinding?
    /// Wait for channels whose bindings cannot be placed; nil if the follower does not wait.
    private var heldUp: BindingStall?
    private(set) var pastMessages = PastMessages()
    private var crowdedSince: UInt64?
    private var isWaitingForSpace = false

    /// Creates a follower.
    ///
    /// - Parameter start: position at which it begins to read; nil for the log's end.
    init(of home: ProjectLoop, number: UInt32, from start: EventLogPosition? = nil) {
        assert((number == 0) == (start == nil), "only the live follower begins at the log's end")
        self.home = home
        self.number = number
        pipeline = Pipeline(home.project.delivery, home.clients.frames.deflater, from: start) {
            [mailbox = home.mailbox] in
            mailbox.post(.delivery(follower: number, $0))
        }
    }

    var mailbox: Mailbox<Mail> { home.mailbox }
    /// Identifier of the follower in its timers.
    var place: ChannelPlace { ChannelPlace(project: project.number, channel: number) }

    /// Returns the channel at the place; nil if this follower does not serve it.
    func channel(at place: UInt32) -> Channel? {
        home.channels[place].flatMap { $0.delivery.follower === self ? $0 : nil }
    }

    /// True for the live follower, which reads at the log's end and exists as long as the loop.
    var isAtEnd: Bool { number == 0 }

    /// Serves a channel that moves to this follower. The channel must miss nothing from its position on, so a catch-up
    /// follower does not read before the bindings are placed. Returns true if they are placed.
    func take(aboard channel: Channel) -> Bool {
        assert(channel.delivery.follower === self, "a channel is placed where it follows the log")
        assert(isAtEnd || catchUpChannels.contains(channel.place), "who is behind is waited for")
        if bind(channel.place, channel) { return true }
        if !isAtEnd { holdUpChanges(for: channel.place) }
        return false
    }

    /// Places (indices) of all channels of the loop, including those that other followers serve.
    var places: Range<UInt32> { home.channels.indices }

    // MARK: Messages

    /// Delivers messages of the log to topics. Returns false if they are delivered later: on a catch-up, the hub first
    /// asks which messages were deleted or changed after they were logged.
    private func hear(_ batch: TurnBroadcasts) -> Bool {
        guard isAtEnd || pastMessages.isReady(for: batch) else {
            project.archive.revisions(since: batch.entries.first?.offset ?? 0) { [mailbox, number] in
                mailbox.post(.revised(follower: number, $0))
            }
            return false
        }
        home.talk.hearDatabase(batch, from: self)
        return true
    }

    func take(_ revisions: MessageRevisions?) {
        guard let batch = pastMessages.take(revisions) else { return }
        home.talk.hearDatabase(batch, from: self)
        home.talk.tellOfDroppedMessages()
        pipeline.wait.messagesAreDelivered()
    }

    // MARK: Answers

    func take(_ event: DeliveryEvent) {
        pipeline.take(event, on: loop)
        if case .refreshed(_, false) = event { home.lookAgainLater() }
        act(on: pipeline.report())
    }

    private func act(on report: DeliveryReport) {
        policies.follow(report.changedSets)
        policies.fill(report.unfilledSets)
        policies.demote(report.contradicted)
        reports.tellOfUncomputed(report.uncomputed)
        for listener in report.fed { if let channel = channel(ofListener: listener) { home.feeds.isFed(channel) } }
        reports.tell(of: report.losses)
        reports.noteForgotten(report.findings.forgotten, messages: report.findings.hasForgottenMessages)
        reports.tellOfTruncations(report.findings.truncated)
        for gap in report.findings.gaps { reports.tellOfGap(gap) }
        home.held.hold(report.held)
        if report.isTiredOfWaiting { sendAway() }
    }

    /// Sends questions to PostgreSQL that are still unsent at the end of a turn, because channels have moved to this
    /// follower.
    func askForWhatIsWanted() {
        if pipeline.memberships.hasUnfilled { act(on: pipeline.report()) }
    }

    // MARK: Turns

    /// Runs one turn of reading and delivery. Returns true if there is more to do immediately.
    func turn() -> Bool {
        pipeline.openIfBegun(ringing: loop.bell)
        // The report that the log begins is for channels that were answered before, so it is sent before others join.
        act(on: pipeline.report())
        if !pipeline.isOpen || pipeline.unreadable != nil { home.lookAgainLater() }
        let rebound = continueRebinding()
        act(on: pipeline.report())
        holdUp(rebound)
        guard rebound == .done else { return rebound == .more }
        if isCrowded() { return false }
        guard home.held.holdsAllConcerned() else { return false }
        // Clients hear of other rows before the changes that follow.
        if home.sets.hasNews { return true }
        let more = pipeline.run(
            on: loop, until: home.tokens.nextExpiry, hears: { home.talk.topics.find($0, isPrivate: $1) != nil },
            tell: { hear($0) })
        home.talk.tellOfDroppedMessages()
        if pipeline.isHeldByPolicies || pipeline.isHeldByTables { home.lookAgainLater() }
        act(on: pipeline.report())
        if pipeline.unreadable != nil { home.lookAgainLater() }
        if isAtEnd { home.noteReading() }
        return more
    }

    /// True if the catch-up cannot deliver its remaining changes.
    var isLost: Bool { !isAtEnd && (pipeline.hasLostPast || pipeline.hasFailed) }

    private func holdUp(_ rebound: Rebinding.Progress) {
        guard rebound == .waiting, pipeline.isBehind, let missing = rebinding?.missingCount else {
            heldUp = nil
            return
        }
        home.lookAgainLater()
        var known = heldUp ?? BindingStall(of: missing, since: loop.now)
        let isPlaceable = project.catalog.isCurrent && !pipeline.memberships.awaitStandingLog
        let isOver = known.hasLastedTooLong(missing: missing, isPlaceable: isPlaceable, at: loop.now)
        heldUp = isOver ? nil : known
        guard isOver else { return }
        giveUpOnBindings()
    }

    /// Returns true if the follower must pause because too many changes wait for PostgreSQL. The follower reads the log
    /// faster than PostgreSQL answers.
    private func isCrowded() -> Bool {
        guard pipeline.router.isCrowded(loop.now) else {
            crowdedSince = nil
            return false
        }
        let since = crowdedSince ?? loop.now
        // After the maximum pause, the follower reads for one turn.
        crowdedSince = loop.now - since < Limits.crowdPatience.wholeNanoseconds ? since : nil
        guard crowdedSince != nil else { return false }
        if !isWaitingForSpace {
            isWaitingForSpace = true
            metrics.readerStalls.add()
            loop.after(nanoseconds: Limits.crowdInterval.wholeNanoseconds, token: TimerToken.space(place).rawValue)
        }
        return true
    }

    func thereMayBeSpace() { isWaitingForSpace = false }

    func looksAgain() {
        pipeline.askAgain()
        act(on: pipeline.report())
        if pipeline.isHeldByTables { home.lookAgainLater() }
    }

    // MARK: Ends

    /// Disconnects the follower's clients, because policies and filters cannot be evaluated on their changes. The
    /// changes stay in the log.
    func sendAway() {
        for place in places {
            guard let channel = channel(at: place), !channel.bindings.isEmpty else { continue }
            metrics.drops[.unanswered].add()
            clients.say(
                .tryAgainLater, "the database cannot be asked: connect again and fetch what was missed",
                to: channel.session)
        }
    }
}
