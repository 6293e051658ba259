import Bytes
import Change

/// Positions of a message's parts in its row, found by the columns' names: older tables have other columns, or another
/// order.
public struct MessageLayout: Sendable, Equatable {
    /// Part of a message that a column contains.
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

    /// Part for each column; nil for a column without meaning.
    let parts: [Part?]

    /// Makes the layout; nil if the relation is not the messages table, or lacks required columns.
    public init?(_ relation: Relation) {
        guard MessageTable.holds(relation) else { return nil }
        parts = relation.columns.map { column in Part.allCases.first { $0.columnName == column.name } }
        let found = Set(parts.compactMap { $0 })
        guard found.isSuperset(of: [.id, .topic, .event, .payload, .isPrivate, .insertedAt]) else { return nil }
        assert(parts.count == relation.columns.count, "each column is a part, or known to be none")
    }
}

/// Layouts of the relations that a reader of the log has met, by fingerprint, so that each is examined once.
public struct MessageLayouts: Sendable {
    private var layouts: [UInt64: MessageLayout] = [:]

    public init() {}

    /// True if no messages relation has been met.
    public var isEmpty: Bool { layouts.isEmpty }

    /// Learns the relation of a schema entry. Returns true if its rows are messages.
    @discardableResult
    public mutating func learn(_ fingerprint: UInt64, _ relation: Relation) -> Bool {
        if layouts[fingerprint] != nil { return true }
        guard let layout = MessageLayout(relation) else { return false }
        precondition(MessageTable.holds(relation), "only rows of the table of messages are messages")
        layouts[fingerprint] = layout
        return true
    }

    /// Returns the layout of a schema's rows; nil if they are not messages.
    public func layout(of fingerprint: UInt64) -> MessageLayout? {
        layouts.isEmpty ? nil : layouts[fingerprint]
    }

    /// Forgets all layouts. Each segment of the log repeats the schemas that it needs.
    public mutating func removeAll() { layouts.removeAll(keepingCapacity: true) }
}
