import Asking
import Diagnostics
import Postgres
import System

/// One thread that asks about private channels: connects, asks, answers.
final class ChannelWorker {
    /// What all of them know.
    final class Shared: Sendable {
        let pace = ChannelPace()
        let fitness = PolicyFitness()
        let troubles: ChannelTroubles

        init(_ settings: ChannelAuthorizer.Settings) { troubles = ChannelTroubles(missed: settings.missesPartition) }
    }

    private let settings: ChannelAuthorizer.Settings
    private let lane: ChannelExchange.Lane
    private let exchange: ChannelExchange
    private let shared: Shared
    private var connection: ProbingConnection?
    private var usedAt: UInt64 = 0
    private var retryAt: UInt64 = 0
    /// Until then, why nobody can be asked.
    private var trouble = ChannelAuthorizationError.unavailable
    private var seen: UInt64 = 0

    init(
        _ settings: ChannelAuthorizer.Settings, _ lane: ChannelExchange.Lane, _ exchange: ChannelExchange,
        _ shared: Shared
    ) {
        self.settings = settings
        self.lane = lane
        self.exchange = exchange
        self.shared = shared
    }

    func run() {
        while !exchange.interrupt.isRung {
            let idleEnd = connection == nil ? UInt64.max : usedAt + Limits.channelIdleLimit.wholeNanoseconds
            let jobs = exchange.take(lane, until: idleEnd, seen: &seen)
            if jobs.isEmpty {
                if Clock.monotonicNanoseconds() >= idleEnd { disconnect() }
                continue
            }
            answer(jobs)
            exchange.finished(jobs, lane)
        }
        disconnect()
    }

    private var isApart: Bool {
        if case .apart = lane { true } else { false }
    }

    // MARK: A connection's life

    private func usableConnection() -> ProbingConnection? {
        if connection?.isFull ?? false { disconnect() }
        if let connection { return connection }
        guard Clock.monotonicNanoseconds() >= retryAt else { return nil }
        do throws(PostgresError) {
            let made = try ProbingConnection(settings.policies ?? settings.database, interrupt: exchange.interrupt)
            try examine(made)
            connection = made
            usedAt = Clock.monotonicNanoseconds()
            Metrics.shared.policyConnections.add(1)
            return made
        } catch {
            if !exchange.interrupt.isRung {
                rest(ChannelAuthorizationError(connecting: error))
                shared.troubles.report(error)
            }
            return nil
        }
    }

    /// Such a login is worse than it need be, but what policies say is still what counts.
    private func examine(_ connection: ProbingConnection) throws(PostgresError) {
        let found = try JudgingLogin.examine(connection.session, clientRoles: settings.clientRoles)
        guard shared.fitness.set(found), case .refused(let reason, let hint) = found else { return }
        Log.shared.warning(
            "policies of private channels run as a login that functions they call could misuse",
            [.reason(reason), .hint(hint)])
    }

    private func rest(_ trouble: ChannelAuthorizationError) {
        disconnect()
        self.trouble = trouble
        retryAt = Clock.monotonicNanoseconds() + Limits.channelRetryInterval.wholeNanoseconds
    }

    private func disconnect() {
        if connection != nil { Metrics.shared.policyConnections.add(-1) }
        connection = nil
    }

    // MARK: Answering

    private func answer(_ jobs: [ChannelJob]) {
        let now = Clock.monotonicNanoseconds()
        var asked: [ChannelJob] = []
        var (suspects, slow): ([ChannelJob], [ChannelJob]) = ([], [])
        for job in jobs {
            guard job.question.canBeSaid else {
                job.finish(.failed(.policy(sqlState: ChannelWorker.untranslatable)))
                continue
            }
            switch (lane, shared.pace.standing(job.question, at: now)) {
            case (.together, .suspect): suspects.append(job)
            case (.together, .slow), (.suspects, .slow): slow.append(job)
            case (.apart, _), (_, .plain), (.suspects, .suspect): asked.append(job)
            }
        }
        exchange.ask(suspects, in: .suspects)
        exchange.ask(slow, in: .apart)
        for group in ChannelGroup.groups(of: asked) { answer(group) }
    }

    /// As the server says it of texts that are none.
    private static let untranslatable = "22021"

