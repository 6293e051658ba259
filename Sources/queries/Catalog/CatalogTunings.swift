import Diagnostics

/// How the room shares out its time and memory: promised to nobody. Its maxima are in `Diagnostics/Limits.swift`.
extension Limits {
    /// The part of a second, at most, that is spent on asking whether the catalog changed: one in so many.
    static let catalogPollShare = 20

    /// Rights that change become visible a moment before the server's own caches know: they are read again after this.
    public static let catalogSettlingDelay = Duration.milliseconds(100)
    /// Where something that a policy needs is locked, and each try takes long.
    static let maximumCatalogSettlingDelay = Duration.seconds(1)

    /// How often it is looked whether others can see a transaction whose changes came down the stream.
    static let visibilityInterval = Duration.milliseconds(2)

    /// What the catalog says is noted in the log a moment after it says something else, and it is looked whether the log still
    /// has that.
    static let catalogRecordDelay = Duration.seconds(1)
    static let catalogRecordInterval = Duration.seconds(60)

    /// Texts that PostgreSQL is asked about in one go.
    static let policyTrialBatch = 64

    /// Requests answered at once, so that nobody waits for all the others.
    static let bindingBatch = 512
    /// Where answering them took longer, the next wait so many times as long, but no longer than the rest.
    static let bindingBatchAtOnce = Duration.milliseconds(4)
    static let bindingBatchRests = 3
    static let bindingBatchRest = Duration.milliseconds(60)
}
