import Bytes
import System

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

extension SocketLoop {
    /// Opens a connection without a socket; nil if the table is full.
    public func open(watchedBy witness: any FrameWitness) -> ConnectionID? {
        guard let seat = table.take(descriptor: -1, stage: .open, now: now) else { return nil }
        self.witness = witness
        let connection = table.id(of: seat)
        open(seat, from: .loopback(port: 0))
        return connection
    }

    /// Passes the output of a connection without a socket to the witness, and sends nothing.
    func show(_ seat: Int, _ first: UInt32) {
        guard let witness else { return }
        let connection = table.id(of: seat)
        var frames = 0
        var link = first
        if witness.looksInside {
            var bytes = ByteWriter()
            while link != 0 {
                let extent = arena.extent(of: links[Int(link)].piece)
                // SAFETY: the piece is of this turn, so its bytes are there.
                let piece = unsafe UnsafeRawBufferPointer(start: arena.address(of: extent), count: Int(extent.length))
                unsafe bytes.append(piece.bytes)
                link = links[Int(link)].next
            }
            return witness.saw(bytes.bytes, to: connection)
        }
        while link != 0 {
            if !links[Int(link)].continues { frames += 1 }
            link = links[Int(link)].next
        }
        witness.counted(frames, to: connection)
    }
}
