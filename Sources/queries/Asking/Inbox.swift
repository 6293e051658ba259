import Synchronization
import System

/// Something that was asked of threads of ours, and waits for its answer.
public protocol AskedJob: Sendable {
    /// How much of an inbox it takes.
    var load: InboxLoad { get }
    /// It finds room in every inbox that is open: whoever asks such things bounds them.
    var isBoundedByAsker: Bool { get }
    /// Tells whoever asked that there is no answer, which is never a yes.
    func giveUp()
}

extension AskedJob {
    public var load: InboxLoad { InboxLoad(jobs: 1) }
    public var isBoundedByAsker: Bool { false }
}

/// How much waits in an inbox, or may wait there.
public struct InboxLoad: Sendable, Equatable {
    public var jobs: Int
    /// What the jobs consist of: rows, pairs, bindings.
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

    /// What was taken had been added before, so nothing is left below zero.
    public static func - (one: InboxLoad, other: InboxLoad) -> InboxLoad {
        InboxLoad(jobs: one.jobs - other.jobs, parts: one.parts - other.parts, bytes: one.bytes - other.bytes)
    }

    public func fits(_ limit: InboxLoad) -> Bool {
        jobs <= limit.jobs && parts <= limit.parts && bytes <= limit.bytes
    }
}

/// Which jobs of an inbox a thread takes, where not all threads take all.
public protocol InboxLane: Sendable {
    /// Threads are woken by bells, each lane by one of these.
    static var bellCount: Int { get }
    var bell: Int { get }
}

/// Of an inbox whose threads are all alike.
public struct OnlyLane: InboxLane {
    public static let bellCount = 1
    public let bell = 0

    public init() {}
}

/// The order in which jobs of an inbox are taken, and what is taken together.
public protocol WaitingLine<Job>: Sendable {
    associatedtype Job: AskedJob
    associatedtype Lane: InboxLane = OnlyLane

    init()
    mutating func add(_ job: Job, to lane: Lane)
    /// What a thread does next; none where there is nothing for it now.
    mutating func take(_ lane: Lane) -> [Job]
    /// Whether another thread of the lane could take something too.
    func hasMore(_ lane: Lane) -> Bool
    /// A thread is done with what it took; true where another can go on now.
    mutating func finished(_ jobs: [Job], _ lane: Lane) -> Bool
    mutating func removeAll() -> [Job]
}

extension WaitingLine {
    public func hasMore(_ lane: Lane) -> Bool { false }
    public mutating func finished(_ jobs: [Job], _ lane: Lane) -> Bool { false }
}

/// First come, first served, by one thread that takes all there is.
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

/// What threads that ask and those who want to know share: jobs in from any thread, out to those that answer.
///
/// It holds so much and no more, and nothing once it is closed. What is refused is the asker's to hear of.
public final class Inbox<Line: WaitingLine>: Sendable {
    private struct State {
        var line = Line()
        var load = InboxLoad()
        var isClosed = false
    }

    /// Ends what a thread asks just now, and its sleep between two tries.
    public let interrupt: Wake
    private let limit: InboxLoad
    private let state = Mutex(State())
    /// Not descriptors: those who ask may have other descriptors than the threads that answer.
    private let bells = (0..<Line.Lane.bellCount).map { _ in Pulse() }

    public init(holding limit: InboxLoad) throws(SystemError) {
        interrupt = try Wake()
        self.limit = limit
    }

    /// The threads are to end.
    public var isEnding: Bool { interrupt.isRung }

    // MARK: For those who ask

    /// All of them or none; false where there is no room.
    public func add(_ jobs: [Line.Job], to lane: Line.Lane) -> Bool {
        let load = InboxLoad(jobs)
        return add(jobs, load, to: lane) { state in
            (state.load + load).fits(limit) || jobs.allSatisfy(\.isBoundedByAsker)
        }
    }

    /// Jobs that were taken from one lane wait in another, for which there is always room; false once all has ended.
    public func pass(_ jobs: [Line.Job], to lane: Line.Lane) -> Bool {
        add(jobs, InboxLoad(jobs), to: lane) { _ in true }
    }

    private func add(
        _ jobs: [Line.Job], _ load: InboxLoad, to lane: Line.Lane, where hasRoom: (borrowing State) -> Bool
    ) -> Bool {
        // Nobody is woken for nothing.
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

    // MARK: For the threads that answer

    /// None at the deadline of the monotonic clock, and now and then without reason. Who takes some says when they are
    /// `finished`. `seen` is the thread's own, and 0 at first.
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

    /// Wakes the lane's threads, though there is nothing for them here.
    public func ring(_ lane: Line.Lane) { bells[lane.bell].beat() }

    /// Nothing is taken in any more; what waited until now. Wakes everybody.
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
    /// What finds no room is given up at once, on the caller's thread.
    public func ask(_ jobs: [Line.Job]) {
        if !add(jobs, to: OnlyLane()) { for job in jobs { job.giveUp() } }
    }

    public func ring() { ring(OnlyLane()) }
}
