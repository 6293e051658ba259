/// Identity of one incarnation of a channel on its socket. A number is not reused while anyone may still refer to it: a
/// late message for a channel that has ended finds nothing.
public struct ChannelID: Sendable, Hashable {
    /// Index of the channel, below the largest number of channels that the socket has had at one time.
    public let slot: UInt32
    public let incarnation: UInt32

    public init(slot: UInt32, incarnation: UInt32) {
        self.slot = slot
        self.incarnation = incarnation
    }
}

/// Address of an answer to a client. Refs are as the client wrote them; empty means null.
public struct ChannelAddress: Sendable, Hashable {
    public let topic: [UInt8]
    public let joinRef: [UInt8]
    public let ref: [UInt8]

    public init(topic: [UInt8], joinRef: [UInt8] = [], ref: [UInt8] = []) {
        self.topic = topic
        self.joinRef = joinRef
        self.ref = ref
    }
}

/// Reason why a channel ends, as a code for programs and as a text.
public struct ChannelEnding: Sendable, Hashable {
    public let code: String
    public let text: String

    public init(code: String, text: String) {
        self.code = code
        self.text = text
    }
}

/// Accepted join. Its parts are sent to the client in this order.
public struct AcceptedJoin: Sendable, Hashable {
    /// Address of the reply.
    public let address: ChannelAddress
    /// Channel that the join has replaced, and that is closed after the reply; nil if there is none.
    public let replaced: ChannelAddress?
    /// Steps to take when the channel is open: frames that waited for the join.
    public let waiting: [ChannelAction]

    public init(address: ChannelAddress, replaced: ChannelAddress? = nil, waiting: [ChannelAction] = []) {
        self.address = address
        self.replaced = replaced
        self.waiting = waiting
    }
}

/// Reason why a channel has ended. No channel ends without one.
public enum ChannelStop: Sendable, Hashable {
    /// The client left the channel.
    case left
    /// The client joined the topic again.
    case replaced
    /// The hub ended the channel, and told the client why.
    case expelled(ChannelEnding)
    /// The hub refused the join.
    case refused
    /// The hub itself failed in the channel.
    case crashed
    /// The channel's socket has ended. The session knows why.
    case socketGone
}

/// Step that the channel machine wants its caller to take. Steps are taken in their order.
public enum ChannelAction: Sendable, Hashable {
    /// Answer the heartbeat with this ref.
    case heartbeat(ref: [UInt8])
    /// Reply `ok` with an empty response.
    case replyOK(ChannelAddress)
    /// Reply `error` with `unmatched topic`.
    case replyUnmatched(ChannelAddress)
    /// Check the join in the current frame, and report the result with `joinSucceeded` or `joinFailed`.
    case startJoin(ChannelID)
    /// Reply `error` to the join.
    case refuseJoin(ChannelAddress, reason: String)
    /// Reply `error` to a join beyond the maximum number of channels, after the same pause as for other refused joins.
    case refuseSurplusJoin(ChannelAddress)
    /// Verify the token in the current frame, and report the result with `refreshSucceeded` or `refreshFailed`.
    case startRefresh(ChannelID, number: UInt16)
    /// Handle the current frame as a message to this channel.
    case push(ChannelID)
    /// Forget the channel: its subscriptions, its timers, and the checks that still run for it. Its client may come
    /// back, unless it has left.
    case stop(ChannelID, ChannelStop)
    /// Push `phx_close`, with the address's join_ref as ref and join_ref.
    case close(ChannelAddress)
    /// Push `phx_error`, with the address's join_ref as ref and join_ref.
    case fail(ChannelAddress)
    /// Push `system` with status `error` and extension `system`.
    case systemError(ChannelAddress, ChannelEnding)
    /// Decode this frame and give it to the machine, before anything else that the client sent.
    case resume(WaitingFrame)
    /// More frames wait for a join than are kept. The current frame was dropped; the caller tells the client by closing
    /// the socket.
    case tooManyWaiting
}
