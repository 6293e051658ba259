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
    /// True if, on tables with policies, the hub sends a delete only to clients that could see the row. If false, every
    /// client that asked for the table's deletes receives the primary key, as with the reference server (Supabase
    /// Realtime).
    public var deletesAreStrict = true
    /// True if public channels may ask for past messages too.
    public var replaysPublicChannels = false
    /// Maximum number of past messages that one join may ask for.
    public var maximumReplay = 25
    public var limits: ProjectLimits
    /// Rules for the roles that tokens may name.
    public var roles = RoleRules()
    public var time: any TimeSource = KernelTime()
    /// Observer of the delivery; nil except in a simulation.
    public var watcher: DeliveryWatcher?
    /// Interval at which a channel without changes receives its position, if it asked for positions.
    public var positionInterval = Limits.positionInterval
    /// Positions of disconnected clients; nil if the hub does not resume clients without being asked.
    public var resumeStore: ResumeStore?
    /// Record of breaks in the publication.
    public var publication = PublicationRecord(in: nil)
    /// Record of the policies about whose rows only PostgreSQL decides.
    public var demoted = DemotedPolicies(in: nil)
    /// Users and logins that operators have blocked; nil for a list of the project's own, in memory.
    public var blocklist: Blocklist?

    public init(limits: ProjectLimits) { self.limits = limits }
}

/// Project as all loops share it: its database, its event log, and its rules of access. Any thread may use it. Its
/// settings do not change while it runs, except the limits and keys.
public final class Project: Sendable {
    /// Name of the project, which is the first part of the host name to which clients connect.
    let name: String
    /// Number of the project in this process. It may be reused after the project has ended.
    public let number: UInt32
    let settings: ProjectSettings
    public let services: ProjectServices
    let rates: ProjectRates
    /// Budgets of the project's clients, as shares of the hub's budgets.
    let budgets: ProjectBudgets
    let metrics: ProjectMetrics
    let reference = ReferenceMetrics()
    let users: ProjectUsers
    private let refusals: RefusalLog
    let delivery: DeliverySources
    let stream: ProjectStream
    public let verifier: Mutex<TokenVerifier>
    let mail: ProjectMail
    let slowest: SlowestReader
    let reading = LogTroubles()
    private let loopsLeft = Atomic<Int>(0)
    let admissions = Admissions()
    public let blocklist: Blocklist

    public init(
        _ name: String, _ settings: ProjectSettings, _ share: ProjectShare, _ services: ProjectServices,
        _ verifier: TokenVerifier, _ stream: ProjectStream
    ) {
        self.name = name
        refusals = RefusalLog(project: name)
        number = share.number
        self.settings = settings
        blocklist = settings.blocklist ?? Blocklist()
        let catalog = services.asking.catalog
        self.services = services
        rates = ProjectRates(settings.limits)
        budgets = share.budgets
        metrics = share.metrics
        metrics.running.set(UInt64(1))
        users = ProjectUsers(settings.limits)
        self.verifier = Mutex(verifier)
        delivery = DeliverySources(
            log: stream.log, asking: services.asking, maximumBodyBytes: settings.maximumBodyBytes,
            deletesAreStrict: settings.deletesAreStrict, time: settings.time,
            watcher: settings.watcher, metrics: metrics)
        self.stream = stream
        mail = ProjectMail(loops: share.loops, metrics, peers: stream.peers)
        slowest = SlowestReader(loops: share.loops)
        let (publication, log) = (settings.publication, stream.log)
        catalog.listen { [mail] snapshot in
            publication.take(snapshot, at: log.end()?.state.position.offset)
            mail.post(.catalogMoved)
        }
        if let snapshot = catalog.snapshot { publication.take(snapshot, at: logEnd) }
    }

    /// Offset after the last change in the log; nil until the log is open.
    var logEnd: UInt64? { delivery.log.end()?.state.position.offset }

    /// Returns the offset from which the log has all changes of the table, without a break in its publication. If a
    /// client begins earlier, the hub must report the loss to it once.
    func wholeFrom(_ table: UInt32) -> UInt64 { settings.publication.wholeFrom(table, at: logEnd) }

    /// Highest offset in the log at which the hub found a break in the publication of a table.
    var latestRepublication: UInt64 { settings.publication.latest(at: logEnd) }

    /// Begins to exchange broadcasts and presence with the other nodes, in a cluster.
    public func listenToPeers() throws {
        guard stream.peers != nil else { return }
        try mail.listen(settings.resumeStore?.records(time: settings.time))
    }

    /// Stops the project's services. Before this, all loops must have forgotten the project.
    public func stop() {
        mail.stopListening()
        services.stop()
        settings.resumeStore?.stop()
        settings.publication.stop()
        settings.demoted.stop()
    }

    public func post(_ mail: Mail) { self.mail.post(mail) }

    /// Mailboxes of the project's loops, by loop number.
    var mailboxes: [Mailbox<Mail>] { mail.mailboxes }
    var ledger: ChannelLedger? { stream.ledger }

    /// Returns the project's health, from the state of the stream and of the loops.
    public func condition() -> ProjectHealthReport {
        var condition = stream.condition(catalog.isCurrent)
        condition.isLogReadable = reading.isPossible
        condition.trouble = condition.trouble ?? reading.trouble
        return condition
    }

    /// True if only PostgreSQL decides about the rows of the policy.
    func isDemoted(_ policy: PolicyBinding) -> Bool { settings.demoted.contains(policy) }

    /// Makes all loops ask PostgreSQL about the policy's rows, until the policy's text or the hub's version changes.
    func demote(_ policy: PolicyBinding) { if settings.demoted.add(policy) { post(.demoted) } }

    /// True if a token may name the role, by the privileged roles that the catalog has.
    func permits(_ role: String) -> Bool { settings.roles.permits(role, catalog.snapshot?.privilegedRoles) }

    // MARK: Refusals

    /// Counts a refused token, and logs some of them. `now` is monotonic time in nanoseconds.
    func refused(_ token: ProjectMetrics.TokenRefusal, at now: UInt64) {
        metrics.tokensRefused[token].add()
        refusals.note(.token(token), at: now)
    }

    /// Counts a refused client in the metrics, and logs some of the refusals.
    func refused(_ refusal: ClientRefusal, at now: UInt64) { refusals.note(refusal, at: now) }

    // MARK: Limits

    var limits: ProjectLimits { users.limits }

    public func replace(_ limits: ProjectLimits) {
        users.replace(limits)
        rates.set(limits)
        post(.limits)
    }

    public var userCount: Int { users.count }

    // MARK: Leaving

    /// Records that a loop has disconnected the project's clients and forgotten the project.
    func hasLeft(loop: Int) {
        let gone = loopsLeft.wrappingAdd(1, ordering: .releasing).newValue
        assert(gone <= mailboxes.count, "each loop leaves once")
    }

    /// Waits until all loops have forgotten the project.
    func waitUntilLeft() {
        while loopsLeft.load(ordering: .acquiring) < mailboxes.count {
            BackgroundThread.rest(nanoseconds: 1_000_000)
        }
    }
}

/// Rate limits of the project's clients.
struct ProjectRates: Sendable {
    let events: RateBucket
    let joins: RateBucket
    let presence: RateBucket
    /// Rate limit of log lines about exceeded limits.
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
