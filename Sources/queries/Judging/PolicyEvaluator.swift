import Asking
import Catalog
import Diagnostics
import Policy
import Postgres
import Synchronization
import System

/// Evaluator that asks PostgreSQL for parts of policies that the hub cannot decide: whether claimants may read rows,
/// the values of terms over claims, and the keys of memberships.
///
/// Input: questions from any thread. Output: answers on the evaluator's threads, or at once on the caller's if too many
/// questions wait. Callbacks must not block. Unknown answers are nil or unavailable, which never counts as yes.
///
/// Policies run only on connections of a login that can become nothing but the client roles. Another connection with
/// the hub's own login runs only functions that come with PostgreSQL; it is opened when first needed.
public final class PolicyEvaluator: Sendable {
    public struct Settings: Sendable {
        /// Target with the hub's own login.
        var database: ConnectionTarget
        /// Target whose login runs policies; nil uses the hub's own login, if it is fit for that.
        var policies: ConnectionTarget?
        /// Roles that tokens may name. The login must be able to become one of them.
        public var clientRoles = ["anon", "authenticated"]
        /// Reachability of the database, shared by all users of its connections.
        public var reachability = Reachability()
        /// Metrics of the project that has these policies.
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
    /// Threads for generated columns. Socket loops wait for these, so a hanging policy must not delay them.
    private let generation: AskingThreads<JudgingLine>
    private let own: AskingThreads<JudgingLine>
    private let fitness = PolicyFitness()
    private let metrics: ProjectMetrics
    /// Counter that numbers the questions which are asked alone.
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
        // A configured login is examined before anything depends on it.
        if settings.policies != nil { wantLogin() }
    }

    private func wantLogin() {
        if fitness.want() { policies.inbox.ring() }
    }

    /// Availability of a login that may run policies. The first call starts the examination.
    public var availability: PolicyAvailability {
        wantLogin()
        return fitness.availability
    }

    private func job(_ key: JudgingKey, _ work: JudgingJob.Work, seeing xid: UInt32? = nil) -> JudgingJob {
        JudgingJob(key: key, work: work, seeing: xid, metrics)
    }

    /// Asks the questions. `then` receives the answers in order, once all are known.
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

    /// Evaluates the terms for the claimant; nil if that is not possible now.
    public func evaluate(
        _ terms: [AskedTerm], as claimant: PolicySubject, then: @escaping @Sendable ([AskedTerm: AskedAnswer]?) -> Void
    ) {
        if terms.isEmpty { return then([:]) }
        let reply = Reply<[AskedTerm: AskedAnswer]?>(in: .judging, unanswered: nil, then: then)
        policies.inbox.ask([job(.terms(terms, role: claimant.role), .terms(claimant, reply))])
    }

    /// Term for the claims as jsonb writes them: the last of duplicate keys, and numbers in PostgreSQL's form.
    static let canonicalClaims = AskedTerm(
        sql:
            "CAST(CAST(pg_catalog.current_setting('request.jwt.claims', true) AS pg_catalog.jsonb) AS pg_catalog.text)",
        type: TypeFacts(oid: 25, name: "text"), isBuiltIn: true)

    /// Reads the keys of each membership for its claimant. The keys include the transaction's effects.
    public func fill(
        _ memberships: [(membership: Membership, claimant: PolicySubject)], seeing xid: UInt32?,
        then: @escaping @Sendable ([MembershipFill]) -> Void
    ) {
        if memberships.isEmpty { return then([]) }
        let collected = Together(memberships.map { _ in MembershipFill.unavailable }, then)
        let jobs = memberships.indices.map { index in
            let (membership, claimant) = memberships[index]
            let key = FillKey(
                table: membership.table, reader: membership.reader, sql: membership.fillSQL, role: claimant.role)
            return job(.fill(key), .fill(claimant, collected.reply(index)), seeing: xid)
        }
        policies.inbox.ask(jobs.filter { $0.key.isAsCaller })
        own.inbox.ask(jobs.filter { !$0.key.isAsCaller })
    }

    /// Asks whether the table itself shows a row; nil if the question could not be asked.
    public func look(_ sight: TableSight, seeing xid: UInt32?, then: @escaping @Sendable (SeenInTable?) -> Void) {
        let number = single.add(1, ordering: .relaxed).newValue
        let reply = Reply<SeenInTable?>(in: .judging, unanswered: nil, then: then)
        policies.inbox.ask([job(.sight(number), .sight(sight, reply), seeing: xid)])
    }

    /// Computes generated columns. The values are listed by request, by question, and in the order of the rows.
    public func compute(_ requests: [GenerationRequest], then: @escaping @Sendable ([[[GeneratedValue]]]) -> Void) {
        if requests.isEmpty { return then([]) }
        let collected = Together(requests.map(\.unanswered), then)
        generation.inbox.ask(
            requests.enumerated().map { index, request in
                job(
                    .generation(request.table, roles: request.roles), .generation(request, collected.reply(index)))
            })
    }

    /// Evaluates expressions for one row and one claimant, for an operator; nil if the question could not be asked.
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

/// Answers that are passed on together, once every question has its answer.
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

    /// Returns the reply of the question with this index.
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
