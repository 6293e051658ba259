import CPostgres
import System

extension Connection {
    /// Returns the payload of a notification that another session sent on a channel to which this session listens.
    /// Returns nil after the timeout.
    public func notification(waitingMilliseconds: Int32) throws(PostgresError) -> String? {
        let deadline = Clock.monotonicNanoseconds() + UInt64(max(0, waitingMilliseconds)) * 1_000_000
        while true {
            // SAFETY: libpq calls on this object's own, living handle; it allocates the notification and frees it here,
            // after its text was copied.
            if let found = unsafe PQnotifies(handle) {
                defer { unsafe PQfreemem(found) }
                return unsafe String(cString: found.pointee.extra)
            }
            let now = Clock.monotonicNanoseconds()
            guard now < deadline else { return nil }
            let left = Int32((deadline - now) / 1_000_000 + 1)
            _ = Poll.wait(socket: unsafe PQsocket(handle), interrupt: nil, timeoutMilliseconds: left)
            guard unsafe PQconsumeInput(handle) == 1 else { throw connectionError("wait for a notification") }
        }
    }

    /// Discards notices and warnings of the server. They come from functions that other people wrote, and concern only
    /// them.
    public func ignoreNotices() {
        // SAFETY: the handle lives; the function uses nothing of what it is given.
        _ = unsafe PQsetNoticeReceiver(handle, { _, _ in }, nil)
    }

    /// Appends the notices and warnings that the server sends while `body` runs, even if `body` throws.
    public func withNotices<T>(
        _ notices: inout [PostgresNotice], _ body: () throws(PostgresError) -> T
    ) throws(PostgresError) -> T {
        let collected = CollectedNotices()
        // SAFETY: the handle lives; `collected` lives until the receiver that was there before is put back, below. The
        // others, which say it in the log or ignore it, make no use of their argument.
        let before = unsafe PQsetNoticeReceiver(
            handle,
            { argument, result in
                guard let argument = unsafe argument, let result = unsafe result else { return }
                let collected = unsafe Unmanaged<CollectedNotices>.fromOpaque(argument).takeUnretainedValue()
                collected.notices.append(unsafe PostgresNotice(result))
            }, Unmanaged.passUnretained(collected).toOpaque())
        defer {
            // SAFETY: as above.
            _ = unsafe PQsetNoticeReceiver(handle, before, nil)
            notices += collected.notices
        }
        return try body()
    }
}

/// Notice or warning that the server sent while it ran a statement.
public struct PostgresNotice: Sendable, Equatable {
    /// `NOTICE`, `WARNING` and so on, in English even if the server uses another language.
    public let severity: String
    public let sqlState: String?
    public let message: String
    public let hint: String?

    init(_ result: OpaquePointer) {
        func field(_ code: UnicodeScalar) -> String? {
            // SAFETY: libpq keeps the result through the call of the receiver; the text is copied.
            unsafe PQresultErrorField(result, Int32(code.value)).map { unsafe String(cString: $0) }
        }
        severity = field("V") ?? field("S") ?? ""
        sqlState = field("C")
        message = field("M").map(PostgresError.oneLine) ?? ""
        hint = field("H")
    }
}

private final class CollectedNotices {
    var notices: [PostgresNotice] = []
}
