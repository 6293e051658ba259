import Bytes

/// Where a channel stands in the log as it joins, told to those who asked for that or to go on from a position.
public struct LogStanding: Sendable {
    /// Why what was missed cannot be told: it has to be fetched.
    public enum Refusal: String, Error, CaseIterable {
        /// The log does not reach back so far.
        case olderThanRetention = "older_than_retention"
        /// History has a gap since then, or is another database's.
        case otherEpoch = "epoch_changed"
        /// The log has not come to that position.
        case unknown = "unknown_position"
        /// The log is damaged from that position on, or the disk does not read it.
        case unreadable = "log_unreadable"
    }

    /// What follows comes from here on; nil where the log has not begun, of which the channel is told when it has.
    public let position: String?
    /// Nil where nobody asked to go on from somewhere.
    public let recovery: Result<Void, Refusal>?

    public init(position: String?, recovery: Result<Void, Refusal>?) {
        self.position = position
        self.recovery = recovery
    }

    func append(to writer: inout ByteWriter) {
        writer.append(",\"tidewire\":{\"position\":")
        if let position {
            writer.append("\"")
            writer.append(position)
            writer.append("\"")
        } else {
            writer.append("null")
        }
        switch recovery {
        case nil: break
        case .success: writer.append(",\"recovered\":true")
        case .failure(let refusal):
            writer.append(",\"recovered\":false,\"reason\":\"")
            writer.append(refusal.rawValue)
            writer.append("\"")
        }
        writer.append("}")
    }
}
