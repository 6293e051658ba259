import Diagnostics
import Postgres
import Synchronization

/// Tells an operator that PostgreSQL cannot be asked. The same again is worth a line now and then: the first one said what
/// to do. That nobody can reach it is said once for all who share it.
public final class TroubleTeller: Sendable {
    private struct State {
        var last = LastComplaint()
        /// So often a session was lost since somebody was answered.
        var losses = 0
    }

    private let first: StaticString
    private let again: StaticString
    private let reachability: Reachability
    private let state = Mutex(State())

    /// - Parameters:
    ///   - first: what is said of a trouble that is news.
    ///   - again: what is said of it, to those who want to know all, from there on.
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
            // Somebody who slept notices late that the server was away, and has another session a moment later. Who loses
            // each one is in trouble of his own.
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

    /// The next one is news.
    public func isOver() { state.withLock { $0 = State() } }
}

/// The last trouble that was said.
public struct LastComplaint: Sendable {
    private var message: String?
    private var reportedAt: UInt64 = 0

    public init() {}

    /// Whether it is to be said, at a moment of the monotonic clock; it counts as said then.
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
