import Asking
import Catalog
import Diagnostics
import Policy
import Postgres
import Replication
import System

/// One thread that asks: connects, asks, answers.
final class JudgingWorker {
    enum Lane {
        /// Runs what policies say; what needs none of that goes the other way where no login is fit for them.
        case policies(overflow: JudgingExchange)
        /// Runs nothing but what came with PostgreSQL.
        case own
    }

    private let settings: PolicyJudge.Settings
    private let lane: Lane
    let exchange: JudgingExchange
    private let fitness: PolicyFitness
    let pace: JudgingPace
    /// It connects without being asked about anything, once somebody wants to know whether its login is fit.
    private let isFirst: Bool
    private var connection: JudgingConnection?
    private var backoff: Backoff
    private var lastTrouble = LastTrouble()
    /// Roles that the login cannot become, which was said.
    private var refusedRoles: Set<String> = []
    private var seen: UInt64 = 0
    private var retryAt: UInt64 = 0
    private var examineAt: UInt64 = 0
    /// What is asked just now is given up then: others wait behind it.
    private var patienceEnds: UInt64 = 0
    /// What is asked just now, for log lines.
    private var about: [LogField] = []

    init(
        _ settings: PolicyJudge.Settings, _ lane: Lane, _ exchange: JudgingExchange, _ fitness: PolicyFitness,
        _ pace: JudgingPace, isFirst: Bool
    ) {
        self.settings = settings
        self.lane = lane
        self.exchange = exchange
        self.fitness = fitness
        self.pace = pace
        self.isFirst = isFirst
        backoff = Backoff(settings.reachability)
    }

    func run() {
        while !exchange.interrupt.isRung {
            let examines = isFirst && exchange.needsLogin
            if examines, connection == nil { _ = usableConnection() }
            let deadline = examines && connection == nil ? retryAt : .max
            guard let batch = exchange.take(until: deadline, seen: &seen) else { continue }
            answer(batch)
            exchange.finished(batch.key)
        }
        disconnect()
    }

    // MARK: A connection's life

    private func usableConnection() -> JudgingConnection? {
        if connection?.isFull ?? false { disconnect() }
        do throws(PostgresError) {
            if let connection {
                // One that was lost meanwhile is made again at once.
                if (try? isStillFit(connection)) ?? false { return connection }
                disconnect()
            }
            guard Clock.monotonicNanoseconds() >= retryAt || backoff.isCutShort, let made = try connect() else {
                return nil
            }
            connection = made
            Metrics.shared.policyConnections.add(1)
            return made
        } catch {
            ended(error)
            return nil
        }
    }

    private func connect() throws(PostgresError) -> JudgingConnection? {
        guard case .policies = lane else {
            let connection = try JudgingConnection(
                settings.database, applicationName: "tidewire memberships", runsPolicies: false,
                interrupt: exchange.interrupt)
            backoff.reached()
            return connection
        }
        let connection = try JudgingConnection(
            settings.policies ?? settings.database, applicationName: "tidewire policies", runsPolicies: true,
            interrupt: exchange.interrupt)
        backoff.reached()
        return try isFit(connection) ? connection : nil
    }

    /// Roles change while connections live.
    private func isStillFit(_ connection: JudgingConnection) throws(PostgresError) -> Bool {
        guard case .policies = lane, Clock.monotonicNanoseconds() >= examineAt else { return true }
        return try isFit(connection)
    }

    private func isFit(_ connection: JudgingConnection) throws(PostgresError) -> Bool {
        let found = try JudgingLogin.examine(connection.session, clientRoles: settings.clientRoles)
        let isNews = fitness.set(found)
        let now = Clock.monotonicNanoseconds()
        examineAt = now + Limits.policyLoginInterval.wholeNanoseconds
        guard found == .available else {
            retryAt = now + Limits.unfitLoginInterval.wholeNanoseconds
            if isNews, case .refused(let reason, let hint) = found {
                Log.shared.warning(
                    "policies that only PostgreSQL can decide, and memberships that only they let read, show nothing: no login is fit to run them",
                    [.reason(reason), .hint(hint)])
            }
            return false
        }
        return true
    }

    private func disconnect() {
        if connection != nil { Metrics.shared.policyConnections.add(-1) }
        connection = nil
    }

    private func ended(_ error: PostgresError) {
        disconnect()
        if exchange.interrupt.isRung { return }
        let delay = backoff.next()
        retryAt = Clock.monotonicNanoseconds() + delay.wholeNanoseconds
        let fields = { LastTrouble.fields(error) + [.delay(delay)] }
        if lastTrouble.isNews(error.message, at: Clock.monotonicNanoseconds()) {
            Log.shared.warning("PostgreSQL cannot be asked about policies; trying again", fields())
        } else {
            Log.shared.debug("PostgreSQL still cannot be asked about policies; trying again", fields())
        }
    }

