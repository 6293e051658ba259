/// Client of a load generator.
struct LoadClient {
    enum Phase {
        case connecting, upgrading, open, joining, subscribing, subscribed, closed
    }

    var descriptor: Int32
    var phase = Phase.connecting
    /// Number of the next change that the client expects.
    var nextSequence: Int64 = 0
    /// Difference between the numbers of successive changes that this client expects.
    var stride: Int64 = 1
    var received: Int64 = 0
    var expected: Int64 = 0
    /// Owner that the changes for this client must carry; nil if the owner is not checked.
    var owner: Int64?
    /// Received bytes of a frame that is not complete.
    var incomplete: [UInt8] = []

    /// True if the client's WebSocket is open.
    var isOpen: Bool {
        switch phase {
        case .open, .joining, .subscribing, .subscribed: true
        case .connecting, .upgrading, .closed: false
        }
    }

    init(descriptor: Int32) { self.descriptor = descriptor }
}
