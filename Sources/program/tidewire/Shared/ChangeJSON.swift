import Bytes
import Change
import Console
import History
import Projects

/// JSON of a recorded change, for scripts. The names are promised to users and do not change.
extension RecordedChange {
    var json: String {
        var line = JSONLine()
        addPlace(to: &line)
        line.add("op", operation.name)
        line.add("schema", relation?.relation.schema)
        line.add("table", relation?.relation.name)
        switch operation {
        case .message: addMessage(to: &line)
        case .truncate:
            line.add("cascade", cascades)
            line.add("restart_identity", restartsIdentity)
        case .insert, .update, .delete: addRow(to: &line)
        }
        if let forgotten { line.add("forgotten", forgotten.date ?? "") }
        return line.text
    }

    /// JSON of a row that `tidewire signal backfill` read from the table and wrote into the log.
    var readingJSON: String {
        var line = JSONLine()
        line.add("offset", offset)
        line.add("epoch", Hex.text(epoch))
        line.add("lsn", transaction.commitLSN.description)
        line.add("time", time.map(TimeText.json))
        line.add("op", "READ")
        line.add("schema", relation?.relation.schema)
        line.add("table", relation?.relation.name)
        line.add("key", json: object(key.map { ($0.column, $0.value) }))
        line.add("record", json: object(new.indices.map { ($0, new[$0]) }))
        return line.text
    }

    private func addPlace(to line: inout JSONLine) {
        line.add("offset", offset)
        line.add("epoch", Hex.text(epoch))
        line.add("lsn", transaction.commitLSN.description)
        line.add("end_lsn", transaction.endLSN.description)
        line.add("xid", transaction.xid)
        line.add("index", index)
        line.add("time", time.map(TimeText.json))
        line.add("origin", transaction.origin.isEmpty ? nil : transaction.origin)
        // A message of another form is shown as a text.
        if let actor {
            let text = String(decoding: actor.content, as: UTF8.self)
            line.add("actor", json: actor.isObject ? text : JSONLine.quoted(text))
        }
    }

    private func addMessage(to line: inout JSONLine) {
        line.add("transactional", isTransactional)
        line.add("prefix", String(decoding: prefix, as: UTF8.self))
        // A message may contain any bytes.
        let text = String(validating: content, as: UTF8.self)
        line.add("content", text)
        if text == nil {
            var hex = ByteWriter()
            Hex.append(content.rawBytes, to: &hex)
            line.add("content_hex", hex.bytes.text)
        }
    }

    private func addRow(to line: inout JSONLine) {
        line.add("key", json: object(key.map { ($0.column, $0.value) }))
        line.add("record", json: operation == .delete ? "null" : object(new.indices.map { ($0, new[$0]) }))
        let before = old.indices.compactMap { column in oldValue(of: column).map { (column, $0) } }
        line.add("old_record", json: oldImage == .none ? "null" : object(before))
        if operation == .update {
            line.add("changed", json: changedColumns.map(names) ?? "null")
            line.add("unchanged", json: names(unchangedColumns))
        }
    }

    private func names(_ columns: [Int]) -> String {
        "[" + columns.map { JSONLine.quoted(relation?.relation.columns[$0].name ?? "") }.joined(separator: ",") + "]"
    }

    /// Returns a JSON object with the given columns and values. It omits columns whose values the log does not know.
    func object(_ columns: [(Int, RowValue)]) -> String {
        guard let relation else { return "null" }
        var object = JSONLine()
        for (column, value) in columns {
            if let json = value.json(relation.renderings[column]) {
                object.add(relation.relation.columns[column].name, json: json)
            }
        }
        return object.text
    }
}

extension RecordedGap {
    var json: String {
        var line = JSONLine()
        add(to: &line)
        return line.text
    }

    func add(to line: inout JSONLine) {
        line.add("offset", offset)
        line.add("epoch", Hex.text(epoch))
        line.add("lsn", gap.to.description)
        line.add("time", TimeText.json(time))
        line.add("op", "GAP")
        line.add("reason", gap.reason.rawValue)
        line.add("from_lsn", gap.from.description)
        line.add("to_lsn", gap.to.description)
    }
}

extension RecordedPresence {
    var json: String {
        var line = JSONLine()
        line.add("offset", offset)
        line.add("epoch", Hex.text(epoch))
        line.add("time", TimeText.json(mark.time))
        line.add("op", "PRESENCE")
        line.add("event", mark.event.name)
        line.add("topic", String(decoding: mark.topic, as: UTF8.self))
        line.add("private", mark.isPrivate)
        line.add("key", String(decoding: mark.key, as: UTF8.self))
        line.add("ref", String(decoding: mark.ref, as: UTF8.self))
        // The metadata is written as text, because the client may have sent anything.
        line.add("meta", String(decoding: mark.meta, as: UTF8.self))
        return line.text
    }
}

extension RecordedMark {
    var json: String {
        var line = JSONLine()
        line.add("offset", offset)
        line.add("epoch", Hex.text(epoch))
        line.add("time", TimeText.json(mark.time))
        line.add("op", "MARK")
        line.add("event", mark.action.name)
        line.add("text", String(decoding: mark.text, as: UTF8.self))
        return line.text
    }
}

extension HistoryItem {
    var json: String {
        switch self {
        case .change(let change): change.json
        case .gap(let gap): gap.json
        case .presence(let presence): presence.json
        case .mark(let mark): mark.json
        case .kept(let row): row.readingJSON
        }
    }
}
