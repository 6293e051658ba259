import Change

/// Stage of delivery on a loop: it reads, or it waits for one thing that the current entry needs.
enum DeliveryStage {
    typealias Recalled = (request: RecallRequest, answers: [RecallAnswer])

    case reading
    /// Waits for a catalog that shows transaction `seeing`, or for a fresh one if that is nil. `unseen` counts the
    /// reads of the catalog that did not show the transaction.
    case awaitingCatalog(seeing: UInt32?, unseen: Int)
    /// Waits for a catalog with policies that could be read.
    case heldByPolicies
    /// Waits for the log's answer about rows of which changes contain only the key.
    case recalling(ticket: UInt64, RecallRequest)
    /// Waits for values of generated columns, in rows of the current entry or in rows that the log returned.
    case computing(ticket: UInt64, GeneratedColumns.Batch, for: Recalled?)
    /// Waits for values in the types that their columns have now.
    case converting(ticket: UInt64, ConversionRequest)
    /// The log cannot be read.
    case failed

    var name: String {
        switch self {
        case .reading: "reading"
        case .awaitingCatalog: "awaiting catalog"
        case .heldByPolicies: "held by policies"
        case .recalling: "recalling"
        case .computing: "computing"
        case .converting: "converting"
        case .failed: "failed"
        }
    }

    var awaitsCatalog: Bool {
        switch self {
        case .awaitingCatalog, .heldByPolicies: true
        case .reading, .recalling, .computing, .converting, .failed: false
        }
    }
}

/// Progress on the current entry. The next entry begins with a new value.
struct EntryProgress {
    enum Composition {
        /// The hub has not looked for generated columns in the entry yet.
        case unknown
        case asItIs
        /// The entry's bytes, rewritten with the values of the generated columns.
        case composed([UInt8])
    }

    /// Number of the entry's changes that are done.
    var done: UInt32 = 0
    /// True if the entry's messages to topics have been gathered.
    var hasGathered = false
    /// True if the entry's effect on memberships has been applied.
    var hasAppliedMemberships = false
    /// Transaction whose effect on memberships has been applied; nil before that.
    var begun: TransactionInfo?
    /// True if the catalog was read for this entry.
    var hasCatalog = false
    /// Time at which the entry began to wait for a catalog; nil if it has not waited.
    var waitingSince: UInt64?
    /// Tables whose rows must wait for the transaction; empty if all rows wait.
    var heldTables: Set<UInt32> = []
    /// Index of the change for whose row the hub last asked the log.
    var recalledAt: UInt32?
    /// Era of that question. Its answer counts in the same era only.
    var recallEra: UInt64?
    var composition = Composition.unknown
    /// Values of the entry's rows in the types that their columns have now.
    var converted: ConvertedRows?

    mutating func isWaiting(since now: UInt64) {
        if waitingSince == nil { waitingSince = now }
    }
}
