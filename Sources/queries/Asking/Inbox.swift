import Synchronization
import System

/// Question that waits in an inbox for the answer of an asking thread.
public protocol AskedJob: Sendable {
    /// Amount by which the job counts towards the inbox's limits.
    var load: InboxLoad { get }
    /// True if an open inbox accepts the job even when it is full. The asker itself limits the number of such jobs.
    var isBoundedByAsker: Bool { get }
    /// Tells the asker that there is no answer. The asker must not treat that as permission.
    func giveUp()
}

extension AskedJob {
    public var load: InboxLoad { InboxLoad(jobs: 1) }
    public var isBoundedByAsker: Bool { false }
}

/// Amount of jobs in an inbox, or the limit of that amount.
public struct InboxLoad: Sendable, Equatable {
    public var jobs: Int
    /// Number of parts of which the jobs consist, such as rows, pairs of a row and a policy subject, or bindings.
    public var parts: Int
    public var bytes: Int

    public init(jobs: Int = 0, parts: Int = 0, bytes: Int = 0) {
        precondition(jobs >= 0 && parts >= 0 && bytes >= 0, "nothing weighs less than nothing")
        self.jobs = jobs
        self.parts = parts
        self.bytes = bytes
    }

    init(_ jobs: some Sequence<some AskedJob>) {
        self = jobs.reduce(InboxLoad()) { $0 + $1.load }
    }

    public static func + (one: InboxLoad, other: InboxLoad) -> InboxLoad {
        InboxLoad(jobs: one.jobs + other.jobs, parts: one.parts + other.parts, bytes: one.bytes + other.bytes)
    }

    /// Subtracts the load of jobs that were added earlier, so no value becomes negative.
    public static func - (one: InboxLoad, other: InboxLoad) -> InboxLoad {
        InboxLoad(jobs: one.jobs - other.jobs, parts: one.parts - other.parts, bytes: one.bytes - other.bytes)
    }

    public func fits(_ limit: InboxLoad) -> Bool {
        jobs <= limit.jobs && parts <= limit.parts && bytes <= limit.bytes
    }
}

/// Group of threads that take a certain kind of jobs from an inbox.
public protocol InboxLane: Sendable {
    /// Number of bells of the inbox. Ringing a bell wakes the threads of the lanes that use it.
    static var bellCount: Int { get }
    var bell: Int { get }
}

/// Lane of an inbox whose threads take all kinds of jobs.
public struct OnlyLane: InboxLane {
    public static let bellCount = 1
    public let bell = 0

    public init() {}
}

/// Queue of an inbox: the order in which threads take jobs, and which jobs a thread takes together.
public protocol WaitingLine<Job>: Sendable {
    associatedtype Job: AskedJob
    associatedtype Lane: InboxLane = OnlyLane

    init()
    mutating func add(_ job: Job, to lane: Lane)
    /// Removes and returns the next jobs for a thread of the lane. Empty if there are none for it now.
    mutating func take(_ lane: Lane) -> [Job]
    /// True if another thread of the lane could take jobs too.
    func hasMore(_ lane: Lane) -> Bool
    /// Records that a thread has finished its jobs. Returns true if another thread can now take jobs that had to wait.
    mutating func finished(_ jobs: [Job], _ lane: Lane) -> Bool
    mutating func removeAll() -> [Job]
}

extension WaitingLine {
    public func hasMore(_ lane: Lane) -> Bool { false }
    public mutating func finished(_ jobs: [Job], _ lane: Lane) -> Bool { false }
}

/// First-come, first-served queue for one thread, which takes all jobs together.
public struct PlainLine<Job: AskedJob>: WaitingLine {
    private var jobs: [Job] = []

    public init() {}

    public mutating func add(_ job: Job, to lane: OnlyLane) { jobs.append(job) }
    public mutating func take(_ lane: OnlyLane) -> [Job] { removeAll() }

    public mutating func removeAll() -> [Job] {
        defer { jobs = [] }
        return jobs
    }
}

/// Queue of questions between askers on any thread and the threads that answer.
///
/// An inbox holds a limited number of jobs, and accepts none after it is closed. It tells the asker if it refuses a
/// job.
public final class Inbox<Line: WaitingLine>: Sendable {
    private struct State {
        var line = Line()
        var load = InboxLoad()
        var isClosed = false
    }

