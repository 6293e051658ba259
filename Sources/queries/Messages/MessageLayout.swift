import Bytes
import Change

/// Where a message's parts stand in its row, found by the columns' names: older tables have other columns, or the same in
/// another order.
public struct MessageLayout: Sendable, Equatable {
    /// What a column is to a message.
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

    /// For each column its part; nil where it is none.
    let parts: [Part?]

    /// Nil for a relation that is not the table of messages, or one that no message can be read from.
    public init?(_ relation: Relation) {
        guard MessageTable.holds(relation) else { return nil }
        parts = relation.columns.map { column in Part.allCases.first { $0.columnName == column.name } }
        let found = Set(parts.compactMap { $0 })
        guard found.isSuperset(of: [.id, .topic, .event, .payload, .isPrivate, .insertedAt]) else { return nil }
        assert(parts.count == relation.columns.count, "each column is a part, or known to be none")
    }
}

/// The layouts of the relations that a reader of the log has met, by their fingerprints: each is looked at once.
public struct MessageLayouts: Sendable {
    private var layouts: [UInt64: MessageLayout] = [:]

    public init() {}

    /// No relation of messages has been met.
    public var isEmpty: Bool { layouts.isEmpty }

    /// The schema entry of a relation; true when its rows are messages.
    @discardableResult
    public mutating func learn(_ fingerprint: UInt64, _ relation: Relation) -> Bool {
        if layouts[fingerprint] != nil { return true }
        guard let layout = MessageLayout(relation) else { return false }
        precondition(MessageTable.holds(relation), "only rows of the table of messages are messages")
        layouts[fingerprint] = layout
        return true
    }

    /// How the rows of a schema are read; nil where they are no messages.
    public func layout(of fingerprint: UInt64) -> MessageLayout? {
        layouts.isEmpty ? nil : layouts[fingerprint]
    }

    /// Each segment of the log has the schemas that it needs, so those of the one before can be forgotten.
    public mutating func removeAll() { layouts.removeAll(keepingCapacity: true) }
}
