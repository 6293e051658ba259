import Bytes
import CPostgres
import Diagnostics
import Glibc
import System

/// The server's side of a replication stream, read from the socket into a buffer of our own.
///
/// libpq reads 16 KiB at a time and copies every message into memory it allocates for it; and a reader that is always a
/// little faster than the walsender makes the kernel wake it, and interrupt the walsender, row by row. Here a message is
/// read in place, and while the stream is busy a short rest lets more come together.
///
/// PostgreSQL, "Message Formats": after START_REPLICATION the server sends CopyBothResponse, then CopyData without end.
struct CopyStream: ~Copyable {
    private let socket: Int32
    private var buffer = ByteWriter(capacity: Limits.streamReadBytes)
    /// Where the next message begins in the buffer.
    private var start = 0
    /// What the last two reads brought.
    private var lastRead = 0
    private var readBefore = 0

    enum Message: ~Escapable {
        case data(RawSpan)
        /// The server streams from now on.
        case begins
        case refused(PostgresError)
        case ends
    }

    /// - Parameter socket: of a connection that libpq does not read from any more.
    init(socket: Int32) { self.socket = socket }

    /// Whether another read may bring something; one that brought nothing says no.
    var mayHaveMore: Bool { lastRead > 0 }

    /// The next message that is wholly there, or nil.
    @_lifetime(&self)
    mutating func next() throws(PostgresError) -> Message? {
        while let (kind, body) = try whole() {
            start = body.upperBound
            switch kind {
            case UInt8(ascii: "d"): return .data(buffer.bytes.extracting(body))
            case UInt8(ascii: "W"): return .begins
            case UInt8(ascii: "E"): return .refused(Self.error(buffer.bytes.extracting(body)))
            case UInt8(ascii: "c"), UInt8(ascii: "C"), UInt8(ascii: "Z"): return .ends
            // A notice, a changed setting, a notification: not for us.
            case UInt8(ascii: "N"), UInt8(ascii: "S"), UInt8(ascii: "A"): continue
            default: throw Self.failure("the server sent a message that does not belong into a stream")
            }
        }
        return nil
    }

    /// Kind and place of the message at `start`, if all of it has come.
    private func whole() throws(PostgresError) -> (kind: UInt8, body: Range<Int>)? {
        let available = buffer.count - start
        guard available >= Self.headerBytes else { return nil }
        let length = try length()
        guard available > length else { return nil }
        return (buffer.bytes.byte(start), start + Self.headerBytes..<start + 1 + length)
    }

    private static let headerBytes = 5

    /// As the message says it: of itself and what follows, without the kind.
    private func length() throws(PostgresError) -> Int {
        var reader = ByteReader(buffer.bytes.extracting(start..<start + Self.headerBytes))
        guard (try? reader.skip(1)) != nil, let length = try? Int(reader.uint32()), length >= 4,
            length <= Limits.maximumServerMessageBytes
        else { throw Self.failure("the server sent a message of an impossible length") }
        return length
    }

    // MARK: Reading

    /// Reads once what has arrived, without waiting for it.
    mutating func receive() throws(PostgresError) {
        restWhenBusy()
        readBefore = lastRead
        lastRead = 0
        buffer.dropFirst(start)
        start = 0
        // A rare large message made it grow.
        buffer.shrink(to: Limits.streamReadBytes)
        // A message that is larger than the buffer lets it grow with what really comes, whatever length it claims.
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

    /// Two short reads in a row say that the walsender is at work and we are ahead of it. A lonely transaction, with
    /// nothing read before it, never waits here.
    private func restWhenBusy() {
        if lastRead > 0, readBefore > 0, lastRead < Self.shortRead { usleep(Limits.streamRestMicroseconds) }
    }

    /// Small against what the kernel's socket buffers hold, so that the walsender is not stopped while we rest.
    private static let shortRead = 64 << 10

    // MARK: Complaints

    /// PostgreSQL, "Error and Notice Message Fields": a letter and a string each, until a zero.
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
