import Bytes
import Change

/// One change as the log has it, with the transaction it belongs to. It owns its values.
public struct RecordedChange: Sendable {
    public var offset: UInt64
    public var epoch: UInt64
    public var transaction: TransactionInfo
    /// Its place in the transaction.
    public var index: UInt32
    public var operation: Operation
    public var oldImage: OldImage
    /// Truncate: bit 0 CASCADE, bit 1 RESTART IDENTITY. Message: bit 0 transactional.
    public var options: UInt8
    /// Nil for a message.
    public var relation: RecordedRelation?
    /// Empty where there is no such image.
    public var old: [RowValue]
    public var new: [RowValue]
    /// A message's prefix and content.
    public var prefix: [UInt8] = []
    public var content: [UInt8] = []

    /// When it was committed; nil for a message outside of transactions, of which PostgreSQL does not tell.
    public var time: Int64? { transaction.commitTime == 0 ? nil : transaction.commitTime }

    /// The row after the change, or the one that was deleted.
    public var row: [RowValue] { operation == .delete ? old : new }

    /// Names and values of the key, as far as the change tells it.
    public var key: [(column: Int, value: RowValue)] {
        guard let relation, operation != .truncate else { return [] }
        return relation.keyColumns.compactMap { column in
            value(of: column).map { (column, $0) }
        }
    }

    /// The newest that the change tells of a column: large values that were not sent may stand in a full old image.
    public func value(of column: Int) -> RowValue? {
        if operation == .delete { return oldValue(of: column) }
        let now = column < new.count ? new[column] : .unchanged
        if now.isKnown { return now }
        guard oldImage == .full, column < old.count, old[column].isKnown else { return nil }
        return old[column]
    }

    /// Whether the old image tells this column: of a key image the other columns are unknown, not NULL.
    public func oldValue(of column: Int) -> RowValue? {
        guard let relation, column < old.count, old[column].isKnown else { return nil }
        switch oldImage {
        case .none: return nil
        case .key: return relation.relation.columns[column].isIdentity ? old[column] : nil
        case .full: return old[column]
        }
    }

    /// The columns an update gave another value; nil when the log cannot tell, for want of a full old image.
    public var changedColumns: [Int]? {
        guard operation == .update, oldImage == .full else { return nil }
        return differences
    }

    /// The columns of which both images are known and differ.
    public internal(set) var differences: [Int] = []
    /// The key before the change, when the change gave the row another.
    public internal(set) var oldKey: [RowValue]?
    /// What is left where its values were removed from the log; then no value of it is known.
    public internal(set) var forgotten: ForgottenChange?
    /// By what values are hidden here; nil where none are.
    var seal: MaskSeal?

    /// Columns that PostgreSQL did not send, because the change did not touch their large values.
    public var unchangedColumns: [Int] { row.indices.filter { row[$0] == .unchanged } }

    public var cascades: Bool { operation == .truncate && options & 1 != 0 }
    public var restartsIdentity: Bool { operation == .truncate && options & 2 != 0 }
    public var isTransactional: Bool { operation != .message || options & 1 != 0 }
}

extension RecordedChange {
    /// Notes what comparing the images tells, before any value is masked.
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
    /// The offset of the next change after it.
    public var offset: UInt64
    /// The epoch that it begins.
    public var epoch: UInt64
    public var time: Int64
    public var gap: Gap
}

/// Somebody who came to a topic, went, or told something else of himself.
public struct RecordedPresence: Sendable, Equatable {
    /// The offset of the next change after it.
    public var offset: UInt64
    public var epoch: UInt64
    public var mark: PresenceMark
}

/// What an operator did or wrote.
public struct RecordedMark: Sendable, Equatable {
    /// The offset of the next change after it.
    public var offset: UInt64
    public var epoch: UInt64
    public var mark: OperatorMark
}

/// What a window shows.
public enum HistoryItem: Sendable {
    case change(RecordedChange)
    case gap(RecordedGap)
    case presence(RecordedPresence)
    case mark(RecordedMark)
    /// A row that somebody read from the database (`KeptRows`), as a change that inserts it. Its offset is that of the next change,
    /// its transaction tells where and when it was read.
    case kept(RecordedChange)
}

/// Entries whose content cannot be read though their checksums are right: of a later version, or of a fault of ours.
public struct UnreadableEntry: Error, CustomStringConvertible {
    public let offset: UInt64
    public let segment: UInt64
    public let reason: String

    public var description: String { "the entry at @\(offset) (segment \(segment)) cannot be understood: \(reason)" }
}
