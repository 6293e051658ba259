import System

/// One connection on one loop, for as long as it lives. An id that outlived its connection is harmless: calls with it
/// are ignored.
public struct ConnectionID: Hashable, Sendable, BitwiseCopyable {
    public let seat: UInt32
    /// Tells the connections apart that had the same seat one after the other.
    public let generation: UInt32

    public init(seat: UInt32, generation: UInt32) {
        self.seat = seat
        self.generation = generation
    }
}

public typealias PeerAddress = SocketAddress

/// Why a connection is no more.
public enum ConnectionEnd: Sendable, Equatable, BitwiseCopyable {
    /// The peer closed, or finished sending and got what was queued for it.
    case byPeer
    /// The kernel gave up, with this errno.
    case failed(code: Int32)
    /// TLS broke: a record that does not decrypt, an alert.
    case tlsFailed
    /// We closed it, and all that was queued before went out.
    case closedHere
    /// We closed it, and the peer did not take what was queued in time.
    case closedUnfinished
    /// It was slower than the limits of its outbox allow.
    case fellBehind
    /// It sent a message larger than the receive limit, or began what there was no room or no time for.
    case inputTooLong
    /// The server stopped.
    case stopped
}

/// What lives on one loop and gives its bytes a meaning. All calls come on the loop's own thread, none inside another.
public protocol SocketApplication: AnyObject {
    /// The first call.
    func started(on loop: SocketLoop)

    /// A connection is ready: after its TLS handshake, if there is one.
    func opened(_ connection: ConnectionID, from peer: PeerAddress, isSecure: Bool)

    /// All bytes that were not consumed yet, in place. Returns how many are consumed now; the rest is kept and shown
    /// again together with more.
    func received(_ connection: ConnectionID, _ bytes: inout MutableRawSpan) -> Int

    /// The peer is through with it, or gone: what is sent from now on is dropped. `closed` follows when what was sent before has
    /// gone out, or cannot.
    func stopsTaking(_ connection: ConnectionID)

    /// Exactly once for every `opened`, and the last call about it.
    func closed(_ connection: ConnectionID, _ end: ConnectionEnd)

    /// The loop's bell was rung: look at the mailbox and the log's end.
    func rung()

    /// Once per turn of the loop, after events and timers; outboxes are flushed after it. True when there is more to do
    /// at once, so that the loop does not sleep.
    func turn() -> Bool

    /// A timer's time has come.
    func timeIsUp(_ token: UInt64)

    /// Nothing was received for the idle limit. Saying goodbye is the application's part.
    func wentIdle(_ connection: ConnectionID)

    /// More waits for it than a moment's: what can be sent later should be. Said again as long as more is added.
    func filled(_ connection: ConnectionID)

    /// It has taken all of that.
    func drained(_ connection: ConnectionID)

    /// The outbox passed one of its limits. Everything behind the frame under way has been dropped; a farewell may be
    /// sent now. Unless the application closes it, the loop does.
    func fellBehind(_ connection: ConnectionID, queuedBytes: Int)

    /// What it began and did not finish takes more memory than there is for that. A farewell may be sent; unless the
    /// application closes it, the loop does.
    func hasNoRoom(_ connection: ConnectionID)

    /// What it began was not finished in time. Likewise.
    func tookTooLong(_ connection: ConnectionID)
}

extension SocketApplication {
    public func stopsTaking(_ connection: ConnectionID) {}
}
