/// What PostgreSQL, or the way to it, refused.
public struct PostgresError: Error, Sendable, Equatable {
    /// The five-character code, where the server sent one. A refused connection has none.
    public var sqlState: String?
    public var message: String
    /// What the server suggests. Its DETAIL is left out on purpose: it may hold row data.
    public var hint: String?
    /// The connection cannot be used any more.
    public var isConnectionLost: Bool
    /// What was being done, e.g. `connect` or `START_REPLICATION`.
    public var operation: String

    public init(
        operation: String, sqlState: String? = nil, message: String, hint: String? = nil, isConnectionLost: Bool = false
    ) {
        self.operation = operation
        self.sqlState = sqlState
        self.message = message
        self.hint = hint
        self.isConnectionLost = isConnectionLost
    }
}

extension PostgresError: CustomStringConvertible {
    public var description: String {
        var text = "\(operation): \(message)"
        if let sqlState { text += " (SQLSTATE \(sqlState))" }
        if let hint { text += "; hint: \(hint)" }
        return text
    }
}

/// The codes that the hub answers with more than words (PostgreSQL, appendix A).
public enum SQLState {
    /// What says nothing of the statement: connections, conflicts, resources, locks, an operator's intervention, the system.
    /// Asked again, the server may answer. A limit of the configuration and a missing file stay.
    public static func isPassing(_ state: String) -> Bool {
        ["08", "40", "53", "55", "57", "58"].contains { state.hasPrefix($0) }
            && state != configurationLimitExceeded && state != undefinedFile
    }

    public static let objectInUse = "55006"
    public static let undefinedObject = "42704"
    public static let duplicateObject = "42710"
    public static let insufficientPrivilege = "42501"
    public static let configurationLimitExceeded = "53400"
    public static let undefinedFile = "58P01"
    public static let featureNotSupported = "0A000"
    public static let queryCanceled = "57014"
    public static let lockNotAvailable = "55P03"
    public static let dependentObjects = "2BP01"
    public static let duplicateTable = "42P07"
    public static let invalidObjectDefinition = "42P17"
}
