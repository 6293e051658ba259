import Asking
import Diagnostics
import Postgres
import System

/// Service that determines a client's rights in a private channel. It lets PostgreSQL try the actions under the
/// policies of `realtime.messages`.
///
/// Questions come from any thread. Each gets an answer, on a thread of the service, or at once on the caller's thread
/// if too many questions wait. The receiver must not block. Every answer comes before clients time out.
///
/// Waiting questions are asked together, many in one transaction. A question that would delay others is asked by itself
/// on another connection. No probe is ever committed.
public final class ChannelAuthorizer: Sendable {
    public struct Settings: Sendable {
        /// Connection target of the hub's own login.
        var database: ConnectionTarget
        /// Connection target of the login that runs policies, which can become the client roles and has no other
        /// rights. Nil means the hub's own login.
        var policies: ConnectionTarget?
        /// Roles that tokens may name, used to check the login.
        var clientRoles = ["anon", "authenticated"]
        /// Called when realtime.messages has no partition for today.
        public var missesPartition: @Sendable () -> Void = {}
        /// Reachability of the database, shared by all that connect to it.
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

    public func ask(_ question: ChannelQuestion, then: @escaping @Sendable (ChannelAnswer) -> Void) {
        let job = ChannelJob(question, askedAt: Clock.monotonicNanoseconds(), shared.settings.metrics, then: then)
        if threads.inbox.add([job], to: .together(isFirst: true)) { return }
        shared.troubles.report(.exhausted, role: question.role)
        job.finish(.failed(.exhausted))
    }

    /// Ends the threads and their running questions; waiting questions fail. The owner calls it once, on a thread with
    /// the descriptors of the thread that started these threads.
    public func stop() { threads.stop() }
}
