import Asking
import Bytes
import Change
import Diagnostics
import EventLog
import Replication
import System

/// Worker of the archive's thread: reads messages from the event log and answers queries.
final class ArchiveWorker: AskingWorker {
    let inbox: Inbox<PlainLine<ArchiveJob>>
    private let logEnd: @Sendable () -> EventLogEnd?
    private let followed: @Sendable () -> FollowedPublication?
    private let table: MessageTableReader
    private var log: MessageLog
    private var lastTrouble: String?
    /// Pulse for the pauses between attempts. No thread rings it, so each pause has its full length.
    private let pauses = Pulse()
    /// True after the first query. Before it, the worker reads nothing.
    private var isAwake = false
    /// Retention in hours, counted in whole days: the oldest day that it reaches is kept completely.
    private let hours: Int
    private let metrics: ProjectMetrics

    init(
        _ settings: MessageArchive.Settings, _ inbox: Inbox<PlainLine<ArchiveJob>>,
        logEnd: @escaping @Sendable () -> EventLogEnd?, followed: @escaping @Sendable () -> FollowedPublication?
    ) {
        self.inbox = inbox
        self.logEnd = logEnd
        self.followed = followed
        hours = settings.hours
        metrics = settings.metrics
        table = MessageTableReader(settings.target, inbox.interrupt)
        log = MessageLog(maximumPlaces: settings.maximumPlaces) {
            [directory = settings.logDirectory] () throws(SystemError) in
            try DiskDirectory(directory)
        }
    }

    func prepare() -> UInt64 {
        guard isAwake else { return .max }
        return log.canReachBack ? 0 : Clock.monotonicNanoseconds() + Limits.archiveInterval.wholeNanoseconds
    }

    func work(_ jobs: [ArchiveJob]) {
        for job in jobs { answer(job) }
        isAwake = isAwake || !jobs.isEmpty
        // Reads older segments between queries, so that the next query finds more messages.
        if jobs.isEmpty, isAwake { readAhead() }
    }

    private func readAhead() {
        guard let end = logEnd() else { return }
        do {
            try log.follow(end)
            try log.reachBack()
        } catch {
            complain(error)
        }
    }

    private func answer(_ job: ArchiveJob) {
        defer { metrics.replaySeconds.record(Clock.monotonicNanoseconds() - job.askedAt) }
        if inbox.isEnding { return job.giveUp() }
        let deadline = job.askedAt + Limits.replayPatience.wholeNanoseconds
        while true {
            do {
                return try answer(job.question, until: deadline)
            } catch {
                complain(error)
                let now = Clock.monotonicNanoseconds()
                // Another attempt makes sense only if the kernel refused to read temporarily.
                guard error is SystemError || error is EventLogError, case .transient = ReadingTrouble(error),
                    now < deadline, !inbox.isEnding
                else { return job.giveUp() }
                _ = pauses.wait(beyond: 0, untilMonotonic: now + Limits.archiveReadingPause.wholeNanoseconds)
            }
        }
    }

    /// Logs a failure unless the last one had the same text.
    private func complain(_ error: any Error) {
        let text = "\(error)"
        guard text != lastTrouble else { return }
        lastTrouble = text
        Log.shared.warning("UnableToReplayMessages: cannot read earlier messages", [.reason(text)])
    }

    // MARK: - Answers

    private func answer(_ question: ArchiveJob.Question, until deadline: UInt64) throws {
        switch question {
        case .messages(let query, let reply): reply.give(try answer(query, until: deadline))
        case .revisions(let offset, let reply): reply.give(try revisions(since: offset, until: deadline))
        }
    }

    /// Returns how messages that were inserted at log offset `offset` or later were changed afterwards. Messages that
    /// the index does not reach before the deadline are unknown.
    private func revisions(since offset: UInt64, until deadline: UInt64) throws -> MessageRevisions {
        guard let end = logEnd() else { throw ArchiveError.notBegun }
        try log.follow(end)
        while log.beginOffset > offset, log.canReachBack, Clock.monotonicNanoseconds() < deadline {
            try log.reachBack()
        }
        return try log.revisions(since: offset)
    }

