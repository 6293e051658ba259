import Diagnostics
import Postgres
import System

/// The same trouble again is worth a line now and then: the first one said what to do.
public struct LastTrouble {
    private var message = ""
    private var reportedAt: UInt64 = 0

    public init() {}

    public mutating func isNews(_ error: PostgresError) -> Bool {
        let now = Clock.monotonicNanoseconds()
        let isReminderDue = now - reportedAt >= Limits.troubleReminderInterval.wholeNanoseconds
        guard error.message != message || isReminderDue else { return false }
        message = error.message
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
