import Bytes
import Net

/// Receiver of frames for connections, for the turn of one thread: in the hub, a socket loop.
public protocol FrameSink: AnyObject {
    /// Monotonic time of the turn, in nanoseconds.
    var now: UInt64 { get }
    /// Bytes of all pieces of this turn so far.
    var turnPieceBytes: Int { get }
    /// True if so much is queued that it should be sent before more is added.
    var hasQueuedEnough: Bool { get }

    /// Stores bytes for many connections once, valid until the end of this turn.
    func share(_ bytes: RawSpan) -> Piece
    /// Queues a piece. `continues`: the piece belongs to the same frame as the piece queued before it.
    func send(_ piece: Piece, to connection: ConnectionID, continues: Bool)
}

extension SocketLoop: FrameSink {}
