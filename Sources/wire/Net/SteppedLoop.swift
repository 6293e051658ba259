import Diagnostics
import System

/// A socket loop that is turned by hand, by whoever also decides what time it is: for a simulation, in which one thread is
/// all of the hub.
public final class SteppedLoop {
    private let loop: SocketLoop

    public init(
        _ settings: SocketSettings, index: Int, application: any SocketApplication, metrics: ProcessMetrics
    ) throws(SystemError) {
        loop = try SocketLoop(
            index: index, control: LoopControl(), settings: settings, listeners: [], tls: nil,
            application: application, metrics: metrics)
        application.started(on: loop)
        loop.settle()
    }

    /// One turn, which waits for nothing. True where there is more to do at once.
    public func step() -> Bool {
        loop.turn(atMost: 0)
        return loop.hasMoreToDo
    }

    /// When there is something to do even if nothing happens.
    public var nextDuty: UInt64? { loop.nextDuty }

    /// Somebody has connected. The loop closes the descriptor.
    public func connected(_ descriptor: Int32, from peer: PeerAddress) { loop.take(descriptor, peer) }

    /// Ends all connections. Nothing is called after it.
    public func stop() { loop.stop() }
}
