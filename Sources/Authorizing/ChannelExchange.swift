import Diagnostics
import Synchronization
import System

/// A question that somebody waits for.
struct ChannelJob: Sendable {
    var question: ChannelQuestion
    var then: @Sendable (ChannelAnswer) -> Void
    /// On the monotonic clock.
    var askedAt: UInt64
    /// Connections that were lost over it.
    var losses = 0

    var deadline: UInt64 { askedAt + Limits.channelPatience.wholeNanoseconds }

    func finish(_ answer: ChannelAnswer) {
        Metrics.shared.channelProbes.add(1)
        if case .failed = answer { Metrics.shared.channelProbeFailures.add(1) }
        let now = Clock.monotonicNanoseconds()
        Metrics.shared.channelProbeSeconds.record(.nanoseconds(now - min(now, askedAt)))
        then(answer)
    }
}

/// What the threads that ask and those who want to know share.
final class ChannelExchange: Sendable {
    /// Which questions a thread takes.
    enum Lane: Sendable {
        /// Many at once. All but the first help out: they begin when another is busy.
        case together(isFirst: Bool)
        /// Many at once, those that are like others that took too long.
        case suspects
        /// One at a time (with everybody who asks the same), those that would hold up others.
        case apart
    }

    fileprivate struct Inbox {
        var together: [ChannelJob] = []
        var suspects: [ChannelJob] = []
        var apart: [ChannelJob] = []
        /// Whose questions are being asked apart.
        var apartNow: [String] = []
        var byteCount = 0
        /// Threads that are asking questions together.
        var busyCount = 0
        var isClosed = false
    }

    let interrupt: Wake
    private let inbox = Mutex(Inbox())
    /// Not descriptors: those who ask may have other descriptors than the threads that answer.
    private let pulse = Pulse()
    private let pulseSuspects = Pulse()
    private let pulseApart = Pulse()

    init() throws(SystemError) { interrupt = try Wake() }

    /// False where too much waits.
    func ask(_ job: ChannelJob) -> Bool {
        let isTaken = inbox.withLock { inbox in
            let byteCount = inbox.byteCount + job.question.byteCount
            guard !inbox.isClosed, byteCount <= Limits.maximumWaitingChannelBytes,
                inbox.together.count < Limits.maximumWaitingChannelQuestions
            else { return false }
            inbox.byteCount = byteCount
            inbox.together.append(job)
            return true
        }
        if isTaken { pulse.beat() }
        return isTaken
    }

    /// They were taken, and are for another lane.
    func ask(_ jobs: [ChannelJob], in lane: Lane) {
        if jobs.isEmpty { return }
        let isTaken = inbox.withLock { inbox in
            guard !inbox.isClosed else { return false }
            switch lane {
            case .together: inbox.together += jobs
            case .suspects: inbox.suspects += jobs
            case .apart: inbox.apart += jobs
            }
            inbox.byteCount += jobs.reduce(0) { $0 + $1.question.byteCount }
            return true
        }
        if isTaken { return pulse(of: lane).beat() }
        for job in jobs { job.finish(.failed(.unavailable)) }
    }

    private func pulse(of lane: Lane) -> Pulse {
        switch lane {
        case .together: pulse
        case .suspects: pulseSuspects
        case .apart: pulseApart
        }
    }

    /// None at the deadline, and now and then without reason. Who takes some says when they are finished.
    func take(_ lane: Lane, until deadline: UInt64, seen: inout UInt64) -> [ChannelJob] {
        let jobs = takeNow(lane)
        if !jobs.isEmpty { return jobs }
        seen = pulse(of: lane).wait(beyond: seen, untilMonotonic: deadline)
        return takeNow(lane)
    }

    private func takeNow(_ lane: Lane) -> [ChannelJob] {
        let (jobs, isMore) = inbox.withLock { inbox in (inbox.take(lane), inbox.hasMore(lane)) }
        // For whoever helps out.
        if isMore, !jobs.isEmpty { pulse(of: lane).beat() }
        return jobs
    }

    func finished(_ jobs: [ChannelJob], _ lane: Lane) {
        inbox.withLock { inbox in
            switch lane {
            case .together: inbox.busyCount -= 1
            case .suspects: break
            case .apart:
                guard let place = inbox.apartNow.firstIndex(of: jobs[0].question.subject) else { return }
                inbox.apartNow.remove(at: place)
            }
        }
        // The first may have looked away while another was done.
        if case .together = lane { pulse.beat() }
    }

    func endWait() {
        pulse.beat()
        pulseSuspects.beat()
        pulseApart.beat()
    }

    /// Nothing is taken any more; what was taken last.
    func close() -> [ChannelJob] {
        inbox.withLock { inbox in
            let jobs = inbox.together + inbox.suspects + inbox.apart
            inbox = Inbox()
            inbox.isClosed = true
            return jobs
        }
    }
}

extension ChannelExchange.Inbox {
    fileprivate func hasMore(_ lane: ChannelExchange.Lane) -> Bool {
        switch lane {
        case .together: !together.isEmpty
        case .suspects: false
        case .apart: !apart.isEmpty
        }
    }

    fileprivate mutating func take(_ lane: ChannelExchange.Lane) -> [ChannelJob] {
        var jobs: [ChannelJob] = []
        switch lane {
        case .together(let isFirst):
            guard isFirst || busyCount > 0, !together.isEmpty else { return [] }
            jobs = Array(together.prefix(Limits.channelTurn))
            together.removeFirst(jobs.count)
            busyCount += 1
        case .suspects:
            jobs = Array(suspects.prefix(Limits.channelTurn))
            suspects.removeFirst(jobs.count)
        case .apart:
            // Nobody takes all that ask apart for himself while others wait.
            guard let first = (apart.first { !apartNow.contains($0.question.subject) } ?? apart.first)?.question
            else { return [] }
            apartNow.append(first.subject)
            jobs = apart.filter { $0.question == first }
            apart.removeAll { $0.question == first }
        }
        byteCount -= jobs.reduce(0) { $0 + $1.question.byteCount }
        return jobs
    }
}
