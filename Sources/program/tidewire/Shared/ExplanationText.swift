import Catalog
import Change
import Console
import Explaining
import History

/// Printer of the explanation why a user was or was not sent a change. For people it prints sentences; as csv and md a
/// row for each step and for each condition in it.
struct ExplanationPrinter {
    private let terminal: Terminal
    private let zone: DisplayZone
    private var rows: TableStream
    /// Name of the row image (old or new row of an update) that the printer is explaining; empty outside of one.
    private var image = ""

    init(_ terminal: Terminal, _ zone: DisplayZone) {
        self.terminal = terminal
        self.zone = zone
        rows = TableStream(
            [.text("STEP"), .text("ROW"), .text("PART"), .text("HUB"), .text("POSTGRESQL")], on: terminal)
    }

    private var isText: Bool { terminal.form == .table }

    mutating func print(_ explanation: Explanation, _ change: RecordedChange) throws {
        if !isText { try terminal.print(rows.heading) }
        try print(change)
        try print(explanation.publication, change)
        try print(explanation.role)
        try print(explanation.binding)
        if !explanation.wantsOperation { try line("event", "the subscription is not for this operation") }
        for image in [explanation.image, explanation.oldImage].compactMap({ $0 }) {
            try print(image, change, explanation.withoutPostgres)
        }
        try printOldRecord(explanation, change)
        for note in explanation.notes { try line("note", note) }
        for part in explanation.differences {
            let (hub, server) = (word(part.hub, part), part.postgres.map { word($0, part) } ?? "-")
            try line("DIFFERENCE", "\(part.text): the hub says \(hub), PostgreSQL says \(server). Please report it.")
        }
        guard isText else { return try line("result", explanation.sentence, explanation.isTold ? "told" : "not told") }
        try heading("\n" + ScreenText.escaped(explanation.sentence))
    }

    /// Prints a heading in the output for people. Other formats need none, because each of their rows names its step.
    private func heading(_ text: String) throws { if isText { try terminal.print(text) } }

    /// Prints a line, or as csv and md a row, of the explanation.
    /// - Parameter hub: the hub's verdict, for csv and md.
    private mutating func line(_ name: String, _ text: String, _ hub: String = "") throws {
        guard isText else { return try terminal.print(rows.line([name, image, text, hub, ""])) }
        let heading = name + String(repeating: " ", count: max(1, 13 - name.count))
        try terminal.print(heading + ScreenText.escaped(text))
    }

    private mutating func print(_ change: RecordedChange) throws {
        let text = ChangeText(zone: zone, terminal)
        let time = change.time.map { "\(zone.text($0)) \(zone.name)" } ?? "-"
        try line(
            "change",
            "\(change.operation.name) \(text.table(change)) key \(text.key(change)) @\(change.offset), committed \(time), xid \(change.transaction.xid)"
        )
        try line("row", text.wholeRow(change))
        try line("judged", change.operation == .delete ? "the row as it was" : "the row as the change leaves it")
    }

    private mutating func print(_ publication: Explanation.Publication, _ change: RecordedChange) throws {
        guard publication.isPublished else {
            return try line("publication", "\(publication.name) does not have the table")
        }
        let names = [(RowOperations.insert, "insert"), (.update, "update"), (.delete, "delete")]
            .filter { publication.operations.contains($0.0) }.map(\.1)
        try line(
            "publication",
            "\(publication.name) has the table, publishes \(names.joined(separator: ", "))"
                + (publication.hasOperation ? "" : ", but not \(change.operation.name.lowercased())"))
    }

    private mutating func print(_ role: Explanation.Role?) throws {
        guard let role else { return }
        guard role.exists else { return try line("role", "\(role.name) does not exist") }
        let columns = role.selectable.isEmpty ? "no column" : role.selectable.joined(separator: ", ")
        let hidden = role.hidden.isEmpty ? "" : "; not \(role.hidden.joined(separator: ", "))"
        let usage = role.hasUsage ? "" : "no USAGE on the schema; "
        try line("role", "\(role.name): \(usage)may SELECT \(columns)\(hidden)")
        try line("row security", role.isRowSecurityActive ? "active for the role" : "not active for the role")
    }

