import Bytes
import CPostgres
import System

/// Reading of a statement's rows one by one. Only one row is in memory, and the server waits while the caller processes
/// it.
extension Connection {
    /// Calls `each` for every row, in the form of the replication protocol (TupleData: a count, then a kind, a length
    /// and the text of each value). If `each` returns false, the statement is cancelled, and the connection can no
    /// longer be used. Throws in the same cases as `pipeline`.
    public func stream(
        _ sql: String, timeoutMilliseconds: Int, interrupt: Wake? = nil, each: (RawSpan) -> Bool
    ) throws(PostgresError) {
        // SAFETY: libpq calls on this object's own, living handle; it copies the statement.
        guard unsafe PQsendQueryParams(handle, sql, 0, nil, nil, nil, nil, 0) == 1,
            unsafe PQsetSingleRowMode(handle) == 1
        else { throw connectionError("rows") }
        var tuple = ByteWriter(capacity: 4096)
        var refusal: PostgresError?
        while let result = unsafe try nextResult(deadline(timeoutMilliseconds), interrupt) {
            // SAFETY: the result is ours until it is cleared, and not used afterwards.
            defer { unsafe PQclear(result) }
            switch unsafe PQresultStatus(result) {
            case PGRES_SINGLE_TUPLE:
                tuple.removeAll()
                unsafe Connection.append(result, to: &tuple)
                guard each(tuple.bytes) else { throw abandoned(Connection.unwanted) }
            case PGRES_TUPLES_OK: continue
            default: refusal = unsafe serverError(result, "rows")
            }
        }
        if let refusal { throw refusal }
    }

    private func deadline(_ milliseconds: Int) -> UInt64 {
        Clock.monotonicNanoseconds() + UInt64(milliseconds) * 1_000_000
    }

    /// Appends the row that the result contains.
    private static func append(_ result: OpaquePointer, to tuple: inout ByteWriter) {
        // SAFETY: the caller keeps the result alive; columns stay below the count that it gives.
        let width = unsafe PQnfields(result)
        tuple.append(big: UInt16(truncatingIfNeeded: width))
        for column in 0..<width {
            // SAFETY: as above; libpq gives the length of each value, which lives as long as the result.
            guard unsafe PQgetisnull(result, 0, column) == 0, let value = unsafe PQgetvalue(result, 0, column) else {
                tuple.append(UInt8(ascii: "n"))
                continue
            }
            let length = unsafe Int(PQgetlength(result, 0, column))
            tuple.append(UInt8(ascii: "t"))
            tuple.append(big: UInt32(truncatingIfNeeded: length))
            unsafe tuple.append(RawSpan(_unsafeStart: UnsafeRawPointer(value), byteCount: length))
        }
    }
}
