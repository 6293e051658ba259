import Bytes

/// State of one channel. Every client has at least one, so it is kept small: topic and join_ref share an array.
struct ChannelSlot: Sendable {
    enum State: UInt8 {
        case free, joining, joined
    }

    /// Bytes of the topic, followed by those of the join_ref.
    private var text: [UInt8] = []
    var topicHash: UInt64 = 0
    /// Hash of the channel's token, by which the same token is recognized. If a client sends another token with the
    /// same hash, the channel keeps the older one.
    var token: UInt64 = 0
    /// Join that is not decided yet, as the only element; empty otherwise. An empty array takes less memory than a nil
    /// struct.
    private var pendings: [PendingJoin] = []
    private var topicLength: UInt32 = 0
    private(set) var incarnation: UInt32 = 0
    var refreshes: UInt16 = 0
    private(set) var state = State.free

    var pending: PendingJoin? {
        get { pendings.first }
        set { pendings = newValue.map { [$0] } ?? [] }
    }

    mutating func begin(_ frame: borrowing ChannelFrame, incarnation: UInt32) {
        precondition(pendings.isEmpty, "a join that is still to be decided")
        let address = Self.joinAddress(frame)
        var text: [UInt8] = []
        text.reserveCapacity(address.topic.count + address.joinRef.count)
        text += address.topic
        text += address.joinRef
        self = ChannelSlot()
        self.text = text
        topicLength = UInt32(clamping: address.topic.count)
        topicHash = Self.hash(frame.topic)
        self.incarnation = incarnation
        pending = PendingJoin(ref: address.ref)
        state = .joining
    }

    mutating func finishJoin() -> PendingJoin? {
        precondition(state == .joining && pendings.count == 1, "what is not being joined is not let in")
        defer { pending = nil }
        state = .joined
        return pending
    }

    var topic: [UInt8] { Array(text.prefix(Int(topicLength))) }
    var joinRef: [UInt8] { Array(text.dropFirst(Int(topicLength))) }

    func address(ref: [UInt8]) -> ChannelAddress { ChannelAddress(topic: topic, joinRef: joinRef, ref: ref) }

    func hasTopic(_ topic: RawSpan) -> Bool {
        guard topic.byteCount == Int(topicLength) else { return false }
        // SAFETY: any byte is a valid UInt8, and the span lives as long as `text`.
        return unsafe text.span.bytes.extracting(0..<topic.byteCount).equals(topic)
    }

    /// Returns the address of a join's reply. If the join has no join_ref, its ref is used; clients give both the same
    /// number.
    static func joinAddress(_ frame: borrowing ChannelFrame) -> ChannelAddress {
        let ref = frame.ref.copied()
        return ChannelAddress(
            topic: frame.topic.copied(), joinRef: frame.joinRef.isEmpty ? ref : frame.joinRef.copied(), ref: ref)
    }

    static func hash(_ bytes: RawSpan) -> UInt64 {
        var hash = KeyHash(seed: 0x6368_616e_6e65_6c)
        hash.combine(bytes)
        return hash.value
    }
}

/// Undecided join, with the frames that wait for the decision.
struct PendingJoin: Sendable {
    let ref: [UInt8]
    /// Value `join_ref` of the channel that this join replaces; nil if there is none or if no close is sent for it.
    var replaced: [UInt8]?
    var frames: [WaitingFrame] = []

    init(ref: [UInt8]) { self.ref = ref }
}
