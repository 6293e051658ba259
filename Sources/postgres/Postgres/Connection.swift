import CPostgres
import Glibc
import System

/// Address of a database, with the user who connects: a URL or a `key=value` string in libpq's form.
public struct ConnectionTarget: Sendable {
    public let text: String
    /// Version of the definitions in the database, shared by all copies of this target.
    public let definitions = DefinitionsVersion()

    public init(_ text: String) { self.text = text }

    public enum Purpose: Sendable {
        case queries
        /// Walsender of the database, which streams changes and answers replication commands.
        case replication
    }
}

/// Connection to PostgreSQL through libpq. Only one thread at a time may use it. It is closed when it is released.
///
/// Calls accept SQL and parameters, and return rows as text, or an error that names the statement. They block the
/// calling thread until the server answers.
@safe
public final class Connection {
    let handle: OpaquePointer
    /// Descriptor table in which the connection's socket was opened.
    private let table = DescriptorTable.current
    public let purpose: ConnectionTarget.Purpose
    /// True after libpq has sent its last command. Then the hub reads and writes the socket itself.
    var isHandedOver = false
    /// Function that is called from time to time while a call waits for an answer. If it returns false, the statement
    /// is cancelled.
    public var isStillWanted: (() -> Bool)?

    private static let limits = ["statement_timeout=0", "idle_session_timeout=0"]
    /// Output settings that make each value's text independent of the server's defaults.
    private static let outputSettings = [
        "DateStyle=ISO", "IntervalStyle=postgres", "TimeZone=UTC", "extra_float_digits=3", "bytea_output=hex",
        "lc_monetary=C",
    ]

    /// Connects. Gives up when `interrupt` is signalled or after `timeoutSeconds`. If `keepsSettings` is true, the
    /// session reads and writes values with the settings of the user and the database, like a session of another
    /// program.
    public init(
        _ target: ConnectionTarget, purpose: ConnectionTarget.Purpose = .queries, applicationName: String = "tidewire",
        timeoutSeconds: Int = 5, settings: [String] = [], keepsSettings: Bool = false, interrupt: Wake? = nil
    ) throws(PostgresError) {
        let own = Connection.limits + (keepsSettings ? [] : Connection.outputSettings)
        let options = try Connection.parsed(target, purpose, applicationName, timeoutSeconds, own + settings)
        let names = CStringArray(options.map(\.0))
        let values = CStringArray(options.map(\.1))
        // SAFETY: both arrays end with nil and live through the call; libpq copies the strings.
        let started = unsafe withExtendedLifetime((names, values)) {
            unsafe PQconnectStartParams(names.constant, values.constant, 0)
        }
        guard let handle = unsafe started else {
            throw PostgresError(operation: "connect", message: "out of memory", isConnectionLost: true)
        }
        unsafe self.handle = handle
        self.purpose = purpose
        unsafe Remarks.takeOver(handle)
        // SAFETY: the handle lives.
        _ = unsafe PQsetErrorVerbosity(handle, PQERRORS_VERBOSE)
        try finishConnecting(timeoutSeconds: timeoutSeconds, interrupt: interrupt)
        _ = unsafe PQsetErrorVerbosity(handle, PQERRORS_DEFAULT)
    }

    deinit {
        // SAFETY: the handle is this object's own and is not used afterwards.
        nonisolated(unsafe) let handle = unsafe handle
        DescriptorTable.perform(in: table) { unsafe PQfinish(handle) }
    }
}

// MARK: Connecting

extension Connection {
    /// Returns the settings of the target and of the hub. If both set the same option, the hub's value counts.
    private static func parsed(
        _ target: ConnectionTarget, _ purpose: ConnectionTarget.Purpose, _ applicationName: String,
        _ timeoutSeconds: Int, _ settings: [String]
    ) throws(PostgresError) -> [(String, String)] {
        var options = try target.parameters()
        func set(_ name: String, _ value: String) {
            options.removeAll { $0.0 == name }
            options.append((name, value))
        }
        func setDefault(_ name: String, _ value: String) {
            if !options.contains(where: { $0.0 == name }) { options.append((name, value)) }
        }
        let given = options.last { $0.0 == "options" }?.1
        let ours = settings.map { "-c " + $0 }.joined(separator: " ")
        set("options", given.map { $0 + " " + ours } ?? ours)
        set("client_encoding", "UTF8")
        setDefault("application_name", applicationName)
        setDefault("connect_timeout", String(timeoutSeconds))
        // These settings reveal within half a minute that the server's machine has vanished.
        setDefault("keepalives_idle", "10")
        setDefault("keepalives_interval", "5")
        setDefault("keepalives_count", "4")
        setDefault("tcp_user_timeout", "30000")
        if purpose == .replication { set("replication", "database") }
        return options
    }

