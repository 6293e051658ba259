import Asking
import Bytes
import Change
import Diagnostics
import EventLog
import Replication
import System

/// The archive's thread: reads the log, answers.
final class ArchiveWorker: AskingWorker {
    let inbox: Inbox<PlainLine<ReplayJob>>
    private let logEnd: @Sendable () -> EventLogEnd?
    private let followed: @Sendable () -> FollowedPublication?
    private let table: MessageTableReader
    private var log: MessageLog
    private var lastTrouble: String?
    /// Times the pauses between tries. No thread beats it, so a wait lasts as long as was asked.
    private let pauses = Pulse()
    /// Somebody has asked: until then nothing is read.
    private var isAwake = false
    /// Messages of days that ended longer ago than this are not kept.
    private let hours: Int
    private let metrics: ProjectMetrics

    init(
        _ settings: MessageArchive.Settings, _ inbox: Inbox<PlainLine<ReplayJob>>,
        logEnd: @escaping @Sendable () -> EventLogEnd?, followed: @escaping @Sendable () -> FollowedPublication?
    ) {
        self.inbox = inbox
        self.logEnd = logEnd
        self.followed = followed
        hours = settings.hours
        metrics = settings.metrics
        table = MessageTableReader(settings.target, inbox.interrupt)
        log = MessageLog(settings.logDirectory, maximumPlaces: settings.maximumPlaces)
    }

    func prepare() -> UInt64 {
        guard isAwake else { return .max }
        return log.canReachBack ? 0 : Clock.monotonicNanoseconds() + Limits.archiveInterval.wholeNanoseconds
    }

    func work(_ jobs: [ReplayJob]) {
        for job in jobs { answer(job) }
        isAwake = isAwake || !jobs.isEmpty
        // Between questions, so that the next one finds more.
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

    private func answer(_ job: ReplayJob) {
        defer { metrics.replaySeconds.record(Clock.monotonicNanoseconds() - job.askedAt) }
        if inbox.isEnding { return job.giveUp() }
        let deadline = job.askedAt + Limits.replayPatience.wholeNanoseconds
        while true {
            do {
                return job.reply.give(try answer(job.query, until: deadline))
            } catch {
                complain(error)
                let now = Clock.monotonicNanoseconds()
                // The kernel refuses to read only for now.
                guard error is SystemError || error is EventLogError, case .transient = ReadingTrouble(error),
                    now < deadline, !inbox.isEnding
                else { return job.giveUp() }
                _ = pauses.wait(beyond: 0, untilMonotonic: now + Limits.archiveReadingPause.wholeNanoseconds)
            }
        }
    }

    /// The same trouble again is said once.
    private func complain(_ error: any Error) {
        let text = "\(error)"
        guard text != lastTrouble else { return }
        lastTrouble = text
        Log.shared.warning("UnableToReplayMessages: messages sent before cannot be read", [.reason(text)])
    }

    // MARK: - Answers

    private func answer(_ query: ReplayQuery, until deadline: UInt64) throws -> ReplayAnswer {
        guard let end = logEnd() else { throw ArchiveError.notBegun }
        // Before the log is read: what is followed since then is in it.
        let followed = followed()
        try log.follow(end)
        let (since, overflow) = query.since.multipliedReportingOverflow(by: 1000)
        return try replay(
            query, max(oldestKept, overflow ? (query.since < 0 ? .min : .max) : since), followed, deadline)
    }

    /// As `tidewire.keep_messages` reckons: whole days.
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
            // Retention was faster, or there was too much: what is left is looked for once more.
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
        /// Every message inserted since this moment was found.
        var reach: Int64
    }

    private func search(
        _ query: ReplayQuery, _ since: Int64, _ followed: FollowedPublication?, _ deadline: UInt64
    ) throws -> Found {
        var places = log.newest(query, since: since)
        // What was written before it was followed is in the table for certain, in the log by chance.
        let needed = max(since, followed?.time ?? .max)
        while !isEnough(places, query, needed), log.canReachBack, Clock.monotonicNanoseconds() < deadline {
            try log.reachBack()
            places = log.newest(query, since: since)
        }
        assert(places.count <= query.limit, "no more is read than was asked for")
        let read = try log.read(places, query)
        var reach = max(followed?.time ?? .max, log.beginTime)
        // The newest are asked for: those before the oldest of them are not missed.
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

    /// Those of the table were committed before those of the log since it follows them. What the log has from before that
    /// stands among them by its time.
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
        // Several may have been inserted at the same moment.
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
