import Bytes
import Change

/// Columns of the messages table in which the parts of a message are, found by the columns' names. Older tables have
/// other columns or another order.
public struct MessageLayout: Sendable, Equatable {
    /// Part of a message that one column contains.
    enum Part: UInt8, CaseIterable {
        case id, topic, event, payload, binaryPayload, isPrivate, insertedAt, `extension`

        var columnName: String {
            switch self {
            case .id: "id"
            case .topic: "topic"
            case .event: "event"
            case .payload: "payload"
            case .binaryPayload: "binary_payload"
            case .isPrivate: "private"
            case .insertedAt: "inserted_at"
            case .extension: "extension"
            }
        }
    }

    /// Part that each column contains; nil for a column that messages do not need.
    let parts: [Part?]

    /// Creates the layout. Nil if the relation is not the messages table or lacks required columns.
    public init?(_ relation: Relation) {
        guard MessageTable.holds(relation) else { return nil }
        parts = relation.columns.map { column in Part.allCases.first { $0.columnName == column.name } }
        let found = Set(parts.compactMap { $0 })
        guard found.isSuperset(of: [.id, .topic, .event, .payload, .isPrivate, .insertedAt]) else { return nil }
        assert(parts.count == relation.columns.count, "each column is a part, or known to be none")
    }
}

/// Layouts of the relations that a reader of the log has found, by fingerprint, so that each is examined only once.
public struct MessageLayouts: Sendable {
    private var layouts: [UInt64: MessageLayout] = [:]

    public init() {}

    /// True if no relation of messages has been found.
    public var isEmpty: Bool { layouts.isEmpty }

    /// Adds the relation of a schema entry in the log. Returns true if its rows are messages.
    @discardableResult
    public mutating func learn(_ fingerprint: UInt64, _ relation: Relation) -> Bool {
        if layouts[fingerprint] != nil { return true }
        guard let layout = MessageLayout(relation) else { return false }
        precondition(MessageTable.holds(relation), "only rows of the table of messages are messages")
        layouts[fingerprint] = layout
        return true
    }

    /// Returns the layout of rows with this schema; nil if they are not messages.
    public func layout(of fingerprint: UInt64) -> MessageLayout? {
        layouts.isEmpty ? nil : layouts[fingerprint]
    }

    /// Removes all layouts. The reader can do that at a new segment, because each segment repeats the schemas that it
    /// needs.
    public mutating func removeAll() { layouts.removeAll(keepingCapacity: true) }
}
