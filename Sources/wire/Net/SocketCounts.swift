import Diagnostics

/// Counts of one loop, published once per turn: an atomic counter shared by all loops would slow every delivery.
struct SocketCounts {
    private var sentPieces = 0
    private var open = 0
    private var blocked = 0
    private var held = 0

    mutating func add(sentPieces pieces: Int) { sentPieces += pieces }

    /// Adds the turn's counts to the metrics: bytes `received` and `sent`, and what has changed since the last turn in
    /// the state of the loop.
    mutating func publish(to metrics: ProcessMetrics, received: Int, sent: Int, open: Int, blocked: Int, held: Int) {
        metrics.socketBytesReceived.add(received)
        metrics.socketBytesSent.add(sent)
        metrics.piecesSent.add(sentPieces)
        sentPieces = 0
        metrics.connectionsOpen.add(Int64(open - self.open))
        metrics.connectionsBlocked.add(Int64(blocked - self.blocked))
        metrics.outboxBytes.add(Int64(held - self.held))
        (self.open, self.blocked, self.held) = (open, blocked, held)
    }
}
