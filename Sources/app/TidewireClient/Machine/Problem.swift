/// What is wrong, said by the server and meant for who writes the app. A problem is a value that the app gets, and never only
/// a line in a log.
public struct Problem: Sendable, Hashable, Error, CustomStringConvertible {
    public enum Severity: Sendable, Hashable {
        /// What is asked for does not come.
        case error
        /// It does, and something of it does not, or is probably not what was meant.
        case warning
    }

    /// The server's name for it, e.g. `NotPublished`, `InvalidFilter`, `NobodyDecides`, `DeletesHidden`, `Unauthorized`.
    public let code: String
    public let message: String
    public let severity: Severity

    public init(code: String, message: String, severity: Severity) {
        self.code = code
        self.message = message
        self.severity = severity
    }

    public var description: String { "\(code): \(message)" }
}

/// Why what was missed does not come any more: what is shown has to be fetched again, and changes go on from here.
public enum RefetchReason: Sendable, Hashable {
    /// The log does not reach back so far.
    case olderThanRetention
    /// History has a gap since then, or the database is another.
    case epochChanged
    case unknownPosition
    /// The server's log is damaged from the position on, or its disk does not read it.
    case logUnreadable
    /// The server could not tell some changes; its words say why.
    case changesMissing(String)
    /// TRUNCATE took all rows of a table.
    case truncated
    /// The server keeps no positions, or had none yet: nobody knows what came while the client was away.
    case noResume
    /// The app did not take what came, and the server cannot tell it again.
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
