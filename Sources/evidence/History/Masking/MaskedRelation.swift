import Change

/// A table's schema as a masking sees it: decided once, used for each of its rows.
struct MaskedRelation: Sendable {
    let masking: Masking
    let relation: Relation
    /// All names of the table that are known.
    let tables: Set<TableName>
    /// The columns of which no value is shown.
    let columns: Set<Int>

    init(_ relation: Relation, _ masking: Masking, alsoCalled names: Set<TableName>) {
        let tables = names.union([TableName(schema: relation.schema, name: relation.name)])
        self.relation = relation
        self.masking = masking
        self.tables = tables
        columns = Set(relation.columns.indices.filter { masking.masks(relation.columns[$0].name, of: tables) })
    }

    /// Whether a value has to be taken apart, or is hidden; others are shown as they are, and need not be copied for it.
    func mayHide(_ value: borrowing ColumnValue, at column: Int) -> Bool {
        switch copy value {
        case .null, .unchanged: false
        case .binary: columns.contains(column)
        case .text(let text): columns.contains(column) || masking.mayLookInto(text, of: relation.columns[column])
        }
    }

    func shown(_ row: [RowValue]) -> [RowValue] { row.indices.map { shown(row[$0], at: $0) } }

    /// Of a hidden column that there is a value, and whether it is NULL; of others all but what is hidden inside.
    func shown(_ value: RowValue, at column: Int) -> RowValue {
        guard columns.contains(column) else { return masking.shown(value, of: relation.columns[column], tables) }
        switch value {
        case .null, .unchanged, .masked: return value
        case .text(let bytes), .binary(let bytes): return .masked(masking.tag(bytes))
        }
    }
}

/// What a masked change was made of: for who judges it and shows nothing of it.
final class MaskSeal: Sendable {
    let whole: RecordedChange
    let masks: MaskedRelation

    init(_ whole: RecordedChange, _ masks: MaskedRelation) {
        self.whole = whole
        self.masks = masks
    }
}

extension RecordedChange {
    /// The change with all its values. Whoever asks for it says so by `@_spi(Judging)`, and shows nothing of them.
    @_spi(Judging) public var whole: RecordedChange { seal?.whole ?? self }

    /// Whether no value of that column is shown.
    public func isMasked(_ column: Int) -> Bool { seal?.masks.columns.contains(column) ?? false }

    /// How a text about this change may be shown: a value, or a part of a policy or filter that reads some columns.
    @_spi(Judging) public var discretion: Discretion {
        Discretion(masks: seal?.masks)
    }

    /// The same as it may be shown.
    func masking(_ masks: MaskedRelation) -> RecordedChange {
        guard !masks.masking.isNothing else { return self }
        var shown = self
        shown.old = masks.shown(old)
        shown.new = masks.shown(new)
        if let oldKey, let relation {
            shown.oldKey = zip(relation.keyColumns, oldKey).map { masks.shown($1, at: $0) }
        }
        shown.seal = MaskSeal(self, masks)
        return shown
    }

    func maskingMessage(by masking: Masking) -> RecordedChange {
        var shown = self
        shown.content = masking.shown(content: content, prefix: String(decoding: prefix, as: UTF8.self))
        return shown
    }
}

extension Masking {
    /// What pg_logical_emit_message wrote under a prefix.
    func shown(content: [UInt8], prefix: String) -> [UInt8] {
        if masks(prefix, of: .logicalMessage) { return Array(mark(content).utf8) }
        return lookingInto(content, of: [.logicalMessage])
    }
}

extension RecordedPresence {
    func masked(by masking: Masking) -> RecordedPresence {
        var shown = self
        shown.mark = mark.masked(by: masking)
        return shown
    }
}

extension PresenceMark {
    func masked(by masking: Masking) -> PresenceMark {
        var shown = self
        shown.meta = masking.lookingInto(meta, of: [.presence])
        return shown
    }
}

/// What may be said of values of a change whose columns are masked.
@_spi(Judging) public struct Discretion: Sendable {
    let masks: MaskedRelation?

    /// Whether an expression reads something that is hidden: a masked column, or the row as a whole.
    private func isHidden(_ expression: String) -> Bool {
        guard let masks else { return false }
        if masks.masking.mentions(Array(expression.utf8), of: masks.tables) { return true }
        return !masks.columns.isEmpty && masks.tables.contains { expression.contains($0.name) }
    }

    /// The value of an expression.
    public func value(_ text: String, of expression: String) -> String {
        guard let masks else { return text }
        let bytes = Array(text.utf8)
        if isHidden(expression) { return MaskMark.short(masks.masking.tag(bytes)) }
        return String(decoding: masks.masking.lookingInto(bytes, of: masks.tables.union([.claims])), as: UTF8.self)
    }

    /// What PostgreSQL said when it failed: that may have any value in it, but for its code at the end.
    public func failure(_ text: String) -> String {
        guard let masks, !masks.columns.isEmpty, let code = text.lastIndex(of: "(") else { return text }
        return String(text[code...])
    }

    /// What somebody's claims say of him under a name.
    public func claim(_ text: String, named name: String) -> String {
        guard let masking = masks?.masking, masking.masks(name, of: .claims) else { return text }
        return MaskMark.short(masking.tag(Array(text.utf8)))
    }

    /// A filter, or a condition of one.
    public func filter(_ text: String) -> String {
        guard let masks else { return text }
        return masks.masking.filter(text, of: TableName(schema: masks.relation.schema, name: masks.relation.name))
    }
}
