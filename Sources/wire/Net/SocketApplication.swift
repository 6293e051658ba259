import System

/// Identity of one connection on one loop. The loop ignores calls with the identity of an ended connection.
public struct ConnectionID: Hashable, Sendable, BitwiseCopyable {
    public let seat: UInt32
    /// Number that distinguishes this connection from earlier ones in the same seat (index in the loop's table).
    public let generation: UInt32

    public init(seat: UInt32, generation: UInt32) {
        self.seat = seat
        self.generation = generation
    }
}

public typealias PeerAddress = SocketAddress

/// Reason why a connection has ended.
public enum ConnectionEnd: Sendable, Equatable, BitwiseCopyable {
    /// The peer closed the connection, or finished sending and received all queued output.
    case byPeer
    /// The kernel reported an error: this errno.
    case failed(code: Int32)
    /// TLS failed: a record could not be decrypted, or the peer sent an alert.
    case tlsFailed
    /// The hub closed the connection after sending all queued output.
    case closedHere
    /// The hub closed the connection, but the peer did not take the queued output in time.
    case closedUnfinished
    /// The peer took its output so slowly that a limit of the outbox was exceeded.
    case fellBehind
    /// The peer sent a message above the receive limit, or its incomplete message exceeded the limit of memory or time.
    case inputTooLong
    /// The server stopped.
    case stopped
}

/// Receiver of everything that happens on a loop's connections: it interprets the bytes that the loop reads, and queues
/// output. The loop makes all calls on its own thread, one after the other, never nested.
public protocol SocketApplication: AnyObject {
    /// Receives the loop that the application will use. This is the first call.
    func started(on loop: SocketLoop)

    /// Called when a connection is ready, after its TLS handshake if there is one.
    func opened(_ connection: ConnectionID, from peer: PeerAddress, isSecure: Bool)

    /// Receives all bytes not yet consumed, in place. Returns the number of bytes that it consumes now. The loop keeps
    /// the rest and passes it again together with further bytes.
    func received(_ connection: ConnectionID, _ bytes: inout MutableRawSpan) -> Int

    /// Called when the peer has finished sending or is disconnected. The loop drops output sent from now on. It calls
    /// `closed` after earlier output was sent or cannot be sent.
    func peerStoppedReading(_ connection: ConnectionID)

    /// Called exactly once for every `opened`, as the last call for the connection.
    func closed(_ connection: ConnectionID, _ end: ConnectionEnd)

    /// Called after another thread rang the loop's bell. The application checks its mailbox and the end of the event
    /// log.
    func drainMailbox()

    /// Called once per turn of the loop, after events and timers. The loop then flushes the outboxes. Returns true if
    /// there is more to do, so that the loop begins the next turn without waiting.
    func turn() -> Bool

    /// Called when a timer expires, with the token that the application gave it.
    func timeIsUp(_ token: UInt64)

    /// Called when the peer has sent nothing for the idle limit. The application decides whether to close the
    /// connection.
    func wentIdle(_ connection: ConnectionID)

    /// Called when a connection's backlog exceeds `filledBytes`, and again whenever more is added. The application
    /// should postpone output that is not urgent.
    func filled(_ connection: ConnectionID)

    /// Called when the peer of a filled connection has taken the whole backlog.
    func drained(_ connection: ConnectionID)

    /// Called when a connection's outbox exceeds one of its limits. The loop has dropped all output except the rest of
    /// a partly sent frame. The application may send a last message. If the application does not close the connection,
    /// the loop does.
    func fellBehind(_ connection: ConnectionID, queuedBytes: Int)

    /// Called when a connection's incomplete input exceeds its memory budget. The application may send a last message.
    /// If the application does not close the connection, the loop does.
    func hasNoRoom(_ connection: ConnectionID)

    /// Called when a message from the peer was not complete in time. The application may send a last message. If the
    /// application does not close the connection, the loop does.
    func tookTooLong(_ connection: ConnectionID)
}

extension SocketApplication {
    public func peerStoppedReading(_ connection: ConnectionID) {}
}
