import Diagnostics
import Postgres
import Synchronization

/// Reporter of failures to query PostgreSQL, for operators. A repeated failure is logged only now and then. An
/// unreachable database is logged once for all that share the `Reachability`.
public final class OutageReporter: Sendable {
    private struct State {
        var last = LastComplaint()
        /// Number of sessions lost since the last answer.
        var losses = 0
    }

    private let first: StaticString
    private let again: StaticString
    private let reachability: Reachability
    private let state = Mutex(State())

    /// - Parameters:
    ///   - first: message for a new failure, as a warning.
    ///   - again: message for a repeated failure, at level debug.
    public init(_ first: StaticString, again: StaticString, _ reachability: Reachability) {
        self.first = first
        self.again = again
        self.reachability = reachability
    }

    public func report(_ error: PostgresError, _ delay: Duration, at now: UInt64) {
        let fields = { LastComplaint.fields(error) + [.delay(delay)] }
        if isNews(error, at: now) {
            Log.shared.warning(first, fields())
        } else {
            Log.shared.debug(again, fields())
        }
    }

    private func isNews(_ error: PostgresError, at now: UInt64) -> Bool {
        if error.isConnectionLost, error.operation != "connect" {
            // An idle worker notices late that the server restarted, and reconnects at once, so the first loss is no
            // news. Repeated losses are a problem of this worker.
            let isFirst = state.withLock { state in
                state.losses += 1
                return state.losses == 1
            }
            if isFirst { return false }
        } else if let isNews = reachability.isNews(error, at: now) {
            return isNews
        }
        return state.withLock { $0.last.isNews(error.message, at: now) }
    }

    /// Ends the failure, so that the next one is news.
    public func isOver() { state.withLock { $0 = State() } }
}

/// Last failure that was logged.
public struct LastComplaint: Sendable {
    private var message: String?
    private var reportedAt: UInt64 = 0

    public init() {}

    /// True if the message must be logged at `now`, a time of the monotonic clock. The message then counts as logged.
    public mutating func isNews(_ message: String, at now: UInt64) -> Bool {
        let isReminderDue = now - min(now, reportedAt) >= Limits.troubleReminderInterval.wholeNanoseconds
        guard message != self.message || isReminderDue else { return false }
        self.message = message
        reportedAt = now
        return true
    }

    public static func fields(_ error: PostgresError) -> [LogField] {
        var fields: [LogField] = [.operation(error.operation), .error(error.message)]
        if let sqlState = error.sqlState { fields.append(.sqlstate(sqlState)) }
        let meaning = error.operation == "connect" ? error.connecting.hint : nil
        if let hint = meaning ?? error.hint { fields.append(.hint(hint)) }
        return fields
    }
}
