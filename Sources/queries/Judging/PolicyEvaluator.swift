import Asking
import Catalog
import Diagnostics
import Policy
import Postgres
import Synchronization
import System

/// Evaluator that asks PostgreSQL about policies that the hub cannot decide itself: whether roles with their claims may
/// read rows, the values of terms over claims, and the keys of memberships.
///
/// Any thread may ask. Callbacks must not block: they run on the evaluator's threads, or immediately on the caller's
/// thread if too many questions are waiting. Unknown answers are nil or `unavailable`, and never count as permission.
///
/// Policies run only on connections whose login can switch to the client roles and to no other role. The evaluator has
/// another connection with the hub's own login, opened when first needed. It runs only functions that come with
/// PostgreSQL.
public final class PolicyEvaluator: Sendable {
    public struct Settings: Sendable {
        /// Connection target with the hub's own login.
        var database: ConnectionTarget
        /// Connection target of the login that runs policies. If nil, the hub's own login runs them, if it is fit.
        var policies: ConnectionTarget?
        /// Roles that tokens may name. The login must be able to switch to at least one of them.
        public var clientRoles = ["anon", "authenticated"]
        /// Reachability of the database, shared by all threads that connect to it.
        public var reachability = Reachability()
        /// Metrics of the project that the evaluator belongs to.
        public var metrics = ProjectMetrics()

        public init(
            database: ConnectionTarget, policies: ConnectionTarget? = nil,
            clientRoles: [String] = ["anon", "authenticated"], reachability: Reachability = Reachability()
        ) {
            self.database = database
            self.policies = policies
            self.clientRoles = clientRoles
            self.reachability = reachability
        }
    }

    private let policies: AskingThreads<JudgingLine>
    /// Threads for generated columns only. Socket loops wait for these values, so a hanging policy must not delay them.
    private let generation: AskingThreads<JudgingLine>
    private let own: AskingThreads<JudgingLine>
    private let fitness = PolicyFitness()
    private let metrics: ProjectMetrics
    /// Number of questions so far that are asked alone. It gives each of them a unique key.
    private let single = Atomic<UInt64>(0)

    public init(_ settings: Settings) throws(SystemError) {
        Limits.checkJudging()
        metrics = settings.metrics
        let own = try Inbox<JudgingLine>(holding: JudgingLine.room)
        let shared = JudgingWorker.Shared(settings, fitness)
        func threads(
            _ names: [String], _ login: JudgingWorker.Login, _ inbox: Inbox<JudgingLine>, isWatching: Bool = false
        ) throws(SystemError) -> AskingThreads<JudgingLine> {
            try AskingThreads(
                inbox,
                names.enumerated().map { number, name in
                    (name, { JudgingWorker(shared, login, inbox, isWatching: isWatching && number == 0) })
                })
        }
        policies = try threads(
            (0..<Limits.policyConnections).map { "policies \($0)" }, .policies(overflow: own),
            try Inbox(holding: JudgingLine.room), isWatching: true)
        self.own = try threads(["policies own"], .own, own)
        generation = try threads(["generated"], .policies(overflow: own), try Inbox(holding: JudgingLine.room))
        // If a login for policies is configured, it is examined before any question needs it.
        if settings.policies != nil { wantLogin() }
    }

    private func wantLogin() {
        if fitness.want() { policies.inbox.ring() }
    }

    /// Tells if there is a login that may run policies. The first call starts the examination of the login.
    public var availability: PolicyAvailability {
        wantLogin()
        return fitness.availability
    }

    private func job(_ key: JudgingKey, _ work: JudgingJob.Work, seeing xid: UInt32? = nil) -> JudgingJob {
        JudgingJob(key: key, work: work, seeing: xid, metrics)
    }

    /// Asks who may read the rows of each question. `then` receives the answers in the order of the questions, once all
    /// are known. They include the effects of transaction `xid`.
    public func ask(
        _ questions: [PolicyQuestion], seeing xid: UInt32?, then: @escaping @Sendable ([PolicyAnswers]) -> Void
    ) {
        if questions.isEmpty { return then([]) }
        let collected = Together(questions.map { PolicyAnswers($0) }, then)
        policies.inbox.ask(
            questions.enumerated().map { index, question in
                job(.policy(question.policy.identity), .rows(question, collected.reply(index)), seeing: xid)
            })
    }

    /// Evaluates the terms for a role with its claims. `then` receives nil if PostgreSQL could not answer.
    public func evaluate(
        _ terms: [AskedTerm], as subject: PolicySubject, then: @escaping @Sendable ([AskedTerm: AskedAnswer]?) -> Void
    ) {
        if terms.isEmpty { return then([:]) }
        let reply = Reply<[AskedTerm: AskedAnswer]?>(in: .judging, unanswered: nil, then: then)
        policies.inbox.ask([job(.terms(terms, role: subject.role), .terms(subject, reply))])
    }

