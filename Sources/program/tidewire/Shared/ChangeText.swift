import Bytes
import Change
import Console
import History

/// Formatter of recorded changes as text for people.
struct ChangeText {
    let zone: DisplayZone
    /// Maximum number of characters of a value; the formatter shortens longer values. JSON output has whole values.
    let longest: Int

    init(zone: DisplayZone, _ terminal: Terminal) {
        self.zone = zone
        longest = terminal.form == .table ? (terminal.isInteractive ? 40 : 200) : .max
    }

    /// Returns the cells with which each line about a change begins: OFFSET, TIME, LSN, XID, OP.
    func place(_ change: RecordedChange) -> [String] {
        [
            String(change.offset), zone.text(change.time), change.transaction.commitLSN.description,
            change.transaction.xid == 0 ? "-" : String(change.transaction.xid), change.operation.letter,
        ]
    }

    /// Returns the same first cells (OFFSET, TIME, LSN, XID, OP) for a row that a backfill read from the table. Such a
    /// row has no offset and no XID of a change.
    func place(ofReading row: RecordedChange) -> [String] {
        ["-", zone.text(row.time), row.transaction.commitLSN.description, "-", "READ"]
    }

    /// Returns the name of the changed table; `-` for a change without a table.
    func table(_ change: RecordedChange) -> String { change.relation?.table.description ?? "-" }

    /// Returns the values of the row's key, separated by commas; `-` if there is none.
    func key(_ change: RecordedChange) -> String {
        let key = change.key
        return key.isEmpty ? "-" : key.map { $0.value.plainText ?? $0.value.word }.joined(separator: ",")
    }

    /// Returns a summary of the change, such as its changed columns. It begins with the actor (who made the change) if
    /// the application named one.
    func summary(_ change: RecordedChange) -> String { actor(of: change) + plainSummary(change) }

    /// Returns the prefix `by NAME: ` for a row's change whose actor the application named; otherwise an empty text.
    func actor(of change: RecordedChange) -> String {
        guard change.operation != .message, let actor = change.actor else { return "" }
        return "by \(actor.name ?? shortened(ifLong: String(decoding: actor.content, as: UTF8.self))): "
    }

    private func plainSummary(_ change: RecordedChange) -> String {
        if let forgotten = change.forgotten { return forgotten.words }
        return switch change.operation {
        case .insert: message(change) ?? columns(change, known(change).filter { !change.isKey($0) })
        case .update: update(change)
        case .delete: deletion(change)
        case .truncate: truncation(change)
        case .message: "\(text(change.prefix)): \(text(change.content))"
        }
    }

    /// Returns the event, topic and payload of a row of realtime.messages; nil for other rows.
    private func message(_ change: RecordedChange) -> String? {
        guard let relation = change.relation?.relation, MessageTable.holds(relation) else { return nil }
        func part(_ name: String) -> RowValue? {
            relation.column(named: name).map { change.row[$0] }.flatMap { $0 == .null ? nil : $0 }
        }
        guard let topic = part("topic"), let event = part("event"),
            let payload = part("payload") ?? part("binary_payload")
        else { return nil }
        let isPrivate = part("private") == .text(Array("t".utf8)) ? " (private)" : ""
        return "\(event.plainText ?? event.word) → \(topic.plainText ?? topic.word)\(isPrivate): "
            + shortened(ifLong: payload.plainText ?? payload.word)
    }

    private func update(_ change: RecordedChange) -> String {
        if change.oldImage == .full || !change.differences.isEmpty {
            if let changed = change.changedColumns, changed.isEmpty { return "(nothing changed)" }
            return change.differences.map { difference(change, $0, change.oldValue(of: $0)) }.joined(separator: ", ")
        }
        return columns(change, change.row.indices.filter { !change.isKey($0) })
    }

    /// Returns the summary of a change, but for an update all columns of the new row instead of the changed ones.
    func wholeRow(_ change: RecordedChange) -> String {
        change.operation == .update && change.forgotten == nil
            ? actor(of: change) + columns(change, Array(change.row.indices)) : summary(change)
    }

    private func deletion(_ change: RecordedChange) -> String {
        let shown = known(change).filter { !change.isKey($0) }
        return change.oldImage == .full ? "(row removed) " + columns(change, shown) : "(row removed)"
    }

    private func truncation(_ change: RecordedChange) -> String {
        let options = [change.cascades ? ", cascade" : "", change.restartsIdentity ? ", restart identity" : ""]
        return "(all rows removed\(options.joined()))"
    }

    /// Returns the indices of the columns whose values the log knows.
    private func known(_ change: RecordedChange) -> [Int] { change.row.indices.filter { change.row[$0].isKnown } }

