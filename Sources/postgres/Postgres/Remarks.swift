import CPostgres
import Diagnostics

/// Handler of messages that the server or libpq sends without a request, such as a notice or a warning that the
/// connection ends.
///
/// Without the handler, libpq would print such messages to standard error, in another form than the hub's log lines.
/// The hub logs only the kind of a message, because its text may contain row data.
enum Remarks {
    /// Installs the handler on a connection, before any message can arrive.
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
