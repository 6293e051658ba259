/// Acknowledged offset of a socket, which the client's WebSocket stack reports by answering pings.
///
/// A ping that follows sent changes carries the offset up to which the log had been delivered. The same bytes come back
/// when the client has read up to there. At most one ping is under way. Marks of the log are offsets.
public struct SocketReceipt: Sendable {
    private enum State: Sendable {
        /// The client has acknowledged all that it was sent.
        case quiet
        /// The client was sent something after `since`. `pinged` is the offset of a ping under way. `hasMore` is true
        /// if more was sent after that ping.
        case unconfirmed(since: UInt64, pinged: UInt64?, hasMore: Bool)
    }

    private var state = State.quiet

    public init() {}

    /// Acknowledged offset; nil if the client has acknowledged all that it was sent.
    public var since: UInt64? {
        if case .unconfirmed(let since, _, _) = state { since } else { nil }
    }

    /// Offset of the ping under way; nil if there is none.
    public var asked: UInt64? {
        if case .unconfirmed(_, let pinged, _) = state { pinged } else { nil }
    }

    public var awaitsPong: Bool { asked != nil }

    /// Records that something was sent after offset `mark`, and nothing since the log was delivered up to `reached`.
    /// Returns the offset to ping with, if a ping is due.
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
        /// The answer does not belong to the last ping.
        case none
        case quiet
        /// More was sent after the ping, so another ping is due.
        case more
    }

    public mutating func answered(_ offset: UInt64) -> Answer {
        guard case .unconfirmed(_, .some(let pinged), let hasMore) = state, pinged == offset else { return .none }
        state = hasMore ? .unconfirmed(since: pinged, pinged: nil, hasMore: true) : .quiet
        return hasMore ? .more : .quiet
    }
}
