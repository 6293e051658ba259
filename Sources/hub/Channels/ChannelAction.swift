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
    /// Reply `ok` to the join, with its bindings.
    case acceptJoin(ChannelID, ChannelAddress)
    /// Reply `error` to the join.
    case refuseJoin(ChannelAddress, reason: String)
    /// Reply `error` to a join beyond the maximum number of channels, after the same pause as for other refused joins.
    case refuseSurplusJoin(ChannelAddress)
    /// The join is answered: pushes to the channel may begin.
    case open(ChannelID)
    /// Verify the token in the current frame, and report the result with `refreshSucceeded` or `refreshFailed`.
    case startRefresh(ChannelID, number: UInt16)
    /// Handle the current frame as a message to this channel.
    case push(ChannelID)
    /// Forget the channel: its subscriptions, its timers, and the checks that still run for it. Its client may come
    /// back.
    case stop(ChannelID)
    /// Forget the channel in the same way. Its client said that it leaves.
    case leave(ChannelID)
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
