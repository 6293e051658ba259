import Bytes
import CPostgres
import Glibc
import System

/// Calls that a connection needs in addition to its replication stream.
extension Connection {
    /// True if the connection is encrypted with TLS or GSSAPI.
    var isEncrypted: Bool {
        // SAFETY: the handle lives.
        unsafe PQsslInUse(handle) == 1 || PQgssEncInUse(handle) == 1
    }

    var socket: Int32 {
        // SAFETY: the handle lives.
        unsafe PQsocket(handle)
    }

    /// Sends the command that begins a stream. Afterwards the caller reads and writes the socket, and libpq is used
    /// only to close it.
    func handOver(sending command: String) throws(PostgresError) {
        // SAFETY: the handle lives; Swift passes a C string that lives for the call.
        guard unsafe PQsendQuery(handle, command) == 1, unsafe PQflush(handle) == 0 else {
            throw connectionError(StartReplication.name)
        }
        isHandedOver = true
    }

    /// Sends one CopyData message, such as a standby status update, on a streaming connection.
    public func sendCopy(_ message: RawSpan) throws(PostgresError) {
        if isHandedOver { return try sendDirectly(message) }
        // SAFETY: libpq copies the bytes inside the closure.
        let sent = unsafe message.withUnsafeBytes { bytes in
            unsafe PQputCopyData(handle, bytes.baseAddress?.assumingMemoryBound(to: CChar.self), Int32(bytes.count))
        }
        guard sent == 1, unsafe PQflush(handle) == 0 else { throw connectionError("confirm") }
    }

    private func sendDirectly(_ message: RawSpan) throws(PostgresError) {
        var frame = ByteWriter(capacity: message.byteCount + 5)
        frame.append(UInt8(ascii: "d"))
        frame.append(big: UInt32(message.byteCount + 4))
        frame.append(message)
        while !frame.isEmpty {
            do throws(SystemError) {
                frame.dropFirst(try sendOnce(frame.bytes))
            } catch {
                guard error.code == EAGAIN else {
                    throw PostgresError(operation: "confirm", message: error.reason, isConnectionLost: true)
                }
                // The wait is short, because the walsender reads the hub's messages even while it waits to write.
                _ = Poll.wait(socket: socket, forWriting: true, interrupt: nil, timeoutMilliseconds: 1000)
            }
        }
    }

    private func sendOnce(_ bytes: RawSpan) throws(SystemError) -> Int {
        try systemCall("send", "") {
            // SAFETY: the kernel reads the span's bytes inside the closure.
            unsafe bytes.withUnsafeBytes { unsafe send(socket, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
        }
    }
}
