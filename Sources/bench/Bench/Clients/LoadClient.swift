/// One client of a load generator.
struct LoadClient {
    enum Phase {
        case connecting, upgrading, open, joining, subscribing, subscribed, closed
    }

    var descriptor: Int32
    var phase = Phase.connecting
    /// What it waits for next, and how many it has.
    var nextSequence: Int64 = 0
    /// From one of its changes to the next.
    var stride: Int64 = 1
    var received: Int64 = 0
    var expected: Int64 = 0
    /// What its changes carry, if that is looked at.
    var owner: Int64?
    /// The beginning of a frame whose end has not come.
    var incomplete: [UInt8] = []

    /// Whether it speaks in frames.
    var isOpen: Bool {
        switch phase {
        case .open, .joining, .subscribing, .subscribed: true
        case .connecting, .upgrading, .closed: false
        }
    }

    init(descriptor: Int32) { self.descriptor = descriptor }
}
