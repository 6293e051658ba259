import Bytes
import Change
import History

/// Origin of a replayed transaction: its place in the log, and the replay's name.
public struct ReplayMark: Sendable, Equatable {
    /// Prefix of the WAL messages in which `DatabaseTarget` writes the marks.
    public static let prefix = "tidewire.replay"

    public var offset: UInt64
    public var epoch: UInt64
    public var transaction: TransactionInfo
    /// Name that the user gave the replay; empty if there is none.
    public var tag: String

    public init(_ change: RecordedChange, tag: String) {
        offset = change.offset
        epoch = change.epoch
        transaction = change.transaction
        self.tag = tag
    }

    /// The mark as JSON: `{"offset":…,"epoch":…,"lsn":…,"xid":…,"time":…,"tag":…}`. Without a tag, the member is left
    /// out.
    public var json: String {
        var writer = ByteWriter(capacity: 160)
        writer.append("{\"offset\":\(offset),\"epoch\":\"\(Hex.text(epoch))\",\"lsn\":\"\(transaction.commitLSN)\",")
        writer.append("\"xid\":\(transaction.xid),\"time\":\"\(TimeText.json(transaction.commitTime))\"")
        if !tag.isEmpty {
            writer.append(",\"tag\":")
            JSONText.appendString(tag, to: &writer)
        }
        writer.append("}")
        return writer.bytes.text
    }
}
