import Bytes
import System

/// Sees what clients without a socket would have been sent.
///
/// Such a client is a connection like any other up to the very call that would hand its bytes to the kernel. That is how
/// benchmarks tell what a delivery costs on our side of the kernel, without a second way of delivering.
public protocol FrameWitness: AnyObject {
    /// Whether it wants to look at what is sent, or only to count it.
    var looksInside: Bool { get }

    /// In this turn a connection was sent so many frames.
    func counted(_ frames: Int, to connection: ConnectionID)

    /// A connection was sent this, one or more whole frames.
    func saw(_ frames: RawSpan, to connection: ConnectionID)
}

extension SocketLoop {
    /// A connection that nobody is at the other end of; nil when there is no place for it.
    public func open(watchedBy witness: any FrameWitness) -> ConnectionID? {
        guard let seat = table.take(descriptor: -1, stage: .open, now: now) else { return nil }
        self.witness = witness
        let connection = table.id(of: seat)
        open(seat, from: .loopback(port: 0))
        return connection
    }

    /// What was queued for a connection without a socket goes nowhere.
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
