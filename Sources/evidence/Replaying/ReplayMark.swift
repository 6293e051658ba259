import Bytes
import Change
import History

/// Where something that is replayed comes from.
public struct ReplayMark: Sendable, Equatable {
    /// What its messages in the WAL are called.
    public static let prefix = "tidewire.replay"

    public var offset: UInt64
    public var epoch: UInt64
    public var transaction: TransactionInfo
    /// What whoever replays calls it.
    public var tag: String

    public init(_ change: RecordedChange, tag: String) {
        offset = change.offset
        epoch = change.epoch
        transaction = change.transaction
        self.tag = tag
    }

    /// `{"offset":…,"epoch":…,"lsn":…,"xid":…,"time":…,"tag":…}`, the tag only where there is one.
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