    /// Wake that ends a running question and the sleep between two attempts to connect.
    public let interrupt: Wake
    private let limit: InboxLoad
    private let state = Mutex(State())
    /// Bells that wake the threads of the inbox, one for each number `Lane.bell`. A bell is no file descriptor, because
    /// askers and answering threads may have different descriptor tables.
    private let bells = (0..<Line.Lane.bellCount).map { _ in Pulse() }

    public init(holding limit: InboxLoad) throws(SystemError) {
        interrupt = try Wake()
        self.limit = limit
    }

    /// True if the threads must end.
    public var isEnding: Bool { interrupt.isRung }

    // MARK: Asking

    /// Adds all jobs, or none if there is no room. Returns true if they were added.
    public func add(_ jobs: [Line.Job], to lane: Line.Lane) -> Bool {
        let load = InboxLoad(jobs)
        return add(jobs, load, to: lane) { state in
            (state.load + load).fits(limit) || jobs.allSatisfy(\.isBoundedByAsker)
        }
    }

    /// Moves jobs that a thread has taken to another lane, regardless of the limits. Returns false if the inbox is
    /// closed.
    public func pass(_ jobs: [Line.Job], to lane: Line.Lane) -> Bool {
        add(jobs, InboxLoad(jobs), to: lane) { _ in true }
    }

    private func add(
        _ jobs: [Line.Job], _ load: InboxLoad, to lane: Line.Lane, where hasRoom: (borrowing State) -> Bool
    ) -> Bool {
        // Without a job no thread needs to wake.
        if jobs.isEmpty { return true }
        let isTaken = state.withLock { state in
            guard !state.isClosed, hasRoom(state) else { return false }
            state.load = state.load + load
            for job in jobs { state.line.add(job, to: lane) }
            assert(load.fits(state.load), "what waits is counted")
            return true
        }
        if isTaken { ring(lane) }
        return isTaken
    }

    // MARK: Answering

    /// Waits for jobs and returns them. The result is empty at the deadline (monotonic time in nanoseconds), and may be
    /// empty earlier. The thread calls `finished` after working on the jobs. `seen` is the number of rings of the
    /// lane's bell that the thread has seen; each thread keeps one, which begins at 0.
    public func take(_ lane: Line.Lane, until deadline: UInt64, seen: inout UInt64) -> [Line.Job] {
        let jobs = takeNow(lane)
        if !jobs.isEmpty { return jobs }
        seen = bells[lane.bell].wait(beyond: seen, untilMonotonic: deadline)
        return takeNow(lane)
    }

    private func takeNow(_ lane: Line.Lane) -> [Line.Job] {
        let (jobs, isMore) = state.withLock { state in
            let jobs = state.line.take(lane)
            state.load = state.load - InboxLoad(jobs)
            assert(!state.isClosed || jobs.isEmpty, "nothing waits in what is closed")
            return (jobs, !jobs.isEmpty && state.line.hasMore(lane))
        }
        if isMore { ring(lane) }
        return jobs
    }

    public func finished(_ jobs: [Line.Job], _ lane: Line.Lane) {
        precondition(!jobs.isEmpty, "a thread is done with what it took, and took something")
        if state.withLock({ $0.line.finished(jobs, lane) }) { ring(lane) }
    }

    /// Wakes the lane's threads, even if there are no jobs.
    public func ring(_ lane: Line.Lane) { bells[lane.bell].beat() }

    /// Closes the inbox, wakes all threads, and returns the jobs that were still waiting.
    public func close() -> [Line.Job] {
        let rest = state.withLock { state in
            assert(!state.isClosed || state.load == InboxLoad(), "nothing waits in what is closed")
            state.isClosed = true
            state.load = InboxLoad()
            return state.line.removeAll()
        }
        for bell in bells { bell.beat() }
        return rest
    }
}

extension Inbox where Line.Lane == OnlyLane {
    /// Adds the jobs. If there is no room, gives them up immediately, on the caller's thread.
    public func ask(_ jobs: [Line.Job]) {
        if !add(jobs, to: OnlyLane()) { for job in jobs { job.giveUp() } }
    }

    public func ring() { ring(OnlyLane()) }
}
