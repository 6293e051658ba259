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
public final class PolicyJudge: Sendable {
    public struct Settings: Sendable {
        /// The hub's own login.
        var database: ConnectionTarget
        /// Whose connections run policies; nil is the hub's own login, if it is fit for that.
        var policies: ConnectionTarget?
        /// Those that tokens may name: the login has to be able to become one of them.
        public var clientRoles = ["anon", "authenticated"]
        /// Shared by all who connect to the database.
        public var reachability = Reachability()

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

    private let policies: JudgingExchange
    /// What loops wait for: a policy that hangs must not hold it up.
    private let generation: JudgingExchange
    private let own: JudgingExchange
    private let fitness = PolicyFitness()
    private let threads: [BackgroundThread]
    /// Of questions that are asked by themselves.
    private let single = Atomic<UInt64>(0)

    public init(_ settings: Settings) throws(SystemError) {
        let (policies, own, fitness) = (try JudgingExchange(), try JudgingExchange(), fitness)
        let generation = try JudgingExchange()
        self.generation = generation
        self.policies = policies
        self.own = own
        let pace = JudgingPace()
        var threads: [BackgroundThread] = []
        for number in 0..<Limits.policyConnections {
            threads.append(
                try BackgroundThread("policies \(number)") {
                    JudgingWorker(settings, .policies(overflow: own), policies, fitness, pace, isFirst: number == 0)
                        .run()
                })
        }
        threads.append(
            try BackgroundThread("policies own") {
                JudgingWorker(settings, .own, own, fitness, pace, isFirst: false).run()
            })
        threads.append(
            try BackgroundThread("generated") {
                JudgingWorker(settings, .policies(overflow: own), generation, fitness, pace, isFirst: false).run()
            })
        self.threads = threads
        // What was configured is looked at before somebody depends on it.
        if settings.policies != nil { self.policies.wantLogin() }
    }

    /// Whether there is a login that may run policies. It is found out when it is asked for the first time.
    public var availability: PolicyAvailability {
        policies.wantLogin()
        return fitness.availability
    }

    /// For each question its answers, once all are known.
    public func ask(
        _ questions: [PolicyQuestion], seeing xid: UInt32?, then: @escaping @Sendable ([PolicyAnswers]) -> Void
    ) {
        if questions.isEmpty { return then([]) }
        let collected = Together(questions.map { PolicyAnswers($0) }, then)
        policies.ask(
            questions.indices.map { index in
                JudgingJob(
                    key: .policy(questions[index].policy.identity),
                    work: .rows(questions[index]) { collected.set(index, $0) }, seeing: xid)
            })
    }

    /// What the terms are for the claimant; nil where they could not be evaluated now.
    public func evaluate(
        _ terms: [AskedTerm], as claimant: Claimant, then: @escaping @Sendable ([AskedTerm: AskedAnswer]?) -> Void
    ) {
        if terms.isEmpty { return then([:]) }
        policies.ask([JudgingJob(key: .terms(terms, role: claimant.role), work: .terms(claimant, then: then))])
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
            return JudgingJob(
                key: .fill(key), work: .fill(claimant) { collected.set(index, $0) }, seeing: xid)
        }
        let asCaller = jobs.filter { $0.key.isAsCaller }
        if !asCaller.isEmpty { policies.ask(asCaller) }
        let asDefiner = jobs.filter { !$0.key.isAsCaller }
        if !asDefiner.isEmpty { own.ask(asDefiner) }
    }

    /// What the table itself shows of a row; nil where it could not be asked.
    public func look(_ sight: TableSight, seeing xid: UInt32?, then: @escaping @Sendable (SeenInTable?) -> Void) {
        let number = single.add(1, ordering: .relaxed).newValue
        policies.ask([JudgingJob(key: .sight(number), work: .sight(sight, then: then), seeing: xid)])
    }

    /// The values of generated columns: of each request, for each of its questions in the order of the rows.
    public func compute(_ requests: [GenerationRequest], then: @escaping @Sendable ([[[GeneratedValue]]]) -> Void) {
        if requests.isEmpty { return then([]) }
        let collected = Together(requests.map(\.unanswered), then)
        generation.ask(
            requests.indices.map { index in
                let request = requests[index]
                return JudgingJob(
                    key: .generation(request.table, roles: request.roles),
                    work: .generation(request) { collected.set(index, $0) })
            })
    }

    /// For an operator: what expressions are for one row and one claimant; nil where nobody could be asked.
    public func explain(
        _ explanation: PolicyExplanation, then: @escaping @Sendable ([ExplainedValue]?) -> Void
    ) {
        guard explanation.expressions.count <= Limits.maximumExplainedExpressions else { return then(nil) }
        let number = single.add(1, ordering: .relaxed).newValue
        policies.ask([JudgingJob(key: .explanation(number), work: .explanation(explanation, then: then))])
    }

    /// Ends the threads and what they ask just now; what waits is answered with what is no answer. Once, by the owner, on
    /// a thread with the descriptors of the one that started it.
    public func stop() {
        for exchange in [policies, generation, own] {
            exchange.interrupt.ring()
            exchange.endWait()
        }
        for thread in threads { thread.join() }
        for exchange in [policies, generation, own] {
            for job in exchange.close() { job.giveUp() }
        }
    }
}

extension JudgingKey {
    fileprivate var isAsCaller: Bool {
        guard case .fill(let key) = self else { return true }
        return key.reader == .caller
    }
}

/// Answers that are handed over together.
private final class Together<Answer: Sendable>: Sendable {
    private struct State {
        var answers: [Answer]
        var missing: Int
    }

    private let state: Mutex<State>
    private let then: @Sendable ([Answer]) -> Void

    init(_ unanswered: [Answer], _ then: @escaping @Sendable ([Answer]) -> Void) {
        state = Mutex(State(answers: unanswered, missing: unanswered.count))
        self.then = then
    }

    func set(_ index: Int, _ answer: Answer) {
        let all: [Answer]? = state.withLock { state in
            state.answers[index] = answer
            state.missing -= 1
            return state.missing == 0 ? state.answers : nil
        }
        if let all { then(all) }
    }
}
