import Asking
import Catalog
import EventLog
import Synchronization
import System

/// What somebody may see now, and wants to have whole before hearing of changes.
public struct SnapshotRequest: Sendable {
    /// As whom it is asked for.
    public let role: String
    public let claims: String
    public let selections: [TableSelection]
    /// A row whose body would be larger is told with its small values only.
    public let maximumBodyBytes: Int
    /// Of all selections together.
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

/// Where a snapshot stands in the event log.
public struct SnapshotStart: Sendable {
    /// Before the first change that is not in the snapshot. What is in it and comes behind this is left out by `seen`.
    public let position: EventLogPosition
    public let seen: SeenTransactions
    /// Of the database, in microseconds since 1970.
    public let time: Int64
    public let rowCount: Int
}

/// Some of a snapshot's rows, each as the body of a change.
public struct SnapshotPage: Sendable {
    public struct Row: Sendable {
        /// Among the request's.
        public let selection: Int
        /// In `bytes`.
        public let body: Range<Int>
    }

    public fileprivate(set) var bytes: [UInt8]
    public fileprivate(set) var rows: [Row]

    init(bytes: [UInt8], rows: [Row]) {
        self.bytes = bytes
        self.rows = rows
    }
}

/// What comes of a request: where it begins, pages, and one end.
public enum SnapshotEvent: Sendable {
    case begun(SnapshotStart)
    case page(SnapshotPage)
    case complete
    case failed(SnapshotRefusal)
}

/// Takes snapshots of tables for subscribers.
public protocol SnapshotTaking: AnyObject, Sendable {
    /// `then` is called on any thread, at once too where it is refused; it must not wait for anything. No page comes before
    /// the ticket has asked for it.
    func take(_ request: SnapshotRequest, then: @escaping @Sendable (SnapshotEvent) -> Void) -> SnapshotTicket
    func stop()
}

/// By which whoever asked for a snapshot sets its pace. From any thread.
public final class SnapshotTicket: Sendable {
    private let wanted = Pulse()
    private let isGivenUp = Atomic<Bool>(false)

    public init() {}

    /// One page more may come.
    public func next() { wanted.beat() }

    /// Nobody waits for it any more.
    public func cancel() {
        isGivenUp.store(true, ordering: .releasing)
        wanted.beat()
    }

    public var isCancelled: Bool { isGivenUp.load(ordering: .acquiring) }

    /// Until more pages are wanted than `taken`; false when nobody wanted any until the deadline.
    func wait(beyond taken: UInt64, until deadline: UInt64) -> Bool {
        wanted.wait(beyond: taken, untilMonotonic: deadline) > taken
    }
}
