import Asking
import Catalog
import Change
import Diagnostics
import EventLog
import Judging
import System

/// Event log as its readers use it. Any thread may use it.
public struct LogSource: Sendable {
    /// Opens the log's directory. Each loop opens the files itself, because it has its own descriptor table.
    public let open: @Sendable () throws(SystemError) -> any StorageDirectory
    /// Returns the log's end; nil until the log has its first segment.
    public let end: @Sendable () -> EventLogEnd?
    /// Returns the WAL position before which the log contains every commit.
    public let covered: @Sendable () -> LSN
    /// True if the log is one of several equal ones, and may be a little behind the others.
    public let isReplica: Bool

    public init(
        open: @escaping @Sendable () throws(SystemError) -> any StorageDirectory,
        end: @escaping @Sendable () -> EventLogEnd?, covered: @escaping @Sendable () -> LSN, isReplica: Bool = false
    ) {
        self.isReplica = isReplica
        self.open = open
        self.end = end
        self.covered = covered
    }
}

/// Services that answer questions of delivery, about the catalog, filters, policies and rows. Each has its own threads.
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

/// Log, services and settings of delivery, shared by all loops of a project. Any thread may use them.
public struct DeliverySources: Sendable {
    public let log: LogSource
    public let asking: DeliveryAsking
    public let maximumBodyBytes: Int
    /// True if, on a table with policies, the hub sends a delete only to clients that could see the row.
    public let deletesAreStrict: Bool
    public let time: any TimeSource
    /// Observer of each event, with the stage of delivery at that event; nil except in a simulation.
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

    /// True unless a login that may run expressions written by table owners is known to be missing.
    public var mayCompute: Bool {
        if case .refused = asking.policyEvaluator.availability { false } else { true }
    }
}

public typealias DeliveryWatcher = @Sendable (_ stage: String, _ event: String) -> Void

/// Answers to the questions that a pipeline asked PostgreSQL, the catalog or the log.
public enum DeliveryEvent: Sendable {
    /// The catalog has a new snapshot (true), or cannot be read now (false).
    case refreshed(ticket: UInt64, Bool)
    /// PostgreSQL's answers to a batch of questions about rows.
    case judged(ticket: UInt64, [Bool?])
    /// PostgreSQL's answers to a batch of questions if holders may see rows.
    case judgedByPolicy(ticket: UInt64, [PolicyAnswers])
    /// Row as PostgreSQL shows it now, to check a decision; nil if PostgreSQL could not be asked.
    case looked(ticket: UInt64, RowVisibilityAnswer?)
    /// The log's answers about deleted rows.
    case recalled(ticket: UInt64, [RecallAnswer])
    /// Values of generated columns, computed by PostgreSQL.
    case computed(ticket: UInt64, [[[GeneratedValue]]])
    /// Values that PostgreSQL converted to the types that their columns have now.
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