    private func columns(_ change: RecordedChange, _ columns: [Int]) -> String {
        columns.map { "\(name($0, change)): \(value(change.row[$0], $0, change))" }.joined(separator: ", ")
    }

    /// Returns the old and new value of a column, such as `body: "a"→"b"`; only the new one if the old is unknown.
    func difference(_ change: RecordedChange, _ column: Int, _ before: RowValue?) -> String {
        let after = value(change.value(of: column) ?? .unchanged, column, change)
        guard let before else { return "\(name(column, change)): \(after)" }
        return "\(name(column, change)): \(value(before, column, change))→\(after)"
    }

    private func name(_ column: Int, _ change: RecordedChange) -> String {
        change.relation.map { SQLName.quoted($0.relation.columns[column].name) } ?? ""
    }

    /// Returns the text of a column's value, shortened if it is longer than `longest`.
    func value(_ value: RowValue, _ column: Int, _ change: RecordedChange) -> String {
        if case .masked = value { return value.word }
        guard let relation = change.relation else { return value.word }
        let rendering = relation.renderings[column]
        // Only the beginning of a large value is rendered, because the text is shortened anyway.
        if longest < .max, let beginning = value.beginning(Self.mostBytes, rendering) {
            return shortened(beginning.json(rendering) ?? value.word)
        }
        return shortened(ifLong: value.json(rendering) ?? value.word)
    }

    /// Number of bytes that are rendered of a large value. That is far more than the shown maximum, in any characters.
    private static let mostBytes = 64 << 10

    /// Returns the text, shortened if it is longer than `longest`.
    private func shortened(ifLong text: String) -> String {
        text.utf8.count > longest && text.count > longest ? shortened(text) : text
    }

    private func shortened(_ text: String) -> String {
        text.prefix(longest - 2) + "…" + (text.hasPrefix("\"") ? "\"" : "")
    }

    private func text(_ bytes: [UInt8]) -> String { String(decoding: bytes, as: UTF8.self) }

    /// Returns the cells of a line about a presence event, in the same columns as the lines about changes.
    func line(_ presence: RecordedPresence) -> [String] {
        let mark = presence.mark
        if mark.event == .missing {
            let (place, time) = (String(presence.offset), zone.text(mark.time))
            return [place, time, "-", "-", "P", "-", "-", "missing marks, the queue was full: \(text(mark.meta))"]
        }
        return [
            String(presence.offset), zone.text(mark.time), "-", "-", "P", text(mark.topic), text(mark.key),
            "\(mark.event.name)\(mark.isPrivate ? " (private)" : "") \(shortened(ifLong: text(mark.meta)))",
        ]
    }

    /// Returns the line for an operator's mark (`tidewire signal`), which is printed between the lines of changes.
    func line(_ mark: RecordedMark) -> String {
        let words = mark.mark.text.isEmpty ? "" : ": \(ScreenText.escaped(text(mark.mark.text)))"
        return "──── \(mark.mark.action.name)\(words), \(zone.text(mark.mark.time)) ────"
    }

    /// Returns the line for a gap (a loss that the log marks), which is printed between the lines of changes.
    func line(_ gap: RecordedGap) -> String {
        "──── gap: \(gap.gap.reason.rawValue), \(gap.gap.from) → \(gap.gap.to), new epoch \(Hex.text(gap.epoch)), "
            + "\(zone.text(gap.time)) ────"
    }
}

extension RecordedChange {
    func isKey(_ column: Int) -> Bool { relation?.keyColumns.contains(column) ?? false }
}

extension ForgottenChange {
    /// Text in place of the values that `tidewire log forget` removed.
    var words: String { date.map { "(forgotten on \($0))" } ?? "(forgotten)" }
}

extension RowValue {
    /// Text of the value. A value without a text of its own, such as a masked or binary one, has a placeholder.
    var word: String {
        switch self {
        case .null: "null"
        case .unchanged: "(unchanged)"
        case .masked(let tag): MaskMark.short(tag)
        case .binary: "(binary)"
        case .text: plainText ?? ""
        }
    }
}

extension RowValue {
    /// Returns the first bytes of a long text value: at most `most`, without cutting a character. Nil if the value is
    /// not longer, or if the beginning of its JSON is not the JSON of its beginning.
    fileprivate func beginning(_ most: Int, _ rendering: JSONRendering) -> RowValue? {
        guard case .text(let bytes) = self, bytes.count > most else { return nil }
        switch rendering {
        case .scalar(.text), .scalar(.json): break
        case .scalar, .array: return nil
        }
        var end = most
        while end > 0, bytes[end] & 0xc0 == 0x80 { end -= 1 }
        return .text(Array(bytes[..<end]))
    }
}
