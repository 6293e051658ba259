import CPostgres
import System

extension Connection {
    /// What another session said on a channel that this one listens to (`LISTEN`); nil when the time is up first.
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

    /// What the server remarks (RAISE NOTICE, a warning) goes nowhere; libpq would write it to standard error, and functions
    /// of others may put into it what is for no log.
    public func ignoreNotices() {
        // SAFETY: the handle lives; the function uses nothing of what it is given.
        _ = unsafe PQsetNoticeReceiver(handle, { _, _ in }, nil)
    }
}
