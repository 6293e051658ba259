/// Stage of a pipeline: it reads the log, or it waits for one thing that the current entry needs.
enum DeliveryStage {
    typealias Recalled = (request: RecallRequest, answers: [RecallAnswer])

    case reading
    /// Waits for a catalog that shows transaction `seeing`; if that is nil, for a newly read catalog. `unseen` counts
    /// the catalogs read so far that did not show the transaction.
    case awaitingCatalog(seeing: UInt32?, unseen: Int)
    /// Waits for a catalog in which all policies could be read.
    case heldByPolicies
    /// Waits for the log's answer about rows of which the changes contain only the key.
    case recalling(ticket: UInt64, RecallRequest)
    /// Waits for PostgreSQL to compute generated columns, in rows of the current entry or in rows found in the log.
    case computing(ticket: UInt64, GeneratedColumns.Batch, for: Recalled?)
    /// Waits for PostgreSQL to convert values to the current types of their columns.
    case converting(ticket: UInt64, ConversionRequest)
    /// Waits until the loop has delivered the entry's messages to topics.
    case heldByMessages
    /// A rule of the program was broken, so the pipeline has stopped for good.
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
