/// Observer of frames for clients without a socket.
///
/// Such a client is a connection like any other, except that its bytes are not passed to the kernel. Benchmarks use it
/// to measure the hub's own cost of a delivery, with the same code as for real clients.
public protocol FrameWitness: AnyObject {
    /// True if the observer wants the frames; false if it only counts them.
    var looksInside: Bool { get }

    /// Receives the number of frames that were sent to a connection in this turn.
    func counted(_ frames: Int, to connection: ConnectionID)

    /// Receives the bytes that were sent to a connection: one or more whole frames.
    func saw(_ frames: RawSpan, to connection: ConnectionID)
}
