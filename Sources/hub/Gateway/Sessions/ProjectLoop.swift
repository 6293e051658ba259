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

/// Project on one loop: its channels, topics and followers there.
///
/// Only the loop's thread may use a ProjectLoop. Other threads send mail.
final class ProjectLoop {
    let project: Project
    unowned let clients: ClientLoop
    let mailbox: Mailbox<Mail>
    /// Live follower, which reads at the log's end.
    private(set) lazy var live = Follower(of: self, number: 0)
    /// Channels of this loop, each at an index that is called its place.
    var channels = Slots<Channel>()
    private var isLookingAgain = false
    /// Reason why the live follower cannot read the log, as it last reported to the project; nil if it can.
    private var unreadable: String?
    /// Last ticket. Each question to another thread has its own, which the answer contains.
    private var lastTicket: UInt64 = 0
    var limits: ProjectLimits
    private(set) lazy var joins = LoopJoins(of: self)
    private(set) lazy var catchUps = LoopCatchUps(of: self)
    private(set) lazy var returns = LoopReturns(of: self)
    private(set) lazy var snapshots = LoopSnapshots(of: self)
    private(set) lazy var sets = LoopSets(of: self)
    private(set) lazy var standings = LoopStandings(of: self)
    private(set) lazy var feeds = LoopFeeds(of: self)
    private(set) lazy var held = LoopHeldTables(of: self)
    private(set) lazy var reports = LoopReports(of: self)
    private(set) lazy var tokens = LoopTokens(of: self)
    private(set) lazy var rights = LoopRights(of: self)
    private(set) lazy var talk = LoopTalk(of: self)
    private(set) lazy var presence = LoopPresence(of: self)
    private(set) lazy var ledger = LoopLedger(of: self)
    /// Record of the position from which the loop may have decided by a catalog version whose mail has not arrived yet.
    private var newerCatalog = NewerCatalog()

    init(_ project: Project, _ clients: ClientLoop) {
        self.project = project
        self.clients = clients
        mailbox = project.mailboxes[clients.number]
        limits = project.limits
        mailbox.attach(clients.loop.bell)
    }

    var loop: SocketLoop { clients.loop }
    var metrics: ProjectMetrics { project.metrics }

    // MARK: Mail

    /// Handles everything in the project's mailbox of this loop.
    func drainMailbox() {
        tokens.closeExpired()
        for mail in mailbox.takeAll() {
            switch mail {
            case .resolved(let channel, let ticket, let outcomes):
                channels[channel]?.delivery.follower?.resolved(channel, ticket, outcomes)
            case .catalogMoved: catalogMoved()
            case .delivery(let number, let event): follower(number)?.take(event)
            case .evaluated(let number, let holder, let ticket, let answers):
                follower(number)?.policies.evaluated(holder, ticket, answers)
            case .filled(let number, let answers): follower(number)?.policies.filled(answers)
            case .demoted: for follower in followers { follower.policies.demotePolicies() }
            case .broadcasts(let batch): talk.hear(batch)
            case .broadcastsLost: talk.hasLostBroadcasts()
            case .presence(let changes): presence.hear(changes)
            case .authorized(let ticket, let answer): rights.authorized(ticket, answer)
            case .replayed(let ticket, let answer): talk.replayed(ticket, answer)
            case .revised(let number, let revisions): follower(number)?.take(revisions)
            case .snapshot(let channel, let ticket, let event): snapshots.heard(event, ticket, at: channel)
            case .limits: takeLimits()
            case .keys: tokens.takeKeys()
            case .census(let slip): count(on: slip)
            case .cutOff(let order): carryOut(order)
            }
        }
    }

    func nextTicket() -> UInt64 {
        lastTicket += 1
        return lastTicket
    }

    /// Returns the follower with the number; nil if it has ended.
    func follower(_ number: UInt32) -> Follower? {
        number == live.number ? live : catchUps.follower(number)
    }

    var followers: [Follower] { [live] + catchUps.followers }

