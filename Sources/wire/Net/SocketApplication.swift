import System

/// Identity of one connection on one loop, for as long as the connection lives. Calls with an older id are ignored.
public struct ConnectionID: Hashable, Sendable, BitwiseCopyable {
    public let seat: UInt32
    /// Number that distinguishes the successive connections of one seat.
    public let generation: UInt32

    public init(seat: UInt32, generation: UInt32) {
        self.seat = seat
        self.generation = generation
    }
}

public typealias PeerAddress = SocketAddress

/// Reason why a connection has ended.
public enum ConnectionEnd: Sendable, Equatable, BitwiseCopyable {
    /// The peer closed, or finished sending and got all queued output.
    case byPeer
    /// The kernel reported this errno.
    case failed(code: Int32)
    /// TLS failed: a record that does not decrypt, or an alert.
    case tlsFailed
    /// The hub closed the connection after sending all queued output.
    case closedHere
    /// The hub closed the connection, and the peer did not take the queued output in time.
    case closedUnfinished
    /// The peer was slower than the limits of its outbox allow.
    case fellBehind
    /// The peer sent a message above the receive limit, or an incomplete message exceeded the limit of memory or time.
    case inputTooLong
    /// The server stopped.
    case stopped
}

/// User of one loop that gives meaning to the bytes. The loop makes all calls on its own thread, and never one inside
/// another.
public protocol SocketApplication: AnyObject {
    /// Receives the loop, in the first call.
    func started(on loop: SocketLoop)

    /// Called when a connection is ready, after its TLS handshake if there is one.
    func opened(_ connection: ConnectionID, from peer: PeerAddress, isSecure: Bool)

    /// Receives all bytes not yet consumed, in place. Returns the number of bytes consumed now. The loop keeps the rest
    /// and passes it again together with further bytes.
    func received(_ connection: ConnectionID, _ bytes: inout MutableRawSpan) -> Int

    /// Called when the peer has finished sending or is gone. Output sent from now on is dropped. `closed` follows when
    /// earlier output was sent or cannot be sent.
    func stopsTaking(_ connection: ConnectionID)

    /// Called exactly once for every `opened`, as the last call for the connection.
    func closed(_ connection: ConnectionID, _ end: ConnectionEnd)

    /// Called when the loop's bell was rung: the application checks its mailbox and the log's end.
    func rung()

    /// Called once per turn of the loop, after events and timers; the loop then flushes the outboxes. Returns true if
    /// there is more to do at once, so that the loop does not sleep.
    func turn() -> Bool

    /// Called when a timer expires.
    func timeIsUp(_ token: UInt64)

    /// Called when nothing was received for the idle limit. The application decides whether to close the connection.
    func wentIdle(_ connection: ConnectionID)

    /// Called when a connection's backlog exceeds `filledBytes`, and again when more is added. The application should
    /// postpone any output that can wait.
    func filled(_ connection: ConnectionID)

    /// Called when a filled connection has taken its whole backlog.
    func drained(_ connection: ConnectionID)

    /// Called when the outbox exceeds one of its limits. The loop has dropped all output after the frame in progress.
    /// The application may send a last message. If the application does not close the connection, the loop does.
    func fellBehind(_ connection: ConnectionID, queuedBytes: Int)

    /// Called when a connection's incomplete input exceeds the memory for it. The application may send a last message.
    /// If the application does not close the connection, the loop does.
    func hasNoRoom(_ connection: ConnectionID)

    /// Called when a connection's input was not complete in time. The application may send a last message, as for
    /// `hasNoRoom`.
    func tookTooLong(_ connection: ConnectionID)
}

extension SocketApplication {
    public func stopsTaking(_ connection: ConnectionID) {}
}
