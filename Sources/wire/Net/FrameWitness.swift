/// Observer of frames for clients without a socket.
///
/// A client without a socket has a connection like any other, but the loop passes its bytes to the witness and not to
/// the kernel. Benchmarks use it to measure the hub's own cost of a delivery, with the same code as for real clients.
public protocol FrameWitness: AnyObject {
    /// True if the loop must pass the frames themselves to `saw`; false if it must pass only their number to `counted`.
    var wantsFrames: Bool { get }

    /// Receives the number of frames that the loop sent to a connection in one flush.
    func counted(_ frames: Int, to connection: ConnectionID)

    /// Receives the bytes that the loop sent to a connection in one flush: one or more whole frames.
    func saw(_ frames: RawSpan, to connection: ConnectionID)
}
