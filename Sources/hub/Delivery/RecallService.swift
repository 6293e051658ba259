import Asking
import Diagnostics
import EventLog
import System

/// Search of the log for earlier versions of rows.
public protocol RowRecalling: AnyObject, Sendable {
    /// Finds an answer for each row, in order. Calls `then` on any thread, perhaps at once; `then` must not wait for
    /// anything.
    func find(_ request: RecallRequest, then: @escaping @Sendable ([RecallAnswer]) -> Void)
    func stop()
}

/// Service that finds the last versions of deleted rows in the log, for all loops.
///
/// Any thread may send requests; each row gets an answer, in order. The service owns a thread, because reading blocks.
public final class RecallService: RowRecalling {
    private let threads: AskingThreads<PlainLine<RecallJob>>

    public init(logDirectory: String, _ metrics: ProjectMetrics) throws(SystemError) {
        let inbox = try Inbox<PlainLine<RecallJob>>(holding: InboxLoad(jobs: Limits.maximumWaitingRecalls))
        threads = try AskingThreads(inbox, [("recall", { RecallWorker(logDirectory, inbox, metrics) })])
    }

    /// Finds an answer for each row. Calls `then` on the service's thread, or at once on the caller's thread if too
    /// many requests wait. `then` must not wait for anything.
    public func find(_ request: RecallRequest, then: @escaping @Sendable ([RecallAnswer]) -> Void) {
        let reply = Reply(in: .delivery, unanswered: request.rows.map { _ in RecallAnswer.unread }, then: then)
        threads.inbox.ask([RecallJob(request: request, reply: reply)])
    }

    /// Ends the thread. Requests that still wait are answered as unread. The owner calls this once.
    public func stop() { threads.stop() }
}

/// Request for rows, with the reply that somebody waits for.
private struct RecallJob: AskedJob {
    let request: RecallRequest
    let reply: Reply<[RecallAnswer]>

    func giveUp() { reply.giveUp() }
}

/// Worker on the service's thread: reads the log and answers.
private final class RecallWorker: AskingWorker {
    let inbox: Inbox<PlainLine<RecallJob>>
    /// Lookup whose files are opened on this thread, where their descriptors are used.
    private let lookup: RecallLookup
    /// Timer of the pauses between tries. No thread beats it, so a wait lasts as long as was asked.
    private let pauses = Pulse()

    init(_ directory: String, _ inbox: Inbox<PlainLine<RecallJob>>, _ metrics: ProjectMetrics) {
        lookup = RecallLookup(KernelTime(), metrics) { () throws(SystemError) in try DiskDirectory(directory) }
        self.inbox = inbox
    }

    func work(_ jobs: [RecallJob]) {
        for job in jobs {
            if inbox.isEnding {
                job.giveUp()
            } else {
                job.reply.give(answers(job.request))
            }
        }
    }

    /// Returns the answers. Tries again for a while if the kernel refuses to read.
    private func answers(_ request: RecallRequest) -> [RecallAnswer] {
        let deadline = Clock.monotonicNanoseconds() + Limits.recallReadingPatience.wholeNanoseconds
        while true {
            let now = Clock.monotonicNanoseconds()
            if let answers = lookup.answers(request, isLastTry: now >= deadline || inbox.isEnding) { return answers }
            _ = pauses.wait(beyond: 0, untilMonotonic: now + Limits.firstReadingPause.wholeNanoseconds)
        }
    }
}

/// Reader that goes backwards through the log to find earlier versions of rows. Belongs to one thread.
public final class RecallLookup {
    private let time: any TimeSource
    private let metrics: ProjectMetrics
    private let openLog: () throws(SystemError) -> any StorageDirectory
    private var outlines: SegmentOutlines?

    /// Creates a lookup that opens the log at the first request.
    public init(
        _ time: any TimeSource, _ metrics: ProjectMetrics,
        _ openLog: @escaping () throws(SystemError) -> any StorageDirectory
    ) {
        self.time = time
        self.metrics = metrics
        self.openLog = openLog
    }

    /// Returns an answer for each row, in order. Nil if the kernel refuses to read for now; on the last try the rows
    /// are missing.
    public func answers(_ request: RecallRequest, isLastTry: Bool) -> [RecallAnswer]? {
        let start = time.monotonicNanoseconds()
        defer { metrics.recallSeconds.record(time.monotonicNanoseconds() - start) }
        do {
            let outlines =
                try outlines ?? SegmentOutlines(directory: openLog(), maximumBytes: Limits.recallOutlineBytes)
            self.outlines = outlines
            var search = RecallSearch(request, time)
            return try search.run(outlines)
        } catch {
            if !isLastTry, case .transient = ReadingTrouble(error) { return nil }
            Log.shared.warning("cannot search the event log for deleted rows", [.reason("\(error)")])
            return request.rows.map { _ in .unread }
        }
    }
}
