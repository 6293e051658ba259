import CPostgres
import Diagnostics

/// Handler of messages that the server or libpq sends unasked: a notice, or a warning that the connection ends.
///
/// Without the handler, libpq would print the message to standard error, in another form than the hub's log lines. The
/// hub logs only the message's kind. The text is not logged, because it may contain row data.
enum Remarks {
    /// Installs the handler on a connection, before the first byte.
    static func takeOver(_ handle: OpaquePointer) {
        // SAFETY: the handle lives; the function uses nothing but the result, which libpq keeps through the call.
        _ = unsafe PQsetNoticeReceiver(
            handle,
            { _, result in
                guard let result = unsafe result else { return }
                let notice = unsafe PostgresNotice(result)
                Log.shared.debug(
                    "PostgreSQL sent a notice", [.severity(notice.severity), .sqlstate(notice.sqlState ?? "")])
            }, nil)
    }
}
