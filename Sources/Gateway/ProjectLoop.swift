import Auth
import Bytes
import Catalog
import Channels
import Delivery
import Diagnostics
import Net
import Protocol
import Settings
import Synchronization
import System
import WebSocket

/// One project on one loop: its channels there, and what they hear of its changes.
///
/// Everything in it belongs to the loop's thread. What comes from elsewhere comes by mail.
final class ProjectLoop {
    let project: Project
    unowned let clients: ClientLoop
    let mailbox: Mailbox<Mail>
    var channels = Slots<Channel>()
    var tokens: TokenCache
    var pipeline: Pipeline
    private var isLookingAgain = false
    var isUnwindTimed = false
    private var crowdedSince: UInt64?
    /// Since when changes wait for so many channels' bindings, none of which was placed meanwhile, with the catalog at hand
    /// or without it.
    private var heldUp: HoldUp?
    private var isWaitingForSpace = false
    /// The catalog's answers that are under way, by ticket.
    var lastTicket: UInt64 = 0
    /// Channels whose bindings have to be looked at again, and how far that has come.
    var rebinding: Rebinding?
    /// Whom policies judge.
    var holders = HolderTable()
    var limits: ProjectLimits
    /// As they were when all channels were held against them.
    var privilegedRoles: PrivilegedRoles?
    /// The first end of a token that a channel may have, in Unix seconds.
    var nextExpiry = Int64.max
    /// Private channels whose rights are asked for again.
    var reasking = RightsReview()

    // What channels say to each other.
    var topics = TopicTable<TopicListener>()
    var desk: BroadcastFrames
    /// Said in this turn, for the other loops.
    var gathering = BroadcastGathering()
    /// Channels that wait for what came before, by ticket.
    var replaysWaiting: [UInt64: Channel] = [:]
    /// What waits to know what somebody may do, by ticket.
    var rightsWaiting: [UInt64: RightsWaiting] = [:]

    // Who is present.
    var presenceBook = PresenceBook(.ofProjects)
    var presenceRefs: PresenceRefs
    var lastTracker: UInt64 = 0
    /// Of this turn, for the other loops.
    var presenceChanges: [PresenceChange] = []
    /// Channels that are to be told of truncations when what waits before them has been told.
    var truncationsUntold: Set<UInt32> = []

    init(_ project: Project, _ clients: ClientLoop) {
        self.project = project
        self.clients = clients
        mailbox = project.mailboxes[clients.number]
        tokens = TokenCache(project.verifier.withLock { $0 }, capacity: Limits.rememberedTokens)
        pipeline = Pipeline(project.delivery, clients.deflater) { [mailbox] in mailbox.post(.delivery($0)) }
        limits = project.limits
        desk = BroadcastFrames(clients.deflater)
        presenceRefs = PresenceRefs(loop: UInt16(clients.number))
        mailbox.attach(clients.loop.bell)
    }

    var loop: SocketLoop { clients.loop }
    var metrics: ProjectMetrics { project.metrics }

    // MARK: Mail

    func rung() {
        closeExpired()
        for mail in mailbox.takeAll() {
            switch mail {
            case .resolved(let channel, let ticket, let outcomes): resolved(channel, ticket, outcomes)
            case .catalogMoved: catalogMoved()
            case .delivery(let event): take(event)
            case .evaluated(let holder, let ticket, let answers): evaluated(holder, ticket, answers)
            case .filled(let answers): filled(answers)
            case .demoted: demotePolicies()
            case .broadcasts(let batch): heard(batch)
            case .broadcastsLost: hasLostBroadcasts()
            case .presence(let changes): heard(changes)
            case .authorized(let ticket, let answer): authorized(ticket, answer)
            case .replayed(let ticket, let answer): replayed(ticket, answer)
            case .limits: takeLimits()
            case .keys: tokens = TokenCache(project.verifier.withLock { $0 }, capacity: Limits.rememberedTokens)
            }
        }
    }

    private func take(_ event: DeliveryEvent) {
        pipeline.take(event, on: loop)
        if case .refreshed(false) = event { lookAgainLater() }
        act(on: pipeline.report())
    }