    /// Once for each role.
    func sayCannotBecome(_ role: String) {
        guard refusedRoles.count < Limits.maximumPolicyReports, refusedRoles.insert(role).inserted else { return }
        Log.shared.warning(
            "the login for policies cannot become a role that tokens name: what only PostgreSQL can decide shows it nothing",
            [.user(role), .hint("GRANT \(Quoted.identifier(role)) TO the login of policy_database_url")])
    }

    // MARK: Answering

    /// A connection that is lost is made again once, and what was asked then is asked again.
    private func answer(_ batch: JudgingBatch) {
        patienceEnds = Clock.monotonicNanoseconds() + Limits.policyBatchPatience.wholeNanoseconds
        about = batch.about
        for attempt in 1...2 {
            guard !pace.isPenalised(batch.key, Clock.monotonicNanoseconds()) else { break }
            guard let connection = usableConnection() else { return refuse(batch) }
            do throws(PostgresError) {
                let answered = try answers(batch, connection)
                backoff.reset()
                lastTrouble = LastTrouble()
                return answered()
            } catch {
                if exchange.interrupt.isRung { break }
                Log.shared.debug("the connection for policies was lost", LastTrouble.fields(error))
                disconnect()
                // It may be the question that the server does not survive.
                if attempt == 2 { pace.penalise(batch.key, Clock.monotonicNanoseconds()) }
            }
        }
        batch.giveUp()
    }

    private func refuse(_ batch: JudgingBatch) {
        guard case .policies(let overflow) = lane, case .refused = fitness.availability, batch.key.mayRunAsOwn else {
            return batch.giveUp()
        }
        overflow.ask(batch.jobs)
    }

    /// What is to be done with the answers, once all are there: nothing is answered twice.
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
        if case .own = lane { true } else { false }
    }

    // MARK: One statement

    /// A part of what is asked, as large as one statement may be; parts that took too long are asked in smaller ones.
    /// False: nobody can say.
    func ask(
        _ key: JudgingKey, _ loop: ClaimsLoop, _ claims: [String], _ inputs: [[String?]], _ xids: Set<UInt32>,
        _ connection: JudgingConnection, reading: TableReading? = nil,
        _ take: (_ first: Int, _ count: Int, LoopOutcome.Answers) -> Void
    ) throws(PostgresError) -> Bool {
        let rows = inputs.first?.count ?? 1
        var next = 0
        var mayBeSlow = true
        while next < claims.count {
            guard Clock.monotonicNanoseconds() < patienceEnds else {
                tooSlow(key)
                return false
            }
            let part = claims[next...].prefix(pace.claims(key, rows: rows)).fitting(Limits.policyStatementBytes)
            let began = Clock.monotonicNanoseconds()
            switch try connection.run(loop, claims: part, inputs: inputs, seeing: xids, reading: reading) {
            case .answers(let answers):
                let took = Clock.monotonicNanoseconds() - began
                Metrics.shared.policyStatementSeconds.record(.nanoseconds(took))
                pace.took(key, took, claims: part.count, rows: rows)
                take(next, part.count, answers)
                next += part.count
            case .invisible:
                guard try waitUntilVisible(xids, connection) else { return false }
            case .tooSlow:
                guard pace.wasTooSlow(key, claims: part.count, rows: rows), mayBeSlow else {
                    tooSlow(key)
                    return false
                }
                mayBeSlow = false
            case .failed(let state):
                Log.shared.debug("PostgreSQL could not decide by a policy", about + [.sqlstate(state)])
                return false
            }
        }
        return true
    }

    private func tooSlow(_ key: JudgingKey) {
        Log.shared.warning(
            "PostgreSQL takes too long to decide by a policy; it lets nobody read for a while",
            about + [.delay(Limits.policyPenalty)])
        pace.penalise(key, Clock.monotonicNanoseconds())
    }

    func waitUntilVisible(
        _ xids: Set<UInt32>, _ connection: JudgingConnection
    ) throws(PostgresError) -> Bool {
        Metrics.shared.policyWaits.add(1)
        let deadline = Clock.monotonicNanoseconds() + Limits.visibilityPatience.wholeNanoseconds
        while Clock.monotonicNanoseconds() < deadline {
            if exchange.interrupt.sleep(milliseconds: Limits.visibilityRetryMilliseconds) { return false }
            let visible = try connection.visibleTransactions()
            if xids.allSatisfy(visible.contains) { return true }
        }
        return false
    }
}

extension JudgingKey {
    /// It calls nothing that did not come with PostgreSQL.
    fileprivate var mayRunAsOwn: Bool {
        switch self {
        case .policy, .generation, .explanation, .sight: false
        case .terms(let terms, _): terms.allSatisfy(\.isBuiltIn)
        case .fill: true
        }
    }
}

extension ArraySlice<String> {
    /// The first of them whose texts together are no larger; at least one.
    func fitting(_ bytes: Int) -> ArraySlice<String> {
        var sum = 0
        let count = prefix { text in
            sum += text.utf8.count
            return sum <= bytes
        }.count
        return prefix(Swift.max(1, count))
    }
}
