import Asking
import Catalog
import Diagnostics
import Policy
import Postgres
import Synchronization
import System

/// Has PostgreSQL decide what only it can: whether claimants may read rows under a policy, what expressions over claims
/// are, and which keys a membership gives a claimant.
///
/// In: questions from any thread. Out: answers on a thread of its own, or on the caller's at once where too much waits;
/// whoever takes them must not wait for anything. What could not be found out is nil or unavailable, which is never yes.
///
/// What policies say runs only on connections of a login that can become nothing but the client roles. A second, lazy
/// connection of the hub's own login runs what calls nothing that did not come with PostgreSQL.
public final class PolicyEvaluator: Sendable {
    public struct Settings: Sendable {
        /// The hub's own login.
        var database: ConnectionTarget
        /// Whose connections run policies; nil is the hub's own login, if it is fit for that.
        var policies: ConnectionTarget?
        /// Those that tokens may name: the login has to be able to become one of them.
        public var clientRoles = ["anon", "authenticated"]
        /// Shared by all who connect to the database.
        public var reachability = Reachability()
        /// Of the project whose policies they are.
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
    /// What loops wait for: a policy that hangs must not hold it up.
    private let generation: AskingThreads<JudgingLine>
    private let own: AskingThreads<JudgingLine>
    private let fitness = PolicyFitness()
    private let metrics: ProjectMetrics
    /// Of questions that are asked by themselves.
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
        // What was configured is looked at before somebody depends on it.
        if settings.policies != nil { wantLogin() }
    }

    private func wantLogin() {
        if fitness.want() { policies.inbox.ring() }
    }

    /// Whether there is a login that may run policies. It is found out when it is asked for the first time.
    public var availability: PolicyAvailability {
        wantLogin()
        return fitness.availability
    }

    private func job(_ key: JudgingKey, _ work: JudgingJob.Work, seeing xid: UInt32? = nil) -> JudgingJob {
        JudgingJob(key: key, work: work, seeing: xid, metrics)
    }

    /// For each question its answers, once all are known.
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

    /// What the terms are for the claimant; nil where they could not be evaluated now.
    public func evaluate(
        _ terms: [AskedTerm], as claimant: Claimant, then: @escaping @Sendable ([AskedTerm: AskedAnswer]?) -> Void
    ) {
        if terms.isEmpty { return then([:]) }
        let reply = Reply<[AskedTerm: AskedAnswer]?>(in: .judging, unanswered: nil, then: then)
        policies.inbox.ask([job(.terms(terms, role: claimant.role), .terms(claimant, reply))])
    }

    /// The claims as jsonb writes them: of keys that are there twice the last, numbers as PostgreSQL has them.
    static let canonicalClaims = AskedTerm(
        sql:
            "CAST(CAST(pg_catalog.current_setting('request.jwt.claims', true) AS pg_catalog.jsonb) AS pg_catalog.text)",
        type: TypeFacts(oid: 25, name: "text"), isBuiltIn: true)

    /// The keys of each membership for its claimant. They hold what the transaction did.
    public func fill(
        _ memberships: [(membership: Membership, claimant: Claimant)], seeing xid: UInt32?,
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

    /// What the table itself shows of a row; nil where it could not be asked.
    public func look(_ sight: TableSight, seeing xid: UInt32?, then: @escaping @Sendable (SeenInTable?) -> Void) {
        let number = single.add(1, ordering: .relaxed).newValue
        let reply = Reply<SeenInTable?>(in: .judging, unanswered: nil, then: then)
        policies.inbox.ask([job(.sight(number), .sight(sight, reply), seeing: xid)])
    }

    /// The values of generated columns: of each request, for each of its questions in the order of the rows.
    public func compute(_ requests: [GenerationRequest], then: @escaping @Sendable ([[[GeneratedValue]]]) -> Void) {
        if requests.isEmpty { return then([]) }
        let collected = Together(requests.map(\.unanswered), then)
        generation.inbox.ask(
            requests.enumerated().map { index, request in
                job(
                    .generation(request.table, roles: request.roles), .generation(request, collected.reply(index)))
            })
    }

    /// For an operator: what expressions are for one row and one claimant; nil where nobody could be asked.
    public func explain(
        _ explanation: PolicyExplanation, then: @escaping @Sendable ([ExplainedValue]?) -> Void
    ) {
        guard explanation.expressions.count <= Limits.maximumExplainedExpressions else { return then(nil) }
        let number = single.add(1, ordering: .relaxed).newValue
        let reply = Reply<[ExplainedValue]?>(in: .judging, unanswered: nil, then: then)
        policies.inbox.ask([job(.explanation(number), .explanation(explanation, reply))])
    }

    /// Ends the threads and what they ask just now; what waits is answered with what is no answer. Once, by the owner, on
    /// a thread with the descriptors of the one that started it.
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

/// Answers that are handed over together, once each question has its own.
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

    /// For the question of that number.
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
