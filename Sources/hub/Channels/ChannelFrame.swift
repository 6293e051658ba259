import Bytes

/// The kinds of frames, by what they ask of their channel.
public enum ChannelRequest: Sendable, Hashable {
    case join
    case leave
    case heartbeat
    /// A new token; its text is the frame's `token`.
    case token
    /// `access_token` with a null: nothing to do.
    case noToken
    /// A broadcast, presence, or anything else that a joined channel is given.
    case push
}

/// A decoded frame of a client, borrowed. Refs are whatever the client's refs are written as; empty means none.
public struct ChannelFrame: ~Escapable {
    public let request: ChannelRequest
    public let topic: RawSpan
    public let joinRef: RawSpan
    public let ref: RawSpan
    public let token: RawSpan
    /// The frame as it came, which is kept when it has to wait for its channel.
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

/// A frame that waited until its channel's join was decided.
public struct WaitingFrame: Sendable, Hashable {
    public let bytes: [UInt8]
    public let isBinary: Bool

    public init(bytes: [UInt8], isBinary: Bool) {
        self.bytes = bytes
        self.isBinary = isBinary
    }
}
