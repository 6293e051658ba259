import Diagnostics

/// Counts of one loop, published to the metrics once per turn. An atomic counter shared by all loops would slow every
/// delivery.
struct SocketCounts {
    private var sentPieces = 0
    private var open = 0
    private var blocked = 0
    private var held = 0

    mutating func add(sentPieces pieces: Int) { sentPieces += pieces }

    /// Publishes the turn's counts. `received` and `sent` are bytes of this turn. `open`, `blocked` and `held` describe
    /// the loop's present state: connections, blocked connections, and bytes that these hold.
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
