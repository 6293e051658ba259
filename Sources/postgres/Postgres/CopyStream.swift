import Bytes
import CPostgres
import Diagnostics
import Glibc
import System

/// Reader of the server's side of a replication stream. The reader reads from the socket into its own buffer.
///
/// libpq reads 16 KiB at a time and copies every message into newly allocated memory. And a reader slightly faster than
/// the walsender makes the kernel wake it, and interrupt the walsender, for every row. This reader parses messages in
/// place. While the stream is busy, a short pause lets more data collect.
///
/// PostgreSQL, "Message Formats": after START_REPLICATION the server sends CopyBothResponse, then CopyData without end.
struct CopyStream: ~Copyable {
    private let socket: Int32
    private var buffer = ByteWriter(capacity: Limits.streamReadBytes)
    /// Start of the next message in the buffer.
    private var start = 0
    /// Numbers of bytes of the last two reads.
    private var lastRead = 0
    private var readBefore = 0

    enum Message: ~Escapable {
        case data(RawSpan)
        /// The server begins to stream.
        case begins
        case refused(PostgresError)
        case ends
    }

    /// - Parameter socket: of a connection from which libpq does not read any more.
    init(socket: Int32) { self.socket = socket }

    /// True if another read may return data; false after a read that returned none.
    var mayHaveMore: Bool { lastRead > 0 }

    /// Returns the next complete message, or nil.
    @_lifetime(&self)
    mutating func next() throws(PostgresError) -> Message? {
        while let (kind, body) = try whole() {
            start = body.upperBound
            switch kind {
            case UInt8(ascii: "d"): return .data(buffer.bytes.extracting(body))
            case UInt8(ascii: "W"): return .begins
            case UInt8(ascii: "E"): return .refused(Self.error(buffer.bytes.extracting(body)))
            case UInt8(ascii: "c"), UInt8(ascii: "C"), UInt8(ascii: "Z"): return .ends
            // A notice, a changed setting, a notification: the hub ignores them.
            case UInt8(ascii: "N"), UInt8(ascii: "S"), UInt8(ascii: "A"): continue
            default: throw Self.failure("the server sent a message that does not belong into a stream")
            }
        }
        return nil
    }

    /// Returns kind and place of the message at `start`, if the whole message has arrived.
    private func whole() throws(PostgresError) -> (kind: UInt8, body: Range<Int>)? {
        let available = buffer.count - start
        guard available >= Self.headerBytes else { return nil }
        let length = try length()
        guard available > length else { return nil }
        return (buffer.bytes.byte(start), start + Self.headerBytes..<start + 1 + length)
    }

    private static let headerBytes = 5

    /// Returns the message's length field, which counts itself and the body, but not the kind.
    private func length() throws(PostgresError) -> Int {
        var reader = ByteReader(buffer.bytes.extracting(start..<start + Self.headerBytes))
        guard (try? reader.skip(1)) != nil, let length = try? Int(reader.uint32()), length >= 4,
            length <= Limits.maximumServerMessageBytes
        else { throw Self.failure("the server sent a message of an impossible length") }
        return length
    }

    // MARK: Reading

    /// Reads the available bytes once, without waiting.
    mutating func receive() throws(PostgresError) {
        restWhenBusy()
        readBefore = lastRead
        lastRead = 0
        buffer.dropFirst(start)
        start = 0
        // A rare large message may have made the buffer grow.
        buffer.shrink(to: Limits.streamReadBytes)
        // For a message larger than the buffer, the buffer grows with the bytes that really arrive, whatever length the
        // message claims.
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

    /// Pauses if two short reads in a row show that the walsender is busy and slower than this reader. A single
    /// transaction after an idle time never waits here.
    private func restWhenBusy() {
        if lastRead > 0, readBefore > 0, lastRead < Self.shortRead { usleep(Limits.streamRestMicroseconds) }
    }

    /// Small compared with the kernel's socket buffers, so that the pause does not block the walsender.
    private static let shortRead = 64 << 10

    // MARK: Errors

    /// Parses an error. PostgreSQL, "Error and Notice Message Fields": a letter and a string each, until a zero.
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
