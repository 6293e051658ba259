import Replication

/// The catalog as those see it who are served by it: what is known, and whom to ask for more.
///
/// Everything may be called from any thread. Whoever takes an answer must not wait for anything.
public protocol CatalogSource: AnyObject, Sendable {
    /// The newest; nil until the database has been reached once.
    var snapshot: CatalogSnapshot? { get }
    /// Whether the database has said lately that the snapshot holds. Where it has not, nothing may be decided by it.
    var isCurrent: Bool { get }
    /// Whether the newest snapshot knows what transaction `xid` did.
    func hasSeen(_ xid: UInt32) -> Bool
    /// Tables of which the stream does not say that their policies or rights may have changed: before a row of theirs is
    /// judged, the newest snapshot has to have seen its transaction.
    var unannounced: Set<UInt32> { get }
    /// Calls `body` with each new snapshot.
    func listen(_ body: @escaping @Sendable (CatalogSnapshot) -> Void)
    /// From `last` of the log on, this one of `loops` judges by that version, and perhaps from `first` on.
    func adopt(_ version: UInt64, from first: UInt64, to last: UInt64, by loop: Int, of loops: Int)
    /// How many bindings were made, or ended, on whose behalf the catalog is watched.
    func addBindings(_ count: Int)
    /// Calls `then` when a snapshot read after this call, and after transaction `xid`, can be seen; with nil when that
    /// cannot be had now.
    func refresh(seeing xid: UInt32?, then: @escaping @Sendable (CatalogSnapshot?) -> Void)
    /// What a request means, where that follows from what is known and is good news.
    func resolved(_ request: BindingRequest) -> BindingOutcome?
    /// What requests mean, in their order, with the version of the snapshot that this holds for.
    func resolve(
        _ requests: [BindingRequest],
        then: @escaping @Sendable (_ outcomes: [BindingOutcome], _ version: UInt64) -> Void
    )
    func stop()
}

extension CatalogService: CatalogSource {}
