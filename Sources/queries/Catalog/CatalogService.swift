import Asking
import Diagnostics
import Postgres
import Replication
import System

/// Service that resolves bindings: their tables, rows and columns, and the rights of the role.
///
/// Any thread may send requests. The service answers immediately if it knows enough, otherwise from its own thread.
/// That thread keeps an immutable snapshot of the published tables, polls the database for changes, and calls listeners
/// with each new snapshot. It owns one connection, which it replaces if it is lost.
public final class CatalogService: Sendable {
    public struct Settings: Sendable {
        public var target: ConnectionTarget
        public var publication: String
        public var pollInterval: Duration
        public var idlePollInterval: Duration
        /// State shared with the replication stream: the position from which the stream includes the hub's own
        /// publication.
        public var coverage = StreamCoverage()
        /// Replication slot that feeds the event log; empty if it is unknown.
        public var slot = ""
        /// Directory of the file that stores since when each definition is unchanged. If nil, the service keeps this in
        /// memory only.
        public var definitions: (@Sendable () throws(SystemError) -> any StorageDirectory)?
        /// True if the hub adds the tables that policies read to its own publication.
        public var tendsPublication = true
        public var compiling = PolicyCompiling.real
        /// Callbacks that record the catalog in the event log. If nil, the service records nothing.
        public var recording: CatalogRecording?
        /// Reachability of the database, shared by all threads that connect to it.
        public var reachability = Reachability()
        /// Metrics of the project that the catalog belongs to.
        public var metrics = ProjectMetrics()

        public init(
            target: ConnectionTarget, publication: String = "supabase_realtime",
            pollInterval: Duration = Limits.catalogPollInterval,
            idlePollInterval: Duration = Limits.catalogIdlePollInterval
        ) {
            self.target = target
            self.publication = publication
            self.pollInterval = pollInterval
            self.idlePollInterval = idlePollInterval
        }
    }

    public let known: KnownCatalog
    private let adoptions: CatalogAdoptions
    private let definitions: DefinitionsVersion
    private let threads: AskingThreads<PlainLine<CatalogJob>>

    public init(_ settings: Settings) throws(SystemError) {
        let (known, adoptions) = (KnownCatalog(), CatalogAdoptions())
        (self.known, self.adoptions) = (known, adoptions)
        definitions = settings.target.definitions
        let inbox = try Inbox<PlainLine<CatalogJob>>(holding: CatalogJob.room)
        threads = try AskingThreads(inbox, [("catalog", { CatalogWorker(settings, known, adoptions, inbox) })])
    }

    /// Stops the thread and its running query. Waiting requests are answered `.unavailable`. The owner calls this once,
    /// on a thread that shares descriptors with the thread that created the service. All other methods may be called
    /// from any thread.
    public func stop() { threads.stop() }

    // MARK: Known facts

    /// Newest snapshot; nil until the hub has read the catalog for the first time.
    public var snapshot: CatalogSnapshot? { known.snapshot }

    /// True if the database has confirmed the snapshot recently. If false, the hub must not decide anything by it.
    public var isCurrent: Bool { known.isCurrent }

    public func watchDefinitions() -> @Sendable () -> Bool {
        let definitions = definitions.current
        return { definitions.isCurrent }
    }

    /// True if the newest snapshot includes the effects of transaction `xid`. `xid` is a number from the replication
    /// stream.
    public func hasSeen(_ xid: UInt32) -> Bool { known.hasSeen(xid) }
    /// Tables for which the replication stream does not announce that policies or rights may have changed.
    public var unannounced: Set<UInt32> { known.unannounced }

    /// Registers a listener. The catalog's thread calls it with each new snapshot. The listener must resolve its
    /// bindings again, because rights may have changed. `body` must not block.
    public func listen(_ body: @escaping @Sendable (CatalogSnapshot) -> Void) { known.listen(body) }

