/// A problem reported by the server or the client, for the developer of the app. The app always receives it as a value,
/// never only as a line in a log.
public struct TidewireProblem: Sendable, Hashable, Error, CustomStringConvertible {
    /// Effect of a problem on the requested data.
    public enum Severity: Sendable, Hashable {
        /// The requested data does not arrive at all.
        case error
        /// The requested data arrives, but part of it is missing, or the request was probably meant differently.
        case warning
    }

    /// The server's code for the problem, e.g. `NotPublished`, `InvalidFilter`, `NobodyDecides`, `DeletesHidden`,
    /// `Unauthorized`.
    public let code: String
    /// Text of the problem, for developers.
    public let message: String
    /// Effect of the problem on the requested data.
    public let severity: Severity

    /// Creates a problem. Apps may use it to report their own problems in the same way.
    public init(code: String, message: String, severity: Severity) {
        self.code = code
        self.message = message
        self.severity = severity
    }

    /// The code and the text.
    public var description: String { "\(code): \(message)" }
}

/// Reason why the client cannot deliver missed changes. The app must fetch its rows again. Changes after the new
/// position follow.
public enum RefetchReason: Sendable, Hashable {
    /// The server's log no longer contains the changes after the position.
    case olderThanRetention
    /// The server's log has a gap after the position, or the database is a different one.
    case epochChanged
    /// The server's log does not contain the position.
    case unknownPosition
    /// The server's log is damaged after the position, or its disk cannot be read.
    case logUnreadable
    /// The server could not deliver some changes. The text is the server's reason.
    case changesMissing(String)
    /// A TRUNCATE removed all rows of a table.
    case truncated
    /// Other rows than before may be visible to this user, although no row changed: a membership, a policy, a right or
    /// the token did.
    case visibilityChanged
    /// The server has no positions, or had none yet, so it is unknown which changes the client missed.
    case noResume
    /// The app did not take the changes in time, and the server could not send them again.
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
