import Asking
import Catalog
import Diagnostics
import Policy
import Postgres
import Replication
import System

/// Thread that asks PostgreSQL about policies: connects, sends questions and passes on the answers.
final class JudgingWorker: ConnectedWorker {
    enum Login {
        /// Login that runs policies. If no login is fit for policies, jobs that run no policy are moved to `overflow`.
        case policies(overflow: Inbox<JudgingLine>)
        /// The hub's own login, which runs only functions that come with PostgreSQL.
        case own
    }

    /// State shared by all judging threads.
    final class Shared: Sendable {
        let settings: PolicyEvaluator.Settings
        let fitness: PolicyFitness
        let pace = JudgingPace()
        let troubles: OutageReporter

        init(_ settings: PolicyEvaluator.Settings, _ fitness: PolicyFitness) {
            troubles = OutageReporter(
                "cannot ask PostgreSQL about policies; trying again",
                again: "still cannot ask PostgreSQL about policies; trying again", settings.reachability)
            self.settings = settings
            self.fitness = fitness
        }
    }

    let inbox: Inbox<JudgingLine>
    var link: Link<JudgingConnection>
    private let shared: Shared
    private let login: Login
    /// True if the thread may connect before its first job. It does so once a caller has asked if the login is fit.
    private let isWatching: Bool
    /// Roles to which the login cannot switch. A warning has been logged for each.
    private var refusedRoles = LoggedOnce(
        atMost: Limits.maximumPolicyReports,
        ending: "the log names no further roles that the login for policies cannot become")
    private var examineAt: UInt64 = 0
    private var batchBegan: UInt64 = 0
    /// Deadline of the current batch, as monotonic time in nanoseconds. The thread gives up the batch then, because
    /// other jobs wait.
    private var patienceEnds: UInt64 = 0
    /// Log fields of the current batch.
    private var about: [LogField] = []

    init(_ shared: Shared, _ login: Login, _ inbox: Inbox<JudgingLine>, isWatching: Bool) {
        self.shared = shared
        self.login = login
        self.inbox = inbox
        self.isWatching = isWatching
        link = Link(
            .backingOff(Backoff(shared.settings.reachability)), connected: shared.settings.metrics.policyConnections)
    }

    var pace: JudgingPace { shared.pace }
    var definitions: DefinitionsVersion? { shared.settings.database.definitions }
    var metrics: ProjectMetrics { shared.settings.metrics }
    var troubles: OutageReporter { shared.troubles }
    var connectsUnasked: Bool { isWatching && shared.fitness.isWanted }

    // MARK: Connection

    private func fitSession() -> JudgingConnection? {
        // After a dropped or lost connection, session() reconnects immediately.
        if let connection = link.session, connection.isFull || !isStillFit(connection) { link.drop() }
        return session()
    }

    func connect() throws(PostgresError) -> JudgingConnection? {
        let settings = shared.settings
        guard case .policies = login else {
            return try JudgingConnection(
                settings.database, applicationName: "tidewire memberships", runsPolicies: false,
                interrupt: inbox.interrupt)
        }
        let connection = try JudgingConnection(
            settings.policies ?? settings.database, applicationName: "tidewire policies", runsPolicies: true,
            interrupt: inbox.interrupt)
        return try isFit(connection) ? connection : nil
    }

    /// True if the login is still fit to run policies. It is examined again at intervals, because roles can change
    /// during a connection.
    private func isStillFit(_ connection: JudgingConnection) -> Bool {
        guard case .policies = login, Clock.monotonicNanoseconds() >= examineAt else { return true }
        return (try? isFit(connection)) ?? false
    }

    private func isFit(_ connection: JudgingConnection) throws(PostgresError) -> Bool {
        let found = try JudgingLogin.examine(connection.session, clientRoles: shared.settings.clientRoles)
        let isNews = shared.fitness.set(found)
        let now = Clock.monotonicNanoseconds()
        examineAt = now + Limits.policyLoginInterval.wholeNanoseconds
        if found == .available { return true }
        link.refused(for: Limits.unfitLoginInterval, at: now)
        if isNews, case .refused(let reason, let hint) = found {
            Log.shared.warning(
                "no login is fit to run policies: policies that only PostgreSQL can decide show no rows, nor do memberships behind them",
                [.reason(reason), .hint(hint)])
        }
        return false
    }

    /// Logs a warning that the login cannot switch to the role, once for each role.
    func warnCannotBecome(_ role: String) {
        guard refusedRoles.isNews(role) else { return }
        Log.shared.warning(
            "the login for policies cannot become a role that tokens name: policies that only PostgreSQL can decide show this role no rows",
            [.user(role), .hint("GRANT \(Quoted.identifier(role)) TO the login of policy_database_url")])
    }

    // MARK: Answering

    func work(_ jobs: [JudgingJob]) {
        if let batch = JudgingBatch(jobs) { answer(batch) }
    }

    /// Answers the batch. If the connection is lost, reconnects and repeats the batch once.
    private func answer(_ batch: JudgingBatch) {
        patienceEnds = Clock.monotonicNanoseconds() + Limits.policyBatchPatience.wholeNanoseconds
        about = batch.about
        batchBegan = Clock.monotonicNanoseconds()
        for attempt in 1...2 {
            guard !pace.isPenalised(batch.key, Clock.monotonicNanoseconds()) else { break }
            guard let connection = awaitedSession(batch) else { return refuse(batch) }
            do throws(PostgresError) {
                let reply = try answers(batch, connection)
                answered()
                return reply()
            } catch {
                if inbox.isEnding { break }
                Log.shared.debug("lost the connection for policies", LastComplaint.fields(error))
                link.drop()
                // The question itself may crash the server.
                if attempt == 2 { pace.penalise(batch.key, Clock.monotonicNanoseconds()) }
            }
        }
        batch.giveUp()
    }

