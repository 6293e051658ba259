import Bytes

/// Log position of a joining channel, and the result of its resume. The hub sends it to clients that asked for either.
public struct LogStanding: Sendable {
    /// Reason why the hub cannot send the missed changes, so that the client must fetch the data again.
    public enum Refusal: String, Error, CaseIterable {
        /// The log no longer contains the changes after the position.
        case olderThanRetention = "older_than_retention"
        /// The log has a gap after the position, or the position belongs to another database.
        case otherEpoch = "epoch_changed"
        /// The log has not reached the position yet.
        case unknown = "unknown_position"
        /// The log is damaged at or after the position, or the disk cannot read it.
        case unreadable = "log_unreadable"
    }

    /// Position after which the channel gets changes. Nil if the log has not begun yet: the hub then sends the position
    /// later.
    public let position: String?
    /// Success of the resume, or the reason why the resume is impossible. Nil if the client did not ask to resume.
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
