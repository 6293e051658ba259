import Bytes
import Net
import Protocol
import Synchronization
import System

/// A hub's clients, played within its own process: for benchmarks that are to measure the hub and not the kernel.
///
/// Everything between the log and the outbox is the hub's own, and so is what clients say to it; only the bytes that would
/// go to the kernel are shown to a witness instead. And the hub can be made to hold back, so that it then reads what was
/// committed meanwhile as fast as it can.
public final class Rehearsal: Sendable {
    public typealias Order = @Sendable (RehearsalLoop) -> Void

    private struct Orders {
        var waiting: [Order] = []
        var bell: Wake?
    }

    private let orders = Mutex(Orders())

    public init() {}

    /// Has the loop do something on its own thread, soon.
    public func order(_ order: @escaping Order) {
        let bell = orders.withLock { orders in
            orders.waiting.append(order)
            return orders.bell
        }
        bell?.ring()
    }

    fileprivate func attach(_ bell: Wake) {
        orders.withLock { $0.bell = bell }
        bell.ring()
    }

    fileprivate func take() -> [Order] {
        orders.withLock { orders in
            defer { orders.waiting = [] }
            return orders.waiting
        }
    }
}

/// A loop with clients that are played. All of it is for the loop's own thread.
public final class RehearsalLoop: SocketApplication {
    private let rehearsal: Rehearsal
    private let clients: ClientLoop
    private var loop: SocketLoop!
    /// What is committed stays in the log for now.
    public var isHolding = false

    init(_ rehearsal: Rehearsal, _ clients: ClientLoop) {
        self.rehearsal = rehearsal
        self.clients = clients
    }

    /// Somebody connects, and is to say something; nil when there is no place.
    public func connect(watchedBy witness: any FrameWitness) -> ConnectionID? { loop.open(watchedBy: witness) }

    /// What a client sends: a request, or frames.
    public func hear(_ bytes: [UInt8], from connection: ConnectionID) {
        var bytes = bytes
        var span = bytes.mutableSpan
        // SAFETY: any byte is a valid UInt8, and the array outlives the call.
        var raw = unsafe span.mutableBytes
        let count = clients.received(connection, &raw)
        precondition(count == raw.byteCount, "a played client says whole things only")
    }

    public func started(on loop: SocketLoop) {
        self.loop = loop
        clients.started(on: loop)
        rehearsal.attach(loop.bell)
    }

    public func rung() {
        for order in rehearsal.take() { order(self) }
        clients.rung()
    }

    public func turn() -> Bool { isHolding ? false : clients.turn() }

    public func opened(_ connection: ConnectionID, from peer: PeerAddress, isSecure: Bool) {
        clients.opened(connection, from: peer, isSecure: isSecure)
    }

    public func received(_ connection: ConnectionID, _ bytes: inout MutableRawSpan) -> Int {
        clients.received(connection, &bytes)
    }

    public func closed(_ connection: ConnectionID, _ end: ConnectionEnd) { clients.closed(connection, end) }
    public func timeIsUp(_ token: UInt64) { clients.timeIsUp(token) }
    public func wentIdle(_ connection: ConnectionID) { clients.wentIdle(connection) }

    public func hasNoRoom(_ connection: ConnectionID) { clients.hasNoRoom(connection) }
    public func tookTooLong(_ connection: ConnectionID) { clients.tookTooLong(connection) }

    public func filled(_ connection: ConnectionID) { clients.filled(connection) }
    public func drained(_ connection: ConnectionID) { clients.drained(connection) }

    public func fellBehind(_ connection: ConnectionID, queuedBytes: Int) {
        clients.fellBehind(connection, queuedBytes: queuedBytes)
    }
}
