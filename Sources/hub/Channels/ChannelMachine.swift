import Bytes

/// Limits of one socket's channels.
public struct ChannelLimits: Sendable, Hashable {
    public var maximumChannels: UInt32
    /// Maximum number of frames that may wait for joins, over all channels of the socket.
    public var maximumWaitingFrames: UInt16
    public var maximumWaitingBytes: UInt32

    public init(maximumChannels: UInt32, maximumWaitingFrames: UInt16, maximumWaitingBytes: UInt32) {
        self.maximumChannels = maximumChannels
        self.maximumWaitingFrames = maximumWaitingFrames
        self.maximumWaitingBytes = maximumWaitingBytes
    }
}

/// State machine of one socket's channels. Its input is the client's decoded frames and the results of joins and token
/// checks. Its output is actions, in order. The machine uses no clock and reads no JSON.
///
/// The caller decides a join, which takes time. Until then, frames for the join's topic wait; the machine then returns
/// them in order as `resume` actions. Frames for other topics do not wait. So a leave or a second join that arrives
/// during a join has the same effect as after it.
public struct ChannelMachine: ~Copyable, Sendable {
    /// Limits of the channels. A change applies to later requests only.
    public var limits: ChannelLimits
    /// True if the machine closes a channel that a second join replaces, as the reference server does. False for
    /// clients of protocol version 1, which would take the close for that of the new channel.
    private let closesReplaced: Bool
    /// True if the client has ever tried to join.
    private var hasTried = false
    private var slots: [ChannelSlot] = []
    private var lastIncarnation: UInt32 = 0
    private var waitingBytes: UInt32 = 0
    private var waitingFrames: UInt16 = 0

    public init(_ limits: ChannelLimits, closesReplaced: Bool) {
        self.limits = limits
        self.closesReplaced = closesReplaced
    }

    /// Number of the socket's channels that are joined or being joined.
    public var channelCount: Int {
        var count = 0
        for slot in slots where slot.state != .free { count += 1 }
        return count
    }

    /// Number of slots for which memory is allocated.
    var capacity: Int { slots.capacity }

    /// True if the client has ever tried to join. A client that has tried and has no channels left is idle.
    public var hasTriedToJoin: Bool { hasTried }

    /// Returns a channel's topic and join_ref; nil if the channel has ended.
    public func address(of id: ChannelID) -> ChannelAddress? {
        guard let slot = slot(of: id) else { return nil }
        return slots[slot].address(ref: [])
    }

    public func isOpen(_ id: ChannelID) -> Bool {
        guard let slot = slot(of: id) else { return false }
        return slots[slot].state == .joined
    }

    /// Channels that are joined or being joined.
    public var channels: [ChannelID] {
        slots.indices.filter { slots[$0].state != .free }.map { id(of: $0) }
    }

    // MARK: Frames

    /// Returns the joined channel of a topic, for a push. Returns nil if the topic is not joined yet: the caller then
    /// uses `handle`.
    public func joined(_ topic: RawSpan) -> ChannelID? {
        guard let slot = slot(topic: topic), slots[slot].state == .joined else { return nil }
        return id(of: slot)
    }

    public mutating func handle(_ frame: borrowing ChannelFrame, into actions: inout [ChannelAction]) {
        guard let slot = slot(topic: frame.topic) else { return handleUnjoined(frame, into: &actions) }
        if slots[slot].state == .joining { return wait(frame, for: slot, into: &actions) }
        precondition(slots[slot].state == .joined, "a frame for a channel that nobody let in")
        switch frame.request {
        case .join: replace(slot, by: frame, into: &actions)
        case .leave: leave(slot, frame, into: &actions)
        case .token: refresh(slot, frame, into: &actions)
        case .noToken: break
        case .heartbeat, .push: actions.append(.push(id(of: slot)))
        }
    }

    private mutating func handleUnjoined(_ frame: borrowing ChannelFrame, into actions: inout [ChannelAction]) {
        let address = ChannelAddress(topic: frame.topic.copied(), ref: frame.ref.copied())
        switch frame.request {
        case .heartbeat where frame.topic.equals("phoenix"): actions.append(.heartbeat(ref: address.ref))
        case .join where Self.isJoinable(frame.topic): join(frame, into: &actions)
        case .leave: actions.append(.replyOK(address))
        default: actions.append(.replyUnmatched(address))
        }
    }

    private static func isJoinable(_ topic: RawSpan) -> Bool {
        topic.byteCount >= 9 && topic.extracting(0..<9).equals("realtime:")
    }