    private func answer(_ group: ChannelGroup) {
        var next = 0
        while next < group.questions.count {
            let now = Clock.monotonicNanoseconds()
            guard now < group.askers[next][0].deadline else {
                finish(group.askers[next], .failed(.exhausted))
                next += 1
                continue
            }
            guard let connection = usableConnection() else {
                for askers in group.askers[next...] { finish(askers, .failed(trouble)) }
                return
            }
            let part = group.part(from: next)
            // One that nobody used for a while may have been lost long ago.
            let mayBeStale = now - min(now, usedAt) > Limits.channelRetryInterval.wholeNanoseconds
            do throws(PostgresError) {
                let limits = limits(for: group.askers[next][0], at: now)
                let outcome = try connection.ask(
                    part, as: group.role, timeout: limits.timeout, budget: limits.budget)
                usedAt = Clock.monotonicNanoseconds()
                next += take(outcome, group, next..<next + part.count)
            } catch {
                disconnect()
                if mayBeStale, !exchange.interrupt.isRung { continue }
                for askers in group.askers[next..<next + part.count] { lost(askers) }
                next += part.count
            }
        }
    }

    private func limits(for job: ChannelJob, at now: UInt64) -> (timeout: Duration, budget: Duration) {
        guard isApart else { return shared.pace.limits(at: now) }
        let left = Duration.nanoseconds(job.deadline - now)
        return (max(.milliseconds(1), min(Limits.channelProbeTimeout, left)), .zero)
    }

    /// How many are done with.
    private func take(_ outcome: ProbeOutcome, _ group: ChannelGroup, _ range: Range<Int>) -> Int {
        switch outcome {
        case .answers(let answers) where !answers.isEmpty:
            for (askers, answer) in zip(group.askers[range], answers) { answered(askers, answer) }
            return answers.count
        case .refused(.role):
            for askers in group.askers[range] { finish(askers, .failed(.role)) }
        case .refused(let failure):
            for askers in group.askers[range] { failedTogether(askers, failure) }
        case .unprepared(let unprepared):
            shared.troubles.report(unprepared)
            rest(.unprepared)
            for askers in group.askers[range] { finish(askers, .failed(.unprepared)) }
        case .answers, .spoiled:
            disconnect()
            for askers in group.askers[range] {
                failedTogether(askers, .policy(sqlState: PolicySession.spoiled))
            }
        }
        return range.count
    }

    private func answered(_ askers: [ChannelJob], _ answer: ChannelAnswer) {
        if answer == .failed(.unprepared) { shared.troubles.report(.changed) }
        guard !isApart, case .failed(.canceled) = answer else { return finish(askers, answer) }
        shared.pace.tookTooLong(askers[0].question, at: Clock.monotonicNanoseconds())
        exchange.ask(askers, in: .apart)
    }

    /// Who brought it about is found out by asking each alone.
    private func failedTogether(_ askers: [ChannelJob], _ failure: ChannelAuthorizationError) {
        if isApart { return finish(askers, .failed(failure)) }
        exchange.ask(askers, in: .apart)
    }

    /// It may be the question that the server does not survive: it is asked once more, alone.
    private func lost(_ askers: [ChannelJob]) {
        guard !exchange.interrupt.isRung, askers[0].losses == 0 else { return finish(askers, .failed(.unavailable)) }
        let once = askers.map { job in
            var job = job
            job.losses += 1
            return job
        }
        exchange.ask(once, in: .apart)
    }

    private func finish(_ askers: [ChannelJob], _ answer: ChannelAnswer) {
        if case .failed(let failure) = answer, let role = askers.first?.question.role {
            shared.troubles.report(failure, role: role)
        }
        for job in askers { job.finish(answer) }
    }
}

extension ChannelQuestion {
    /// PostgreSQL takes texts that are UTF-8 and have no zero byte.
    fileprivate var canBeSaid: Bool {
        String(validating: topic, as: UTF8.self) != nil && !topic.contains(0)
            && ![role, subject, claims, headers].contains { $0.utf8.contains(0) }
    }
}

extension ChannelAuthorizationError {
    /// The server gives no code before a connection stands.
    fileprivate init(connecting error: PostgresError) {
        let says = { (words: String) in error.message.contains(words) }
        if says("too many clients") || says("too many connections") || says("remaining connection slots") {
            self = .tooManyConnections
        } else if says("starting up") {
            self = .initializing
        } else {
            self = .unavailable
        }
    }
}
