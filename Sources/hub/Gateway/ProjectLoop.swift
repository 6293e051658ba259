import Auth
import Bytes
import Catalog
import Change
import Channels
import Delivery
import Diagnostics
import EventLog
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
    /// Who follows the log at its end.
    private(set) lazy var live = Follower(of: self, number: 0)
    /// Those of channels that have come back and are not there yet.
    var behind: [Follower] = []
    var lastFollower: UInt32 = 0
    /// The first offset that the log had then.
    var oldestKnown: (offset: UInt64, at: UInt64)?
    /// Channels that come back, until a follower can begin where they have to go on.
    var waitingForPass: Set<UInt32> = []
    /// Requests for changes that may be at their end.
    var feedsDue: Set<UInt32> = []
    /// What clients have got to which nothing was sent since.
    var mark: UInt64?
    /// Channels that have got less, or more, than their sockets' receipts say.
    var apart: Set<UInt32> = []
    /// Channels whose marks are to be written down anew.
    var restated: Set<UInt32> = []
    /// Tables with a commit in the log that PostgreSQL does not show yet.
    var heldTables = HeldTables()
    /// Channels that began with a snapshot, and may have in it what the log has yet to come to.
    var leavingOut: Set<UInt32> = []
    /// Tables of which something never comes.
    var channels = Slots<Channel>()
    var tokens: TokenCache
    private var isLookingAgain = false
    /// Reason last reported why the log does not read at its end.
    private var unreadable: String?
    /// Where channels stand is looked at, from the first on that this is about.
    var standingSweep: StandingSweep?
    /// The catalog's answers that are under way, by ticket.
    private var lastTicket: UInt64 = 0
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
    /// Channels, by place, whose topics' messages of the database were dropped in the turn of a follower.
    var channelsWithDroppedMessages: Set<UInt32> = []
    /// What waits to know what somebody may do, by ticket.
    var rightsWaiting: [UInt64: RightsWaiting] = [:]

    // Who is present.
    var presenceBook = PresenceBook(.ofProjects)
    var presenceRefs: PresenceRefs
    var lastTracker: UInt64 = 0
    /// Of this turn, for the other loops.
    var presenceChanges: [PresenceChange] = []
    var ledgerNumbers: LedgerNumbers
    /// Up to where changes were judged when the turn before began; and where, when a version of the catalog was first seen whose
    /// letter has yet to come.
    private var judgedBefore = UInt64.max
    private var seenVersion: UInt64 = 0
    private var newerSince: UInt64?
    /// What was sent to whom, where that is recorded, until the log gets it …
    var sentRecord = DeliveryBlockWriter()
    var isSentRecordTimed = false
    /// … and of which changes that has gone missing, until the log says so.
    var unrecorded: ClosedRange<UInt64>?
    /// The same of other notes.
    var missedNotes = MissedNotes()
    /// The furthest that all were known to have been sent.
    var reachNoted: UInt64 = 0

    init(_ project: Project, _ clients: ClientLoop) {
        self.project = project
        self.clients = clients
        mailbox = project.mailboxes[clients.number]
        tokens = TokenCache(project.verifier.withLock { $0 }, capacity: Limits.rememberedTokens)
        limits = project.limits
        desk = BroadcastFrames(clients.deflater)
        presenceRefs = PresenceRefs(loop: UInt16(clients.number))
        ledgerNumbers = LedgerNumbers(loop: clients.number)
        mailbox.attach(clients.loop.bell)
    }

    var loop: SocketLoop { clients.loop }
    var metrics: ProjectMetrics { project.metrics }

    // MARK: Mail

    func rung() {
        closeExpired()
        for mail in mailbox.takeAll() {
            switch mail {
            case .resolved(let channel, let ticket, let outcomes):
                channels[channel]?.follower?.resolved(channel, ticket, outcomes)
            case .catalogMoved: catalogMoved()
            case .delivery(let number, let event): follower(number)?.take(event)
            case .evaluated(let number, let holder, let ticket, let answers):
                follower(number)?.evaluated(holder, ticket, answers)
            case .filled(let number, let answers): follower(number)?.filled(answers)
            case .demoted: for follower in followers { follower.demotePolicies() }
            case .broadcasts(let batch): heard(batch)
            case .broadcastsLost: hasLostBroadcasts()
            case .presence(let changes): heard(changes)
            case .authorized(let ticket, let answer): authorized(ticket, answer)
            case .replayed(let ticket, let answer): replayed(ticket, answer)
            case .snapshot(let channel, let ticket, let event): heard(event, ticket, at: channel)
            case .limits: takeLimits()
            case .keys: tokens = TokenCache(project.verifier.withLock { $0 }, capacity: Limits.rememberedTokens)
            case .census(let slip): count(on: slip)
            }
        }
    }

    func nextTicket() -> UInt64 {
        lastTicket += 1
        return lastTicket
    }

    /// Nil when it has ended.
    func follower(_ number: UInt32) -> Follower? {
        number == live.number ? live : behind.first { $0.number == number }
    }

    var followers: [Follower] { [live] + behind }

    private func catalogMoved() {
        guard let snapshot = project.catalog.snapshot else { return }
        expelRefusedRoles(snapshot)
        reviewRights(snapshot)
        for follower in followers { follower.take(snapshot) }
        // Before it goes on reading its channels are bound anew. What was read and waits for answers may be judged by either.
        let place = live.pipeline.isOpen ? live.pipeline.frontier : project.logEnd ?? 0
        project.catalog.adopt(
            snapshot.version, from: min(live.pipeline.judgedUpTo, place, newerSince ?? judgedBefore), to: place,
            by: clients.number, of: project.mailboxes.count)
        (seenVersion, newerSince) = (snapshot.version, nil)
    }

    /// Who joins is bound by the newest version, also before its letter has come, and then the others with him.
    private func noteNewerCatalog() {
        let version = project.catalog.snapshot?.version ?? 0
        if version != seenVersion {
            seenVersion = version
            newerSince = min(newerSince ?? judgedBefore, judgedBefore)
        }
        judgedBefore = live.pipeline.isOpen ? live.pipeline.judgedUpTo : .max
    }

    private func takeLimits() {
        limits = project.limits
        for session in clients.sessions {
            if let session, session.project === self { session.machine?.limits = limits.channelLimits }
        }
    }

    // MARK: Turns

    func turn() -> Bool {
        noteNewerCatalog()
        closeExpired()
        continueReview()
        defer {
            tellOfPresence()
            passOn()
            recordSent()
        }
        let more = live.turn()
        defer { finishFeeds() }
        let isBehind = catchUp()
        // Who was handed over, or is to be, may need what nobody was asked for yet, and no bell rings for that.
        live.askForWhatIsWanted()
        for follower in behind { follower.askForWhatIsWanted() }
        assert(
            isBehind || more || followers.allSatisfy { !$0.pipeline.memberships.hasUnfilled }, "it sleeps on a question"
        )
        return isBehind || more
    }

    /// The log has not begun, or the catalog is away: there is no bell for that.
    func lookAgainLater() {
        guard !isLookingAgain else { return }
        isLookingAgain = true
        loop.after(nanoseconds: Limits.bindAgainInterval.wholeNanoseconds, token: TimerToken.reread(place).rawValue)
    }

    func looksAgain() {
        isLookingAgain = false
        releaseHeldTables()
        for follower in followers { follower.looksAgain() }
    }

    /// For timers that are the project's own.
    var place: ChannelPlace { ChannelPlace(project: project.number) }

    // MARK: Ends

    /// Publishes that the log does not read at the moment, so that its changes reach clients late. Nobody is disconnected
    /// unless reading has failed for good.
    func noteReading() {
        if live.pipeline.hasFailed, !project.cannotRead.exchange(true, ordering: .relaxed) {
            disconnectAll(.internalError, "the event log cannot be read")
        }
        let reason = live.pipeline.unreadable
        guard reason != unreadable else { return }
        metrics.logUnreadable.add((reason == nil ? 0 : 1) - (unreadable == nil ? 0 : 1))
        unreadable = reason
        project.unreadable.withLock { $0[clients.number] = reason }
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
