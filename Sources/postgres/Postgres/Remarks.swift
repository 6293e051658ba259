import CPostgres
import Diagnostics

/// What the server, or libpq itself, remarks on a connection without having been asked for it: a notice, a warning that
/// the connection ends.
///
/// libpq would write it to standard error, between our lines and in no form of ours. Our log has that there was one, and of
/// which kind: the text may have what is in rows, and is for no log.
enum Remarks {
    /// Of every connection, from its first byte on.
    static func takeOver(_ handle: OpaquePointer) {
        // SAFETY: the handle lives; the function uses nothing but the result, which libpq keeps through the call.
        _ = unsafe PQsetNoticeReceiver(
            handle,
            { _, result in
                guard let result = unsafe result else { return }
                let notice = unsafe PostgresNotice(result)
                Log.shared.debug(
                    "PostgreSQL remarks something", [.severity(notice.severity), .sqlstate(notice.sqlState ?? "")])
            }, nil)
    }
}
