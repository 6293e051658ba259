import Asking
import Diagnostics
import EventLog
import Postgres
import Replication
import System

/// Archive of sent messages, for clients that ask for old messages when they join.
///
/// Any thread may send queries, and each gets an answer. Messages that were committed since the hub follows the
/// database are read from the event log. Older ones are read from their table, if the hub has the rights. The archive
/// has its own thread, because reading blocks. It does nothing until the first query.
public final class MessageArchive: Sendable {
    public struct Settings: Sendable {
        public var logDirectory: String
        public var target: ConnectionTarget
        /// Maximum number of messages whose places in the log the archive keeps in memory.
        public var maximumPlaces = Limits.archivedMessages
        /// Number of hours for which the table keeps messages.
        public var hours = Int(Limits.messagesRetentionHours)
        /// Metrics of the project that the messages belong to.
        public var metrics = ProjectMetrics()

        public init(logDirectory: String, target: ConnectionTarget) {
            self.logDirectory = logDirectory
            self.target = target
        }
    }

    private let threads: AskingThreads<PlainLine<ArchiveJob>>
    private let metrics: ProjectMetrics

    /// Creates the archive and starts its thread.
    ///
    /// - Parameters:
    ///   - logEnd: returns the end of the log; nil until the log has begun.
    ///   - followed: returns the followed publication, with the time since when the log has every message.
    public init(
        _ settings: Settings, logEnd: @escaping @Sendable () -> EventLogEnd?,
        followed: @escaping @Sendable () -> FollowedPublication?
    ) throws(SystemError) {
        metrics = settings.metrics
        let inbox = try Inbox<PlainLine<ArchiveJob>>(holding: InboxLoad(jobs: Limits.maximumWaitingReplays))
        threads = try AskingThreads(
            inbox, [("messages", { ArchiveWorker(settings, inbox, logEnd: logEnd, followed: followed) })])
    }

    /// Answers a query for old messages. `then` runs on the archive's thread, or immediately on the caller's thread if
    /// too many queries are waiting. It must not block.
    public func replay(_ query: ReplayQuery, then: @escaping @Sendable (ReplayAnswer) -> Void) {
        let reply = Reply(in: .messages, unanswered: ReplayAnswer.failed, then: then)
        let askedAt = Clock.monotonicNanoseconds()
        threads.inbox.ask([
            ArchiveJob(question: .messages(query, reply), askedAt: askedAt, failures: metrics.replays[.failed])
        ])
    }

    /// Asks how messages that were inserted at log offset `offset` or later were changed afterwards. `then` runs like
    /// that of `replay`, and receives nil if there is no answer.
    public func revisions(since offset: UInt64, then: @escaping @Sendable (MessageRevisions?) -> Void) {
        let reply = Reply(in: .messages, unanswered: MessageRevisions?.none, then: then)
        let askedAt = Clock.monotonicNanoseconds()
        threads.inbox.ask([
            ArchiveJob(question: .revisions(since: offset, reply), askedAt: askedAt, failures: metrics.replays[.failed])
        ])
    }

    /// Ends the thread. Waiting queries fail. The owner calls this once.
    public func stop() { threads.stop() }
}

/// Query of the archive, with the reply through which its asker receives the answer.
struct ArchiveJob: AskedJob {
    enum Question {
        case messages(ReplayQuery, Reply<ReplayAnswer>)
        case revisions(since: UInt64, Reply<MessageRevisions?>)
    }

    let question: Question
    let askedAt: UInt64
    let failures: Counter

    func giveUp() {
        failures.add()
        switch question {
        case .messages(_, let reply): reply.giveUp()
        case .revisions(_, let reply): reply.giveUp()
        }
    }
}