    private mutating func print(_ binding: Explanation.Binding?) throws {
        switch binding {
        case .sent(let columns)?: try line("sent", columns.joined(separator: ", "))
        case .unauthorized?:
            try line("sent", "\"Error 401: Unauthorized\": the role may not SELECT the whole primary key")
        case .noPrimaryKey?: try line("sent", "\"Error 400: Bad Request, no primary key\"")
        case .failed(let message)?: try line("refused", message)
        case nil: break
        }
    }

    private mutating func print(_ image: Explanation.Image, _ change: RecordedChange, _ withoutPostgres: String?) throws
    {
        let which = image.isOld ? "the row as it was" : "the row as the change leaves it"
        if change.operation == .update {
            try heading("\n\(which):")
            self.image = image.isOld ? "old" : "new"
        }
        defer { self.image = "" }
        if !image.missing.isEmpty {
            try line("not in it", image.missing.joined(separator: ", ") + ": read by filter or policies")
        }
        if !image.filter.isEmpty {
            try heading("filter:")
            try printParts(image.filter, of: "filter")
        }
        for policy in image.policies { try print(policy) }
        guard let combined = image.combined else { return }
        if image.policies.isEmpty { try line("policies", "none applies to the role: nothing is visible") }
        try heading("together:")
        try printParts([combined], of: "together")
        if let withoutPostgres { try line("PostgreSQL", "was not asked: \(withoutPostgres)") }
        for membership in image.memberships { try print(membership) }
    }

    private mutating func print(_ policy: Explanation.Policy) throws {
        let kind = policy.isPermissive ? "permissive" : "restrictive"
        try heading(
            ScreenText.escaped("policy \"\(policy.name)\" (\(kind), \(policy.classification)): \(policy.text)"))
        try printParts(policy.parts, of: "policy \"\(policy.name)\" (\(kind), \(policy.classification))")
    }

    private mutating func printParts(_ parts: [Explanation.Part], of step: String) throws {
        guard isText else {
            for part in parts {
                let depth = String(repeating: "  ", count: part.depth)
                let server = part.postgres.map { word($0, part) } ?? "-"
                try terminal.print(rows.line([step, image, depth + part.text, word(part.hub, part), server]))
            }
            return
        }
        var table = Table([
            .text("    PART", canBeCut: terminal.isInteractive), .text("HUB"), .text("POSTGRESQL"), .text(""),
        ])
        for part in parts {
            table.add([
                String(repeating: " ", count: 4 + 2 * part.depth) + part.text, word(part.hub, part),
                part.postgres.map { word($0, part) } ?? "-", part.differs ? "<<< DIFFERENT" : "",
            ])
        }
        for line in table.lines(on: terminal) { try terminal.print(line) }
    }

    private func word(_ truth: ExplainedTruth, _ part: Explanation.Part) -> String {
        truth.word(isCondition: part.isCondition)
    }

    private mutating func print(_ membership: Explanation.Membership) throws {
        let holds =
            switch membership.holdsKey {
            case true?: "the row's key is among them"
            case false?: "the row's key is not among them"
            case nil: "it is unknown whether the row's key is among them"
            }
        let keys = membership.keyCount == 1 ? "1 key" : "\(membership.keyCount) keys"
        let trouble = membership.trouble.map { "; \($0)" } ?? ""
        try line("membership", "\(membership.table): \(keys), \(holds)\(trouble)")
    }

    private mutating func printOldRecord(_ explanation: Explanation, _ change: RecordedChange) throws {
        let record =
            switch explanation.oldRecord {
            case .none where change.operation == .insert: String?.none
            case .none where explanation.oldImage?.isVisible == false: "empty: the user may not see the row as it was"
            case .none: "none: the log does not have the row as it was"
            case .keys: "its key columns only"
            case .whole: "whole"
            }
        if let record, explanation.isTold { try line("old_record", record) }
        guard let new = explanation.image, let old = explanation.oldImage, new.isMatch != old.isMatch else { return }
        // A filter on what changed selects events: rows do not enter or leave it.
        if old.filter.isEmpty, !new.filter.isEmpty { return }
        try line(
            "moved",
            new.isMatch
                ? "into view: the user could not see the old row" : "out of view: the user could see the old row")
    }
}

