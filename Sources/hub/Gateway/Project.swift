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

/// Settings of one project.
public struct ProjectSettings: Sendable {
    public var maximumBodyBytes = Limits.maximumChangeBodyBytes
    /// True if only clients that could see a deleted row are told of its deletion, for tables with policies. If false,
    /// every client that asked for the table's deletes receives the primary key, as with the reference (Supabase
    /// Realtime).
    public var deletesAreStrict = true
    /// True if public channels may also ask for past messages.
    public var replaysPublicChannels = false
    /// Largest number of past messages for a channel.
    public var maximumReplay = 25
    public var limits: ProjectLimits
    /// Roles that tokens may name.
    public var roles = RoleRules()
    public var time: any TimeSource = KernelTime()
    public var watcher: DeliveryWatcher?
    /// Interval at which a quiet channel that asked for positions is told its own.
    public var positionInterval = Limits.positionInterval
    /// Positions of departed clients; nil if returning clients begin anew.
    public var resumeStore: ResumeStore?
    /// Record of the publication over time.
    public var publication = PublicationRecord(in: nil)
    /// Policies that are left to PostgreSQL.
    public var demoted = DemotedPolicies(in: nil)

    public init(limits: ProjectLimits) { self.limits = limits }
}

/// Project as shared by all loops: a database, its event log, and rules about access. The project does not change after
/// its start, and is safe to use from any thread.
public final class Project: Sendable {
    /// Name of the project, which is the first label of the host that clients connect to.
    let name: String
    /// Number among the hub's projects. A later project may reuse the number of one that has ended.
    public let number: UInt32
    let settings: ProjectSettings
    public let services: ProjectServices
    let rates: ProjectRates
    /// Budgets of the project's clients, as a share of the hub's.
    let budgets: ProjectBudgets
    let metrics: ProjectMetrics
    let reference = ReferenceMetrics()
    private let refusals: RefusalLog
    private let currentLimits: Mutex<ProjectLimits>
    /// Number of open sockets that have joined a channel, or are joining one.
    private let users = Atomic<Int>(0)
    let delivery: DeliverySources
    /// Function that returns true if database messages arrive.
    let hearsDatabase: @Sendable () -> Bool
    /// Function that writes down presence changes; nil if they are not recorded.
    let presenceTimeline: (@Sendable ([PresenceMark]) -> Void)?
    /// Ledger of channel events; nil if none is kept.
    let ledger: ChannelLedger?
    public let condition: @Sendable () -> ProjectHealthReport
    public let verifier: Mutex<TokenVerifier>
    /// Mailboxes by loop number.
    let mailboxes: [Mailbox<Mail>]
    /// Bytes of broadcasts and presence changes in those mailboxes.
    private let mailedBytes: [MailedBytes]
    let slowest: SlowestReader
    /// True if a loop failed to read the log for good. Clients are refused then.
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

    /// Offset behind the log's last entry; nil until the log is open.
    var logEnd: UInt64? { delivery.log.end()?.state.position.offset }

    /// Returns the offset from which a channel misses no change of the table because of the publication. A channel that
    /// begins earlier must be told of the loss, once.
    func wholeFrom(_ table: UInt32) -> UInt64 { settings.publication.wholeFrom(table, at: logEnd) }

    /// Offset at which a table was last found to have left or changed in the publication.
    var latestRepublication: UInt64 { settings.publication.latest(at: logEnd) }

    /// Stops the project's services, after all loops have left it.
    public func stop() {
        services.stop()
        settings.resumeStore?.stop()
        settings.publication.stop()
        settings.demoted.stop()
    }

    public func post(_ mail: Mail) {
        for mailbox in mailboxes { mailbox.post(mail) }
    }

    /// Posts broadcasts to all loops except the one they came from. A loop that is too far behind does not receive
    /// them, and is told so.
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

    /// Posts presence changes to all loops except the one they came from. Presence changes are never dropped. Instead,
    /// nothing more can be tracked while a loop is far behind.
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

    /// True if a loop has too much mail that it has not taken.
    var isBehind: Bool { mailedBytes.contains { $0.isFull } }

    /// True if PostgreSQL decides on the policy's rows.
    func isDemoted(_ policy: PolicyBinding) -> Bool { settings.demoted.contains(policy) }

    /// Leaves the policy's rows to PostgreSQL on all loops, until the policy's text or the hub's version changes.
    func demote(_ policy: PolicyBinding) { if settings.demoted.add(policy) { post(.demoted) } }

    /// True if a token may name the role, as far as the privileged roles are known.
    func permits(_ role: String) -> Bool { settings.roles.permits(role, catalog.snapshot?.privilegedRoles) }

    // MARK: Refusals

    /// Counts a refused token, and logs it now and then. `now` is monotonic time.
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

    /// True if the project has room for one more user.
    var hasRoom: Bool { limits.maximumConcurrentUsers.map { userCount < $0 } ?? true }

    /// Counts the session as a user. The caller reserves before the join is decided, because the decision takes a while
    /// and many clients may ask meanwhile. Returns false if there is no room.
    func reserve(for session: Session) -> Bool {
        guard !session.use.isCounted else { return true }
        let count = users.wrappingAdd(1, ordering: .relaxed).newValue
        if let most = limits.maximumConcurrentUsers, count > most {
            users.wrappingSubtract(1, ordering: .relaxed)
            return false
        }
        session.use.isCounted = true
        return true
    }

    /// Releases the reservation after a failed join. A session that never joined a channel, and is joining none, is no
    /// user.
    func giveBack(_ session: Session) {
        if !session.use.hasJoined, session.channels.isEmpty { hasEnded(session) }
    }

    func hasEnded(_ session: Session) {
        guard session.use.isCounted else { return }
        session.use.isCounted = false
        let left = users.wrappingSubtract(1, ordering: .relaxed).newValue
        assert(left >= 0, "only a user that was counted ends")
    }

    // MARK: Leaving

    /// Records that a loop has sent the project's clients away and forgotten the project.
    func hasLeft(loop: Int) {
        let gone = loopsLeft.wrappingAdd(1, ordering: .releasing).newValue
        assert(gone <= mailboxes.count, "each loop leaves once")
    }

    func waitUntilLeft() {
        while loopsLeft.load(ordering: .acquiring) < mailboxes.count {
            BackgroundThread.rest(nanoseconds: 1_000_000)
        }
    }
}

/// Number of bytes that wait in one mailbox.
private final class MailedBytes: Sendable {
    private let bytes = Atomic<Int>(0)

    /// Adds bytes. Returns false, and adds nothing, if there is no room.
    func add(_ count: Int) -> Bool {
        guard !isFull else { return false }
        addAnyway(count)
        return true
    }

    func addAnyway(_ count: Int) { bytes.wrappingAdd(count, ordering: .relaxed) }

    var isFull: Bool { bytes.load(ordering: .relaxed) > Limits.maximumMailedBytes }

    func subtract(_ count: Int) {
        let left = bytes.wrappingSubtract(count, ordering: .relaxed).newValue
        assert(left >= 0, "a loop takes only what was mailed")
    }
}

/// Rates of the project's clients, with their limits.
struct ProjectRates: Sendable {
    let events: RateBucket
    let joins: RateBucket
    let presence: RateBucket
    /// Rate of log lines about exceeded limits.
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
