import Asking
import Catalog
import Change
import Diagnostics
import EventLog
import Judging

/// What delivery reads and asks: the same for all loops of a project, and safe to use from any thread.
public struct DeliverySources: Sendable {
    public let logDirectory: String
    public let maximumBodyBytes: Int
    /// Where a table has policies, of a deleted row only those are told who could see it.
    public let deletesAreStrict: Bool
    /// Nil until the log has begun.
    public let logEnd: @Sendable () -> EventLogEnd?
    /// Whatever was committed before this position is in the log.
    public let covered: @Sendable () -> LSN
    public let catalog: CatalogService
    public let judge: Judge
    public let policyJudge: PolicyJudge
    public let recall: RecallService
    /// Changes handed to sockets.
    public let delivered: Counter

    public init(
        logDirectory: String, maximumBodyBytes: Int, deletesAreStrict: Bool,
        logEnd: @escaping @Sendable () -> EventLogEnd?, covered: @escaping @Sendable () -> LSN, catalog: CatalogService,
        judge: Judge, policyJudge: PolicyJudge, recall: RecallService, delivered: Counter
    ) {
        self.logDirectory = logDirectory
        self.maximumBodyBytes = maximumBodyBytes
        self.deletesAreStrict = deletesAreStrict
        self.logEnd = logEnd
        self.covered = covered
        self.catalog = catalog
        self.judge = judge
        self.policyJudge = policyJudge
        self.recall = recall
        self.delivered = delivered
    }

    /// There is a login that may run what tables' owners wrote, as far as is known.
    public var mayCompute: Bool {
        if case .refused = policyJudge.availability { false } else { true }
    }
}

/// Answers to what delivery asked, in the order in which they came.
public enum DeliveryEvent: Sendable {
    /// The snapshot that was waited for can be seen, or cannot be had now.
    case refreshed(Bool)
    /// PostgreSQL's answers to a batch of questions about rows.
    case judged(ticket: UInt64, [Bool?])
    /// The same of questions whether holders may see rows.
    case judgedByPolicy(ticket: UInt64, [PolicyAnswers])
    /// What a table itself shows of a row that was decided on; nil where it could not be asked.
    case looked(ticket: UInt64, SeenInTable?)
    /// What the log says of deleted rows.
    case recalled(ticket: UInt64, [RecallAnswer])
    /// The values of generated columns.
    case computed(ticket: UInt64, [[[GeneratedValue]]])
    /// Values in the types that their columns have now.
    case converted(ticket: UInt64, [ColumnText])
}
