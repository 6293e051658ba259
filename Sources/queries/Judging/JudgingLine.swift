import Asking
import Catalog
import Diagnostics
import Policy
import System

/// Key by which jobs are grouped into one query: the same policy, the same terms, or the same membership.
enum JudgingKey: Sendable, Hashable {
    case policy(UInt64)
    case terms([AskedTerm], role: String)
    case fill(FillKey)
    /// Generated columns of one table. The number is the table's oid.
    case generation(UInt32, roles: [String])
    /// An explanation for an operator. It is asked alone, so its number is unique.
    case explanation(UInt64)
    case sight(UInt64)
}

struct FillKey: Sendable, Hashable {
    var table: UInt32
    var reader: Membership.Reader
    var sql: String
    var role: String
}

/// Request of a caller to the judging threads.
struct JudgingJob: AskedJob {
    enum Work: Sendable {
        case rows(PolicyQuestion, Reply<PolicyAnswers>)
        case terms(PolicySubject, Reply<[AskedTerm: AskedAnswer]?>)
        case fill(PolicySubject, Reply<MembershipFill>)
        case generation(GenerationRequest, Reply<[[GeneratedValue]]>)
        case explanation(PolicyExplanation, Reply<[ExplainedValue]?>)
        case sight(RowVisibilityQuestion, Reply<RowVisibilityAnswer?>)
    }

    let key: JudgingKey
    let work: Work
    /// Transaction whose effects the answer must include; nil if none is required.
    let seeing: UInt32?
    let load: InboxLoad
    let metrics: ProjectMetrics
    private let since = Clock.monotonicNanoseconds()

    init(key: JudgingKey, work: Work, seeing: UInt32? = nil, _ metrics: ProjectMetrics) {
        self.key = key
        self.work = work
        self.seeing = seeing
        self.metrics = metrics
        load = InboxLoad(jobs: 1, parts: work.pairCount, bytes: work.byteCount)
    }

    /// True if the job may wait longer while the database is unreachable. Only questions about committed rows wait,
    /// because later changes are queued after them. Callers repeat all other jobs themselves. `now` is monotonic time
    /// in nanoseconds.
    func mayWait(_ now: UInt64) -> Bool {
        guard case .rows = work else { return false }
        return now < since + Limits.outagePatience.wholeNanoseconds
    }

    /// Answers everything in the job as unknown.
    func giveUp() {
        switch work {
        case .rows(_, let reply): reply.giveUp()
        case .terms(_, let reply): reply.giveUp()
        case .fill(_, let reply): reply.giveUp()
        // A row that lacks its generated columns is not a policy failure, so the metric does not count it.
        case .generation(_, let reply): return reply.giveUp()
        case .explanation(_, let reply): reply.giveUp()
        case .sight(_, let reply): reply.giveUp()
        }
        metrics.policyFailures.add(load.parts)
    }
}

extension JudgingJob.Work {
    fileprivate var pairCount: Int {
        switch self {
        case .rows(let question, _): question.pairCount
        case .generation(let request, _): request.rowCount
        case .terms, .fill, .explanation, .sight: 1
        }
    }

    fileprivate var byteCount: Int {
        switch self {
        case .rows(let question, _): question.byteCount
        case .terms(let subject, _), .fill(let subject, _): subject.claims.utf8.count
        case .generation(let request, _): request.byteCount
        case .explanation(let explanation, _): explanation.byteCount
        case .sight(let sight, _): sight.byteCount
        }
    }
}

/// Waiting jobs that have the same key, in order of arrival.
struct JudgingBatch {
    let key: JudgingKey
    let jobs: [JudgingJob]

    /// Creates the batch; nil if there are no jobs.
    init?(_ jobs: [JudgingJob]) {
        guard let first = jobs.first else { return nil }
        precondition(jobs.allSatisfy { $0.key == first.key }, "what is answered together was asked together")
        key = first.key
        self.jobs = jobs
    }

    /// Log fields, which never contain a policy, a row or claims.
    var about: [LogField] {
        if case .fill(let key) = key { return [.oid(key.table)] }
        if case .generation(let table, _) = key { return [.oid(table)] }
        guard case .rows(let question, _) = jobs.first?.work else { return [] }
        return [.oid(question.policy.table), .catalogVersion(question.policy.version)]
    }

    /// True if all jobs of the batch may wait longer. `now` is monotonic time in nanoseconds.
    func mayWait(_ now: UInt64) -> Bool { jobs.allSatisfy { $0.mayWait(now) } }

    func giveUp() { for job in jobs { job.giveUp() } }
}

/// Queue of the judging threads. Keys take turns in order of arrival, and a thread takes the waiting jobs of one key
/// together, up to a limit. Two threads never work on the same key at the same time, so a hanging policy blocks only
/// one connection.
struct JudgingLine: WaitingLine {
    private var waiting: [JudgingKey: [JudgingJob]] = [:]
    /// Waiting keys, each once.
    private var order: [JudgingKey] = []
    private var busy: Set<JudgingKey> = []

    static let room = InboxLoad(
        jobs: Limits.maximumWaitingPolicyJobs, parts: Limits.maximumWaitingPairs,
        bytes: Limits.maximumWaitingPolicyBytes)

    mutating func add(_ job: JudgingJob, to lane: OnlyLane) {
        if waiting[job.key] == nil { order.append(job.key) }
        waiting[job.key, default: []].append(job)
        assert(order.count == waiting.count, "each key that waits has one turn")
    }

    mutating func take(_ lane: OnlyLane) -> [JudgingJob] {
        guard let turn = order.firstIndex(where: { !busy.contains($0) }) else { return [] }
        let key = order.remove(at: turn)
        guard let all = waiting.removeValue(forKey: key) else { return [] }
        let jobs = all[...].fitting(Limits.policyBatchJobs, within: Limits.policyBatchPairs, \.load.parts)
        if jobs.count < all.count {
            waiting[key] = Array(all.dropFirst(jobs.count))
            order.append(key)
        }
        let isFree = busy.insert(key).inserted
        assert(isFree, "no key is with two threads")
        return Array(jobs)
    }

    mutating func finished(_ jobs: [JudgingJob], _ lane: OnlyLane) -> Bool {
        let key = jobs[0].key
        let wasBusy = busy.remove(key) != nil
        assert(wasBusy, "a thread is done with what it took")
        return waiting[key] != nil
    }

    mutating func removeAll() -> [JudgingJob] {
        defer { (waiting, order) = ([:], []) }
        return order.flatMap { waiting[$0] ?? [] }
    }
}
