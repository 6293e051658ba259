/// Acknowledged offset of a socket. The client's WebSocket stack acknowledges by answering pings.
///
/// After changes, the hub sends a ping with the log offset up to which it has delivered. The answer contains the same
/// bytes, and arrives after the client has read everything before the ping. At most one ping is open.
public struct SocketReceipt: Sendable {
    private enum State: Sendable {
        /// The client has acknowledged everything that it was sent.
        case quiet
        /// The client was sent something after offset `since`. `pinged` is the offset of the open ping; nil if there is
        /// none. `hasMore` is true if more was sent after the ping.
        case unconfirmed(since: UInt64, pinged: UInt64?, hasMore: Bool)
    }

    private var state = State.quiet

    public init() {}

    /// Offset before which the client has acknowledged everything; nil if it has acknowledged all that it was sent.
    public var since: UInt64? {
        if case .unconfirmed(let since, _, _) = state { since } else { nil }
    }

    /// Offset in the open ping; nil if no ping is open.
    public var asked: UInt64? {
        if case .unconfirmed(_, let pinged, _) = state { pinged } else { nil }
    }

    public var awaitsPong: Bool { asked != nil }

    /// Records that changes after offset `mark` were sent, and that the log is delivered up to `reached`. Returns the
    /// offset for a ping; nil if no ping is due because one is open.
    public mutating func sent(after mark: UInt64, upTo reached: UInt64) -> UInt64? {
        switch state {
        case .quiet: state = .unconfirmed(since: mark, pinged: reached, hasMore: false)
        case .unconfirmed(let since, .none, _):
            state = .unconfirmed(since: since, pinged: reached, hasMore: false)
        case .unconfirmed(let since, .some(let pinged), _):
            state = .unconfirmed(since: since, pinged: pinged, hasMore: true)
            return nil
        }
        return reached
    }

    public enum Answer: Hashable, Sendable {
        /// The client's answer does not match the open ping.
        case none
        /// The client has acknowledged everything.
        case quiet
        /// The client has acknowledged the ping. More was sent after it, so that another ping is due.
        case more
    }

    public mutating func answered(_ offset: UInt64) -> Answer {
        guard case .unconfirmed(_, .some(let pinged), let hasMore) = state, pinged == offset else { return .none }
        state = hasMore ? .unconfirmed(since: pinged, pinged: nil, hasMore: true) : .quiet
        return hasMore ? .more : .quiet
    }
}
