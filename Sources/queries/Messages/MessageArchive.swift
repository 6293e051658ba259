import Asking
import Diagnostics
import EventLog
import Postgres
import Replication
import System

/// Finds messages that were sent before, for those who join.
///
/// In: queries from any thread. Out: an answer for each. They come from the event log, where every message is that was
/// committed since the hub follows the database; those before are asked for in their table, where the hub may read it. It
/// owns a thread, because reading blocks, and does nothing until somebody asks.
public final class MessageArchive: Sendable {
    public struct Settings: Sendable {
        public var logDirectory: String
        public var target: ConnectionTarget
        /// Places that are remembered.
        public var maximumPlaces = Limits.archivedMessages
        /// How long messages are kept in their table.
        public var hours = Int(Limits.messagesRetentionHours)
        /// Of the project whose messages they are.
        public var metrics = ProjectMetrics()

        public init(logDirectory: String, target: ConnectionTarget) {
            self.logDirectory = logDirectory
            self.target = target
        }
    }

    private let threads: AskingThreads<PlainLine<ReplayJob>>
    private let metrics: ProjectMetrics

    /// - Parameters:
    ///   - logEnd: where the log ends; nil until it has begun.
    ///   - followed: since when it has every message.
    public init(
        _ settings: Settings, logEnd: @escaping @Sendable () -> EventLogEnd?,
        followed: @escaping @Sendable () -> FollowedPublication?
    ) throws(SystemError) {
        metrics = settings.metrics
        let inbox = try Inbox<PlainLine<ReplayJob>>(holding: InboxLoad(jobs: Limits.maximumWaitingReplays))
        threads = try AskingThreads(
            inbox, [("messages", { ArchiveWorker(settings, inbox, logEnd: logEnd, followed: followed) })])
    }

    /// `then` is called on the archive's thread, or at once on the caller's when too many wait; it must not wait for
    /// anything.
    public func replay(_ query: ReplayQuery, then: @escaping @Sendable (ReplayAnswer) -> Void) {
        let reply = Reply(in: .messages, unanswered: ReplayAnswer.failed, then: then)
        let askedAt = Clock.monotonicNanoseconds()
        threads.inbox.ask([
            ReplayJob(query: query, askedAt: askedAt, reply: reply, failures: metrics.replays[.failed])
        ])
    }

    /// Ends the thread; what waits is answered first, with a failure. Once, by the owner.
    public func stop() { threads.stop() }
}

/// A query that somebody waits for.
struct ReplayJob: AskedJob {
    let query: ReplayQuery
    let askedAt: UInt64
    let reply: Reply<ReplayAnswer>
    let failures: Counter

    func giveUp() {
        failures.add()
        reply.giveUp()
    }
}
