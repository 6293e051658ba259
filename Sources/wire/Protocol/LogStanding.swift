import Bytes

/// Position of a joining channel in the log, sent to clients that asked for positions or asked to resume.
public struct LogStanding: Sendable {
    /// Reason why the hub cannot send the missed changes, so that the client must fetch the data again.
    public enum Refusal: String, Error, CaseIterable {
        /// The log no longer reaches back to the position.
        case olderThanRetention = "older_than_retention"
        /// History has a gap after the position, or the position belongs to another database.
        case otherEpoch = "epoch_changed"
        /// The log has not reached that position.
        case unknown = "unknown_position"
        /// The log is damaged from that position on, or the disk cannot read it.
        case unreadable = "log_unreadable"
    }

    /// Position from which changes follow; nil until the log has begun. The channel then gets the position later.
    public let position: String?
    /// Result of the resume; nil if the client did not ask to resume.
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