    private func catalogMoved() {
        guard let snapshot = project.catalog.snapshot else { return }
        tokens.expelRefusedRoles(snapshot)
        rights.takeRules(of: snapshot)
        for follower in followers { follower.take(snapshot) }
        // Channels are bound again before the loop reads on. Policies of either version may apply to changes that were
        // read before and wait for answers.
        let place = live.pipeline.isOpen ? live.pipeline.frontier : project.logEnd ?? 0
        project.catalog.adopt(
            snapshot.version, from: min(live.pipeline.judgedUpTo, place, newerCatalog.adopt(snapshot.version)),
            to: place, by: clients.number, of: project.mailboxes.count)
    }

    /// Records which catalog version can be read now; the mail about it may not have arrived yet. A channel that joins
    /// now is bound by this version; the other channels follow.
    private func noteNewerCatalog() {
        newerCatalog.noteTurn(
            project.catalog.snapshot?.version ?? 0, judgedUpTo: live.pipeline.isOpen ? live.pipeline.judgedUpTo : nil)
    }

    private func takeLimits() {
        limits = project.limits
        for session in clients.sessions {
            if let session, session.project === self { session.machine?.limits = limits.channelLimits }
        }
    }

    // MARK: Turns

    /// Runs a turn of the project's followers on this loop. Returns true if there is more to do immediately.
    func turn() -> Bool {
        noteNewerCatalog()
        tokens.closeExpired()
        rights.continueReview()
        defer {
            presence.tellDifferences()
            talk.passOn()
            presence.passOn()
            ledger.recordSent()
        }
        sets.tellDue()
        let more = live.turn()
        defer { feeds.finishDue() }
        let isBehind = catchUps.turn()
        // Channels that have moved to a follower, or are about to, may need answers that were not asked for. No event
        // would wake the loop for that.
        live.askForWhatIsWanted()
        for follower in catchUps.followers { follower.askForWhatIsWanted() }
        assert(
            isBehind || more || followers.allSatisfy { !$0.pipeline.memberships.hasUnfilled }, "it sleeps on a question"
        )
        return isBehind || more
    }

    /// Sets a timer for another turn if no event will wake the loop: the log has not begun, or the catalog is
    /// unavailable.
    func lookAgainLater() {
        guard !isLookingAgain else { return }
        isLookingAgain = true
        loop.after(nanoseconds: Limits.bindAgainInterval.wholeNanoseconds, token: TimerToken.reread(place).rawValue)
    }

    func looksAgain() {
        isLookingAgain = false
        held.release()
        snapshots.looksAgain()
        for follower in followers { follower.looksAgain() }
    }

    /// Identifier of the project itself in timers.
    var place: ChannelPlace { ChannelPlace(project: project.number) }

    // MARK: Ends

    /// Reports for the project's health that the log cannot be read now, so that changes are late. Disconnects clients
    /// only if reading has failed for good.
    func noteReading() {
        if live.pipeline.hasFailed, project.reading.fail() {
            disconnectAll(.internalError, "the event log cannot be read")
        }
        let reason = live.pipeline.unreadable
        guard reason != unreadable else { return }
        metrics.logUnreadable.add((reason == nil ? 0 : 1) - (unreadable == nil ? 0 : 1))
        unreadable = reason
        project.reading.note(reason, on: clients.number)
    }

    private func disconnectAll(_ code: CloseCode, _ reason: String) {
        for case let session? in clients.sessions where session.project === self {
            clients.say(code, reason, to: session)
        }
    }

    /// Disconnects all clients because the project was changed or removed. They reconnect by themselves.
    func disconnectAll() {
        for place in channels.indices {
            guard let channel = channels[place], channel.isOpen else { continue }
            clients.output.sendMessage(to: channel.session) { encoder, writer in
                encoder.appendDisconnectRequest(topic: channel.topic, channel.joinRef, to: &writer)
            }
        }
        disconnectAll(.serviceRestart, "the project was changed")
    }
}
