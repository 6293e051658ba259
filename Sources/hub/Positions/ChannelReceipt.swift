/// Offset that the client of one channel has acknowledged, as far as it differs from the receipt of its socket.
///
/// A ping asks about everything that the socket was sent before. Its answer settles what the channel had been sent at
/// that time.
public struct ChannelReceipt: Equatable, Sendable {
    /// Extent of what the client was sent.
    public enum Reach: Equatable, Sendable {
        /// Changes before this offset.
        case offset(UInt64)
        /// Changes that the socket's receipt confirms.
        case socket
    }

    /// State of a report about lost changes, which the client may not have received yet.
    public enum LossReport: Sendable { case none, told, asked }

    /// Acknowledged offset of this channel; nil if the socket's receipt applies.
    public private(set) var own: UInt64?
    /// Extent that the current ping asks about; nil if the ping says nothing about the channel.
    public private(set) var pinged: Reach?
    public private(set) var lossReport: LossReport

    public init(own: UInt64? = nil, lossReport: LossReport = .none) {
        self.own = own
        self.lossReport = lossReport
    }

    /// True if the client is known to have received the last report about lost changes.
    public var isFreeOfLoss: Bool { lossReport == .none }

    /// Begins to track a channel that was joined at `begins`. A channel that joined again on its socket may still be
    /// receiving what was sent before.
    public mutating func begin(at begins: UInt64) { own = min(own ?? begins, begins) }

    /// Begins to track the channel apart from its socket. Of the socket's acknowledgements, only the one for the current
    /// ping applies to the channel from here on.
    ///
    /// - Parameters:
    ///   - acknowledged: offset that the client has acknowledged by now.
    ///   - asked: offset of the socket's ping under way; nil if there is none.
    public mutating func separate(acknowledged: UInt64?, asked: UInt64?) {
        if let asked {
            let isOfSocket = if case .socket = pinged { true } else { own == nil }
            if isOfSocket { pinged = .offset(asked) }
        }
        own = own ?? acknowledged
    }

    /// Notes that a report about lost changes was sent.
    public mutating func noteLossReport() { lossReport = .told }

    /// Notes a ping. `reach` is what the channel was sent by now, and `hasItAll` is false if rows of a snapshot are
    /// still to come.
    public mutating func notePing(about reach: Reach?, hasItAll: Bool) {
        if lossReport == .told, hasItAll { lossReport = .asked }
        if own != nil { pinged = reach }
    }

    /// Takes the answer to the ping.
    public mutating func noteAnswer() {
        if own != nil { settle(pinged) }
        pinged = nil
        if lossReport == .asked { lossReport = .none }
    }

    /// Notes that the client has everything within `reach`.
    public mutating func settle(_ reach: Reach?) {
        switch reach {
        case nil: return
        case .offset(let offset): own = max(offset, own ?? 0)
        case .socket: own = nil
        }
    }
}
