import Bytes
import Catalog
import Channels
import Delivery
import Diagnostics
import EventLog
import Net
import Policy
import System
import WebSocket

/// What follows the log on one loop of a project: a pipeline, and the channels whose bindings are placed in it.
///
/// Everything in it belongs to the loop's thread. What comes from elsewhere comes by mail, under its number.
final class Follower {
    unowned let home: ProjectLoop
    /// Among those of the loop; mail and timers say it.
    let number: UInt32
    var pipeline: Pipeline
    /// The channels that it takes along, where those are not all but a few.
    var passengers: Set<UInt32> = []
    /// Whom policies judge.
    var holders = HolderTable()
    /// Channels whose bindings have to be looked at again, and how far that has come.
    var rebinding: Rebinding?
    /// Channels that are to be told of truncations when what waits before them has been told.
    var truncationsUntold: Set<UInt32> = []
    var isUnwindTimed = false
    /// Since when changes wait for so many channels' bindings, none of which was placed meanwhile, with the catalog at hand
    /// or without it.
    private var heldUp: HoldUp?
    private var crowdedSince: UInt64?
    private var isWaitingForSpace = false

    /// - Parameter start: where it begins; nil for the log's end.
    init(of home: ProjectLoop, number: UInt32, from start: EventLogPosition? = nil) {
        self.home = home
        self.number = number
        pipeline = Pipeline(home.project.delivery, home.clients.deflater, from: start) { [mailbox = home.mailbox] in
            mailbox.post(.delivery(follower: number, $0))
        }
    }

    var project: Project { home.project }
    var clients: ClientLoop { home.clients }
    var loop: SocketLoop { home.loop }
    var metrics: ProjectMetrics { home.metrics }
    var mailbox: Mailbox<Mail> { home.mailbox }
    /// For timers that are its own.
    var place: ChannelPlace { ChannelPlace(project: project.number, channel: number) }

    /// The loop's channel at that place, where it is one of this follower's.
    func channel(at place: UInt32) -> Channel? {
        home.channels[place].flatMap { $0.follower === self ? $0 : nil }
    }

    /// It serves those who have missed nothing, for as long as the loop lives.
    var isAtEnd: Bool { number == 0 }

    /// The channel goes on here. What it was promised begins where it was, not with the reply, so nothing is read before its
    /// bindings are in place.
    func take(aboard channel: Channel) -> Bool {
        assert(channel.follower === self, "a channel is placed where it follows the log")
        assert(isAtEnd || passengers.contains(channel.place), "who is behind is waited for")
        if bind(channel.place, channel) { return true }
        if !isAtEnd { holdUpChanges(for: channel.place) }
        return false
    }

    /// Its channels' places, and those of others.
    var places: Range<UInt32> { home.channels.indices }

    // MARK: Answers

    func take(_ event: DeliveryEvent) {
        pipeline.take(event, on: loop)
        if case .refreshed(_, false) = event { home.lookAgainLater() }
        act(on: pipeline.report())
    }

    private func act(on report: DeliveryReport) {
        follow(report.changedSets)
        fill(report.unfilledSets)
        demote(report.contradicted)
        tellOfUncomputed(report.uncomputed)
        for listener in report.fed { if let channel = channel(ofListener: listener) { home.isFed(channel) } }
        tell(of: report.losses)
        noteForgotten(report.forgotten, messages: report.hasForgottenMessages)
        tellOfTruncations(report.truncated)
        for gap in report.gaps { tellOfGap(gap) }
        home.hold(report.held)
        if report.isTiredOfWaiting { sendAway() }
    }

    /// At a turn's end, when others have placed channels here.
    func askForWhatIsWanted() {
        if pipeline.memberships.hasUnfilled { act(on: pipeline.report()) }
    }

    // MARK: Turns

    /// True when there is more to do at once.
    func turn() -> Bool {
        pipeline.openIfBegun(on: loop)
        // Of a log that begins: to those who were answered before, and to nobody who comes later.
        act(on: pipeline.report())
        if !pipeline.isOpen || pipeline.unreadable != nil { home.lookAgainLater() }
        let rebound = continueRebinding()
        act(on: pipeline.report())
        holdUp(rebound)
        guard rebound == .done else { return rebound == .more }
        if isCrowded() { return false }
        guard home.holdsAllConcerned() else { return false }
        let more = pipeline.run(
            on: loop, until: home.nextExpiry, hears: { home.topics.find($0, isPrivate: $1) != nil },
            tell: { home.heardOfDatabase($0, from: self) })
        home.tellOfDroppedMessages()
        if pipeline.isHeldByPolicies || pipeline.isHeldByTables { home.lookAgainLater() }
        act(on: pipeline.report())
        if pipeline.unreadable != nil { home.lookAgainLater() }
        if isAtEnd { home.noteReading() }
        return more
    }

    /// True if the remaining changes of the catch-up are not delivered any more.
    var isLost: Bool { !isAtEnd && (pipeline.hasLostPast || pipeline.hasFailed) }

    private func holdUp(_ rebound: Rebinding.Progress) {
        guard rebound == .waiting, pipeline.isBehind, let missing = rebinding?.missingCount else {
            heldUp = nil
            return
        }
        home.lookAgainLater()
        var known = heldUp ?? HoldUp(of: missing, since: loop.now)
        let isOver = known.hasLastedTooLong(missing: missing, isPlaceable: project.catalog.isCurrent, at: loop.now)
        heldUp = isOver ? nil : known
        guard isOver else { return }
        giveUpOnBindings()
    }

    /// The log is read at the speed of memory, and what it has waits for PostgreSQL, which is not as fast: for a while.
    private func isCrowded() -> Bool {
        guard pipeline.isCrowded(loop.now) else {
            crowdedSince = nil
            return false
        }
        let since = crowdedSince ?? loop.now
        // After a while it is read on for one turn.
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

    /// What is committed stays in the log, and nobody can say what of it may be seen: those who wait for it are told.
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