    private mutating func join(_ frame: borrowing ChannelFrame, into actions: inout [ChannelAction]) {
        hasTried = true
        guard channelCount < Int(limits.maximumChannels) else {
            return actions.append(.refuseSurplusJoin(ChannelSlot.joinAddress(frame)))
        }
        let free = slots.firstIndex { $0.state == .free } ?? slots.count
        if free == slots.count { slots.append(ChannelSlot()) }
        precondition(slots[free].state == .free, "a channel in another one's place")
        slots[free].begin(frame, incarnation: nextIncarnation())
        actions.append(.startJoin(id(of: free)))
    }

    /// Begins a join that replaces a joined channel. The old channel ends now; its close is sent after the reply to the
    /// new join.
    private mutating func replace(_ slot: Int, by frame: borrowing ChannelFrame, into actions: inout [ChannelAction]) {
        precondition(slots[slot].state == .joined, "frames wait for what is replaced")
        actions.append(.stop(id(of: slot), .replaced))
        let old = slots[slot].joinRef
        slots[slot].begin(frame, incarnation: nextIncarnation())
        slots[slot].pending?.replaced = closesReplaced ? old : nil
        actions.append(.startJoin(id(of: slot)))
    }

    /// Ends a channel because its client left it. A leave that is meant for an earlier channel is ignored.
    private mutating func leave(_ slot: Int, _ frame: borrowing ChannelFrame, into actions: inout [ChannelAction]) {
        let address = slots[slot].address(ref: frame.ref.copied())
        if !frame.joinRef.isEmpty, !address.joinRef.isEmpty, frame.joinRef.copied() != address.joinRef { return }
        actions.append(.stop(id(of: slot), .left))
        free(slot)
        actions.append(.replyOK(address))
        actions.append(.close(address))
    }

    // MARK: Joins

    /// Accepts a join. The caller sends the reply, and from then on the channel accepts pushes. Returns nil if the
    /// channel is no longer being joined.
    ///
    /// - Parameter token: token of the join. The machine remembers its hash, to ignore the same token later.
    public mutating func joinSucceeded(_ id: ChannelID, token: RawSpan) -> AcceptedJoin? {
        guard let slot = slot(of: id), slots[slot].state == .joining else { return nil }
        let pending = slots[slot].finishJoin()
        slots[slot].token = ChannelSlot.hash(token)
        precondition(pending != nil && slots[slot].pending == nil, "a join that nobody asked for, or asked for still")
        precondition(isOpen(id), "pushes to a channel that is not joined")
        let topic = slots[slot].topic
        var waiting: [ChannelAction] = []
        resume(pending, into: &waiting)
        return AcceptedJoin(
            address: slots[slot].address(ref: pending?.ref ?? []),
            replaced: pending?.replaced.map { ChannelAddress(topic: topic, joinRef: $0) }, waiting: waiting)
    }

    /// Refuses a join: the action sends the reply. For most reasons of refusal the caller first waits for a pause.
    public mutating func joinFailed(_ id: ChannelID, reason: String, into actions: inout [ChannelAction]) {
        guard let slot = slot(of: id), slots[slot].state == .joining else { return }
        let address = slots[slot].address(ref: slots[slot].pending?.ref ?? [])
        let pending = slots[slot].finishJoin()
        slots[slot] = ChannelSlot()
        actions.append(.refuseJoin(address, reason: reason))
        closeReplaced(pending, address.topic, into: &actions)
        resume(pending, into: &actions)
        shrink()
        assert(self.slot(of: id) == nil, "a channel that was refused and stays")
    }

    private func closeReplaced(_ pending: PendingJoin?, _ topic: [UInt8], into actions: inout [ChannelAction]) {
        guard let old = pending?.replaced else { return }
        actions.append(.close(ChannelAddress(topic: topic, joinRef: old)))
    }

    // MARK: Frames that wait

    private mutating func wait(
        _ frame: borrowing ChannelFrame, for slot: Int, into actions: inout [ChannelAction]
    ) {
        let size = UInt32(clamping: frame.whole.byteCount)
        guard waitingFrames < limits.maximumWaitingFrames, size <= limits.maximumWaitingBytes,
            waitingBytes <= limits.maximumWaitingBytes - size
        else { return actions.append(.tooManyWaiting) }
        precondition(slots[slot].pending != nil, "a frame that waits for nothing is never heard of again")
        waitingFrames += 1
        waitingBytes += size
        slots[slot].pending?.frames.append(WaitingFrame(bytes: frame.whole.copied(), isBinary: frame.isBinary))
    }

