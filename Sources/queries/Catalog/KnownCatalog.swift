import Diagnostics
import Synchronization
import System

/// Catalog facts that the hub knows. The catalog's thread writes them; any thread may read them.
public final class KnownCatalog: Sendable {
    private struct Known {
        var view: CatalogView?
        var outcomes = RecentCache<BindingRequest, BindingOutcome>(capacity: Limits.maximumCachedBindings)
        /// Monotonic time in nanoseconds until which the view may be used without another poll.
        var staleAt: UInt64 = 0
        /// Transactions that were visible when the database last confirmed the view.
        var seen: VisibleTransactions?
        /// Tables for which the replication stream does not announce that policies or rights may have changed.
        var unannounced: Set<UInt32> = []
    }

    private let known = Mutex(Known())
    private let listeners = Mutex<[@Sendable (CatalogSnapshot) -> Void]>([])
    private let bindings = Atomic<Int>(0)
    /// True if a thread has requested a poll.
    private let mustLook = Atomic<Bool>(false)

    // MARK: Requests

    /// Requests that the catalog's thread poll the database soon.
    func requestPoll() { mustLook.store(true, ordering: .releasing) }

    /// Clears the request for a poll. Returns true if there was one.
    func takePollRequest() -> Bool { mustLook.exchange(false, ordering: .acquiring) }

    /// Adds `count` to the number of live bindings. Returns true if there were none before and there are now. The hub
    /// polls more often while there are any.
    func addBindings(_ count: Int) -> Bool {
        let (before, after) = bindings.add(count, ordering: .relaxed)
        assert(count > 0 || after <= before, "what ends makes no more")
        return before <= 0 && count > 0
    }

    var isWatched: Bool { bindings.load(ordering: .relaxed) > 0 }

    func listen(_ body: @escaping @Sendable (CatalogSnapshot) -> Void) {
        listeners.withLock { $0.append(body) }
    }

    // MARK: Known facts

    var version: UInt64 { known.withLock { $0.view?.snapshot.version ?? 0 } }
    var snapshot: CatalogSnapshot? { known.withLock { $0.view?.snapshot } }
    var isCurrent: Bool {
        let now = Clock.monotonicNanoseconds()
        return known.withLock { $0.view != nil && now <= $0.staleAt }
    }

    var unannounced: Set<UInt32> { known.withLock { $0.unannounced } }

    func hasSeen(_ xid: UInt32) -> Bool { known.withLock { $0.seen?.contains(xid) ?? false } }

    /// Returns the view and its cached outcome of the request, if any. Nil if the view is missing or too old to be
    /// used.
    public func look(up request: BindingRequest) -> (view: CatalogView, outcome: BindingOutcome?)? {
        let now = Clock.monotonicNanoseconds()
        return known.withLock { known in
            guard let view = known.view, now <= known.staleAt else { return nil }
            return (view, known.outcomes[request])
        }
    }

    /// Caches an outcome. Does nothing if a newer view has replaced the view that produced it.
    func remember(_ outcome: BindingOutcome, of request: BindingRequest, version: UInt64) {
        known.withLock { known in
            guard known.view?.snapshot.version == version else { return }
            known.outcomes.insert(outcome, for: request)
        }
    }

    // MARK: For the catalog's thread

    /// Sets the tables whose changed policies the stream does not announce. The caller sets them before it publishes
    /// the view with these tables, so that users of the view wait for the catalog.
    func learn(unannounced tables: Set<UInt32>) { known.withLock { $0.unannounced = tables } }

    var rememberedRequests: [BindingRequest] { known.withLock { $0.outcomes.keys } }

    /// Publishes a view that differs from the view before it, and clears the cached outcomes.
    func publish(_ view: CatalogView) {
        known.withLock { known in
            assert(known.view.map { $0.snapshot.version <= view.snapshot.version } ?? true, "versions only grow")
            known.view = view
            known.outcomes.removeAll()
            assert(known.outcomes.keys.isEmpty, "what older rights said is forgotten")
        }
    }

    /// Replaces the view by one with the same snapshot and the rights of more roles.
    func learn(_ view: CatalogView) {
        known.withLock { known in
            assert(known.view?.snapshot === view.snapshot, "what is learned of roles is of the snapshot that is known")
            known.view = view
        }
    }

    func tell(_ snapshot: CatalogSnapshot) {
        for listener in listeners.withLock({ $0 }) { listener(snapshot) }
    }

    func verified(until staleAt: UInt64, seeing transactions: VisibleTransactions) {
        known.withLock { known in
            assert(known.view != nil, "what holds was read")
            known.staleAt = staleAt
            known.seen = transactions
        }
    }
}
