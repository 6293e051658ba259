import Asking
import Catalog
import EventLog
import Protocol
import Synchronization
import System

/// Request for the existing rows that a client may see. The client receives them before any changes.
public struct SnapshotRequest: Sendable {
    /// Role in whose name PostgreSQL reads the rows.
    public let role: String
    public let claims: String
    public let selections: [TableSelection]
    /// Maximum size of a row's body in bytes. A row that would be larger is sent without its large values.
    public let maximumBodyBytes: Int
    /// Maximum number of rows that all queries of the request return together.
    public let maximumRows: Int
    /// Reason why the client gets the rows.
    public let reason: ChangeEncoder.ExistingRow

    public init(
        role: String, claims: String, _ selections: [TableSelection], maximumBodyBytes: Int, maximumRows: Int,
        reason: ChangeEncoder.ExistingRow = .snapshot
    ) {
        precondition(!selections.isEmpty, "a snapshot is of something")
        self.role = role
        self.claims = claims
        self.selections = selections
        self.maximumBodyBytes = maximumBodyBytes
        self.maximumRows = maximumRows
        self.reason = reason
    }
}

/// Position of a snapshot in the event log, with the transactions that the snapshot shows and its time.
public struct SnapshotStart: Sendable {
    /// Position from which the log may have changes that the snapshot lacks. Later changes that the snapshot shows are
    /// excluded by `seen`.
    public let position: EventLogPosition
    /// Transactions that the snapshot shows.
    public let seen: SeenTransactions
    /// Time of the snapshot by the database's clock, in microseconds since 1970.
    public let time: Int64
    public let rowCount: Int
}

/// Page of a snapshot: some rows, each as the body of a change.
public struct SnapshotPage: Sendable {
    public struct Row: Sendable {
        /// Index in `SnapshotRequest.selections` of the query that returned the row.
        public let selection: Int
        /// Byte range of the row's body in `bytes`.
        public let body: Range<Int>
    }

    public fileprivate(set) var bytes: [UInt8]
    public fileprivate(set) var rows: [Row]

    init(bytes: [UInt8], rows: [Row]) {
        self.bytes = bytes
        self.rows = rows
    }
}

/// Event of a snapshot. The start comes first, then the pages, then the end (`complete` or `failed`).
public enum SnapshotEvent: Sendable {
    case begun(SnapshotStart)
    case page(SnapshotPage)
    case complete
    case failed(SnapshotRefusal)
}

/// Interface for taking snapshots of tables for subscribers.
public protocol SnapshotTaking: AnyObject, Sendable {
    /// Takes a snapshot. `then` runs on any thread, or immediately on the caller's thread if the request is refused. It
    /// must not block. A page is delivered only after the ticket has asked for it.
    func take(_ request: SnapshotRequest, then: @escaping @Sendable (SnapshotEvent) -> Void) -> SnapshotTicket
    func stop()
}

/// Control with which the receiver of a snapshot asks for pages. Any thread may use it.
public final class SnapshotTicket: Sendable {
    private let wanted = Pulse()
    private let isGivenUp = Atomic<Bool>(false)

    public init() {}

    /// Asks for one more page.
    public func next() { wanted.beat() }

    /// Cancels the snapshot, because its receiver does not need it any more.
    public func cancel() {
        isGivenUp.store(true, ordering: .releasing)
        wanted.beat()
    }

    public var isCancelled: Bool { isGivenUp.load(ordering: .acquiring) }

    /// Waits until more than `taken` pages have been asked for. Returns false if the deadline (monotonic time in
    /// nanoseconds) passes first.
    func wait(beyond taken: UInt64, until deadline: UInt64) -> Bool {
        wanted.wait(beyond: taken, untilMonotonic: deadline) > taken
    }
}
