/// Error from PostgreSQL, or from the attempt to reach it.
public struct PostgresError: Error, Sendable, Equatable {
    /// Five-character code from the server. A connection that never reached a server has none.
    public var sqlState: String?
    public var message: String
    /// Hint from the server. The server's DETAIL is left out on purpose: it may hold row data.
    public var hint: String?
    /// True if the connection cannot be used any more.
    public var isConnectionLost: Bool
    /// Operation that failed, e.g. `connect` or `START_REPLICATION`.
    public var operation: String
    /// True if the server asked for a password and the hub had none.
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
    /// True if the error is not the fault of the statement: connections, conflicts, resources, locks, an operator's
    /// intervention, the system. A retry may succeed. A limit of the configuration and a missing file are permanent.
    public static func isPassing(_ state: String) -> Bool {
        ["08", "40", "53", "55", "57", "58"].contains { state.hasPrefix($0) }
            && state != configurationLimitExceeded && state != undefinedFile
    }

    /// True if the error can come from what a session keeps for former definitions: an unknown column, a value of
    /// another type, a number that the catalog no longer has. A missing right cannot.
    public static func mayComeFromOldPlan(_ state: String) -> Bool {
        ["0A", "42"].contains { state.hasPrefix($0) } && state != insufficientPrivilege || isInternal(state)
    }

    /// True if the error says nothing about whom the statement was run for: it may pass, or PostgreSQL met something
    /// that should not be, such as a number that the catalog has no more after a change of definitions.
    public static func saysNothing(_ state: String) -> Bool { isPassing(state) || isInternal(state) }

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
    /// No libpq call returns the SQLSTATE here, because there is no result. But the message contains it, in a place and
    /// form that no language changes (`FATAL:  28P01: password …`). One more line names the place in the server's
    /// source. If several attempts were made (several addresses, with TLS and without), the last code counts.
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

    /// Returns the code behind the severity, and the line without the code.
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
