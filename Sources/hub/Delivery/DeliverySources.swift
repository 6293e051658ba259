import Asking
import Catalog
import Change
import Diagnostics
import EventLog
import Judging
import System

/// The event log as those see it who are served from it, from any thread.
public struct LogSource: Sendable {
    /// Opens its files: a loop has a descriptor table of its own, so each opens them itself.
    public let open: @Sendable () throws(SystemError) -> any StorageDirectory
    /// Nil until the log has begun.
    public let end: @Sendable () -> EventLogEnd?
    /// Whatever was committed before this position is in the log.
    public let covered: @Sendable () -> LSN

    public init(
        open: @escaping @Sendable () throws(SystemError) -> any StorageDirectory,
        end: @escaping @Sendable () -> EventLogEnd?, covered: @escaping @Sendable () -> LSN
    ) {
        self.open = open
        self.end = end
        self.covered = covered
    }
}

/// Whom delivery asks, each with threads of its own.
public struct DeliveryAsking: Sendable {
    public let catalog: any CatalogSource
    public let filterEvaluator: any FilterEvaluating
    public let policyEvaluator: any PolicyEvaluating
    public let recall: any RowRecalling

    public init(
        catalog: any CatalogSource, filterEvaluator: any FilterEvaluating, policyEvaluator: any PolicyEvaluating,
        recall: any RowRecalling
    ) {
        self.catalog = catalog
        self.filterEvaluator = filterEvaluator
        self.policyEvaluator = policyEvaluator
        self.recall = recall
    }
}

/// What delivery reads and asks: the same for all loops of a project, and safe to use from any thread.
public struct DeliverySources: Sendable {
    public let log: LogSource
    public let asking: DeliveryAsking
    public let maximumBodyBytes: Int
    /// Where a table has policies, of a deleted row only those are told who could see it.
    public let deletesAreStrict: Bool
    public let time: any TimeSource
    /// Told of each event and of what delivery was at then; nil but in a simulation.
    public let watcher: DeliveryWatcher?
    public let metrics: ProjectMetrics

    public init(
        log: LogSource, asking: DeliveryAsking, maximumBodyBytes: Int, deletesAreStrict: Bool, time: any TimeSource,
        watcher: DeliveryWatcher? = nil, metrics: ProjectMetrics
    ) {
        self.log = log
        self.asking = asking
        self.maximumBodyBytes = maximumBodyBytes
        self.deletesAreStrict = deletesAreStrict
        self.time = time
        self.watcher = watcher
        self.metrics = metrics
    }

    var catalog: any CatalogSource { asking.catalog }

    /// There is a login that may run what tables' owners wrote, as far as is known.
    public var mayCompute: Bool {
        if case .refused = asking.policyEvaluator.availability { false } else { true }
    }
}

public typealias DeliveryWatcher = @Sendable (_ stage: String, _ event: String) -> Void

/// Answers to what delivery asked, in the order in which they came.
public enum DeliveryEvent: Sendable {
    /// The snapshot that was waited for can be seen, or cannot be had now.
    case refreshed(ticket: UInt64, Bool)
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

    var name: String {
        switch self {
        case .refreshed(_, let isKnown): isKnown ? "catalog known" : "catalog away"
        case .judged: "judged"
        case .judgedByPolicy: "judged by policy"
        case .looked: "looked"
        case .recalled: "recalled"
        case .computed: "computed"
        case .converted: "converted"
        }
    }
}