    private mutating func resume(_ pending: PendingJoin?, into actions: inout [ChannelAction]) {
        guard let frames = pending?.frames else { return }
        for frame in frames {
            waitingFrames -= 1
            waitingBytes -= UInt32(clamping: frame.bytes.count)
            actions.append(.resume(frame))
        }
        assert(waitingFrames > 0 || waitingBytes == 0, "bytes of no frame")
    }

    // MARK: Tokens

    /// Begins the check of a channel's new token. Ignores API keys, which are not users' tokens, and the token that the
    /// channel already has.
    private mutating func refresh(_ slot: Int, _ frame: borrowing ChannelFrame, into actions: inout [ChannelAction]) {
        let isKey = frame.token.byteCount >= 3 && frame.token.extracting(0..<3).equals("sb_")
        let token = ChannelSlot.hash(frame.token)
        guard !isKey, token != slots[slot].token else { return }
        slots[slot].token = token
        slots[slot].refreshes &+= 1
        actions.append(.startRefresh(id(of: slot), number: slots[slot].refreshes))
    }

    /// Records that a channel's new token passed the check. Returns true if it is still the channel's newest: only then
    /// its claims apply.
    public func refreshSucceeded(_ id: ChannelID, number: UInt16) -> Bool {
        guard let slot = slot(of: id) else { return false }
        return slots[slot].refreshes == number
    }

    /// Ends a channel whose new token failed the check. Does nothing if the client has sent another token since.
    public mutating func refreshFailed(
        _ id: ChannelID, number: UInt16, _ ending: ChannelEnding, into actions: inout [ChannelAction]
    ) {
        guard refreshSucceeded(id, number: number) else { return }
        expel(id, ending, into: &actions)
    }

    // MARK: Ends

    /// Ends a channel for a reason that the hub sends to the client, such as an expired token, lost rights or a rate
    /// limit.
    public mutating func expel(_ id: ChannelID, _ ending: ChannelEnding, into actions: inout [ChannelAction]) {
        guard let slot = slot(of: id), slots[slot].state == .joined else { return }
        let address = slots[slot].address(ref: [])
        end(slot, .expelled(ending), into: &actions)
        assert(!isOpen(id), "a channel that was expelled and stays")
        actions.append(.systemError(address, ending))
        actions.append(.close(address))
    }

    /// Ends a channel because of an error in the hub. The client will join again.
    public mutating func crash(_ id: ChannelID, into actions: inout [ChannelAction]) {
        guard let slot = slot(of: id) else { return }
        if slots[slot].state == .joining {
            actions.append(.stop(id, .crashed))
            return joinFailed(id, reason: "join crashed", into: &actions)
        }
        let address = slots[slot].address(ref: [])
        end(slot, .crashed, into: &actions)
        actions.append(.fail(address))
    }

    /// Ends all channels, because the socket has ended. No reply is sent.
    public mutating func socketGone(into actions: inout [ChannelAction]) {
        for id in channels { actions.append(.stop(id, .socketGone)) }
        slots = []
        waitingFrames = 0
        waitingBytes = 0
    }

    private mutating func end(_ slot: Int, _ reason: ChannelStop, into actions: inout [ChannelAction]) {
        actions.append(.stop(id(of: slot), reason))
        free(slot)
    }

    private mutating func free(_ slot: Int) {
        precondition(slots[slot].state == .joined, "frames wait for what ends")
        slots[slot] = ChannelSlot()
        shrink()
    }

    /// Frees the memory of unused slots at the end of the array. A socket without channels uses none.
    private mutating func shrink() {
        while slots.last?.state == .free { slots.removeLast() }
        if slots.isEmpty { slots = [] }
    }

    // MARK: Slots

    private mutating func nextIncarnation() -> UInt32 {
        lastIncarnation &+= 1
        return lastIncarnation
    }

    private func id(of slot: Int) -> ChannelID {
        precondition(slots[slot].state != .free, "a place without a channel has no number")
        return ChannelID(slot: UInt32(slot), incarnation: slots[slot].incarnation)
    }

    private func slot(of id: ChannelID) -> Int? {
        let slot = Int(id.slot)
        guard slot < slots.count, slots[slot].state != .free, slots[slot].incarnation == id.incarnation else {
            return nil
        }
        return slot
    }

    private func slot(topic: RawSpan) -> Int? {
        if slots.isEmpty { return nil }
        let hash = ChannelSlot.hash(topic)
        // The loop uses indices, because passing a slot to a closure would copy it and its references.
        for slot in slots.indices
        where slots[slot].topicHash == hash && slots[slot].state != .free && slots[slot].hasTopic(topic) {
            return slot
        }
        return nil
    }
}
