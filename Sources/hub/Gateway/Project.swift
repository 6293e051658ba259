import Asking
import Auth
import Authorizing
import Catalog
import Change
import Channels
import Delivery
import Diagnostics
import EventLog
import Judging
import Messages
import Net
import Settings
import Synchronization
import System

/// What is configured for one project.
public struct ProjectSettings: Sendable {
    public var maximumBodyBytes = Limits.maximumChangeBodyBytes
    /// Where a table has policies, of a deleted row only those are told who could see it. If not, everybody who asked for
    /// the table's deletes is told the primary key, as the reference does.
    public var deletesAreStrict = true
    /// Whether messages of the past are also given to channels that are not private.
    public var replaysPublicChannels = false
    /// So many at most.
    public var maximumReplay = 25
    public var limits: ProjectLimits
    /// Whom tokens may name.
    public var roles = RoleRules()
    public var time: any TimeSource = KernelTime()
    public var watcher: DeliveryWatcher?
    /// Who asks for its position is told it so often, where it hears nothing else.
    public var positionInterval = Limits.positionInterval
    /// Where clients that went without a word stood; nil where they begin anew.
    public var departures: Departures?
    /// What is known of the publication over time.
    public var publication = PublicationRecord(in: nil)

    public init(limits: ProjectLimits) { self.limits = limits }
}

/// One project as all loops share it: a database, its event log, and who may hear of it. Set when the project starts, and
/// safe to use from any thread.
public final class Project: Sendable {
    /// What clients call it: the first label of the host they connect to.
    let name: String
    /// Among the hub's projects; given again after it has gone.
    public let number: UInt32
    let settings: ProjectSettings
    public let services: ProjectServices
    let rates: ProjectRates
    /// Its clients' part of what all may keep unfinished.
    let budgets: ProjectBudgets
    let metrics: ProjectMetrics
    let reference = ReferenceMetrics()
    private let refusals: RefusalLog
    private let currentLimits: Mutex<ProjectLimits>
    /// Sockets that have joined a channel, until they end.
    private let users = Atomic<Int>(0)
    let delivery: DeliverySources
    /// Whether messages of the database arrive.
    let hearsDatabase: @Sendable () -> Bool
    /// Writes down who came and went; nil when nobody wants to know.
    let presenceTimeline: (@Sendable ([PresenceMark]) -> Void)?
    /// Nil where nothing is kept of channels.
    let ledger: ChannelLedger?
    public let condition: @Sendable () -> ProjectHealthReport
    public let verifier: Mutex<TokenVerifier>
    /// One for each loop, by its number.
    let mailboxes: [Mailbox<Mail>]
    /// Of broadcasts in those mailboxes.
    private let mailedBytes: [MailedBytes]
    let slowest: SlowestReader
    /// Policies that were decided otherwise than by PostgreSQL, once: they are left to it.
    private let demoted = Mutex<[PolicyBinding]>([])
    /// A loop failed to read the log: clients are refused.
    let cannotRead = Atomic<Bool>(false)
    /// Reasons why loops cannot read the log now, by loop number.
    let unreadable = Mutex<[Int: String]>([:])
    private let loopsLeft = Atomic<Int>(0)
    let admissions = Admissions()

