import Catalog
import Diagnostics
import Policy
import Synchronization
import System

/// What is asked together: under one policy, of the same terms, for the same membership.
enum JudgingKey: Sendable, Hashable {
    case policy(UInt64)
    case terms([AskedTerm], role: String)
    case fill(FillKey)
    /// Of a table's rows.
    case generation(UInt32, roles: [String])
    /// By itself.
    case explanation(UInt64)
    case sight(UInt64)
}

struct FillKey: Sendable, Hashable {
    var table: UInt32
    var reader: Membership.Reader
    var sql: String
    var role: String
}

/// One thing that somebody asked for.
struct JudgingJob: Sendable {
    enum Work: Sendable {
        case rows(PolicyQuestion, then: @Sendable (PolicyAnswers) -> Void)
        case terms(Claimant, then: @Sendable ([AskedTerm: AskedAnswer]?) -> Void)
        case fill(Claimant, then: @Sendable (MembershipFill) -> Void)
        case generation(GenerationRequest, then: @Sendable ([[GeneratedValue]]) -> Void)
        case explanation(PolicyExplanation, then: @Sendable ([ExplainedValue]?) -> Void)
        case sight(TableSight, then: @Sendable (SeenInTable?) -> Void)
    }

    var key: JudgingKey
    var work: Work
    /// Whoever answers must see what these transactions did.
    var seeing: UInt32?

    var pairCount: Int {
        switch work {
        case .rows(let question, _): question.pairCount
        case .generation(let request, _): request.rowCount
        case .terms, .fill, .explanation, .sight: 1
        }
    }

    var byteCount: Int {
        switch work {
        case .rows(let question, _): question.byteCount
        case .terms(let claimant, _), .fill(let claimant, _): claimant.claims.utf8.count
        case .generation(let request, _): request.byteCount
        case .explanation(let explanation, _): explanation.byteCount
        case .sight(let sight, _): sight.byteCount
        }
    }

    /// Nobody can say.
    func giveUp() {
        switch work {
        case .rows(let question, let then): then(PolicyAnswers(question))
        case .terms(_, let then): then(nil)
        case .fill(_, let then): then(.unavailable)
        case .generation(let request, let then): then(request.unanswered)
        case .explanation(_, let then): then(nil)
        case .sight(_, let then): then(nil)
        }
    }
}

/// Jobs of one key, in the order in which they came.
struct JudgingBatch: Sendable {
    var key: JudgingKey
    var jobs: [JudgingJob]

    /// Never what a policy, a row or claims say.
    var about: [LogField] {
        if case .fill(let key) = key { return [.oid(key.table)] }
        if case .generation(let table, _) = key { return [.oid(table)] }
        guard case .rows(let question, _) = jobs.first?.work else { return [] }
        return [.oid(question.policy.table), .catalogVersion(question.policy.version)]
    }

    func giveUp() {
        let isOfPolicies = if case .generation = key { false } else { true }
        if isOfPolicies { Metrics.shared.policyFailures.add(jobs.reduce(0) { $0 + $1.pairCount }) }
        for job in jobs { job.giveUp() }
    }
}

/// What the threads that ask and those who want to know share. No key is with two threads at a time, so that a policy
/// that hangs holds up one connection.
final class JudgingExchange: Sendable {
    fileprivate struct Inbox {
        var waiting: [JudgingKey: [JudgingJob]] = [:]
        /// Each key that waits, once, first come first served.
        var order: [JudgingKey] = []
        var busy: Set<JudgingKey> = []
        var jobCount = 0
        var pairCount = 0
        var byteCount = 0
        var isClosed = false
    }

    let interrupt: Wake
    private let inbox = Mutex(Inbox())
    /// Not a descriptor: those who ask may have other descriptors than the threads that answer.
    private let pulse = Pulse()
    private let isLoginWanted = Atomic<Bool>(false)

    init() throws(SystemError) { interrupt = try Wake() }

    func ask(_ jobs: [JudgingJob]) {
        let pairCount = jobs.reduce(0) { $0 + $1.pairCount }
        let byteCount = jobs.reduce(0) { $0 + $1.byteCount }
        let isTaken = inbox.withLock { inbox in
            guard !inbox.isClosed, inbox.jobCount + jobs.count <= Limits.maximumWaitingPolicyJobs,
                inbox.pairCount + pairCount <= Limits.maximumWaitingPairs,
                inbox.byteCount + byteCount <= Limits.maximumWaitingPolicyBytes
            else { return false }
            inbox.jobCount += jobs.count
            inbox.pairCount += pairCount
            inbox.byteCount += byteCount
            for job in jobs { inbox.add(job) }
            return true
        }
        if isTaken { return pulse.beat() }
        for job in jobs { JudgingBatch(key: job.key, jobs: [job]).giveUp() }
    }

    /// Somebody wants to know whether there is a login that may run policies, though nothing is asked of it yet.
    func wantLogin() {
        if !isLoginWanted.exchange(true, ordering: .relaxed) { pulse.beat() }
    }

    var needsLogin: Bool { isLoginWanted.load(ordering: .relaxed) }

    /// Nil at the deadline, and now and then without reason.
    func take(until deadline: UInt64, seen: inout UInt64) -> JudgingBatch? {
        if let batch = inbox.withLock({ $0.take() }) { return batch }
        seen = pulse.wait(beyond: seen, untilMonotonic: deadline)
        return inbox.withLock { $0.take() }
    }

    func finished(_ key: JudgingKey) {
        let isMore = inbox.withLock { inbox in
            inbox.busy.remove(key)
            return inbox.waiting[key] != nil
        }
        if isMore { pulse.beat() }
    }

    func endWait() { pulse.beat() }

    /// Nothing is taken any more; what was taken last.
    func close() -> [JudgingJob] {
        inbox.withLock { inbox in
            let jobs = inbox.waiting.values.flatMap { $0 }
            inbox = Inbox()
            inbox.isClosed = true
            return jobs
        }
    }
}

extension JudgingExchange.Inbox {
    fileprivate mutating func add(_ job: JudgingJob) {
        if waiting[job.key] == nil { order.append(job.key) }
        waiting[job.key, default: []].append(job)
    }

    fileprivate mutating func take() -> JudgingBatch? {
        guard let place = order.firstIndex(where: { !busy.contains($0) }) else { return nil }
        let key = order.remove(at: place)
        guard let all = waiting.removeValue(forKey: key) else { return nil }
        var pairs = 0
        let count = all.prefix(Limits.policyBatchJobs).prefix { job in
            pairs += job.pairCount
            return pairs <= Limits.policyBatchPairs
        }.count
        let jobs = Array(all.prefix(max(1, count)))
        if jobs.count < all.count {
            waiting[key] = Array(all.dropFirst(jobs.count))
            order.append(key)
        }
        busy.insert(key)
        jobCount -= jobs.count
        pairCount -= jobs.reduce(0) { $0 + $1.pairCount }
        byteCount -= jobs.reduce(0) { $0 + $1.byteCount }
        return JudgingBatch(key: key, jobs: jobs)
    }
}
