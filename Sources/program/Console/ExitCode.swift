/// Exit code of a command, for scripts. The numbers are promised to users and do not change.
public enum ExitCode: Int32, CaseIterable, Sendable {
    case ok = 0
    case notFound = 1
    case usage = 2
    case outsideRetention = 3
    case unreachable = 4
    case damaged = 5

    public var meaning: String {
        switch self {
        case .ok: "done, or something was found"
        case .notFound: "nothing was found, a check failed, or the command could not finish"
        case .usage: "the command line or the configuration is wrong"
        case .outsideRetention: "what was asked for is older than what the event log still holds"
        case .unreachable: "the database, the hub or the event log cannot be reached"
        case .damaged: "the event log is damaged"
        }
    }
}

/// Error that ends a command with a message for the operator and an exit code for scripts.
public struct CommandFailure: Error {
    public let exitCode: ExitCode
    public let message: String
    /// Advice what to do about the failure. Every failure has some, because a message alone leaves the reader with it.
    public let hint: String

    public init(_ exitCode: ExitCode, _ message: String, hint: String) {
        self.exitCode = exitCode
        self.message = message
        self.hint = hint
    }
}

/// Error in the command line. The message does not repeat an option's value, which may be a secret.
public struct UsageError: Error, Equatable {
    public let message: String

    public init(_ message: String) {
        self.message = message
    }
}
