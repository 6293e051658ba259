import Bytes
import Change

/// Change from the log, with the transaction it belongs to. The struct owns its values.
public struct RecordedChange: Sendable {
    public var offset: UInt64
    public var epoch: UInt64
    public var transaction: TransactionInfo
    /// Index of the change in its transaction.
    public var index: UInt32
    public var operation: Operation
    public var oldImage: OldImage
    /// Options of a truncate (bit 0 CASCADE, bit 1 RESTART IDENTITY) or of a message (bit 0 transactional).
    public var options: UInt8
    /// Schema of the row; nil for a message.
    public var relation: RecordedRelation?
    /// Values of the row before the change; empty if the change has none.
    public var old: [RowValue]
    /// Values of the row after the change; empty if the change has none.
    public var new: [RowValue]
    /// Prefix of a message.
    public var prefix: [UInt8] = []
    /// Content of a message.
    public var content: [UInt8] = []
    /// Statement of the application who made the change; nil if the transaction has none before the change.
    public internal(set) var actor: TransactionActor?

    /// Commit time; nil for a message outside of transactions, because PostgreSQL sends no time for it.
    public var time: Int64? { transaction.commitTime == 0 ? nil : transaction.commitTime }

    /// Row after the change, or the deleted row.
    public var row: [RowValue] { operation == .delete ? old : new }

    /// Columns and values of the row's key, except for values that the change does not contain.
    public var key: [(column: Int, value: RowValue)] {
        guard let relation, operation != .truncate else { return [] }
        return relation.keyColumns.compactMap { column in
            value(of: column).map { (column, $0) }
        }
    }

    /// Returns the newest known value of a column. A large value that was not sent may be in a full old image.
    public func value(of column: Int) -> RowValue? {
        if operation == .delete { return oldValue(of: column) }
        let now = column < new.count ? new[column] : .unchanged
        if now.isKnown { return now }
        guard oldImage == .full, column < old.count, old[column].isKnown else { return nil }
        return old[column]
    }

    /// Returns the column's value in the old image. In a key image, the other columns are unknown, not NULL.
    public func oldValue(of column: Int) -> RowValue? {
        guard let relation, column < old.count, old[column].isKnown else { return nil }
        switch oldImage {
        case .none: return nil
        case .key: return relation.relation.columns[column].isIdentity ? old[column] : nil
        case .full: return old[column]
        }
    }

    /// Columns to which an update gave another value; nil without a full old image, because the log cannot tell.
    public var changedColumns: [Int]? {
        guard operation == .update, oldImage == .full else { return nil }
        return differences
    }

    /// Columns that are known in both images and differ.
    public internal(set) var differences: [Int] = []
    /// Key before the change, if the change gave the row another key.
    public internal(set) var oldKey: [RowValue]?
    /// Rest of a change whose values were removed from the log. No value of such a change is known.
    public internal(set) var forgotten: ForgottenChange?
    /// Unmasked original; nil if nothing is masked.
    var seal: MaskSeal?

    /// Columns that PostgreSQL did not send, because the change did not touch their large values.
    public var unchangedColumns: [Int] { row.indices.filter { row[$0] == .unchanged } }

    public var cascades: Bool { operation == .truncate && options & 1 != 0 }
    public var restartsIdentity: Bool { operation == .truncate && options & 2 != 0 }
    public var isTransactional: Bool { operation != .message || options & 1 != 0 }
}

extension RecordedChange {
    /// Stores the differences between the images. Must be called before any value is masked.
    mutating func compareImages() {
        guard operation == .update, oldImage != .none, let relation else { return }
        differences = new.indices.filter { column in
            guard let before = oldValue(of: column), new[column].isKnown else { return false }
            return before != new[column]
        }
        let before = relation.keyColumns.compactMap { oldValue(of: $0) }
        if before.count == relation.keyColumns.count, before != key.map(\.value) { oldKey = before }
    }
}

/// A place where changes were lost before they reached the log.
public struct RecordedGap: Sendable, Equatable {
    /// Offset of the next change after the gap.
    public var offset: UInt64
    /// Epoch that begins with the gap.
    public var epoch: UInt64
    public var time: Int64
    public var gap: Gap
}

/// A presence event: a client appeared in a topic, left it, or changed its state.
public struct RecordedPresence: Sendable, Equatable {
    /// Offset of the next change after the event.
    public var offset: UInt64
    public var epoch: UInt64
    public var mark: PresenceMark
}

/// A mark that an operator or an operator's action left in the log.
public struct RecordedMark: Sendable, Equatable {
    /// Offset of the next change after the mark.
    public var offset: UInt64
    public var epoch: UInt64
    public var mark: OperatorMark
}

/// Item of the log that a query returns.
public enum HistoryItem: Sendable {
    case change(RecordedChange)
    case gap(RecordedGap)
    case presence(RecordedPresence)
    case mark(RecordedMark)
    /// A row that was read from the database (`KeptRows`), in the form of an insert. The offset is that of the next
    /// change. The transaction shows where and when the row was read.
    case kept(RecordedChange)
}

/// Error for an entry with a correct checksum that cannot be decoded: a later version wrote it, or the hub has a fault.
public struct UnreadableEntry: Error, CustomStringConvertible {
    public let offset: UInt64
    public let segment: UInt64
    public let reason: String

    public var description: String { "the entry at @\(offset) (segment \(segment)) cannot be understood: \(reason)" }
}
