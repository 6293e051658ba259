import Asking
import Diagnostics
import EventLog
import System

/// Search of the log for earlier versions of rows.
public protocol RowRecalling: AnyObject, Sendable {
    /// Finds an answer for each row, in order. Calls `then` on any thread, possibly before this method returns. `then`
    /// must not block.
    func find(_ request: RecallRequest, then: @escaping @Sendable ([RecallAnswer]) -> Void)
    func stop()
}

/// Service that finds the last versions of rows in the log, for all loops of a project.
///
/// Any thread may send requests. Reading blocks, so the service has its own thread.
public final class RecallService: RowRecalling {
    private let threads: AskingThreads<PlainLine<RecallJob>>

    public init(logDirectory: String, _ metrics: ProjectMetrics) throws(SystemError) {
        let inbox = try Inbox<PlainLine<RecallJob>>(holding: InboxLoad(jobs: Limits.maximumWaitingRecalls))
        threads = try AskingThreads(inbox, [("recall", { RecallWorker(logDirectory, inbox, metrics) })])
    }

    /// Finds an answer for each row. Calls `then` on the service's thread, or on the caller's thread if too many
    /// requests wait. `then` must not block.
    public func find(_ request: RecallRequest, then: @escaping @Sendable ([RecallAnswer]) -> Void) {
        let reply = Reply(in: .delivery, unanswered: request.rows.map { _ in RecallAnswer.unread }, then: then)
        threads.inbox.ask([RecallJob(request: request, reply: reply)])
    }

    /// Ends the thread, and answers waiting requests with `unread`. The owner calls this once.
    public func stop() { threads.stop() }
}

/// Request to find rows, with the reply that receives the answer.
private struct RecallJob: AskedJob {
    let request: RecallRequest
    let reply: Reply<[RecallAnswer]>

    func giveUp() { reply.giveUp() }
}

/// Worker on the service's thread, which reads the log and answers requests.
private final class RecallWorker: AskingWorker {
    let inbox: Inbox<PlainLine<RecallJob>>
    /// Reader of the log. It opens files on this thread, because descriptors are valid only on the thread that opened
    /// them.
    private let lookup: RecallLookup
    /// Timer of the pauses between tries. No other thread wakes it, so each wait lasts its full time.
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

    /// Returns the answers to a request. If the kernel refuses to read the log, tries again for a limited time.
    private func answers(_ request: RecallRequest) -> [RecallAnswer] {
        let deadline = Clock.monotonicNanoseconds() + Limits.recallReadingPatience.wholeNanoseconds
        while true {
            let now = Clock.monotonicNanoseconds()
            if let answers = lookup.answers(request, isLastTry: now >= deadline || inbox.isEnding) { return answers }
            _ = pauses.wait(beyond: 0, untilMonotonic: now + Limits.firstReadingPause.wholeNanoseconds)
        }
    }
}

/// Reader that searches the log backwards for versions of rows. One thread owns it.
public final class RecallLookup {
    private let time: any TimeSource
    private let metrics: ProjectMetrics
    private let openLog: () throws(SystemError) -> any StorageDirectory
    private var outlines: SegmentOutlines?

    /// Creates a reader that opens the log at the first request.
    public init(
        _ time: any TimeSource, _ metrics: ProjectMetrics,
        _ openLog: @escaping () throws(SystemError) -> any StorageDirectory
    ) {
        self.time = time
        self.metrics = metrics
        self.openLog = openLog
    }

    /// Returns an answer for each row of the request, in order. Returns nil if the kernel refuses to read for now; on
    /// the last try, all rows are unread instead.
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
