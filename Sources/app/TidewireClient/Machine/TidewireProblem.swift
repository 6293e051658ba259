/// A problem reported by the server, for the developer of the app. The app always gets it as a value, and never only as
/// a line in a log.
public struct TidewireProblem: Sendable, Hashable, Error, CustomStringConvertible {
    /// Effect of a problem on the requested data.
    public enum Severity: Sendable, Hashable {
        /// The requested data does not arrive.
        case error
        /// The requested data arrives, but part of it is missing or is probably not what was meant.
        case warning
    }

    /// The server's code for the problem, e.g. `NotPublished`, `InvalidFilter`, `NobodyDecides`, `DeletesHidden`,
    /// `Unauthorized`.
    public let code: String
    /// Text of the problem, for developers.
    public let message: String
    /// Effect of the problem on the requested data.
    public let severity: Severity

    /// Creates a problem, for apps that report their own in the same way.
    public init(code: String, message: String, severity: Severity) {
        self.code = code
        self.message = message
        self.severity = severity
    }

    /// The code and the text.
    public var description: String { "\(code): \(message)" }
}

/// Reason why missed changes cannot be delivered. The app must fetch the shown rows again; changes continue from here.
public enum RefetchReason: Sendable, Hashable {
    /// The log no longer reaches back to the position.
    case olderThanRetention
    /// History has a gap after the position, or the database is a different one.
    case epochChanged
    /// The server's log has no such position.
    case unknownPosition
    /// The server's log is damaged from the position on, or its disk cannot read it.
    case logUnreadable
    /// The server could not deliver some changes; its text gives the reason.
    case changesMissing(String)
    /// A TRUNCATE removed all rows of a table.
    case truncated
    /// The server keeps no positions, or had none yet, so changes during the client's absence are unknown.
    case noResume
    /// The app did not take the changes in time, and the server cannot send them again.
    case tooSlow

    init(serverReason: String?) {
        switch serverReason {
        case "older_than_retention": self = .olderThanRetention
        case "unknown_position": self = .unknownPosition
        case "log_unreadable": self = .logUnreadable
        default: self = .epochChanged
        }
    }
}
