import Asking
import Diagnostics
import Postgres
import Replication
import System

/// Answers what a binding means: which tables, which rows of them, which columns, and whether the role may have them.
///
/// In: requests from any thread. Out: outcomes, at once where what is known suffices, else from the catalog's own thread.
/// That thread keeps an immutable snapshot of the published tables, asks the database all the time whether it still
/// holds, and tells its listeners when it does not. It owns one connection, and makes another when that is lost.
public final class CatalogService: Sendable {
    public struct Settings: Sendable {
        public var target: ConnectionTarget
        public var publication: String
        public var pollInterval: Duration
        public var idlePollInterval: Duration
        /// Shared with the stream: whether the hub's own publication is in it.
        public var coverage = StreamCoverage()
        /// Slot that the log is fed from; empty if it is unknown.
        public var slot = ""
        /// Directory of the file that records since when definitions are as they are; nil keeps that in memory only.
        public var definitions: (@Sendable () throws(SystemError) -> any StorageDirectory)?
        /// Puts tables that policies read into the hub's own publication.
        public var tendsPublication = true
        public var compiling = PolicyCompiling.real
        /// Nil: what the catalog says is not kept.
        public var recording: CatalogRecording?
        /// Shared by all who connect to the database.
        public var reachability = Reachability()
        /// Of the project whose catalog it is.
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
    private let threads: AskingThreads<PlainLine<CatalogJob>>

    public init(_ settings: Settings) throws(SystemError) {
        let (known, adoptions) = (KnownCatalog(), CatalogAdoptions())
        (self.known, self.adoptions) = (known, adoptions)
        let inbox = try Inbox<PlainLine<CatalogJob>>(holding: CatalogJob.room)
        threads = try AskingThreads(inbox, [("catalog", { CatalogWorker(settings, known, adoptions, inbox) })])
    }

    /// Ends the thread and what it asks just now; what waits is answered `.unavailable`. Once, by the owner, on a thread
    /// with the descriptors of the one that started it: all else may be called from any thread.
    public func stop() { threads.stop() }

    // MARK: What is known

    /// The newest; nil until the database has been reached once.
    public var snapshot: CatalogSnapshot? { known.snapshot }

    /// Whether the database has said lately that the snapshot holds. Where it has not, nothing may be decided by it.
    public var isCurrent: Bool { known.isCurrent }

    /// Whether the newest snapshot knows what transaction `xid`, whose changes came down the stream, did.
    public func hasSeen(_ xid: UInt32) -> Bool { known.hasSeen(xid) }
    public var unannounced: Set<UInt32> { known.unannounced }

    /// `body` is called on the catalog's thread with each new snapshot. Whatever was resolved with an older one is to be
    /// resolved again: roles may have other rights. It must not wait for anything.
    public func listen(_ body: @escaping @Sendable (CatalogSnapshot) -> Void) { known.listen(body) }

    /// From `last` of the log on, this one of `loops` judges by that version, and perhaps from `first` on: the log is to say so.
    public func adopt(_ version: UInt64, from first: UInt64, to last: UInt64, by loop: Int, of loops: Int) {
        adoptions.adopt(version, from: first, to: last, by: loop, of: loops)
    }

    /// All loops judge by the newest version, and the log has it, or is about to.
    var isNoted: Bool { adoptions.areNoted(of: known.version) }

    /// How many bindings were made, or ended, on whose behalf the catalog is watched.
    public func addBindings(_ count: Int) {
        if known.addBindings(count) { requestRefresh() }
    }

    // MARK: Asking for news

    /// Asks the database soon whether the snapshot still holds.
    public func requestRefresh() {
        known.wantLook()
        threads.inbox.ring()
    }

    /// A snapshot read after this call, and after transaction `xid`, whose changes came down the stream, can be seen;
    /// nil when that cannot be had now: the database is away, or the transaction stays hidden for too long. `then` is
    /// called on the catalog's thread, or at once on the caller's when too many wait; it must not wait for anything.
    public func refresh(seeing xid: UInt32? = nil, then: @escaping @Sendable (CatalogSnapshot?) -> Void) {
        let deadline = Clock.monotonicNanoseconds() + Limits.maximumVisibilityWait.wholeNanoseconds
        let reply = Reply<CatalogSnapshot?>(in: .catalog, unanswered: nil, then: then)
        threads.inbox.ask([.refresh(CatalogJob.RefreshJob(xid: xid, deadline: deadline, reply: reply))])
    }

    // MARK: What bindings mean

    /// The outcome, where it follows from what is known; nil where the database has to be asked, and where the outcome
    /// would be bad news, which must not be given on old knowledge.
    public func resolved(_ request: BindingRequest) -> BindingOutcome? {
        guard let (view, remembered) = known.look(up: request) else { return nil }
        if let remembered { return remembered }
        switch BindingResolver(view: view).step(request) {
        case .final(let outcome): return outcome
        case .outcome, .needsAccess: return nil
        case .drafts(let drafts):
            guard drafts.allSatisfy({ $0.literals.isEmpty }) else { return nil }
            let outcome = BindingDraft.outcome(drafts, drafts.map { _ in [] })
            guard outcome.isGoodNews else { return nil }
            assert(view.roles.existing.contains(request.role), "good news is for a role that exists")
            // Filters are as many as there are users: what costs nothing to find out is not worth remembering.
            if request.filter == nil {
                known.remember(outcome, of: request, version: view.snapshot.version)
            }
            return outcome
        }
    }

    /// The outcomes in the order of the requests, with the version of the snapshot that they hold for. `then` is called
    /// on the catalog's thread, or at once on the caller's when too many wait; it must not wait for anything.
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
    /// Every table can be read as it was asked for.
    var isGoodNews: Bool {
        guard case .tables(let bindings) = self else { return false }
        return bindings.allSatisfy { $0.access == .readable }
    }
}
