import Diagnostics

/// Internal limits of time and memory for the `Catalog` room. They are no part of a promise. The maxima that users rely
/// on are in `Diagnostics/Limits.swift`.
extension Limits {
    /// Maximum share of time that the thread spends on polling, as a divisor: 20 means one twentieth.
    static let catalogPollShare = 20

    /// Delay before the hub reads rights again after a change. PostgreSQL's own caches notice a change of rights
    /// slightly later than the catalog's rows.
    public static let catalogSettlingDelay = Duration.milliseconds(100)
    /// Maximum of `catalogSettlingDelay`, which grows if readings take long while a table that a policy needs is
    /// locked.
    static let maximumCatalogSettlingDelay = Duration.seconds(1)

    /// Interval at which the hub checks if a transaction from the replication stream has become visible to other
    /// sessions.
    static let visibilityInterval = Duration.milliseconds(2)

    /// Delay between a change of the catalog and its record in the log.
    static let catalogRecordDelay = Duration.seconds(1)
    /// Interval at which the hub checks that the log still has a record of the current catalog.
    static let catalogRecordInterval = Duration.seconds(60)

    /// Maximum number of texts that the hub asks PostgreSQL about in one batch.
    static let policyTrialBatch = 64

    /// Maximum number of binding requests in one batch. It keeps one caller from waiting for the requests of all
    /// others.
    static let bindingBatch = 512
    /// CPU time of a batch of bindings above which the catalog's thread rests before the next batch.
    static let bindingBatchAtOnce = Duration.milliseconds(4)
    /// Duration of the rest after a batch of bindings, as a multiple of the batch's CPU time.
    static let bindingBatchRests = 3
    /// Maximum duration of the rest after a batch of bindings.
    static let bindingBatchRest = Duration.milliseconds(60)
}
