import Change

/// What delivery on a loop does: it reads, or it waits for one thing that the entry at hand needs.
enum DeliveryStage {
    typealias Recalled = (request: RecallRequest, answers: [RecallAnswer])

    case reading
    /// A catalog that shows what this transaction did; a fresh one, where none is named. So often it was read, and did not.
    case awaitingCatalog(seeing: UInt32?, unseen: Int)
    /// A catalog with policies that could be read.
    case heldByPolicies
    /// What the log says of rows that changes only name.
    case recalling(ticket: UInt64, RecallRequest)
    /// The values of generated columns, of rows of the entry at hand or of what the log said.
    case computing(ticket: UInt64, GeneratedColumns.Batch, for: Recalled?)
    /// Values in the types that their columns have now.
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

/// How far the entry at hand is done with: with the next one it begins anew.
struct EntryProgress {
    enum Composition {
        /// It was not looked through for generated columns yet.
        case unknown
        case asItIs
        /// It is this, with their values.
        case composed([UInt8])
    }

    /// Changes that are done with.
    var done: UInt32 = 0
    /// Its messages to topics have been gathered.
    var hasGathered = false
    /// What it does to memberships has been applied.
    var hasAppliedMemberships = false
    /// … for this transaction.
    var begun: TransactionInfo?
    /// The catalog was read for it.
    var hasCatalog = false
    /// Since when it waits for a catalog.
    var waitingSince: UInt64?
    /// Tables whose rows must wait for the transaction; empty if all rows wait.
    var heldTables: Set<UInt32> = []
    /// The change for whose row the log was asked last.
    var recalledAt: UInt32?
    var composition = Composition.unknown
    /// Values of its rows in the types that their columns have now.
    var converted: ConvertedRows?

    mutating func isWaiting(since now: UInt64) {
        if waitingSince == nil { waitingSince = now }
    }
}