    private func finishConnecting(timeoutSeconds: Int, interrupt: Wake?) throws(PostgresError) {
        let deadline = Clock.monotonicNanoseconds() + UInt64(timeoutSeconds) * 1_000_000_000
        // SAFETY: libpq calls on this object's own, living handle.
        var state = unsafe PQstatus(handle) == CONNECTION_BAD ? PGRES_POLLING_FAILED : PGRES_POLLING_WRITING
        while state != PGRES_POLLING_OK {
            if state == PGRES_POLLING_FAILED { throw refusedConnection() }
            let now = Clock.monotonicNanoseconds()
            guard now < deadline else {
                throw PostgresError(
                    operation: "connect", message: "no answer within \(timeoutSeconds) s",
                    hint: "is the address right and the port reachable?", isConnectionLost: true)
            }
            let left = Int32(min((deadline - now) / 1_000_000 + 1, 60_000))
            // SAFETY: as above.
            let ready = waitForSocket(
                unsafe PQsocket(handle), writing: state == PGRES_POLLING_WRITING, interrupt, left)
            if ready.interrupt { throw Connection.interrupted("connect") }
            // SAFETY: as above.
            if ready.socket { state = unsafe PQconnectPoll(handle) }
        }
    }

    private func waitForSocket(_ socket: Int32, writing: Bool, _ interrupt: Wake?, _ timeout: Int32) -> Poll.Ready {
        Poll.wait(socket: socket, forWriting: writing, interrupt: interrupt, timeoutMilliseconds: timeout)
    }

    static func interrupted(_ operation: String) -> PostgresError {
        PostgresError(operation: operation, message: "interrupted: shutting down", isConnectionLost: true)
    }

    /// Returns the connection's last error.
    func connectionError(_ operation: String) -> PostgresError {
        // SAFETY: libpq's strings live as long as the handle; String copies them.
        let message = unsafe String(cString: PQerrorMessage(handle))
        return PostgresError(
            operation: operation, message: PostgresError.oneLine(message),
            isConnectionLost: unsafe PQstatus(handle) != CONNECTION_OK)
    }

    /// Returns the error of a failed connection. It has an SQLSTATE if the server refused the connection.
    private func refusedConnection() -> PostgresError {
        // SAFETY: as above.
        var error = PostgresError.refusedConnection(unsafe String(cString: PQerrorMessage(handle)))
        error.lacksPassword = unsafe PQconnectionNeedsPassword(handle) == 1
        return error
    }

    public var isUsable: Bool {
        // SAFETY: the handle lives.
        unsafe PQstatus(handle) == CONNECTION_OK
    }

    /// Version of the server as one number, such as 150020.
    public var serverVersion: Int {
        // SAFETY: the handle lives.
        Int(unsafe PQserverVersion(handle))
    }

    /// User, host, port and database, for log lines; never the password.
    public var place: String {
        // SAFETY: libpq's strings live as long as the handle; String copies them.
        unsafe "\(String(cString: PQuser(handle)))@\(String(cString: PQhost(handle))):\(String(cString: PQport(handle)))/\(String(cString: PQdb(handle)))"
    }
}

extension ConnectionTarget {
    /// Returns the settings in the target's URL or `key=value` string, by the names that libpq uses.
    public func parameters() throws(PostgresError) -> [(String, String)] {
        var complaint: UnsafeMutablePointer<CChar>?
        // SAFETY: libpq allocates the list and the complaint; both are freed below with libpq's own calls.
        guard let list = unsafe PQconninfoParse(text, &complaint) else {
            let message = unsafe complaint.map { unsafe String(cString: $0) } ?? "cannot be read"
            unsafe PQfreemem(complaint)
            throw PostgresError(operation: "database URL", message: PostgresError.oneLine(message))
        }
        defer { unsafe PQconninfoFree(list) }
        var parameters: [(String, String)] = []
        var entry = unsafe list
        // SAFETY: the list ends with an entry without a keyword.
        while let keyword = unsafe entry.pointee.keyword {
            if let value = unsafe entry.pointee.val {
                unsafe parameters.append((String(cString: keyword), String(cString: value)))
            }
            unsafe entry += 1
        }
        return parameters
    }
}

extension PostgresError {
    /// Joins the lines of a libpq message. libpq ends messages with a line break, may write several lines, and indents
    /// the later ones.
    static func oneLine(_ message: String) -> String {
        message.split(whereSeparator: \.isNewline).map { $0.drop(while: \.isWhitespace) }.joined(separator: "; ")
    }
}

// MARK: Queries

/// Rows that a query returned: text values by row and column.
public struct Rows: Sendable {
    public let columns: [String]
    public let values: [[String?]]
    /// Number of rows that a statement without a result affected; nil if the server does not report it.
    public let affected: Int?

    init(columns: [String], values: [[String?]], affected: Int? = nil) {
        self.columns = columns
        self.values = values
        self.affected = affected
    }

    /// Creates rows from recorded values. Names of columns were not recorded.
    public init(recorded values: [[String?]]) { self.init(columns: [], values: values) }

