import Asking
import Diagnostics
import Postgres
import Synchronization
import System

/// Reporter that logs failed questions about private channels. It does not log the same failure for every question.
final class ChannelTroubles: Sendable {
    /// Callback that is called if the partition for today is missing.
    private let missed: @Sendable () -> Void
    /// Reporter for failures to connect to the database.
    let connection: OutageReporter
    private let last = Mutex<[String: LastComplaint]>([:])

    init(_ reachability: Reachability, missed: @escaping @Sendable () -> Void) {
        self.missed = missed
        connection = OutageReporter(
            "cannot ask PostgreSQL about private channels; trying again",
            again: "still cannot ask PostgreSQL about private channels; trying again", reachability)
    }

    func report(_ unprepared: ProbePrerequisites.Unprepared) {
        guard isNews("ground", unprepared.reason) else { return }
        Log.shared.error(
            "no client can join private channels: the database is not prepared for them",
            [.reason(unprepared.reason), .hint(unprepared.hint)])
    }

    /// Reports a failure. The log contains neither PostgreSQL's message nor the question, because both may contain
    /// secrets.
    func report(_ failure: ChannelAuthorizationError, role: String) {
        if case .missingPartition = failure { missed() }
        guard let words = failure.words else { return }
        var fields: [LogField] = [.reason(failure.code), .user(role)]
        if case .policy(let state) = failure { fields.append(.sqlstate(state)) }
        fields.append(.hint(words.hint))
        if isNews(failure.code, fields.description) {
            Log.shared.warning(words.sentence, fields)
        } else {
            Log.shared.debug(words.sentence, fields)
        }
    }

    private func isNews(_ kind: String, _ message: String) -> Bool {
        last.withLock { last in
            last[kind, default: LastComplaint()].isNews(message, at: Clock.monotonicNanoseconds())
        }
    }
}

extension ChannelAuthorizationError {
    /// Message for an operator; nil if the failure is reported elsewhere.
    fileprivate var words: (sentence: StaticString, hint: String)? {
        switch self {
        case .policy:
            (
                "a policy of realtime.messages failed: the hub refused a private channel",
                "try it in psql: SET ROLE, set realtime.topic and request.jwt.claims, SELECT from realtime.messages"
            )
        case .role:
            (
                "a token names a role that the hub cannot become: the hub refused its private channels",
                "the role must exist, and the login for policies must be a member of it"
            )
        case .canceled:
            (
                "a policy of realtime.messages took too long: the hub refused a private channel",
                "create an index on the columns that the policy compares, or find out who holds locks"
            )
        case .missingPartition:
            (
                "realtime.messages has no partition for today: the hub refused private channels",
                "'tidewire db apply' creates the missing partitions"
            )
        case .exhausted:
            (
                "private channels waited too long for PostgreSQL's answer: the hub refused them",
                "the database is slow, or too many channels are joined at once"
            )
        case .unprepared, .unavailable, .initializing, .tooManyConnections: nil
        }
    }
}
