import Bytes

/// Kind of request that a client's frame makes.
public enum ChannelRequest: Sendable, Hashable {
    case join
    case leave
    case heartbeat
    /// A new token; its text is the frame's `token`.
    case token
    /// Frame `access_token` with a null token, which has no effect.
    case noToken
    /// Broadcast, presence, or any other message that needs a joined channel.
    case push
}

/// Decoded frame of a client; its bytes are borrowed. Refs are as the client wrote them; empty means none.
public struct ChannelFrame: ~Escapable {
    public let request: ChannelRequest
    public let topic: RawSpan
    public let joinRef: RawSpan
    public let ref: RawSpan
    public let token: RawSpan
    /// Undecoded frame, which is copied if it must wait for its channel's join.
    public let whole: RawSpan
    public let isBinary: Bool

    @_lifetime(copy topic, copy joinRef, copy ref, copy token, copy whole)
    public init(
        _ request: ChannelRequest, topic: RawSpan, joinRef: RawSpan, ref: RawSpan, token: RawSpan = RawSpan(),
        whole: RawSpan, isBinary: Bool = false
    ) {
        self.request = request
        self.topic = topic
        self.joinRef = joinRef
        self.ref = ref
        self.token = token
        self.whole = whole
        self.isBinary = isBinary
    }
}

/// Frame that waits, undecoded, until its channel's join is decided.
public struct WaitingFrame: Sendable, Hashable {
    public let bytes: [UInt8]
    public let isBinary: Bool

    public init(bytes: [UInt8], isBinary: Bool) {
        self.bytes = bytes
        self.isBinary = isBinary
    }
}
