import Asking
import Diagnostics
import System

/// Question about rights, with the reply through which its asker receives the answer.
struct ChannelJob: AskedJob {
    let question: ChannelQuestion
    let reply: Reply<ChannelAnswer>
    /// Time at which the question was asked, as monotonic time in nanoseconds.
    let askedAt: UInt64
    /// Number of connections that were lost while this question was being asked.
    var losses = 0
    private let metrics: ProjectMetrics

    init(
        _ question: ChannelQuestion, askedAt: UInt64, _ metrics: ProjectMetrics,
        then: @escaping @Sendable (ChannelAnswer) -> Void
    ) {
        self.question = question
        self.askedAt = askedAt
        self.metrics = metrics
        reply = Reply(in: .authorizing, unanswered: .failed(.unavailable), then: then)
    }

    var load: InboxLoad { InboxLoad(jobs: 1, bytes: question.byteCount) }
    var deadline: UInt64 { askedAt + Limits.channelPatience.wholeNanoseconds }

    func giveUp() { finish(.failed(.unavailable)) }

    func finish(_ answer: ChannelAnswer) {
        metrics.channelProbes.add(1)
        if case .failed = answer { metrics.channelProbeFailures.add(1) }
        assert(answer.answers(question.probe), "an answer is to what was asked")
        let now = Clock.monotonicNanoseconds()
        metrics.channelProbeSeconds.record(.nanoseconds(now - min(now, askedAt)))
        reply.give(answer)
    }
}

/// Queue of questions about rights. It has three lanes, because some questions would delay others.
struct ChannelLine: WaitingLine {
    enum Lane: InboxLane {
        /// Questions that are asked many at a time. The threads other than the first take questions only while another
        /// thread is busy.
        case together(isFirst: Bool)
        /// Questions similar to some that took too long. They are asked many at a time, on a thread of their own.
        case suspects
        /// Questions that would delay others. They are asked one at a time, for all askers of the same question.
        case apart

        static let bellCount = 3

        var bell: Int {
            switch self {
            case .together: 0
            case .suspects: 1
            case .apart: 2
            }
        }
    }

    private var together: [ChannelJob] = []
    private var suspects: [ChannelJob] = []
    private var apart: [ChannelJob] = []
    /// Token subjects (`sub`) of the questions that are being asked alone now.
    private var apartNow: [String] = []
    /// Number of threads that are now asking questions of the lane `together`.
    private var busyCount = 0

    static let room = InboxLoad(
        jobs: Limits.maximumWaitingChannelQuestions, bytes: Limits.maximumWaitingChannelBytes)

    mutating func add(_ job: ChannelJob, to lane: Lane) {
        switch lane {
        case .together: together.append(job)
        case .suspects: suspects.append(job)
        case .apart: apart.append(job)
        }
    }

    func hasMore(_ lane: Lane) -> Bool {
        switch lane {
        case .together: !together.isEmpty
        case .suspects: false
        case .apart: !apart.isEmpty
        }
    }

    mutating func take(_ lane: Lane) -> [ChannelJob] {
        switch lane {
        case .together(let isFirst): takeTogether(isFirst)
        case .suspects: ChannelLine.take(from: &suspects)
        case .apart: takeApart()
        }
    }

    private mutating func takeTogether(_ isFirst: Bool) -> [ChannelJob] {
        guard isFirst || busyCount > 0, !together.isEmpty else { return [] }
        busyCount += 1
        assert(busyCount <= Limits.channelConnections, "each thread is busy once")
        return ChannelLine.take(from: &together)
    }

    private static func take(from jobs: inout [ChannelJob]) -> [ChannelJob] {
        defer { jobs.removeFirst(min(Limits.channelTurn, jobs.count)) }
        return Array(jobs.prefix(Limits.channelTurn))
    }

    private mutating func takeApart() -> [ChannelJob] {
        // A question of a subject with no running question goes first, so that one subject cannot occupy all threads.
        guard let first = (apart.first { !apartNow.contains($0.question.subject) } ?? apart.first)?.question
        else { return [] }
        apartNow.append(first.subject)
        let jobs = apart.filter { $0.question == first }
        apart.removeAll { $0.question == first }
        assert(!jobs.isEmpty, "who asks apart is answered")
        return jobs
    }

    mutating func finished(_ jobs: [ChannelJob], _ lane: Lane) -> Bool {
        switch lane {
        case .together:
            precondition(busyCount > 0, "who is finished was busy")
            busyCount -= 1
            // The first thread may have found no questions while this one finished.
            return true
        case .suspects: return false
        case .apart:
            let place = apartNow.firstIndex(of: jobs[0].question.subject)
            assert(place != nil, "who is finished was busy")
            if let place { apartNow.remove(at: place) }
            return false
        }
    }

    mutating func removeAll() -> [ChannelJob] {
        defer { (together, suspects, apart) = ([], [], []) }
        return together + suspects + apart
    }
}
