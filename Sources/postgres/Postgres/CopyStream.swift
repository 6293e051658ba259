import Bytes
import CPostgres
import Diagnostics
import Glibc
import System

/// Reader of a replication stream that reads the socket itself, without libpq, into its own buffer.
///
/// libpq reads 16 KiB at a time and copies each message into newly allocated memory. Also, if a reader is slightly
/// faster than the walsender, the kernel wakes the reader and interrupts the walsender for every row. This reader
/// parses messages in place. While the stream is busy, it pauses briefly so that more bytes collect.
///
/// PostgreSQL, "Message Formats": after START_REPLICATION the server sends CopyBothResponse, then CopyData messages
/// without end.
struct CopyStream: ~Copyable {
    private let socket: Int32
    private var buffer = ByteWriter(capacity: Limits.streamReadBytes)
    /// Offset of the next message in the buffer.
    private var start = 0
    /// Number of bytes of the last read.
    private var lastRead = 0
    /// Number of bytes of the read before the last one.
    private var readBefore = 0

    enum Message: ~Escapable {
        case data(RawSpan)
        /// The server confirms that it begins to stream.
        case begins
        case refused(PostgresError)
        case ends
    }

    /// Creates a reader.
    ///
    /// - Parameter socket: socket of a connection from which libpq no longer reads.
    init(socket: Int32) { self.socket = socket }

    /// True if another read may return bytes; false if the last read returned none.
    var mayHaveMore: Bool { lastRead > 0 }

    /// Returns the next complete message; nil if none has arrived.
    @_lifetime(&self)
    mutating func next() throws(PostgresError) -> Message? {
        while let (kind, body) = try whole() {
            start = body.upperBound
            switch kind {
            case UInt8(ascii: "d"): return .data(buffer.bytes.extracting(body))
            case UInt8(ascii: "W"): return .begins
            case UInt8(ascii: "E"): return .refused(Self.error(buffer.bytes.extracting(body)))
            case UInt8(ascii: "c"), UInt8(ascii: "C"), UInt8(ascii: "Z"): return .ends
            // The hub ignores notices, changed settings and notifications.
            case UInt8(ascii: "N"), UInt8(ascii: "S"), UInt8(ascii: "A"): continue
            default: throw Self.failure("the server sent a message that does not belong into a stream")
            }
        }
        return nil
    }

    /// Returns the kind of the message at `start` and the range of its body; nil if the message is not complete.
    private func whole() throws(PostgresError) -> (kind: UInt8, body: Range<Int>)? {
        let available = buffer.count - start
        guard available >= Self.headerBytes else { return nil }
        let length = try length()
        guard available > length else { return nil }
        return (buffer.bytes.byte(start), start + Self.headerBytes..<start + 1 + length)
    }

    private static let headerBytes = 5

    /// Returns the message's length field. It counts itself and the body, but not the kind.
    private func length() throws(PostgresError) -> Int {
        var reader = ByteReader(buffer.bytes.extracting(start..<start + Self.headerBytes))
        guard (try? reader.skip(1)) != nil, let length = try? Int(reader.uint32()), length >= 4,
            length <= Limits.maximumServerMessageBytes
        else { throw Self.failure("the server sent a message of an impossible length") }
        return length
    }

    // MARK: Reading

    /// Reads the available bytes once, and does not wait for any.
    mutating func receive() throws(PostgresError) {
        restWhenBusy()
        readBefore = lastRead
        lastRead = 0
        buffer.dropFirst(start)
        start = 0
        // A rare large message may have enlarged the buffer.
        buffer.shrink(to: Limits.streamReadBytes)
        // If a message is larger than the buffer, the buffer grows with the bytes that really arrive. The length that
        // the message states is not trusted.
        let room = max(Limits.streamReadBytes - buffer.count, Self.leastRoom)
        let socket = socket
        do throws(SystemError) {
            // SAFETY: the kernel writes into the room it is given and says how much.
            lastRead = unsafe try buffer.append(upTo: room) { room throws(SystemError) in
                try systemCall("receive", "") {
                    unsafe recv(socket, room.baseAddress, room.count, Int32(MSG_DONTWAIT))
                }
            }
        } catch {
            if error.code == EAGAIN { return }
            throw Self.failure("the connection was lost: \(error.reason)")
        }
        if lastRead == 0 { throw Self.failure("the server closed the connection") }
    }

    private static let leastRoom = 256 << 10

    /// Pauses if two consecutive short reads show that the walsender is busy and slower than this reader. A single
    /// transaction after an idle time is never delayed.
    private func restWhenBusy() {
        if lastRead > 0, readBefore > 0, lastRead < Self.shortRead { usleep(Limits.streamRestMicroseconds) }
    }

    /// Size below which a read counts as short. It is small compared with the kernel's socket buffers, so that the
    /// pause does not block the walsender.
    private static let shortRead = 64 << 10

    // MARK: Errors

    /// Parses an error. PostgreSQL, "Error and Notice Message Fields": pairs of a letter and a string, until a zero
    /// byte.
    static func error(_ body: RawSpan) -> PostgresError {
        var error = PostgresError(operation: "stream", message: "an error without words")
        var reader = ByteReader(body)
        while let field = try? reader.uint8(), field != 0, let text = try? reader.cString() {
            switch field {
            case UInt8(ascii: "C"): error.sqlState = text.text
            case UInt8(ascii: "M"): error.message = PostgresError.oneLine(text.text)
            case UInt8(ascii: "H"): error.hint = text.text
            default: break
            }
        }
        return error
    }

    static func failure(_ message: String) -> PostgresError {
        PostgresError(operation: "stream", message: message, isConnectionLost: true)
    }
}
