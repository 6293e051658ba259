import Bytes
import Net
import Protocol
import Synchronization
import System

/// Simulated clients inside the hub's process, for benchmarks that measure the hub without the kernel.
///
/// The hub's own code does everything between the log and the outbox, and handles client messages. Only the bytes for
/// the kernel go to a witness instead. A benchmark can also stop a loop's reading, and then measure how fast it reads
/// the changes committed since.
public final class InProcessClients: Sendable {
    public typealias Order = @Sendable (RehearsalLoop) -> Void

    private struct Orders {
        var waiting: [Order] = []
        var bell: Wake?
    }

    private let orders = Mutex(Orders())

    public init() {}

    /// Queues a closure that the loop runs on its own thread.
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

/// Socket loop with simulated clients. Only its own thread may use it.
public final class RehearsalLoop: SocketApplication {
    private let inProcessClients: InProcessClients
    private let clients: ClientLoop
    private var loop: SocketLoop!
    /// True while the loop must not read changes from the log.
    public var isHolding = false

    init(_ inProcessClients: InProcessClients, _ clients: ClientLoop) {
        self.inProcessClients = inProcessClients
        self.clients = clients
    }

    /// Opens a simulated connection, which can then send a request. Returns nil if there is no room.
    public func connect(watchedBy witness: any FrameWitness) -> ConnectionID? { loop.open(watchedBy: witness) }

    /// Passes bytes of a simulated client to the loop: a request, or frames.
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
        inProcessClients.attach(loop.bell)
    }

    public func drainMailbox() {
        for order in inProcessClients.take() { order(self) }
        clients.drainMailbox()
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
