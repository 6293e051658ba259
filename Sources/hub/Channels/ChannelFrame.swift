import Bytes

/// Kind of a frame, by its request to the channel.
public enum ChannelRequest: Sendable, Hashable {
    case join
    case leave
    case heartbeat
    /// A new token; its text is the frame's `token`.
    case token
    /// `access_token` with a null: nothing to do.
    case noToken
    /// A broadcast, a presence, or anything else that only a joined channel gets.
    case push
}

/// Decoded frame of a client, borrowed. Refs have the form in which the client writes them; empty means none.
public struct ChannelFrame: ~Escapable {
    public let request: ChannelRequest
    public let topic: RawSpan
    public let joinRef: RawSpan
    public let ref: RawSpan
    public let token: RawSpan
    /// Frame as it came, which is kept if it must wait for its channel.
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

/// Frame that waited until its channel's join was decided.
public struct WaitingFrame: Sendable, Hashable {
    public let bytes: [UInt8]
    public let isBinary: Bool

    public init(bytes: [UInt8], isBinary: Bool) {
        self.bytes = bytes
        self.isBinary = isBinary
    }
}
