/// What a socket's client has certainly got of the log, as its own WebSocket stack says by answering pings.
///
/// A ping that follows what was sent carries how far the log had been delivered; the same bytes come back when the client
/// has read up to there. At most one is under way. Marks of the log are offsets.
public struct SocketReceipt: Sendable {
    private enum State: Sendable {
        /// All that it was sent has been acknowledged.
        case quiet
        /// It was sent something behind `since`. A ping under way says `pinged`; `hasMore`: more was sent behind that.
        case unconfirmed(since: UInt64, pinged: UInt64?, hasMore: Bool)
    }

    private var state = State.quiet

    public init() {}

    /// What it has got; nil for all that there is.
    public var since: UInt64? {
        if case .unconfirmed(let since, _, _) = state { since } else { nil }
    }

    /// What the ping under way asks about.
    public var asked: UInt64? {
        if case .unconfirmed(_, let pinged, _) = state { pinged } else { nil }
    }

    public var awaitsPong: Bool { asked != nil }

    /// It was sent something after `mark`; nothing was since the log was delivered up to `reached`. The offset to ping with,
    /// where one is due.
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
        /// It is no answer to what was asked last.
        case none
        case quiet
        /// More was sent behind the ping, for which another is due.
        case more
    }

    public mutating func answered(_ offset: UInt64) -> Answer {
        guard case .unconfirmed(_, .some(let pinged), let hasMore) = state, pinged == offset else { return .none }
        state = hasMore ? .unconfirmed(since: pinged, pinged: nil, hasMore: true) : .quiet
        return hasMore ? .more : .quiet
    }
}
