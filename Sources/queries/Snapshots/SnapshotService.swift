import Asking
import Diagnostics
import EventLog
import Postgres
import Synchronization
import System

/// Service that takes snapshots: the existing rows of tables that a subscriber may see, at an exact position of the
/// event log.
///
/// Any thread may send requests. Events are delivered on threads of the service, or immediately on the caller's thread
/// if too many requests are waiting. Each snapshot has its own connection, so that functions of policies cannot affect
/// another one. PostgreSQL reads all rows in one transaction that ends before the first row is sent. A slow client thus
/// never delays the database.
public final class SnapshotService: SnapshotTaking {
    public struct Settings: Sendable {
        /// Connection target with the hub's own login.
        var database: ConnectionTarget
        /// Connection target of the login that runs policies. If nil, the hub's own login runs them, if it is fit.
        var policies: ConnectionTarget?
        /// Roles that tokens may name. The login must be able to switch to at least one of them.
        public var clientRoles = ["anon", "authenticated"]
        public var metrics = ProjectMetrics()
        var openLog: @Sendable () throws(SystemError) -> any StorageDirectory
        var logEnd: @Sendable () -> EventLogEnd?

        public init(
            database: ConnectionTarget, policies: ConnectionTarget?,
            openLog: @escaping @Sendable () throws(SystemError) -> any StorageDirectory,
            logEnd: @escaping @Sendable () -> EventLogEnd?
        ) {
            self.database = database
            self.policies = policies
            self.openLog = openLog
            self.logEnd = logEnd
        }
    }

    private let threads: AskingThreads<SnapshotLine>

    public init(_ settings: Settings) throws(SystemError) {
        let inbox = try Inbox<SnapshotLine>(holding: InboxLoad(jobs: Limits.maximumWaitingSnapshots))
        let settled = SettledPosition()
        threads = try AskingThreads(
            inbox,
            (0..<Limits.snapshotConnections).map { number in
                ("snapshots \(number)", { SnapshotWorker(settings, settled, inbox) })
            })
    }

    public func take(
        _ request: SnapshotRequest, then: @escaping @Sendable (SnapshotEvent) -> Void
    ) -> SnapshotTicket {
        let ticket = SnapshotTicket()
        threads.inbox.ask([SnapshotJob(request, ticket, then)])
        return ticket
    }

    /// Ends the threads and their current snapshots. The owner calls this once, on a thread that shares descriptors
    /// with the thread that created the service.
    public func stop() { threads.stop() }
}

/// Snapshot that a worker takes for a receiver. The receiver always gets exactly one final event.
final class SnapshotJob: AskedJob {
    let request: SnapshotRequest
    let ticket: SnapshotTicket
    private let then: @Sendable (SnapshotEvent) -> Void
    private let isOver = Atomic<Bool>(false)

    init(
        _ request: SnapshotRequest, _ ticket: SnapshotTicket, _ then: @escaping @Sendable (SnapshotEvent) -> Void
    ) {
        self.request = request
        self.ticket = ticket
        self.then = then
    }

    func tell(_ event: SnapshotEvent) {
        switch event {
        case .begun, .page:
            assert(!isOver.load(ordering: .relaxed), "nothing comes behind the end")
            then(event)
        case .complete, .failed: end(event)
        }
    }

    private func end(_ event: SnapshotEvent) {
        if isOver.exchange(true, ordering: .acquiringAndReleasing) { return }
        then(event)
    }

    /// Ends the job because the queue is full or the service stops.
    func giveUp() { end(.failed(.busy)) }

    deinit {
        if !isOver.load(ordering: .acquiring) {
            Impossible.happened("a snapshot has an end", in: .asking)
            then(.failed(.busy))
        }
    }
}

/// First-come, first-served queue from which each thread takes one job.
struct SnapshotLine: WaitingLine {
    private var jobs: [SnapshotJob] = []

    mutating func add(_ job: SnapshotJob, to lane: OnlyLane) { jobs.append(job) }
    mutating func take(_ lane: OnlyLane) -> [SnapshotJob] { jobs.isEmpty ? [] : [jobs.removeFirst()] }
    func hasMore(_ lane: OnlyLane) -> Bool { !jobs.isEmpty }

    mutating func removeAll() -> [SnapshotJob] {
        defer { jobs = [] }
        return jobs
    }
}
