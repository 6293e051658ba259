import Asking
import Diagnostics
import Postgres
import System

/// Thread that asks PostgreSQL about rights in private channels: connects, asks and passes on the answers.
final class ChannelWorker: ConnectedWorker {
    /// State shared by all these threads.
    final class Shared: Sendable {
        let settings: ChannelAuthorizer.Settings
        let pace = ChannelPace()
        let fitness = PolicyFitness()
        let troubles: ChannelTroubles

        init(_ settings: ChannelAuthorizer.Settings) {
            self.settings = settings
            troubles = ChannelTroubles(settings.reachability, missed: settings.missesPartition)
        }
    }

    let inbox: Inbox<ChannelLine>
    let lane: ChannelLine.Lane
    /// Connection to PostgreSQL. The interval between attempts is constant, because clients wait only briefly for the
    /// reply to a join.
    var link: Link<ProbingConnection>
    private let shared: Shared
    /// Reason with which questions fail while there is no connection.
    private var trouble = ChannelAuthorizationError.unavailable

    init(_ shared: Shared, _ lane: ChannelLine.Lane, _ inbox: Inbox<ChannelLine>) {
        self.shared = shared
        self.lane = lane
        self.inbox = inbox
        link = Link(
            .every(Limits.channelRetryInterval), idleLimit: Limits.channelIdleLimit,
            connected: shared.settings.metrics.policyConnections)
    }

    var troubles: OutageReporter { shared.troubles.connection }
    var definitions: DefinitionsVersion? { shared.settings.database.definitions }

    private var isApart: Bool {
        if case .apart = lane { true } else { false }
    }

    // MARK: Connection

    private func usableConnection() -> ProbingConnection? {
        if link.session?.isFull ?? false { link.drop() }
        return session()
    }

    func connect() throws(PostgresError) -> ProbingConnection? {
        let settings = shared.settings
        let made = try ProbingConnection(settings.policies ?? settings.database, interrupt: inbox.interrupt)
        try examine(made)
        return made
    }

    func couldNotAsk(_ error: PostgresError) { trouble = ChannelAuthorizationError(connecting: error) }

    /// Examines the login. If it has too many rights, the hub only logs a warning, because the policies still decide
    /// correctly.
    private func examine(_ connection: ProbingConnection) throws(PostgresError) {
        let found = try JudgingLogin.examine(connection.session, clientRoles: shared.settings.clientRoles)
        guard shared.fitness.set(found), case .refused(let reason, let hint) = found else { return }
        Log.shared.warning(
            "policies of private channels run with a login that has too many rights: functions that they call could misuse it",
            [.reason(reason), .hint(hint)])
    }

    // MARK: Answering

    func work(_ jobs: [ChannelJob]) {
        let now = Clock.monotonicNanoseconds()
        var asked: [ChannelJob] = []
        var (suspects, slow): ([ChannelJob], [ChannelJob]) = ([], [])
        for job in jobs {
            guard job.question.isValidText else {
                job.finish(.failed(.policy(sqlState: ChannelWorker.untranslatable)))
                continue
            }
            switch (lane, shared.pace.standing(job.question, at: now)) {
            case (.together, .suspect): suspects.append(job)
            case (.together, .slow), (.suspects, .slow): slow.append(job)
            case (.apart, _), (_, .plain), (.suspects, .suspect): asked.append(job)
            }
        }
        pass(suspects, to: .suspects)
        pass(slow, to: .apart)
        for group in ChannelGroup.groups(of: asked) { answer(group) }
    }

    private func pass(_ jobs: [ChannelJob], to lane: ChannelLine.Lane) {
        if !inbox.pass(jobs, to: lane) { for job in jobs { job.giveUp() } }
    }

