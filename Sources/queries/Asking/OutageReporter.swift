import Diagnostics
import Postgres
import Synchronization

/// Reporter that tells operators about failures to query PostgreSQL. It logs a repeated failure only at intervals. An
/// unreachable database is logged once for all connections that share the `Reachability`.
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

    /// Creates a reporter.
    ///
    /// - Parameters:
    ///   - first: the warning for a new failure.
    ///   - again: the message for a repeated failure, at log level debug.
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
            // An idle worker notices only later that the server restarted, and reconnects immediately. So the first
            // loss is not reported. Repeated losses are a problem of this worker.
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

    /// Records that the failure is over, so that the next one counts as new.
    public func isOver() { state.withLock { $0 = State() } }
}

/// Failure that was logged last.
public struct LastComplaint: Sendable {
    private var message: String?
    private var reportedAt: UInt64 = 0

    public init() {}

    /// True if the message must be logged now: it differs from the last one, or a reminder is due. It then counts as
    /// logged. `now` is monotonic time in nanoseconds.
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
