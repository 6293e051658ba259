import Diagnostics
import Synchronization
import System

/// What the catalog's thread and those who ask it share: questions in, answers known so far out.
public final class CatalogExchange: Sendable {
    typealias Resolved = @Sendable (_ outcomes: [BindingOutcome], _ version: UInt64) -> Void
    typealias Refreshed = @Sendable (CatalogSnapshot?) -> Void

    struct ResolveJob: Sendable {
        var requests: [BindingRequest]
        var then: Resolved
    }

    struct RefreshJob: Sendable {
        /// The snapshot must know what this transaction did.
        var xid: UInt32?
        var deadline: UInt64
        var then: Refreshed
    }

    struct Work: Sendable {
        var resolves: [ResolveJob] = []
        var refreshes: [RefreshJob] = []
        var mustLook = false
        fileprivate var requestCount = 0
        fileprivate var byteCount = 0
    }

    private struct Inbox {
        var work = Work()
        var isClosed = false
    }

    private struct Known {
        var view: CatalogView?
        var outcomes = RecentCache<BindingRequest, BindingOutcome>(capacity: Limits.maximumCachedBindings)
        /// Until then the view is as good as asked for just now.
        var staleAt: UInt64 = 0
        /// What the database showed when it was last asked whether the view holds.
        var seen: VisibleTransactions?
    }

    let interrupt: Wake
    private let inbox = Mutex(Inbox())
    private let known = Mutex(Known())
    private let listeners = Mutex<[@Sendable (CatalogSnapshot) -> Void]>([])
    private let bindings = Atomic<Int>(0)
    /// Not a descriptor: those who ask may have other descriptors than the catalog's thread.
    private let pulse = Pulse()

    init() throws(SystemError) { interrupt = try Wake() }

    // MARK: Asking

    func resolve(_ requests: [BindingRequest], _ then: @escaping Resolved) {
        let byteCount = requests.reduce(0) { $0 + $1.byteCount }
        let isTaken = inbox.withLock { inbox in
            guard !inbox.isClosed, inbox.work.requestCount + requests.count <= Limits.maximumWaitingBindings,
                inbox.work.byteCount + byteCount <= Limits.maximumWaitingBindingBytes
            else { return false }
            inbox.work.requestCount += requests.count
            inbox.work.byteCount += byteCount
            inbox.work.resolves.append(ResolveJob(requests: requests, then: then))
            return true
        }
        guard isTaken else { return then(requests.map { _ in .unavailable }, version) }
        pulse.beat()
    }

    func refresh(_ xid: UInt32?, _ then: @escaping Refreshed) {
        let deadline = Clock.monotonicNanoseconds() + Limits.maximumVisibilityWait.wholeNanoseconds
        let isTaken = inbox.withLock { inbox in
            guard !inbox.isClosed, inbox.work.refreshes.count < Limits.maximumWaitingRefreshes else { return false }
            inbox.work.refreshes.append(RefreshJob(xid: xid, deadline: deadline, then: then))
            return true
        }
        guard isTaken else { return then(nil) }
        pulse.beat()
    }

    func look() {
        inbox.withLock { $0.work.mustLook = true }
        pulse.beat()
    }

    /// Bindings that live on this catalog: with any, it is watched more closely.
    func addBindings(_ count: Int) {
        let before = bindings.add(count, ordering: .relaxed).oldValue
        if before <= 0, count > 0 { look() }
    }

    var isWatched: Bool { bindings.load(ordering: .relaxed) > 0 }

    func listen(_ body: @escaping @Sendable (CatalogSnapshot) -> Void) {
        listeners.withLock { $0.append(body) }
    }

    // MARK: What is known

    var version: UInt64 { known.withLock { $0.view?.snapshot.version ?? 0 } }
    var snapshot: CatalogSnapshot? { known.withLock { $0.view?.snapshot } }
    var isCurrent: Bool {
        let now = Clock.monotonicNanoseconds()
        return known.withLock { $0.view != nil && now <= $0.staleAt }
    }

    func hasSeen(_ xid: UInt32) -> Bool { known.withLock { $0.seen?.contains(xid) ?? false } }

    /// The view and what it says of a request, if that was asked before. Nil when there is none that can be trusted.
    public func look(up request: BindingRequest) -> (view: CatalogView, outcome: BindingOutcome?)? {
        let now = Clock.monotonicNanoseconds()
        return known.withLock { known in
            guard let view = known.view, now <= known.staleAt else { return nil }
            return (view, known.outcomes[request])
        }
    }

    /// Remembers an outcome, unless the view it comes from is no longer the newest.
    func remember(_ outcome: BindingOutcome, of request: BindingRequest, version: UInt64) {
        known.withLock { known in
            guard known.view?.snapshot.version == version else { return }
            known.outcomes.insert(outcome, for: request)
        }
    }

    // MARK: For the catalog's thread

    /// Sleeps until something is asked, it is time, or the end has come.
    func take(until deadline: UInt64, seen: inout UInt64) -> Work {
        seen = pulse.wait(beyond: seen, untilMonotonic: deadline)
        return takeNow()
    }

    private func takeNow() -> Work {
        inbox.withLock { inbox in
            let work = inbox.work
            inbox.work = Work()
            return work
        }
    }

    func endWait() { pulse.beat() }

    /// Nothing is taken any more; what was taken last.
    func close() -> Work {
        inbox.withLock { $0.isClosed = true }
        return takeNow()
    }

    var rememberedRequests: [BindingRequest] { known.withLock { $0.outcomes.keys } }

    /// A view that says something else than the one before: what was remembered no longer holds.
    func publish(_ view: CatalogView) {
        known.withLock { known in
            known.view = view
            known.outcomes.removeAll()
        }
    }

    /// The same view with more known of roles.
    func learn(_ view: CatalogView) { known.withLock { $0.view = view } }

    func tell(_ snapshot: CatalogSnapshot) {
        for listener in listeners.withLock({ $0 }) { listener(snapshot) }
    }

    func verified(until staleAt: UInt64, seeing transactions: VisibleTransactions) {
        known.withLock { known in
            known.staleAt = staleAt
            known.seen = transactions
        }
    }
}
