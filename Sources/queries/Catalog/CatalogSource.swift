import Replication

/// The catalog from the view of its users: the known facts, and requests for more.
///
/// Any thread may call any method. Callbacks must not block.
public protocol CatalogSource: AnyObject, Sendable {
    /// Newest snapshot; nil until the hub has read the database once.
    var snapshot: CatalogSnapshot? { get }
    /// True if the database has recently confirmed the snapshot. If false, the snapshot must not decide anything.
    var isCurrent: Bool { get }
    /// Returns a check that is true for as long as readings find the definitions of the newest one.
    func watchDefinitions() -> @Sendable () -> Bool
    /// True if the newest snapshot includes the effects of transaction `xid`.
    func hasSeen(_ xid: UInt32) -> Bool
    /// Tables for which the stream does not announce that their policies or rights may have changed. Before the hub
    /// judges a row of such a table, the newest snapshot must include the row's transaction.
    var unannounced: Set<UInt32> { get }
    /// Calls `body` with each new snapshot.
    func listen(_ body: @escaping @Sendable (CatalogSnapshot) -> Void)
    /// Notes that one of `loops` socket loops uses this version from offset `last` on, and perhaps already from `first`
    /// on.
    func adopt(_ version: UInt64, from first: UInt64, to last: UInt64, by loop: Int, of loops: Int)
    /// Adds `count` to the number of live bindings. `count` is negative when bindings end. While there are any, the hub
    /// polls the catalog more often.
    func addBindings(_ count: Int)
    /// Calls `then` with a snapshot that is read after this call and after transaction `xid` has become visible; with
    /// nil if that is not possible now.
    func refresh(seeing xid: UInt32?, then: @escaping @Sendable (CatalogSnapshot?) -> Void)
    /// Returns the outcome of a request if the known facts determine it and it is not a refusal.
    func resolved(_ request: BindingRequest) -> BindingOutcome?
    /// Resolves requests. `then` receives the outcomes in their order, and the version of the snapshot for which they
    /// hold.
    func resolve(
        _ requests: [BindingRequest],
        then: @escaping @Sendable (_ outcomes: [BindingOutcome], _ version: UInt64) -> Void
    )
    func stop()
}

extension CatalogService: CatalogSource {}