extension Explanation {
    /// Returns the explanation as JSON. The names in it are promised to users and do not change.
    func json(_ change: RecordedChange) -> String {
        var line = JSONLine()
        line.add("told", isTold)
        line.add("sentence", sentence)
        line.add("change", json: change.json)
        line.add("publication", json: publication.json)
        line.add("role", json: role?.json ?? "null")
        line.add("binding", json: binding?.json ?? "null")
        line.add("wants_operation", wantsOperation)
        line.add("image", json: image?.json ?? "null")
        line.add("old_image", json: oldImage?.json ?? "null")
        line.add("old_record", oldRecord.rawValue)
        line.add("differences", differences.count)
        line.add("postgres_not_asked", withoutPostgres)
        line.add("notes", json: Self.array(notes.map(JSONLine.quoted)))
        return line.text
    }

    fileprivate static func array(_ items: [String]) -> String { "[" + items.joined(separator: ",") + "]" }
    fileprivate static func texts(_ items: [String]) -> String { array(items.map(JSONLine.quoted)) }
}

extension Explanation.Publication {
    fileprivate var json: String {
        var line = JSONLine()
        line.add("name", name)
        line.add("has_table", isPublished)
        line.add("has_operation", hasOperation)
        return line.text
    }
}

extension Explanation.Role {
    fileprivate var json: String {
        var line = JSONLine()
        line.add("name", name)
        line.add("exists", exists)
        line.add("has_usage", hasUsage)
        line.add("selectable", json: Explanation.texts(selectable))
        line.add("hidden", json: Explanation.texts(hidden))
        line.add("row_security", isRowSecurityActive)
        return line.text
    }
}

extension Explanation.Binding {
    fileprivate var json: String {
        var line = JSONLine()
        switch self {
        case .sent(let columns):
            line.add("access", "readable")
            line.add("columns", json: Explanation.texts(columns))
        case .unauthorized: line.add("access", "unauthorized")
        case .noPrimaryKey: line.add("access", "no primary key")
        case .failed(let message):
            line.add("access", "refused")
            line.add("message", message)
        }
        return line.text
    }
}

extension Explanation.Image {
    fileprivate var json: String {
        var line = JSONLine()
        line.add("visible", isVisible)
        line.add("passes_filter", passesFilter)
        line.add("missing", json: Explanation.texts(missing))
        line.add("filter", json: Explanation.array(filter.map(\.json)))
        line.add("policies", json: Explanation.array(policies.map(\.json)))
        line.add("combined", json: combined?.json ?? "null")
        line.add("memberships", json: Explanation.array(memberships.map(\.json)))
        return line.text
    }
}

extension Explanation.Policy {
    fileprivate var json: String {
        var line = JSONLine()
        line.add("name", name)
        line.add("permissive", isPermissive)
        line.add("class", classification)
        line.add("using", text)
        line.add("parts", json: Explanation.array(parts.map(\.json)))
        return line.text
    }
}

extension Explanation.Part {
    fileprivate var json: String {
        var line = JSONLine()
        line.add("text", text)
        line.add("depth", depth)
        line.add("hub", hub.word(isCondition: isCondition))
        line.add("postgres", postgres?.word(isCondition: isCondition))
        line.add("differs", differs)
        return line.text
    }
}

extension Explanation.Membership {
    fileprivate var json: String {
        var line = JSONLine()
        line.add("table", table)
        line.add("keys", keyCount)
        line.add("holds_key", json: holdsKey.map { $0 ? "true" : "false" } ?? "null")
        line.add("trouble", trouble)
        return line.text
    }
}
