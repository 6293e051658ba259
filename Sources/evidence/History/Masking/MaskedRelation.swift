import Change

/// Schema of a table with the decision which of its columns are masked. It is made once and used for each row.
struct MaskedRelation: Sendable {
    let masking: Masking
    let relation: Relation
    /// All names that the table had, as far as they are known.
    let tables: Set<TableName>
    /// Indexes of the columns whose values are never shown.
    let columns: Set<Int>

    init(_ relation: Relation, _ masking: Masking, alsoCalled names: Set<TableName>) {
        let tables = names.union([TableName(schema: relation.schema, name: relation.name)])
        self.relation = relation
        self.masking = masking
        self.tables = tables
        columns = Set(relation.columns.indices.filter { masking.masks(relation.columns[$0].name, of: tables) })
    }

    /// True if the value may be masked or has parts to mask. Other values are shown as they are and need no copy.
    func mayHide(_ value: borrowing ColumnValue, at column: Int) -> Bool {
        switch copy value {
        case .null, .unchanged: false
        case .binary: columns.contains(column)
        case .text(let text): columns.contains(column) || masking.mayLookInto(text, of: relation.columns[column])
        }
    }

    func shown(_ row: [RowValue]) -> [RowValue] { row.indices.map { shown(row[$0], at: $0) } }

    /// Returns the value in masked form. A masked column shows only if the value is NULL; other columns lose only the
    /// masked parts inside their values.
    func shown(_ value: RowValue, at column: Int) -> RowValue {
        guard columns.contains(column) else { return masking.shown(value, of: relation.columns[column], tables) }
        switch value {
        case .null, .unchanged, .masked: return value
        case .text(let bytes), .binary(let bytes): return .masked(masking.tag(bytes))
        }
    }
}

/// Unmasked original of a change that is shown in masked form. Only policies and filters are evaluated on it.
final class MaskSeal: Sendable {
    let whole: RecordedChange
    let masks: MaskedRelation

    init(_ whole: RecordedChange, _ masks: MaskedRelation) {
        self.whole = whole
        self.masks = masks
    }
}

extension RecordedChange {
    /// Change with unmasked values. Only code that imports `@_spi(Judging)` can use it, and must show none of its
    /// values.
    @_spi(Judging) public var whole: RecordedChange { seal?.whole ?? self }

    /// True if the column at this index is masked, so that its values are not shown.
    public func isMasked(_ column: Int) -> Bool { seal?.masks.columns.contains(column) ?? false }

    /// Rules for showing texts made from this change: a value, or a part of a policy or filter that reads some columns.
    @_spi(Judging) public var discretion: Discretion {
        Discretion(masks: seal?.masks)
    }

    /// Returns the change in masked form.
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

    /// Returns the logical message with masked content and actor.
    func maskingMessage(by masking: Masking) -> RecordedChange {
        var shown = self
        shown.content = masking.shown(content: content, prefix: String(decoding: prefix, as: UTF8.self))
        shown.actor = actor?.masked(by: masking)
        return shown
    }
}

extension Masking {
    /// Returns the content of a message that pg_logical_emit_message wrote under a prefix, in masked form.
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

/// Rules for showing texts made from a change that has masked columns.
@_spi(Judging) public struct Discretion: Sendable {
    let masks: MaskedRelation?

    /// True if the SQL expression reads a masked column, or the row as a whole.
    private func isHidden(_ expression: String) -> Bool {
        guard let masks else { return false }
        if masks.masking.mentions(Array(expression.utf8), of: masks.tables) { return true }
        return !masks.columns.isEmpty && masks.tables.contains { expression.contains($0.name) }
    }

    /// Returns the value's text, masked if the SQL expression that gave it reads a masked column.
    public func value(_ text: String, of expression: String) -> String {
        guard let masks else { return text }
        let bytes = Array(text.utf8)
        if isHidden(expression) { return MaskMark.short(masks.masking.tag(bytes)) }
        return String(decoding: masks.masking.lookingInto(bytes, of: masks.tables.union([.claims])), as: UTF8.self)
    }

    /// Returns PostgreSQL's error text in masked form. The text may contain any value of the row. If the table has
    /// masked columns, only the error code at its end is kept.
    public func failure(_ text: String) -> String {
        guard let masks, !masks.columns.isEmpty, let code = text.lastIndex(of: "(") else { return text }
        return String(text[code...])
    }

    /// Returns the claim's value, masked if the rules mask the claim's name.
    public func claim(_ text: String, named name: String) -> String {
        guard let masking = masks?.masking, masking.masks(name, of: .claims) else { return text }
        return MaskMark.short(masking.tag(Array(text.utf8)))
    }

    /// Returns a filter, or one condition of a filter, with masked values.
    public func filter(_ text: String) -> String {
        guard let masks else { return text }
        return masks.masking.filter(text, of: TableName(schema: masks.relation.schema, name: masks.relation.name))
    }
}
