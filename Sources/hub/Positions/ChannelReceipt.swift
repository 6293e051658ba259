/// Offset that the client of one channel has acknowledged, if it differs from the offset of the socket
/// (`SocketReceipt`).
///
/// A client's answer to a ping confirms everything that the hub had sent on the socket before the ping.
public struct ChannelReceipt: Equatable, Sendable {
    /// Extent of what the hub has sent to the client.
    public enum Reach: Equatable, Sendable {
        /// The client was sent all changes before this offset.
        case offset(UInt64)
        /// The client was sent the same changes as the socket as a whole.
        case socket
    }

    /// State of the last loss report: none is open, it was sent, or a ping was sent after it.
    public enum LossReport: Sendable { case none, told, asked }

    /// Acknowledged offset of this channel; nil if the socket's acknowledged offset applies.
    public private(set) var own: UInt64?
    /// Extent that the client's answer to the current ping will confirm; nil if it confirms nothing for this channel.
    public private(set) var pinged: Reach?
    public private(set) var lossReport: LossReport

    public init(own: UInt64? = nil, lossReport: LossReport = .none) {
        self.own = own
        self.lossReport = lossReport
    }

    /// True if the client has acknowledged the last loss report, or there was none.
    public var isFreeOfLoss: Bool { lossReport == .none }

    /// Begins to track a channel that joined at offset `begins`. If it had joined before on the same socket, data of
    /// the earlier channel may still be on its way.
    public mutating func begin(at begins: UInt64) { own = min(own ?? begins, begins) }

    /// Begins to track the channel separately from its socket. Of the socket's later acknowledgements, only that of the
    /// current ping applies to the channel.
    ///
    /// - Parameters:
    ///   - acknowledged: offset that the client has acknowledged.
    ///   - asked: offset of the socket's current ping; nil if there is none.
    public mutating func separate(acknowledged: UInt64?, asked: UInt64?) {
        if let asked {
            let isOfSocket = if case .socket = pinged { true } else { own == nil }
            if isOfSocket { pinged = .offset(asked) }
        }
        own = own ?? acknowledged
    }

    /// Records that the hub has sent a loss report.
    public mutating func noteLossReport() { lossReport = .told }

    /// Records that the hub has sent a ping. `reach` is what the channel had been sent before it. `hasItAll` is false
    /// if the hub still has to send rows of a snapshot.
    public mutating func notePing(about reach: Reach?, hasItAll: Bool) {
        if lossReport == .told, hasItAll { lossReport = .asked }
        if own != nil { pinged = reach }
    }

    /// Applies the client's answer to the open ping.
    public mutating func noteAnswer() {
        if own != nil { settle(pinged) }
        pinged = nil
        if lossReport == .asked { lossReport = .none }
    }

    /// Records that the client has received everything within `reach`.
    public mutating func settle(_ reach: Reach?) {
        switch reach {
        case nil: return
        case .offset(let offset): own = max(offset, own ?? 0)
        case .socket: own = nil
        }
    }
}