    private func answer(_ query: ReplayQuery, until deadline: UInt64) throws -> ReplayAnswer {
        guard let end = logEnd() else { throw ArchiveError.notBegun }
        // The publication must be read before the log, so that the log has everything that it promises.
        let followed = followed()
        try log.follow(end)
        let (since, overflow) = query.since.multipliedReportingOverflow(by: 1000)
        return try replay(
            query, max(oldestKept, overflow ? (query.since < 0 ? .min : .max) : since), followed, deadline)
    }

    /// Insert time of the oldest message that `tidewire.keep_messages` keeps, in microseconds since 1970. Retention
    /// drops whole days.
    private var oldestKept: Int64 {
        let day: Int64 = 86_400_000_000
        let oldest = Clock.unixMicroseconds() - Int64(hours) * 3_600_000_000
        return oldest / day * day
    }

    private func replay(
        _ query: ReplayQuery, _ since: Int64, _ followed: FollowedPublication?, _ deadline: UInt64
    ) throws -> ReplayAnswer {
        var found = try search(query, since, followed, deadline)
        if !found.isWhole {
            // Retention deleted messages during the search, or the messages were too large. The second search finds the
            // rest.
            found = try search(query, since, followed, deadline)
        }
        guard found.reach > since else {
            metrics.replays[.log].add()
            return .messages(found.messages, upTo: log.end, isWhole: true)
        }
        let older = try table.messages(query, from: since, before: found.reach)
        metrics.replays[.table].add()
        let messages = Self.joined(older ?? [], found.messages, followed, query.limit)
        assert(messages.count <= query.limit, "no more is told than was asked for")
        return .messages(messages, upTo: log.end, isWhole: older != nil)
    }

    private struct Found {
        var messages: [ArchivedMessage]
        var isWhole: Bool
        /// Insert time in microseconds since 1970. Every message inserted since then was found.
        var reach: Int64
    }

    private func search(
        _ query: ReplayQuery, _ since: Int64, _ followed: FollowedPublication?, _ deadline: UInt64
    ) throws -> Found {
        var places = log.newest(query, since: since)
        // Messages from before the publication was followed are certainly in the table, but not certainly in the log.
        let needed = max(since, followed?.time ?? .max)
        while !isEnough(places, query, needed), log.canReachBack, Clock.monotonicNanoseconds() < deadline {
            try log.reachBack()
            places = log.newest(query, since: since)
        }
        assert(places.count <= query.limit, "no more is read than was asked for")
        let read = try log.read(places, query)
        var reach = max(followed?.time ?? .max, log.beginTime)
        // The query asks for the newest messages, so it needs none from before the oldest found.
        if places.count == query.limit, let oldest = places.map(\.insertedAt).min(), oldest >= reach {
            reach = .min
        }
        return Found(messages: read.messages, isWhole: read.isWhole, reach: reach)
    }

    private func isEnough(_ places: [MessageLog.Found], _ query: ReplayQuery, _ since: Int64) -> Bool {
        if log.beginTime <= since { return true }
        guard places.count == query.limit, let oldest = places.map(\.insertedAt).min() else { return false }
        return oldest >= log.beginTime
    }

    /// Merges messages of the table and of the log. Messages that the log has since the publication is followed are
    /// last, because they were committed last. Earlier messages of the log are merged with the table's by insert time.
    private static func joined(
        _ older: [ArchivedMessage], _ found: [ArchivedMessage], _ followed: FollowedPublication?, _ limit: Int
    ) -> [ArchivedMessage] {
        let ids = Set(found.map(\.id))
        let first = followed?.offset ?? .max
        let mixed = older.filter { !ids.contains($0.id) } + found.filter { $0.offset ?? 0 < first }
        assert(mixed.count <= older.count + found.count, "nothing is told that was not found")
        let all = mixed.sorted { $0.insertedAt < $1.insertedAt } + found.filter { $0.offset ?? 0 >= first }
        guard all.count > limit else { return all }
        let oldest = all.map(\.insertedAt).sorted(by: >)[limit - 1]
        // More messages than the limit may have this time or a newer one.
        return Array(all.filter { $0.insertedAt >= oldest }.suffix(limit))
    }
}

enum ArchiveError: Error, CustomStringConvertible {
    case notBegun
    case table(String)

    var description: String {
        switch self {
        case .notBegun: "the event log has not begun"
        case .table(let reason): "realtime.messages cannot be read: \(reason)"
        }
    }
}