    private func act(on report: DeliveryReport) {
        follow(report.changedSets)
        fill(report.unfilledSets)
        if let messages = report.messages { heardOfDatabase(messages) }
        demote(report.contradicted)
        tellOfUncomputed(report.uncomputed)
        tell(of: report.losses)
        tellOfTruncations(report.truncated)
        for gap in report.gaps { tellOfGap(gap) }
        if report.isTiredOfWaiting { sendFollowersAway() }
    }

    private func takeLimits() {
        limits = project.limits
        for session in clients.sessions {
            if let session, session.project === self { session.machine?.limits = limits.channelLimits }
        }
    }

    // MARK: Turns

    func turn() -> Bool {
        closeExpired()
        continueReview()
        defer {
            tellOfPresence()
            passOn()
        }
        return followTables()
    }

    private func followTables() -> Bool {
        pipeline.openIfBegun(on: loop)
        // Of a log that begins: to those who were answered before, and to nobody who comes later.
        act(on: pipeline.report())
        if !pipeline.isOpen { lookAgainLater() }
        let rebound = continueRebinding()
        act(on: pipeline.report())
        holdUp(rebound)
        guard rebound == .done else { return rebound == .more }
        if isCrowded() { return false }
        let more = pipeline.run(on: loop, until: nextExpiry) { topics.find($0, isPrivate: $1) != nil }
        if pipeline.isHeldByPolicies { lookAgainLater() }
        act(on: pipeline.report())
        if pipeline.hasFailed {
            project.cannotRead.store(true, ordering: .relaxed)
            disconnectAll(.internalError, "the event log cannot be read")
        }
        return more
    }

    private func holdUp(_ rebound: Rebinding.Progress) {
        guard rebound == .waiting, pipeline.isBehind, let missing = rebinding?.missingCount else {
            heldUp = nil
            return
        }
        lookAgainLater()
        var known = heldUp ?? HoldUp(of: missing, since: loop.now)
        let isOver = known.hasLastedTooLong(missing: missing, isPlaceable: project.catalog.isCurrent, at: loop.now)
        heldUp = isOver ? nil : known
        guard isOver else { return }
        giveUpOnBindings()
    }

    /// The log is read at the speed of memory, and what it has waits for those who cannot take it as fast: for a while.
    private func isCrowded() -> Bool {
        guard pipeline.isCrowded(loop.now) || loop.isCrowded else {
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

    /// The log has not begun, or the catalog is away: there is no bell for that.
    func lookAgainLater() {
        guard !isLookingAgain else { return }
        isLookingAgain = true
        loop.after(nanoseconds: Limits.bindAgainInterval.wholeNanoseconds, token: TimerToken.reread(place).rawValue)
    }

    func looksAgain() {
        isLookingAgain = false
        pipeline.askAgain()
        act(on: pipeline.report())
    }

    /// For timers that are the project's own.
    var place: ChannelPlace { ChannelPlace(project: project.number) }

    // MARK: Ends

    /// What is committed stays in the log, and nobody can say what of it may be seen: those who wait for it are told.
    func sendFollowersAway() {
        for place in channels.indices {
            guard let channel = channels[place], !channel.bindings.isEmpty else { continue }
            metrics.drops[.unanswered].add()
            clients.say(
                .tryAgainLater, "the database cannot be asked: connect again and fetch what was missed",
                to: channel.session)
        }
    }

    private func disconnectAll(_ code: CloseCode, _ reason: String) {
        for case let session? in clients.sessions where session.project === self {
            clients.say(code, reason, to: session)
        }
    }

    /// The project is another now, or is gone: clients come back by themselves.
    func disconnectAll() {
        for place in channels.indices {
            guard let channel = channels[place], channel.isOpen else { continue }
            clients.send(channel.session) { encoder, writer in
                encoder.appendDisconnectRequest(topic: channel.topic, channel.joinRef, to: &writer)
            }
        }
        disconnectAll(.serviceRestart, "the project was changed")
    }
}
