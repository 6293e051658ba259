import Asking
import Diagnostics
import EventLog
import Postgres
import Synchronization
import System

/// Takes snapshots of tables as subscribers may see them, each at an exact place in the event log.
///
/// In: requests from any thread. Out: events on threads of its own, or on the caller's at once where too much waits. Each
/// snapshot has a connection of its own, which ends with it: what policies' functions may leave in a session is nobody
/// else's. PostgreSQL reads all of its rows in one transaction, which is over before the first is told: however slowly they
/// are taken, nothing in the database waits for that.
public final class SnapshotService: SnapshotTaking {
    public struct Settings: Sendable {
        /// The hub's own login.
        var database: ConnectionTarget
        /// Whose connections run policies; nil is the hub's own login, if it is fit for that.
        var policies: ConnectionTarget?
        /// Those that tokens may name: the login has to be able to become one of them.
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

    /// Ends the threads and what they tell just now. Once, by the owner, on a thread with the descriptors of the one that
    /// started it.
    public func stop() { threads.stop() }
}

/// A snapshot that somebody waits for. It has one end, whatever becomes of it.
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

    /// There is no room, or all ends.
    func giveUp() { end(.failed(.busy)) }

    deinit {
        if !isOver.load(ordering: .acquiring) {
            Impossible.happened("a snapshot has an end", in: .asking)
            then(.failed(.busy))
        }
    }
}

/// First come, first served, one for each thread.
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
