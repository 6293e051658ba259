/// Name of a field in a log line.
///
/// The initializer is private, so all keys are in this file. Authors of programs that read logs find every key here,
/// and no code can invent a key to log a row's value.
public struct LogKey: Sendable, Hashable {
    public let name: String

    fileprivate init(_ name: String) {
        self.name = name
    }
}

/// Keys of log fields, used as `[.slot("tidewire"), .bytes(4096)]`: calling a key makes a field.
extension LogField {
    // Identity and place
    public static let version = LogKey("version")
    public static let pid = LogKey("pid")
    public static let host = LogKey("host")
    public static let port = LogKey("port")
    public static let database = LogKey("database")
    public static let user = LogKey("user")
    public static let address = LogKey("address")
    public static let path = LogKey("path")
    public static let setting = LogKey("setting")
    public static let source = LogKey("source")
    public static let signal = LogKey("signal")
    public static let thread = LogKey("thread")
    public static let project = LogKey("project")

    // Replication
    public static let slot = LogKey("slot")
    public static let publication = LogKey("publication")
    public static let serverVersion = LogKey("server_version")
    public static let timeline = LogKey("timeline")
    public static let systemIdentifier = LogKey("system_identifier")
    public static let lsn = LogKey("lsn")
    public static let fromLSN = LogKey("from_lsn")
    public static let stream = LogKey("stream")
    public static let message = LogKey("message")
    public static let tenure = LogKey("tenure")
    public static let node = LogKey("node")
    public static let toLSN = LogKey("to_lsn")
    public static let confirmedLSN = LogKey("confirmed_lsn")
    public static let xid = LogKey("xid")
    public static let relation = LogKey("relation")
    public static let oid = LogKey("oid")
    public static let object = LogKey("object")
    public static let policy = LogKey("policy")
    public static let state = LogKey("state")
    public static let catalogVersion = LogKey("catalog_version")

    // The event log
    public static let offset = LogKey("offset")
    public static let fromOffset = LogKey("from_offset")
    public static let toOffset = LogKey("to_offset")
    public static let epoch = LogKey("epoch")
    public static let segment = LogKey("segment")
    public static let segments = LogKey("segments")
    public static let entries = LogKey("entries")
    public static let transactions = LogKey("transactions")

    // Amounts and durations
    public static let bytes = LogKey("bytes")
    public static let count = LogKey("count")
    public static let limit = LogKey("limit")
    public static let duration = LogKey("duration_ms")
    public static let delay = LogKey("delay_ms")
    public static let secondsLeft = LogKey("seconds_left")
    public static let attempt = LogKey("attempt")

    // Errors
    public static let operation = LogKey("operation")
    public static let errno = LogKey("errno")
    public static let sqlstate = LogKey("sqlstate")
    public static let severity = LogKey("severity")
    public static let reason = LogKey("reason")
    public static let error = LogKey("error")
    public static let hint = LogKey("hint")
    public static let exitStatus = LogKey("exit_status")
}
