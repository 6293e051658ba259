import Diagnostics
import System

/// Socket loop that runs one turn at a time, when its caller says so. A simulation uses it to run the whole hub on one
/// thread, with a clock of its own.
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

    /// Runs one turn without waiting. Returns true if the next turn has work without an event.
    public func step() -> Bool {
        loop.turn(atMost: 0)
        return loop.hasMoreToDo
    }

    /// Monotonic time, in nanoseconds, at which a timer or sweep is next due; nil if there is none.
    public var nextDuty: UInt64? { loop.nextDuty }

    /// Adds a new connection, as if the loop had accepted it. The loop closes the descriptor.
    public func connected(_ descriptor: Int32, from peer: PeerAddress) { loop.take(descriptor, peer) }

    /// Ends all connections. The loop must not be used afterwards.
    public func stop() { loop.stop() }
}