    public var first: [String?]? { values.first }
    public var isEmpty: Bool { values.isEmpty }
}

extension Connection {
    /// Runs one statement with parameters, which the SQL names `$1`, `$2` and so on.
    @discardableResult
    public func query(_ sql: String, _ parameters: [String?] = []) throws(PostgresError) -> Rows {
        let copies = CStringArray(parameters)
        // SAFETY: the array holds as many parameters as are announced and lives through the call.
        let result = unsafe withExtendedLifetime(copies) {
            unsafe PQexecParams(handle, sql, Int32(parameters.count), nil, copies.constant, nil, nil, 0)
        }
        return try unsafe rows(result, sql)
    }

    /// Runs a replication command, or any number of statements without parameters in one implicit transaction, and
    /// waits for the answer. If `interrupt` is signalled, asks the server to cancel; afterwards the connection cannot
    /// be used.
    @discardableResult
    public func execute(_ sql: String, interrupt: Wake? = nil) throws(PostgresError) -> Rows {
        if let interrupt { try sendAndWait(sql, interrupt) }
        // SAFETY: the handle lives; the results are freed in `rows` or here.
        let result = unsafe interrupt == nil ? PQexec(handle, sql) : PQgetResult(handle)
        let answer = try unsafe rows(result, sql)
        while interrupt != nil, let more = unsafe PQgetResult(handle) { unsafe PQclear(more) }
        return answer
    }

    private func sendAndWait(_ sql: String, _ interrupt: Wake) throws(PostgresError) {
        // SAFETY: libpq calls on this object's own, living handle.
        guard unsafe PQsendQuery(handle, sql) == 1 else { throw connectionError(Connection.firstWords(sql)) }
        while unsafe PQisBusy(handle) == 1 {
            let ready = Poll.wait(socket: unsafe PQsocket(handle), interrupt: interrupt, timeoutMilliseconds: -1)
            if ready.interrupt {
                cancel()
                throw Connection.interrupted(Connection.firstWords(sql))
            }
            guard unsafe PQconsumeInput(handle) == 1 else { throw connectionError(Connection.firstWords(sql)) }
        }
    }

    /// Asks the server to cancel the running statement. The server does not notice by itself that the hub no longer
    /// waits.
    func cancel() {
        // SAFETY: the handle lives; libpq allocates the request and frees it here.
        guard let request = unsafe PQgetCancel(handle) else { return }
        defer { unsafe PQfreeCancel(request) }
        var complaint = (UInt64(0), UInt64(0), UInt64(0), UInt64(0))
        // SAFETY: the complaint has the size that is announced. Nothing depends on whether the request arrives.
        _ = unsafe withUnsafeMutableBytes(of: &complaint) { room in
            unsafe PQcancel(request, room.baseAddress?.assumingMemoryBound(to: CChar.self), Int32(room.count))
        }
    }

    func rows(_ result: OpaquePointer?, _ sql: String) throws(PostgresError) -> Rows {
        guard let result = unsafe result else { throw connectionError(Connection.firstWords(sql)) }
        // SAFETY: the result is ours until cleared; row and column numbers stay below the counts it gives.
        defer { unsafe PQclear(result) }
        switch unsafe PQresultStatus(result) {
        case PGRES_TUPLES_OK: return unsafe Rows(result)
        case PGRES_COMMAND_OK:
            // SAFETY: libpq's string lives as long as the result; String copies it.
            let count = unsafe PQcmdTuples(result).flatMap { unsafe Int(String(cString: $0)) }
            return Rows(columns: [], values: [], affected: count)
        default: throw unsafe serverError(result, Connection.firstWords(sql))
        }
    }

    func serverError(_ result: OpaquePointer, _ operation: String) -> PostgresError {
        func field(_ code: UnicodeScalar) -> String? {
            // SAFETY: the result lives through this function; libpq's field strings live as long as it does.
            unsafe PQresultErrorField(result, Int32(code.value)).map { unsafe String(cString: $0) }
        }
        guard let message = field("M") else { return connectionError(operation) }
        return PostgresError(
            operation: operation, sqlState: field("C"), message: PostgresError.oneLine(message), hint: field("H"),
            isConnectionLost: !isUsable)
    }

    /// Returns the first words of a statement, which identify it in error messages.
    static func firstWords(_ sql: String) -> String {
        sql.split(whereSeparator: { $0 == " " || $0.isNewline }).prefix(3).joined(separator: " ")
    }
}

extension Rows {
    init(_ result: OpaquePointer) {
        // SAFETY: the caller keeps the result alive; indexes stay below the counts it gives.
        let width = unsafe PQnfields(result)
        columns = (0..<width).map { unsafe String(cString: PQfname(result, $0)) }
        let height = unsafe PQntuples(result)
        values = (0..<height).map { row in
            (0..<width).map { column in
                unsafe PQgetisnull(result, row, column) == 1 ? nil : String(cString: PQgetvalue(result, row, column))
            }
        }
        affected = nil
    }
}
