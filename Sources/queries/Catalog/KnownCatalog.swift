import Diagnostics
import Synchronization
import System

/// What is known of the catalog: written by its thread, read by any.
public final class KnownCatalog: Sendable {
    private struct Known {
        var view: CatalogView?
        var outcomes = RecentCache<BindingRequest, BindingOutcome>(capacity: Limits.maximumCachedBindings)
        /// Until then the view is as good as asked for just now.
        var staleAt: UInt64 = 0
        /// What the database showed when it was last asked whether the view holds.
        var seen: VisibleTransactions?
        /// Tables of which nobody says that their policies or rights may have changed.
        var unannounced: Set<UInt32> = []
    }

    private let known = Mutex(Known())
    private let listeners = Mutex<[@Sendable (CatalogSnapshot) -> Void]>([])
    private let bindings = Atomic<Int>(0)
    private let mustLook = Atomic<Bool>(false)

    // MARK: What is wanted

    /// Whether the snapshot still holds is to be asked soon.
    func wantLook() { mustLook.store(true, ordering: .releasing) }

    /// True once for those who wanted it.
    func takeWish() -> Bool { mustLook.exchange(false, ordering: .acquiring) }

    /// Bindings that live on this catalog: with any, it is watched more closely. True for the first.
    func addBindings(_ count: Int) -> Bool {
        let (before, after) = bindings.add(count, ordering: .relaxed)
        assert(count > 0 || after <= before, "what ends makes no more")
        return before <= 0 && count > 0
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

    var unannounced: Set<UInt32> { known.withLock { $0.unannounced } }

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

    /// Before the view that has these tables is published: whoever has it waits for them.
    func learn(unannounced tables: Set<UInt32>) { known.withLock { $0.unannounced = tables } }

    var rememberedRequests: [BindingRequest] { known.withLock { $0.outcomes.keys } }

    /// A view that says something else than the one before: what was remembered no longer holds.
    func publish(_ view: CatalogView) {
        known.withLock { known in
            assert(known.view.map { $0.snapshot.version <= view.snapshot.version } ?? true, "versions only grow")
            known.view = view
            known.outcomes.removeAll()
            assert(known.outcomes.keys.isEmpty, "what older rights said is forgotten")
        }
    }

    /// The same view with more known of roles.
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
