import Diagnostics

/// Internal tuning of the room's time and memory, not part of any promise. The maxima are in
/// `Diagnostics/Limits.swift`.
extension Limits {
    /// Maximum share of time spent on polling the catalog, as a divisor: one part in this many.
    static let catalogPollShare = 20

    /// Delay before rights are read again after a change. PostgreSQL's own caches see a change of rights a moment
    /// later.
    public static let catalogSettlingDelay = Duration.milliseconds(100)
    /// Maximum of that delay while something that a policy needs is locked and each reading takes long.
    static let maximumCatalogSettlingDelay = Duration.seconds(1)

    /// Interval at which the hub checks whether a transaction that came down the stream is visible to other sessions.
    static let visibilityInterval = Duration.milliseconds(2)

    /// Delay between a change of the catalog and its record in the log. `catalogRecordInterval` is the interval at
    /// which the hub checks that the log still has the record.
    static let catalogRecordDelay = Duration.seconds(1)
    static let catalogRecordInterval = Duration.seconds(60)

    /// Maximum number of texts that the hub asks PostgreSQL about in one batch.
    static let policyTrialBatch = 64

    /// Maximum number of binding requests in one batch, so that no caller waits for all the others.
    static let bindingBatch = 512
    /// CPU time of a batch above which the thread rests for `bindingBatchRests` times as long, at most
    /// `bindingBatchRest`.
    static let bindingBatchAtOnce = Duration.milliseconds(4)
    static let bindingBatchRests = 3
    static let bindingBatchRest = Duration.milliseconds(60)
}
