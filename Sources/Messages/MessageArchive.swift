import Diagnostics
import EventLog
import Postgres
import Replication
import Synchronization
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

        public init(logDirectory: String, target: ConnectionTarget) {
            self.logDirectory = logDirectory
            self.target = target
        }
    }

    private let exchange: ArchiveExchange
    private let thread: BackgroundThread

    /// - Parameters:
    ///   - logEnd: where the log ends; nil until it has begun.
    ///   - followed: since when it has every message.
    public init(
        _ settings: Settings, logEnd: @escaping @Sendable () -> EventLogEnd?,
        followed: @escaping @Sendable () -> FollowedPublication?
    ) throws(SystemError) {
        let exchange = ArchiveExchange(interrupt: try Wake())
        self.exchange = exchange
        thread = try BackgroundThread("messages") {
            ArchiveWorker(settings, exchange, logEnd: logEnd, followed: followed).run()
        }
    }

    /// `then` is called on the archive's thread, or at once on the caller's when too many wait; it must not wait for
    /// anything.
    public func replay(_ query: ReplayQuery, then: @escaping @Sendable (ReplayAnswer) -> Void) {
        if exchange.add(query, then) { return }
        Metrics.shared.replays[.failed].add()
        then(.failed)
    }

    /// Ends the thread; what waits is answered first, with a failure. Once, by the owner.
    public func stop() {
        exchange.close()
        thread.join()
    }
}

/// What the thread and those who ask it share.
final class ArchiveExchange: Sendable {
    struct Job: Sendable {
        let query: ReplayQuery
        let askedAt: UInt64
        let then: @Sendable (ReplayAnswer) -> Void
    }

    private struct Inbox {
        var jobs: [Job] = []
        var isClosed = false
    }

    private let inbox = Mutex(Inbox())
    /// Not a descriptor: loops have other descriptors than the thread.
    private let pulse = Pulse()
    /// Ends a question to the database.
    let interrupt: Wake

    init(interrupt: Wake) { self.interrupt = interrupt }

    var isClosed: Bool { inbox.withLock { $0.isClosed } }

    func add(_ query: ReplayQuery, _ then: @escaping @Sendable (ReplayAnswer) -> Void) -> Bool {
        let isTaken = inbox.withLock { inbox in
            guard !inbox.isClosed, inbox.jobs.count < Limits.maximumWaitingReplays else { return false }
            inbox.jobs.append(Job(query: query, askedAt: Clock.monotonicNanoseconds(), then: then))
            return true
        }
        if isTaken { pulse.beat() }
        return isTaken
    }

    func close() {
        inbox.withLock { $0.isClosed = true }
        interrupt.ring()
        pulse.beat()
    }

    /// Waits for some, but not beyond the deadline.
    func take(seen: inout UInt64, until deadline: UInt64) -> [Job] {
        seen = pulse.wait(beyond: seen, untilMonotonic: deadline)
        return inbox.withLock { inbox in
            defer { inbox.jobs = [] }
            return inbox.jobs
        }
    }
}