    public init(
        _ name: String, _ settings: ProjectSettings, _ share: ProjectShare, _ services: ProjectServices,
        _ verifier: TokenVerifier, _ stream: ProjectStream
    ) {
        self.name = name
        refusals = RefusalLog(project: name)
        number = share.number
        self.settings = settings
        let catalog = services.asking.catalog
        self.services = services
        rates = ProjectRates(settings.limits)
        budgets = share.budgets
        metrics = share.metrics
        metrics.running.set(UInt64(1))
        currentLimits = Mutex(settings.limits)
        self.verifier = Mutex(verifier)
        delivery = DeliverySources(
            log: stream.log, asking: services.asking, maximumBodyBytes: settings.maximumBodyBytes,
            deletesAreStrict: settings.deletesAreStrict, time: settings.time,
            watcher: settings.watcher, metrics: metrics)
        hearsDatabase = stream.hearsDatabase
        presenceTimeline = stream.presenceTimeline
        ledger = stream.ledger
        condition = { stream.condition(catalog.isCurrent) }
        let mailboxes = (0..<share.loops).map { _ in Mailbox<Mail>() }
        self.mailboxes = mailboxes
        mailedBytes = (0..<share.loops).map { _ in MailedBytes() }
        slowest = SlowestReader(loops: share.loops)
        let (publication, log) = (settings.publication, stream.log)
        catalog.listen { snapshot in
            publication.take(snapshot, at: log.end()?.state.position.offset)
            for mailbox in mailboxes { mailbox.post(.catalogMoved) }
        }
        if let snapshot = catalog.snapshot { publication.take(snapshot, at: logEnd) }
    }

    /// Behind what has been read.
    var logEnd: UInt64? { delivery.log.end()?.state.position.offset }

    /// Who begins there or later misses nothing of the table, nor does who was told so.
    func wholeFrom(_ table: UInt32) -> UInt64 { settings.publication.wholeFrom(table, at: logEnd) }

    /// Where something of that kind was noticed last.
    var latestRepublication: UInt64 { settings.publication.latest(at: logEnd) }

    /// When its loops have left it.
    public func stop() {
        services.stop()
        settings.departures?.stop()
        settings.publication.stop()
    }

    public func post(_ mail: Mail) {
        for mailbox in mailboxes { mailbox.post(mail) }
    }

    /// Broadcasts for all loops but the one where they were said. One that is far behind does not get them: it is told so.
    func post(_ batch: TurnBroadcasts, from loop: Int) {
        for index in mailboxes.indices where index != loop {
            guard mailedBytes[index].add(batch.byteCount) else {
                metrics.drops[.backlog].add(batch.entries.count)
                mailboxes[index].post(.broadcastsLost)
                continue
            }
            mailboxes[index].post(.broadcasts(batch))
        }
    }

    func hasTaken(_ batch: TurnBroadcasts, on loop: Int) { mailedBytes[loop].subtract(batch.byteCount) }

    /// Presence for all loops but the one where it changed. It is never left out: where a loop is far behind, nothing more
    /// is tracked until it is not.
    func post(_ changes: [PresenceChange], from loop: Int) {
        let byteCount = changes.reduce(0) { $0 + $1.byteCount }
        for index in mailboxes.indices where index != loop {
            mailedBytes[index].addAnyway(byteCount)
            mailboxes[index].post(.presence(changes))
        }
    }

    func hasTaken(_ changes: [PresenceChange], on loop: Int) {
        mailedBytes[loop].subtract(changes.reduce(0) { $0 + $1.byteCount })
    }

    /// A loop has not taken what it was sent.
    var isBehind: Bool { mailedBytes.contains { $0.isFull } }

    /// True if PostgreSQL decides on the policy's rows. Where more policies were demoted than are remembered, it decides on
    /// all: none is trusted again because it was forgotten.
    func isDemoted(_ policy: PolicyBinding) -> Bool {
        demoted.withLock { $0.count >= Limits.maximumDemotedPolicies || $0.contains { $0 === policy } }
    }

    /// Leaves the policy's rows to PostgreSQL on all loops, until the policy, or what it means, is another.
    func demote(_ policy: PolicyBinding) {
        let isNews = demoted.withLock { demoted in
            let isKnown = demoted.contains { $0 === policy }
            if isKnown || demoted.count >= Limits.maximumDemotedPolicies { return false }
            demoted.append(policy)
            return true
        }
        if isNews { post(.demoted) }
    }

    /// Whether a token may name the role, as far as that is known just now.
    func permits(_ role: String) -> Bool { settings.roles.permits(role, catalog.snapshot?.privilegedRoles) }

    // MARK: Refusals

