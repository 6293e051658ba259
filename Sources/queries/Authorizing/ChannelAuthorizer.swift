import Asking
import Diagnostics
import Postgres
import System

/// Finds out what somebody may do in a private channel: has PostgreSQL try it under the policies of `realtime.messages`.
///
/// In: questions from any thread. Out: for each an answer, on a thread of its own, or at once on the caller's where too much
/// waits; whoever takes it must not wait for anything. Every question is answered, before clients lose patience.
///
/// Questions that wait are asked together, many in one transaction; those that would hold up others are asked one at a time
/// on a connection of their own. Nothing that is tried is ever committed.
public final class ChannelAuthorizer: Sendable {
    public struct Settings: Sendable {
        /// The hub's own login.
        var database: ConnectionTarget
        /// Whose connections run policies: one that can become the client roles and is nothing by itself. Nil is the
        /// hub's own.
        var policies: ConnectionTarget?
        /// Those that tokens may name, to tell whether the login fits.
        var clientRoles = ["anon", "authenticated"]
        /// Called where realtime.messages has no partition for today.
        public var missesPartition: @Sendable () -> Void = {}
        /// Shared by all who connect to the database.
        public var reachability = Reachability()
        /// Of the project whose channels they are.
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

    /// Ends the threads and what they ask just now; what waits is answered with a failure. Once, by the owner, on a thread
    /// with the descriptors of the one that started it.
    public func stop() { threads.stop() }
}
