import Asking
import Diagnostics
import Postgres
import System

/// Service that determines a client's rights in a private channel. It makes PostgreSQL try the actions under the
/// policies of `realtime.messages`.
///
/// Any thread may ask. Every question is answered before clients time out. The answer arrives on a thread of the
/// service, or immediately on the caller's thread if too many questions are waiting. The receiver must not block.
///
/// Questions that wait are asked together, many in one transaction. A question that would delay others is asked alone,
/// on another connection. The transactions are never committed.
public final class ChannelAuthorizer: Sendable {
    public struct Settings: Sendable {
        /// Connection target with the hub's own login.
        var database: ConnectionTarget
        /// Connection target of the login that runs policies. It can switch to the client roles and has no other
        /// rights. If nil, the hub's own login runs them.
        var policies: ConnectionTarget?
        /// Roles that tokens may name. The check of the login uses them.
        var clientRoles = ["anon", "authenticated"]
        /// Callback that is called when `realtime.messages` has no partition for today.
        public var missesPartition: @Sendable () -> Void = {}
        /// Reachability of the database, shared by all threads that connect to it.
        public var reachability = Reachability()
        /// Metrics of the project that the channels belong to.
        public var metrics = ProjectMetrics()

        public init(
            database: ConnectionTarget, policies: ConnectionTarget? = nil,
            clientRoles: [String] = ["anon", "authenticated"], missesPartition: @escaping @Sendable () -> Void = {}
        ) {
            self.database = database
            self.policies = policies
            self.clientRoles = clientRoles
            self.missesPartition = missesPartition
        }
    }

    private let shared: ChannelWorker.Shared
    private let threads: AskingThreads<ChannelLine>

    public init(_ settings: Settings) throws(SystemError) {
        Limits.checkAuthorizing()
        let shared = ChannelWorker.Shared(settings)
        self.shared = shared
        var lanes: [(String, ChannelLine.Lane)] = (0..<Limits.channelConnections).map { number in
            ("channels \(number)", .together(isFirst: number == 0))
        }
        lanes.append(("channels beside", .suspects))
        for number in 0..<Limits.channelConnectionsApart { lanes.append(("channels apart \(number)", .apart)) }
        let inbox = try Inbox<ChannelLine>(holding: ChannelLine.room)
        threads = try AskingThreads(
            inbox, lanes.map { name, lane in (name, { ChannelWorker(shared, lane, inbox) }) })
    }

    /// Determines rights in a private channel. `then` receives the answer and must not block.
    public func ask(_ question: ChannelQuestion, then: @escaping @Sendable (ChannelAnswer) -> Void) {
        let job = ChannelJob(question, askedAt: Clock.monotonicNanoseconds(), shared.settings.metrics, then: then)
        if threads.inbox.add([job], to: .together(isFirst: true)) { return }
        shared.troubles.report(.exhausted, role: question.role)
        job.finish(.failed(.exhausted))
    }

    /// Ends the threads and their running questions. Waiting questions fail. The owner calls this once, on a thread
    /// that shares descriptors with the thread that created the service.
    public func stop() { threads.stop() }
}
