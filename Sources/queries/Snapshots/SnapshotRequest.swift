import Asking
import Catalog
import EventLog
import Synchronization
import System

/// Request for the rows that a client may see now, to be sent before any changes.
public struct SnapshotRequest: Sendable {
    /// Role in which the rows are read.
    public let role: String
    public let claims: String
    public let selections: [TableSelection]
    /// Largest body of a row. A larger row is sent with its small values only.
    public let maximumBodyBytes: Int
    /// Limit of rows in all selections together.
    public let maximumRows: Int

    public init(
        role: String, claims: String, _ selections: [TableSelection], maximumBodyBytes: Int, maximumRows: Int
    ) {
        precondition(!selections.isEmpty, "a snapshot is of something")
        self.role = role
        self.claims = claims
        self.selections = selections
        self.maximumBodyBytes = maximumBodyBytes
        self.maximumRows = maximumRows
    }
}

/// Position of a snapshot in the event log.
public struct SnapshotStart: Sendable {
    /// Position before the first change that is not in the snapshot. `seen` excludes later changes that are in the
    /// snapshot.
    public let position: EventLogPosition
    public let seen: SeenTransactions
    /// Time of the database in microseconds since 1970.
    public let time: Int64
    public let rowCount: Int
}

/// Page of a snapshot: some rows, each as the body of a change.
public struct SnapshotPage: Sendable {
    public struct Row: Sendable {
        /// Index among the request's selections.
        public let selection: Int
        /// Range of the body in `bytes`.
        public let body: Range<Int>
    }

    public fileprivate(set) var bytes: [UInt8]
    public fileprivate(set) var rows: [Row]

    init(bytes: [UInt8], rows: [Row]) {
        self.bytes = bytes
        self.rows = rows
    }
}

/// Event of a snapshot: first its start, then pages, then one end.
public enum SnapshotEvent: Sendable {
    case begun(SnapshotStart)
    case page(SnapshotPage)
    case complete
    case failed(SnapshotRefusal)
}

/// Service that takes snapshots of tables for subscribers.
public protocol SnapshotTaking: AnyObject, Sendable {
    /// Takes a snapshot. `then` is called on any thread, or at once if the request is refused. It must not block. No
    /// page comes before the ticket has asked for it.
    func take(_ request: SnapshotRequest, then: @escaping @Sendable (SnapshotEvent) -> Void) -> SnapshotTicket
    func stop()
}

/// Control of a snapshot's pace by its asker. May be used from any thread.
public final class SnapshotTicket: Sendable {
    private let wanted = Pulse()
    private let isGivenUp = Atomic<Bool>(false)

    public init() {}

    /// Requests one more page.
    public func next() { wanted.beat() }

    /// Cancels the snapshot, because nobody waits for it any more.
    public func cancel() {
        isGivenUp.store(true, ordering: .releasing)
        wanted.beat()
    }

    public var isCancelled: Bool { isGivenUp.load(ordering: .acquiring) }

    /// Waits until more than `taken` pages were requested. Returns false if the deadline came first.
    func wait(beyond taken: UInt64, until deadline: UInt64) -> Bool {
        wanted.wait(beyond: taken, untilMonotonic: deadline) > taken
    }
}
