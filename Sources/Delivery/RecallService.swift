import Diagnostics
import EventLog
import Synchronization
import System

/// Finds in the log what rows were.
public protocol RowRecalling: AnyObject, Sendable {
    /// An answer for each row, in order. `then` is called on any thread, also at once; it must not wait for anything.
    func find(_ request: RecallRequest, then: @escaping @Sendable ([RecallAnswer]) -> Void)
    func stop()
}

/// Finds the last versions of deleted rows in the log, for all loops.
///
/// In: requests from any thread. Out: an answer for each row, in order. It owns a thread, because reading blocks.
public final class RecallService: RowRecalling {
    private let exchange = RecallExchange()
    private let thread: BackgroundThread

    public init(logDirectory: String) throws(SystemError) {
        thread = try BackgroundThread("recall") { [exchange] in RecallWorker(logDirectory, exchange).run() }
    }

    /// `then` is called on the service's thread, or at once on the caller's when too many wait; it must not wait for
    /// anything.
    public func find(_ request: RecallRequest, then: @escaping @Sendable ([RecallAnswer]) -> Void) {
        if exchange.add(request, then) { return }
        then(request.rows.map { _ in .missing })
    }

    /// Ends the thread. Once, by the owner.
    public func stop() {
        exchange.close()
        thread.join()
    }
}

/// What the thread and those who ask it share.
private final class RecallExchange: Sendable {
    struct Job: Sendable {
        let request: RecallRequest
        let then: @Sendable ([RecallAnswer]) -> Void
    }

    private struct Inbox {
        var jobs: [Job] = []
        var isClosed = false
    }

    private let inbox = Mutex(Inbox())
    /// Not a descriptor: loops have other descriptors than the thread.
    private let pulse = Pulse()

    func add(_ request: RecallRequest, _ then: @escaping @Sendable ([RecallAnswer]) -> Void) -> Bool {
        let isTaken = inbox.withLock { inbox in
            guard !inbox.isClosed, inbox.jobs.count < Limits.maximumWaitingRecalls else { return false }
            inbox.jobs.append(Job(request: request, then: then))
            return true
        }
        if isTaken { pulse.beat() }
        return isTaken
    }

    func close() {
        inbox.withLock { $0.isClosed = true }
        pulse.beat()
    }

    /// Waits for some; nil when there will be none.
    func take(seen: inout UInt64) -> [Job]? {
        seen = pulse.wait(beyond: seen, untilMonotonic: .max)
        return inbox.withLock { inbox in
            defer { inbox.jobs = [] }
            return inbox.isClosed && inbox.jobs.isEmpty ? nil : inbox.jobs
        }
    }
}

/// The thread: reads, answers.
private final class RecallWorker {
    private let exchange: RecallExchange
    /// Its files are opened here, where their descriptors are used.
    private let lookup: RecallLookup

    init(_ directory: String, _ exchange: RecallExchange) {
        lookup = RecallLookup(KernelTime()) { () throws(SystemError) in try DiskDirectory(directory) }
        self.exchange = exchange
    }

    func run() {
        var seen: UInt64 = 0
        while let jobs = exchange.take(seen: &seen) {
            for job in jobs { job.then(lookup.answers(job.request)) }
        }
    }
}

/// Reads the log backwards for what rows were. Belongs to one thread.
public final class RecallLookup {
    private let time: any TimeSource
    private let openLog: () throws(SystemError) -> any StorageDirectory
    private var outlines: SegmentOutlines?

    /// The log is opened when it is first asked.
    public init(_ time: any TimeSource, _ openLog: @escaping () throws(SystemError) -> any StorageDirectory) {
        self.time = time
        self.openLog = openLog
    }

    public func answers(_ request: RecallRequest) -> [RecallAnswer] {
        let start = time.monotonicNanoseconds()
        defer { Metrics.shared.recallSeconds.record(time.monotonicNanoseconds() - start) }
        do {
            let outlines =
                try outlines ?? SegmentOutlines(directory: openLog(), maximumBytes: Limits.recallOutlineBytes)
            self.outlines = outlines
            var search = RecallSearch(request, time)
            return try search.run(outlines)
        } catch {
            Log.shared.warning("deleted rows cannot be looked for in the event log", [.reason("\(error)")])
            return request.rows.map { _ in .missing }
        }
    }
}
