/// Identity of a channel on its socket. A number is not reused while anything may still refer to it, so a late message
/// for an ended channel finds no channel.
public struct ChannelID: Sendable, Hashable {
    /// Index of the channel among the socket's slots, which are reused.
    public let slot: UInt32
    /// Number of the join that opened the channel, which distinguishes it from earlier channels in the slot.
    public let incarnation: UInt32

    public init(slot: UInt32, incarnation: UInt32) {
        self.slot = slot
        self.incarnation = incarnation
    }
}

/// Address of a message to a client: its topic and refs. Refs are as the client wrote them; an empty one means null.
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

/// Reason why the hub ends a channel: a code for programs and a text for people.
public struct ChannelEnding: Sendable, Hashable {
    public let code: String
    public let text: String

    public init(code: String, text: String) {
        self.code = code
        self.text = text
    }
}

/// Accepted join. The caller sends its parts (the reply and what follows it) to the client in the order of the
/// properties.
public struct AcceptedJoin: Sendable, Hashable {
    /// Address of the reply to the join.
    public let address: ChannelAddress
    /// Channel that this join replaces; the caller closes it after the reply. Nil if there is none.
    public let replaced: ChannelAddress?
    /// Actions for frames that waited for the join. The caller takes them after the reply.
    public let waiting: [ChannelAction]

    public init(address: ChannelAddress, replaced: ChannelAddress? = nil, waiting: [ChannelAction] = []) {
        self.address = address
        self.replaced = replaced
        self.waiting = waiting
    }
}

/// Reason why a channel ended.
public enum ChannelStop: Sendable, Hashable {
    /// The client left the channel.
    case left
    /// The client joined the topic again.
    case replaced
    /// The hub ended the channel and has told the client why.
    case expelled(ChannelEnding)
    /// The hub refused the join.
    case refused
    /// The channel failed because of an error in the hub.
    case crashed
    /// The channel's socket has ended. The session has the reason.
    case socketGone
}

/// Step that the channel machine asks its caller to take. The caller takes all steps in order.
public enum ChannelAction: Sendable, Hashable {
    /// Answer the heartbeat with this ref.
    case heartbeat(ref: [UInt8])
    /// Reply `ok` with an empty response.
    case replyOK(ChannelAddress)
    /// Reply `error` with `unmatched topic`.
    case replyUnmatched(ChannelAddress)
    /// Check the join in the current frame. The caller then calls `joinSucceeded` or `joinFailed`.
    case startJoin(ChannelID)
    /// Reply `error` to the join.
    case refuseJoin(ChannelAddress, reason: String)
    /// Reply `error` to a join that exceeds the maximum number of channels, after the same pause as for other refused
    /// joins.
    case refuseSurplusJoin(ChannelAddress)
    /// Verify the token in the current frame. The caller then calls `refreshSucceeded` or `refreshFailed`.
    case startRefresh(ChannelID, number: UInt16)
    /// Handle the current frame as a message to this channel.
    case push(ChannelID)
    /// Release everything that belongs to the channel: subscriptions, timers and checks that are still running. Keep
    /// its position for the client's return, unless the client left.
    case stop(ChannelID, ChannelStop)
    /// Push `phx_close`, with the `joinRef` of the address as ref and join_ref.
    case close(ChannelAddress)
    /// Push `phx_error`, with the `joinRef` of the address as ref and join_ref.
    case fail(ChannelAddress)
    /// Push `system` with status `error` and extension `system`.
    case systemError(ChannelAddress, ChannelEnding)
    /// Decode this frame and pass it to the machine, before any later frame of the client.
    case resume(WaitingFrame)
    /// Close the socket: more frames wait for a join than the limits allow, and the current frame was dropped.
    case tooManyWaiting
}