    /// Returns the session; nil if there is none. If the database is unreachable, the call blocks as long as all jobs
    /// of the batch may wait.
    private func awaitedSession(_ batch: JudgingBatch) -> JudgingConnection? {
        while !inbox.isEnding {
            if let connection = fitSession() { return connection }
            if case .refused = shared.fitness.availability { return nil }
            guard batch.mayWait(Clock.monotonicNanoseconds()) else { return nil }
            waitForDatabase()
            patienceEnds = Clock.monotonicNanoseconds() + Limits.policyBatchPatience.wholeNanoseconds
        }
        return nil
    }

    private func refuse(_ batch: JudgingBatch) {
        guard case .policies(let overflow) = login, case .refused = shared.fitness.availability,
            batch.key.mayRunAsOwn
        else { return batch.giveUp() }
        overflow.ask(batch.jobs)
    }

    /// Asks PostgreSQL the batch's questions. Returns a closure that passes on all answers, so that a batch repeated
    /// after an error answers no caller twice.
    private func answers(
        _ batch: JudgingBatch, _ connection: JudgingConnection
    ) throws(PostgresError) -> () -> Void {
        switch batch.key {
        case .policy: return try judged(batch, connection)
        case .terms(let terms, let role): return try evaluated(terms, role, batch, connection)
        case .fill(let key): return try filled(key, batch, connection, isOwn: isOwn)
        case .generation: return try generated(batch, connection)
        case .explanation: return try explained(batch, connection)
        case .sight: return try looked(batch, connection)
        }
    }

    private var isOwn: Bool {
        if case .own = login { true } else { false }
    }

    // MARK: One statement

    /// Asks about all claims, in parts that fit into one statement each. A part that times out is repeated once with
    /// fewer claims. `take` receives the answers of each part. Returns false if some claims have no answer.
    func ask(
        _ key: JudgingKey, _ loop: ClaimsScript, _ claims: [String], _ inputs: [[String?]], _ xids: Set<UInt32>,
        _ connection: JudgingConnection, reading: TableReading? = nil,
        _ take: (_ first: Int, _ count: Int, ScriptOutcome.Answers) -> Void
    ) throws(PostgresError) -> Bool {
        assert(Set(claims).count == claims.count, "each is asked about once")
        let rows = inputs.first?.count ?? 1
        var next = 0
        var mayBeSlow = true
        while next < claims.count {
            guard Clock.monotonicNanoseconds() < patienceEnds else {
                tooSlow(key)
                return false
            }
            let part = claims[next...].fitting(
                pace.claims(key, rows: rows), within: Limits.policyStatementBytes, \.utf8.count)
            let began = Clock.monotonicNanoseconds()
            switch try connection.run(loop, claims: part, inputs: inputs, seeing: xids, reading: reading) {
            case .answers(let answers):
                try answers.check(claims: part.count, loop)
                let states = Set(answers.rows.compactMap { $0[2] })
                if states.contains(where: SQLState.mayComeFromOldPlan),
                    link.isOlder(than: Limits.policySessionProof, at: batchBegan)
                {
                    throw JudgingWorker.oldSession
                }
                for state in states {
                    Log.shared.debug("PostgreSQL failed on rows or claims", about + [.sqlstate(state)])
                }
                let took = Clock.monotonicNanoseconds() - began
                metrics.policyStatementSeconds.record(.nanoseconds(took))
                pace.took(key, took, claims: part.count, rows: rows)
                take(next, part.count, answers)
                next += part.count
                assert(next <= claims.count, "nobody is asked about who is not there")
            case .invisible:
                guard try waitUntilVisible(xids, connection) else { return false }
            case .tooSlow:
                guard pace.wasTooSlow(key, claims: part.count, rows: rows), mayBeSlow else {
                    tooSlow(key)
                    return false
                }
                mayBeSlow = false
            case .failed(let state):
                Log.shared.debug("PostgreSQL could not evaluate a policy", about + [.sqlstate(state)])
                return false
            }
        }
        return true
    }

    /// Error that makes the worker ask again in a new session. An old session caches data for the functions of
    /// policies. These data can depend on definitions that the catalog's reader does not watch.
    private static let oldSession = PostgresError(
        operation: "policies", message: "the session may have failed because of former definitions",
        isConnectionLost: true)

    private func tooSlow(_ key: JudgingKey) {
        Log.shared.warning(
            "PostgreSQL takes too long to evaluate a policy: the policy shows no rows for a while",
            about + [.delay(Limits.policyPenalty)])
        pace.penalise(key, Clock.monotonicNanoseconds())
    }

    func waitUntilVisible(
        _ xids: Set<UInt32>, _ connection: JudgingConnection
    ) throws(PostgresError) -> Bool {
        metrics.policyWaits.add(1)
        let deadline = Clock.monotonicNanoseconds() + Limits.visibilityPatience.wholeNanoseconds
        while Clock.monotonicNanoseconds() < deadline {
            if inbox.interrupt.sleep(milliseconds: Limits.visibilityRetryMilliseconds) { return false }
            let visible = try connection.visibleTransactions()
            if xids.allSatisfy(visible.contains) { return true }
        }
        return false
    }
}

extension JudgingKey {
    /// True if the question calls only functions that come with PostgreSQL, so that the hub's own login may ask it.
    fileprivate var mayRunAsOwn: Bool {
        switch self {
        case .policy, .generation, .explanation, .sight: false
        case .terms(let terms, _): terms.allSatisfy(\.isBuiltIn)
        case .fill: true
        }
    }
}
