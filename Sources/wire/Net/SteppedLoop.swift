import Diagnostics
import System

/// Socket loop that the caller turns step by step. The caller also sets the time. For a simulation, in which one thread
/// runs the whole hub.
public final class SteppedLoop {
    private let loop: SocketLoop

    public init(
        _ settings: SocketSettings, index: Int, application: any SocketApplication, metrics: ProcessMetrics
    ) throws(SystemError) {
        loop = try SocketLoop(
            control: LoopControl(index: index), settings: settings, listeners: [], tls: nil,
            application: application, metrics: metrics)
        application.started(on: loop)
        loop.settle()
    }

    /// Runs one turn without waiting. Returns true if there is more to do at once.
    public func step() -> Bool {
        loop.turn(atMost: 0)
        return loop.hasMoreToDo
    }

    /// Time of the next work that needs no event; nil if there is none.
    public var nextDuty: UInt64? { loop.nextDuty }

    /// Adds a new connection. The loop closes the descriptor.
    public func connected(_ descriptor: Int32, from peer: PeerAddress) { loop.take(descriptor, peer) }

    /// Ends all connections. The loop must not be used afterwards.
    public func stop() { loop.stop() }
}