    /// Error code that PostgreSQL would return for text in an invalid encoding.
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
            // A connection that was idle may have been lost long ago, so its loss proves nothing about the questions.
            let mayBeStale = link.idleTime(at: now) > Limits.channelRetryInterval
            do throws(PostgresError) {
                let limits = limits(for: group.askers[next][0], at: now)
                let outcome = try connection.ask(
                    part, as: group.role, timeout: limits.timeout, budget: limits.budget)
                link.used(at: Clock.monotonicNanoseconds())
                answered()
                next += take(outcome, group, next..<next + part.count)
            } catch {
                link.drop()
                if mayBeStale, !inbox.isEnding { continue }
                for askers in group.askers[next..<next + part.count] { lost(askers) }
                next += part.count
            }
        }
    }

    private func limits(for job: ChannelJob, at now: UInt64) -> (timeout: Duration, budget: Duration) {
        guard isApart else { return shared.pace.limits(at: now) }
        precondition(now < job.deadline, "who is asked about has time left")
        let left = Duration.nanoseconds(job.deadline - now)
        return (max(.milliseconds(1), min(Limits.channelProbeTimeout, left)), .zero)
    }

    /// Passes the outcome of a statement to its askers, or passes failed questions to the lane `apart`. Returns the
    /// number of questions that need no further attempt in this lane.
    private func take(_ outcome: ProbeOutcome, _ group: ChannelGroup, _ range: Range<Int>) -> Int {
        switch outcome {
        case .answers(let answers) where !answers.isEmpty:
            precondition(answers.count <= range.count, "nobody is answered who was not asked about")
            for (askers, answer) in zip(group.askers[range], answers) { answered(askers, answer) }
            return answers.count
        case .refused(.role):
            for askers in group.askers[range] { finish(askers, .failed(.role)) }
        case .refused(let failure):
            for askers in group.askers[range] { failedTogether(askers, failure) }
        case .unprepared(let unprepared):
            shared.troubles.report(unprepared)
            trouble = .unprepared
            link.rest(Limits.channelRetryInterval, at: Clock.monotonicNanoseconds())
            for askers in group.askers[range] { finish(askers, .failed(.unprepared)) }
        case .answers, .spoiled:
            link.drop()
            for askers in group.askers[range] {
                failedTogether(askers, .policy(sqlState: PolicySession.spoiled))
            }
        }
        return range.count
    }

    private func answered(_ askers: [ChannelJob], _ answer: ChannelAnswer) {
        if answer == .failed(.unprepared) { shared.troubles.report(.changed) }
        guard !isApart, case .failed(.canceled) = answer else { return finish(askers, answer) }
        assert(!askers.isEmpty, "somebody asked")
        shared.pace.tookTooLong(askers[0].question, at: Clock.monotonicNanoseconds())
        pass(askers, to: .apart)
    }

    /// Handles questions that failed in one statement. Each is asked again alone, which finds the one that caused the
    /// failure.
    private func failedTogether(_ askers: [ChannelJob], _ failure: ChannelAuthorizationError) {
        if isApart { return finish(askers, .failed(failure)) }
        pass(askers, to: .apart)
    }

    /// Handles a question whose connection was lost. It is asked once more, alone, because the question itself may have
    /// crashed the server.
    private func lost(_ askers: [ChannelJob]) {
        guard !inbox.isEnding, askers[0].losses == 0 else { return finish(askers, .failed(.unavailable)) }
        let once = askers.map { job in
            var job = job
            job.losses += 1
            return job
        }
        pass(once, to: .apart)
    }

    private func finish(_ askers: [ChannelJob], _ answer: ChannelAnswer) {
        assert(askers.allSatisfy { $0.question == askers[0].question }, "an answer belongs to the question asked")
        if case .failed(let failure) = answer, let role = askers.first?.question.role {
            shared.troubles.report(failure, role: role)
        }
        for job in askers { job.finish(answer) }
    }
}

extension ChannelQuestion {
    /// True if PostgreSQL accepts the question's texts: they are valid UTF-8 and contain no zero byte.
    fileprivate var isValidText: Bool {
        String(validating: topic, as: UTF8.self) != nil && !topic.contains(0)
            && ![role, subject, claims, headers].contains { $0.utf8.contains(0) }
    }
}

extension ChannelAuthorizationError {
    /// Creates the error from PostgreSQL's error code. The code is nil if no server answered.
    fileprivate init(connecting error: PostgresError) {
        switch error.sqlState {
        case SQLState.tooManyConnections: self = .tooManyConnections
        case SQLState.cannotConnectNow: self = .initializing
        default: self = .unavailable
        }
    }
}
