import Bytes
import Net

/// Receiver of frames for connections. In the hub it is a socket loop; it belongs to one thread.
public protocol FrameSink: AnyObject {
    /// Monotonic time of the turn, in nanoseconds.
    var now: UInt64 { get }
    /// Number of bytes that were queued or shared in this turn so far.
    var turnPieceBytes: Int { get }
    /// True if so many bytes are queued that the loop should send before it adds more.
    var hasQueuedEnough: Bool { get }

    /// Stores bytes once for use by many connections. They stay valid until the end of this turn.
    func share(_ bytes: RawSpan) -> Piece
    /// Queues a piece for a connection. If `continues` is true, the piece belongs to the same frame as the one before
    /// it.
    func send(_ piece: Piece, to connection: ConnectionID, continues: Bool)
}

extension SocketLoop: FrameSink {}
