/// Error from PostgreSQL, or from the attempt to reach it.
public struct PostgresError: Error, Sendable, Equatable {
    /// SQLSTATE, the server's five-character code. Nil if the connection did not reach a server.
    public var sqlState: String?
    public var message: String
    /// Hint from the server. The server's DETAIL is left out on purpose, because it may contain row data.
    public var hint: String?
    /// True if the connection can no longer be used.
    public var isConnectionLost: Bool
    /// Operation that failed, e.g. `connect` or `START_REPLICATION`.
    public var operation: String
    /// True if the server asked for a password and the target has none.
    public var lacksPassword = false

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

/// SQLSTATE codes to which the hub reacts with more than a message (PostgreSQL, appendix A).
public enum SQLState {
    /// True if the error is not caused by the statement: connections, conflicts, resources, locks, an operator's
    /// intervention, the system. A retry may succeed. False for a configured limit and a missing file, which are
    /// permanent.
    public static func isPassing(_ state: String) -> Bool {
        ["08", "40", "53", "55", "57", "58"].contains { state.hasPrefix($0) }
            && state != configurationLimitExceeded && state != undefinedFile
    }

    /// True if the error may come from plans that a session keeps for old definitions: an unknown column, a value of
    /// another type, an OID that no longer exists. A missing privilege cannot have this cause.
    public static func mayComeFromOldPlan(_ state: String) -> Bool {
        ["0A", "42"].contains { state.hasPrefix($0) } && state != insufficientPrivilege || isInternal(state)
    }

    /// True if the error says nothing about the rights of the user for whom the statement ran. Either a retry may
    /// succeed, or PostgreSQL reports an internal error, such as an OID that no longer exists after a change of
    /// definitions.
    public static func isInconclusive(_ state: String) -> Bool { isPassing(state) || isInternal(state) }

    private static func isInternal(_ state: String) -> Bool { state.hasPrefix("XX") }

    public static let invalidPassword = "28P01"
    public static let invalidAuthorization = "28000"
    public static let invalidCatalogName = "3D000"
    public static let tooManyConnections = "53300"
    public static let cannotConnectNow = "57P03"
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

extension PostgresError {
    /// Parses libpq's verbose message about a refused connection.
    ///
    /// libpq has no call that returns the SQLSTATE here, because there is no result. But the message contains it, at a
    /// place and in a form that is the same in every language (`FATAL:  28P01: password …`). A further line names the
    /// place in the server's source. If libpq made several attempts (several addresses, with TLS and without), the last
    /// code counts.
    static func refusedConnection(_ text: String) -> PostgresError {
        var sqlState: String?
        let lines = text.split(whereSeparator: \.isNewline).compactMap { line -> String? in
            if line.hasPrefix("LOCATION:  ") { return nil }
            guard let (state, plain) = takingState(from: Array(line.utf8)) else { return String(line) }
            sqlState = state
            return plain
        }
        return PostgresError(
            operation: "connect", sqlState: sqlState, message: oneLine(lines.joined(separator: "\n")),
            isConnectionLost: true)
    }

    /// Returns the code that follows the severity, and the line without the code.
    private static func takingState(from line: [UInt8]) -> (state: String, plain: String)? {
        let colon = UInt8(ascii: ":"), space = UInt8(ascii: " ")
        guard line.count >= 10 else { return nil }
        for start in 0...(line.count - 10) {
            let code = line[start + 3..<start + 8]
            guard line[start] == colon, line[start + 1] == space, line[start + 2] == space, line[start + 8] == colon,
                line[start + 9] == space, code.allSatisfy(isOfCode)
            else { continue }
            let plain = line[..<(start + 3)] + line[(start + 10)...]
            return (String(decoding: code, as: UTF8.self), String(decoding: plain, as: UTF8.self))
        }
        return nil
    }

    private static func isOfCode(_ byte: UInt8) -> Bool {
        (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) || (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(byte)
    }
}