    /// Counted each time, said once a while. `now` is the monotonic clock's.
    func refused(_ token: ProjectMetrics.TokenRefusal, at now: UInt64) {
        metrics.tokensRefused[token].add()
        refusals.note(.token(token), at: now)
    }

    func refused(_ refusal: ClientRefusal, at now: UInt64) { refusals.note(refusal, at: now) }

    // MARK: Limits

    var limits: ProjectLimits { currentLimits.withLock { $0 } }

    public func replace(_ limits: ProjectLimits) {
        currentLimits.withLock { $0 = limits }
        rates.set(limits)
        post(.limits)
    }

    public var userCount: Int { users.load(ordering: .relaxed) }

    /// Whether there is room for one more.
    var hasRoom: Bool { limits.maximumConcurrentUsers.map { userCount < $0 } ?? true }

    /// Counts the session, before it is known whether it may join: what is found out takes a while, and many may ask
    /// meanwhile. False where there is no room.
    func reserve(for session: Session) -> Bool {
        guard !session.isCounted else { return true }
        let count = users.wrappingAdd(1, ordering: .relaxed).newValue
        if let most = limits.maximumConcurrentUsers, count > most {
            users.wrappingSubtract(1, ordering: .relaxed)
            return false
        }
        session.isCounted = true
        return true
    }

    /// A join came to nothing: who never joined any channel, and asks for none, is no user.
    func giveBack(_ session: Session) {
        if !session.hasJoined, session.channels.isEmpty { hasEnded(session) }
    }

    func hasEnded(_ session: Session) {
        guard session.isCounted else { return }
        session.isCounted = false
        users.wrappingSubtract(1, ordering: .relaxed)
    }

    // MARK: Leaving

    /// A loop has sent the project's clients away and forgotten it.
    func hasLeft(loop: Int) { loopsLeft.wrappingAdd(1, ordering: .releasing) }

    func waitUntilLeft() {
        while loopsLeft.load(ordering: .acquiring) < mailboxes.count {
            BackgroundThread.rest(nanoseconds: 1_000_000)
        }
    }
}

/// Bytes that wait in one mailbox.
private final class MailedBytes: Sendable {
    private let bytes = Atomic<Int>(0)

    /// False, and nothing is added, where there is no more room.
    func add(_ count: Int) -> Bool {
        guard !isFull else { return false }
        addAnyway(count)
        return true
    }

    func addAnyway(_ count: Int) { bytes.wrappingAdd(count, ordering: .relaxed) }

    var isFull: Bool { bytes.load(ordering: .relaxed) > Limits.maximumMailedBytes }

    func subtract(_ count: Int) { bytes.wrappingSubtract(count, ordering: .relaxed) }
}

/// How much the project's clients do, against what they may.
struct ProjectRates: Sendable {
    let events: RateBucket
    let joins: RateBucket
    let presence: RateBucket
    /// Lines in the log about those.
    let complaints = RateBucket(rate: 1, window: 5_000_000_000)

    init(_ limits: ProjectLimits) {
        let window = Limits.rateWindow.wholeNanoseconds
        events = RateBucket(rate: limits.maximumEventsPerSecond ?? 0, window: window)
        joins = RateBucket(rate: limits.maximumJoinsPerSecond ?? 0, window: window)
        presence = RateBucket(rate: limits.maximumPresenceEventsPerSecond ?? 0, window: window)
    }

    func set(_ limits: ProjectLimits) {
        events.setRate(limits.maximumEventsPerSecond ?? 0)
        joins.setRate(limits.maximumJoinsPerSecond ?? 0)
        presence.setRate(limits.maximumPresenceEventsPerSecond ?? 0)
    }
}

extension Project {
    var authorizer: any ChannelAuthorizing { services.authorizer }
    var archive: any MessageReplaying { services.archive }
    public var catalog: any CatalogSource { services.asking.catalog }
    public var policyEvaluator: any PolicyEvaluating { services.asking.policyEvaluator }
    public var mayCompute: Bool { delivery.mayCompute }
}
