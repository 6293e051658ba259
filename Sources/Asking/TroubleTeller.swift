import Diagnostics
import Postgres
import Synchronization

/// Tells an operator that PostgreSQL cannot be asked. The same again is worth a line now and then: the first one said what
/// to do.
public final class TroubleTeller: Sendable {
    private let first: StaticString
    private let again: StaticString
    private let last = Mutex(LastComplaint())

    /// - Parameters:
    ///   - first: what is said of a trouble that is news.
    ///   - again: what is said of it, to those who want to know all, from there on.
    public init(_ first: StaticString, again: StaticString) {
        self.first = first
        self.again = again
    }

    public func report(_ error: PostgresError, _ delay: Duration, at now: UInt64) {
        let fields = { LastComplaint.fields(error) + [.delay(delay)] }
        if last.withLock({ $0.isNews(error.message, at: now) }) {
            Log.shared.warning(first, fields())
        } else {
            Log.shared.debug(again, fields())
        }
    }

    /// The next one is news.
    public func isOver() { last.withLock { $0 = LastComplaint() } }
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
        if let hint = error.hint { fields.append(.hint(hint)) }
        return fields
    }
}
