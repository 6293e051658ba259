/// One incarnation of a channel on its socket. A number is not given again while anyone may still speak of it: what comes
/// late for a channel that has ended finds nothing.
public struct ChannelID: Sendable, Hashable {
    /// Dense: below the number of channels the socket has had at one time.
    public let slot: UInt32
    public let incarnation: UInt32

    public init(slot: UInt32, incarnation: UInt32) {
        self.slot = slot
        self.incarnation = incarnation
    }
}

/// To whom an answer goes. Refs are as the client wrote them; empty means null.
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

/// Why a channel ends, in words and for programs.
public struct ChannelEnding: Sendable, Hashable {
    public let code: String
    public let text: String

    public init(code: String, text: String) {
        self.code = code
        self.text = text
    }
}

/// The steps that the machine wants taken, in this order.
public enum ChannelAction: Sendable, Hashable {
    /// Answer the heartbeat with this ref.
    case heartbeat(ref: [UInt8])
    /// Reply `ok` with an empty response.
    case replyOK(ChannelAddress)
    /// Reply `error` with `unmatched topic`.
    case replyUnmatched(ChannelAddress)
    /// Check the join in the frame at hand, and tell of it with `joinSucceeded` or `joinFailed`.
    case startJoin(ChannelID)
    /// Reply `ok` to the join, with its bindings.
    case acceptJoin(ChannelID, ChannelAddress)
    /// Reply `error` to the join.
    case refuseJoin(ChannelAddress, reason: String)
    /// Reply `error` to the join for its number, after the same pause as other refused joins.
    case refuseSurplusJoin(ChannelAddress)
    /// The join is answered: pushes to the channel may begin.
    case open(ChannelID)
    /// Verify the token in the frame at hand, and tell of it with `refreshSucceeded` or `refreshFailed`.
    case startRefresh(ChannelID, number: UInt16)
    /// Handle the frame at hand as a message to this channel.
    case push(ChannelID)
    /// Forget the channel: its subscriptions, timers, and what is still being checked for it. Its client may come back.
    case stop(ChannelID)
    /// Forget the channel likewise; its client said that it goes.
    case leave(ChannelID)
    /// Push `phx_close`; ref and join_ref are the address's join_ref.
    case close(ChannelAddress)
    /// Push `phx_error` likewise.
    case fail(ChannelAddress)
    /// Push `system` with status `error` and extension `system`.
    case systemError(ChannelAddress, ChannelEnding)
    /// Decode this frame and give it to the machine, before anything else the client sent.
    case resume(WaitingFrame)
    /// More frames wait for a join than are kept. The frame at hand was dropped; its sender is told by closing the socket.
    case tooManyWaiting
}