    /// Records that socket loop `loop` uses this version from log offset `last` on, and perhaps already from `first`
    /// on. `loops` is the number of loops. The catalog record in the log needs these offsets.
    public func adopt(_ version: UInt64, from first: UInt64, to last: UInt64, by loop: Int, of loops: Int) {
        adoptions.adopt(version, from: first, to: last, by: loop, of: loops)
    }

    /// True if all loops use the newest version, and the log has its record or will have it soon.
    var isNoted: Bool { adoptions.areNoted(of: known.version) }

    /// Adds `count` to the number of live bindings; `count` is negative when bindings end. The hub polls the catalog
    /// more often while there are live bindings.
    public func addBindings(_ count: Int) {
        if known.addBindings(count) { requestRefresh() }
    }

    // MARK: Refreshing

    /// Makes the catalog's thread poll the database soon.
    public func requestRefresh() {
        known.requestPoll()
        threads.inbox.ring()
    }

    /// Calls `then` with a snapshot that is read after this call and after transaction `xid` has become visible. `xid`
    /// is a number from the replication stream. `then` receives nil if the database is unreachable or the transaction
    /// stays invisible for too long. `then` runs on the catalog's thread, or immediately on the caller's thread if too
    /// many requests are waiting. It must not block.
    public func refresh(seeing xid: UInt32? = nil, then: @escaping @Sendable (CatalogSnapshot?) -> Void) {
        let deadline = Clock.monotonicNanoseconds() + Limits.maximumVisibilityWait.wholeNanoseconds
        let reply = Reply<CatalogSnapshot?>(in: .catalog, unanswered: nil, then: then)
        threads.inbox.ask([.refresh(CatalogJob.RefreshJob(xid: xid, deadline: deadline, reply: reply))])
    }

    // MARK: Resolving bindings

    /// Returns the outcome if the known facts determine it. Nil if the database must be queried. Nil also instead of a
    /// refusal, because the hub refuses a client only by facts that it has just queried.
    public func resolved(_ request: BindingRequest) -> BindingOutcome? {
        guard let (view, remembered) = known.look(up: request) else { return nil }
        if let remembered { return remembered }
        switch BindingResolver(view: view).step(request) {
        case .final(let outcome): return outcome
        case .outcome, .needsAccess: return nil
        case .drafts(let drafts):
            guard drafts.allSatisfy({ $0.literals.isEmpty }) else { return nil }
            let outcome = BindingDraft.outcome(drafts, drafts.map { _ in [] })
            guard outcome.isFullyGranted else { return nil }
            assert(view.roles.existing.contains(request.role), "good news is for a role that exists")
            // A service has as many filters as users. An outcome that is computed quickly is not worth caching.
            if request.filter == nil {
                known.remember(outcome, of: request, version: view.snapshot.version)
            }
            return outcome
        }
    }

    /// Resolves the requests. `then` receives their outcomes in order, and the version of the snapshot by which they
    /// were decided. `then` runs on the catalog's thread, or immediately on the caller's thread if too many requests
    /// are waiting. It must not block.
    public func resolve(
        _ requests: [BindingRequest],
        then: @escaping @Sendable (_ outcomes: [BindingOutcome], _ version: UInt64) -> Void
    ) {
        if requests.isEmpty { return then([], known.version) }
        let reply = Reply(in: .catalog, unanswered: self.unavailable(requests)) { resolution in
            guard resolution.outcomes.count == requests.count else {
                Impossible.happened("each request has its outcome", in: .catalog)
                return then(requests.map { _ in .unavailable }, resolution.version)
            }
            then(resolution.outcomes, resolution.version)
        }
        threads.inbox.ask([.resolve(CatalogJob.ResolveJob(requests: requests, reply: reply))])
    }

    private func unavailable(_ requests: [BindingRequest]) -> CatalogJob.Resolution {
        CatalogJob.Resolution(outcomes: requests.map { _ in .unavailable }, version: known.version)
    }
}

extension BindingOutcome {
    /// True if the outcome has no refusal: the role may read every matched table as requested.
    var isFullyGranted: Bool {
        guard case .tables(let bindings) = self else { return false }
        return bindings.allSatisfy { $0.access == .readable }
    }
}
