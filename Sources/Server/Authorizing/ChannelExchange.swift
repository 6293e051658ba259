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
    /// It took too long among others: what the server said.
    var cancellation: String?

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
        /// One at a time (with everybody who asks the same), those that would hold up others.
        case apart
    }

    fileprivate struct Inbox {
        var together: [ChannelJob] = []
        var apart: [ChannelJob] = []
        var byteCount = 0
        /// Threads that are asking questions together.
        var busyCount = 0
        var isClosed = false
    }

    let interrupt: Wake
    private let inbox = Mutex(Inbox())
    /// Not descriptors: those who ask may have other descriptors than the threads that answer.
    private let pulse = Pulse()
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

    /// They were taken, and are to be asked one at a time.
    func askApart(_ jobs: [ChannelJob]) {
        if jobs.isEmpty { return }
        let isTaken = inbox.withLock { inbox in
            guard !inbox.isClosed else { return false }
            inbox.apart += jobs
            inbox.byteCount += jobs.reduce(0) { $0 + $1.question.byteCount }
            return true
        }
        if isTaken { return pulseApart.beat() }
        for job in jobs { job.finish(.failed(.unavailable)) }
    }

    /// None at the deadline, and now and then without reason. Who takes some says when they are finished.
    func take(_ lane: Lane, until deadline: UInt64, seen: inout UInt64) -> [ChannelJob] {
        let jobs = takeNow(lane)
        if !jobs.isEmpty { return jobs }
        let pulse = if case .apart = lane { pulseApart } else { self.pulse }
        seen = pulse.wait(beyond: seen, untilMonotonic: deadline)
        return takeNow(lane)
    }

    private func takeNow(_ lane: Lane) -> [ChannelJob] {
        let (jobs, isMore) = inbox.withLock { inbox in (inbox.take(lane), !inbox.together.isEmpty) }
        // For whoever helps out.
        if isMore, case .together = lane, !jobs.isEmpty { pulse.beat() }
        return jobs
    }

    func finished(_ lane: Lane) {
        guard case .together = lane else { return }
        inbox.withLock { $0.busyCount -= 1 }
        // The first may have looked away while another was done.
        pulse.beat()
    }

    func endWait() {
        pulse.beat()
        pulseApart.beat()
    }

    /// Nothing is taken any more; what was taken last.
    func close() -> [ChannelJob] {
        inbox.withLock { inbox in
            let jobs = inbox.together + inbox.apart
            inbox = Inbox()
            inbox.isClosed = true
            return jobs
        }
    }
}

extension ChannelExchange.Inbox {
    fileprivate mutating func take(_ lane: ChannelExchange.Lane) -> [ChannelJob] {
        var jobs: [ChannelJob] = []
        switch lane {
        case .together(let isFirst):
            guard isFirst || busyCount > 0, !together.isEmpty else { return [] }
            jobs = Array(together.prefix(Limits.channelTurn))
            together.removeFirst(jobs.count)
            busyCount += 1
        case .apart:
            guard let first = apart.first?.question else { return [] }
            jobs = apart.filter { $0.question == first }
            apart.removeAll { $0.question == first }
        }
        byteCount -= jobs.reduce(0) { $0 + $1.question.byteCount }
        return jobs
    }
}
