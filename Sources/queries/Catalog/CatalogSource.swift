import Replication

/// Interface of the catalog for its users: the facts that the hub knows, and requests for newer ones.
///
/// Any thread may call any method. Callbacks must not block.
public protocol CatalogSource: AnyObject, Sendable {
    /// Newest snapshot; nil until the hub has read the catalog for the first time.
    var snapshot: CatalogSnapshot? { get }
    /// True if the database has confirmed the snapshot recently. If false, the hub must not decide anything by it.
    var isCurrent: Bool { get }
    /// Returns a check that stays true until the hub finds that a definition in the database has changed.
    func watchDefinitions() -> @Sendable () -> Bool
    /// True if the newest snapshot includes the effects of transaction `xid`.
    func hasSeen(_ xid: UInt32) -> Bool
    /// Tables for which the replication stream does not announce that policies or rights may have changed. Before the
    /// hub decides on a row of such a table, the newest snapshot must include the row's transaction.
    var unannounced: Set<UInt32> { get }
    /// Calls `body` with each new snapshot.
    func listen(_ body: @escaping @Sendable (CatalogSnapshot) -> Void)
    /// Records that socket loop `loop` uses this version from log offset `last` on, and perhaps already from `first`
    /// on. `loops` is the number of loops.
    func adopt(_ version: UInt64, from first: UInt64, to last: UInt64, by loop: Int, of loops: Int)
    /// Adds `count` to the number of live bindings; `count` is negative when bindings end. The hub polls the catalog
    /// more often while there are live bindings.
    func addBindings(_ count: Int)
    /// Calls `then` with a snapshot that is read after this call and after transaction `xid` has become visible. `then`
    /// receives nil if that is not possible now.
    func refresh(seeing xid: UInt32?, then: @escaping @Sendable (CatalogSnapshot?) -> Void)
    /// Returns the outcome of a request if the known facts determine it. Nil otherwise, and nil instead of a refusal.
    func resolved(_ request: BindingRequest) -> BindingOutcome?
    /// Resolves requests. `then` receives their outcomes in order, and the version of the snapshot by which they were
    /// decided.
    func resolve(
        _ requests: [BindingRequest],
        then: @escaping @Sendable (_ outcomes: [BindingOutcome], _ version: UInt64) -> Void
    )
    func stop()
}

extension CatalogService: CatalogSource {}