    /// Term that returns the claims as PostgreSQL's jsonb writes them. Of duplicate keys jsonb keeps the last, and it
    /// normalizes numbers.
    static let canonicalClaims = AskedTerm(
        sql:
            "CAST(CAST(pg_catalog.current_setting('request.jwt.claims', true) AS pg_catalog.jsonb) AS pg_catalog.text)",
        type: TypeFacts(oid: 25, name: "text"), isBuiltIn: true)

    /// Reads the keys of each membership for its policy subject (role and claims). The keys include the effects of
    /// transaction `xid`.
    public func fill(
        _ memberships: [(membership: Membership, subject: PolicySubject)], seeing xid: UInt32?,
        then: @escaping @Sendable ([MembershipFill]) -> Void
    ) {
        if memberships.isEmpty { return then([]) }
        let collected = Together(memberships.map { _ in MembershipFill.unavailable }, then)
        let jobs = memberships.indices.map { index in
            let (membership, subject) = memberships[index]
            let key = FillKey(
                table: membership.table, reader: membership.reader, sql: membership.fillSQL, role: subject.role)
            return job(.fill(key), .fill(subject, collected.reply(index)), seeing: xid)
        }
        policies.inbox.ask(jobs.filter { $0.key.isAsCaller })
        own.inbox.ask(jobs.filter { !$0.key.isAsCaller })
    }

    /// Asks whether a query on the table returns the row to a role with its claims. `then` receives nil if the question
    /// could not be asked.
    public func look(
        _ sight: RowVisibilityQuestion, seeing xid: UInt32?, then: @escaping @Sendable (RowVisibilityAnswer?) -> Void
    ) {
        let number = single.add(1, ordering: .relaxed).newValue
        let reply = Reply<RowVisibilityAnswer?>(in: .judging, unanswered: nil, then: then)
        policies.inbox.ask([job(.sight(number), .sight(sight, reply), seeing: xid)])
    }

    /// Computes generated columns. `then` receives values indexed by request, then by question, then by row.
    public func compute(_ requests: [GenerationRequest], then: @escaping @Sendable ([[[GeneratedValue]]]) -> Void) {
        if requests.isEmpty { return then([]) }
        let collected = Together(requests.map(\.unanswered), then)
        generation.inbox.ask(
            requests.enumerated().map { index, request in
                job(
                    .generation(request.table, roles: request.roles), .generation(request, collected.reply(index)))
            })
    }

    /// Evaluates expressions for one row and one role with its claims, for an operator. `then` receives nil if the
    /// question could not be asked.
    public func explain(
        _ explanation: PolicyExplanation, then: @escaping @Sendable ([ExplainedValue]?) -> Void
    ) {
        guard explanation.expressions.count <= Limits.maximumExplainedExpressions else { return then(nil) }
        let number = single.add(1, ordering: .relaxed).newValue
        let reply = Reply<[ExplainedValue]?>(in: .judging, unanswered: nil, then: then)
        policies.inbox.ask([job(.explanation(number), .explanation(explanation, reply))])
    }

    /// Stops the threads and their running queries. Waiting questions are answered as unknown. The owner calls this
    /// once, on a thread that shares descriptors with the thread that created the evaluator.
    public func stop() {
        let all = [policies, generation, own]
        for threads in all { threads.end() }
        for threads in all { threads.stop() }
    }
}

extension JudgingKey {
    fileprivate var isAsCaller: Bool {
        guard case .fill(let key) = self else { return true }
        return key.reader == .caller
    }
}

/// Collector that passes on several answers together, once the last has arrived.
private final class Together<Answer: Sendable>: Sendable {
    private struct State {
        var answers: [Answer]
        var missing: Int
    }

    private let unanswered: [Answer]
    private let state: Mutex<State>
    private let then: @Sendable ([Answer]) -> Void

    init(_ unanswered: [Answer], _ then: @escaping @Sendable ([Answer]) -> Void) {
        self.unanswered = unanswered
        state = Mutex(State(answers: unanswered, missing: unanswered.count))
        self.then = then
    }

    /// Returns the reply through which the answer of the question with this index is given.
    func reply(_ index: Int) -> Reply<Answer> {
        Reply(in: .judging, unanswered: self.unanswered[index]) { self.set(index, $0) }
    }

    private func set(_ index: Int, _ answer: Answer) {
        let all: [Answer]? = state.withLock { state in
            precondition(state.missing > 0, "there are as many answers as questions")
            state.answers[index] = answer
            state.missing -= 1
            return state.missing == 0 ? state.answers : nil
        }
        if let all { then(all) }
    }
}
