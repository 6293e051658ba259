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
    /// Waits until the entry's messages to topics are delivered.
    case heldByMessages
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
        case .heldByMessages: "held by messages"
        case .failed: "failed"
        }
    }

    var awaitsCatalog: Bool {
        switch self {
        case .awaitingCatalog, .heldByPolicies: true
        case .reading, .recalling, .computing, .converting, .heldByMessages, .failed: false
        }
    }
}
