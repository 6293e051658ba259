import Console
import Explaining
import History
import Settings

/// Command `tidewire policies`: shows the policies and rights that were in force at a moment, or their changes in a
/// window.
struct PoliciesCommand: Command {
    let name = "policies"
    let summary = "Show by which policies and rights the hub decided at a moment, or how they changed."
    let discussion = """
        The hub writes each version of the catalog into its log: the published tables, their row security, the \
        policies for SELECT, and what each role of its clients may read. With --at, this command shows the rules of a \
        moment; without, those of now. With --from (and --to), it shows what changed in the window: a line for each \
        rule that came, went or has another text, with the offset from which the hub decided by it.

        A rule is about a table. WHAT is: table (row security, published operations), policy NAME (its USING), or role \
        NAME (the columns that the role may read, and the policies that apply to it). Roles are those that clients of \
        the hub had then. Texts are as PostgreSQL writes them.

        --at, --from and --to take what SELECTORS of 'tidewire help tail' describes.

        JSON. One object a rule: offset (from which the hub decided by it), time (when it was written down), table, \
        policy (or null), role (or null), and text; with --from before and after instead of text (null where the rule \
        did not exist).
        """
    let options: [Option] =
        [.at, .from, .to, .rulesTable, .output, .json, .zone, .log, .project] + Option.asking
    let optionGroups: [OptionGroup] = [.dataDirectory]
    let examples = [
        Example("tidewire policies --at @18442901", "By which policies was this change judged?"),
        Example("tidewire policies --from -1d --table notes", "Who changed what readers of notes may see, and when?"),
    ]
    let exitCodes = LogAccess.exitCodes

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        if let code = try arguments.answer("policies", options: allOptions, terminal) { return code }
        let zone = try arguments.zone()
        let query = try arguments.query(zone)
        let moment = try arguments.bound(.at, zone)
        guard moment == nil || query.from == nil && query.to == nil else {
            throw UsageError("--at names a moment, and --from and --to a window: give one of them")
        }
        guard query.from != nil || query.to == nil else { throw UsageError("--to goes with --from") }
        return try LogAccess.explained {
            let log = try arguments.historyLog(terminal)
            var printer = RulesPrinter(
                terminal, isJSON: arguments.has(.json), zone, Set(query.tables.map(\.description)))
            if query.from != nil {
                try printer.printChanges(PastRules(log), try log.window(from: query.from, to: query.to))
            } else {
                try printer.print(try book(log, moment))
            }
            return printer.count > 0 ? .ok : .notFound
        }
    }

    private func book(_ log: HistoryLog, _ moment: HistoryBound?) throws -> RuleBook {
        let found: RuleBook? =
            switch moment {
            case nil: try PastRules(log).books.last
            case .time(let time): try PastRules(log).book(atTime: time)
            case let bound?: try PastRules.book(of: log, at: log.window(from: bound, to: nil).firstOffset)
            }
        guard let found else {
            throw CommandFailure(
                .notFound, "the log has no record of the rules of that moment",
                hint: "A hub records them when clients join; 'tidewire policies --from oldest' shows what there is.")
        }
        return found
    }
}

extension Option {
    fileprivate static let at = Option.value("at", "WHEN", "The moment; see SELECTORS of 'tidewire help tail'.")
    fileprivate static let rulesTable = Option.value(
        "table", "TABLE", short: "t", isRepeatable: true, "Only rules of this table.")
}

/// Printer of the recorded policies and rights, as lines of a table or as JSON.
private struct RulesPrinter {
    private let terminal: Terminal
    private let isJSON: Bool
    private let zone: DisplayZone
    private let tables: Set<String>
    private var table: TableStream
    private(set) var count = 0

    init(_ terminal: Terminal, isJSON: Bool, _ zone: DisplayZone, _ tables: Set<String>) {
        (self.terminal, self.isJSON, self.zone, self.tables) = (terminal, isJSON, zone, tables)
        table = TableStream(
            [
                .number("OFFSET", minimumWidth: 8), .text(zone.heading, minimumWidth: 23),
                .text("TABLE", minimumWidth: 16), .text("WHAT", minimumWidth: 16),
                .text("RULE", canBeCut: terminal.isInteractive, minimumWidth: 24),
            ], on: terminal)
    }

    /// Prints the policies and rights that were in force at one moment.
    mutating func print(_ book: RuleBook) throws {
        for (key, text) in book.rules.sorted(by: { $0.key < $1.key }) where isWanted(key) {
            var line = opening(key, book)
            line.add("text", text)
            try print(line, book, key, text)
        }
        if count == 0, !isJSON { terminal.complain("no rules found") }
    }

    /// Prints the differences between consecutive records of policies and rights in the window.
    mutating func printChanges(_ past: PastRules, _ window: HistoryWindow) throws {
        var before: RuleBook?
        for book in past.books {
            defer { before = book }
            guard window.contains(offset: book.since, time: book.time) else { continue }
            for change in PastRules.changes(from: before, to: book) where isWanted(change.key) {
                var line = opening(change.key, book)
                line.add("before", change.before)
                line.add("after", change.after)
                let text =
                    switch (change.before, change.after) {
                    case (nil, let after?): "new: \(after)"
                    case (let before?, nil): "gone: \(before)"
                    default: "\(change.before ?? "") → \(change.after ?? "")"
                    }
                try print(line, book, change.key, text)
            }
        }
        if past.unreadable > 0 {
            terminal.complain(
                "\(past.unreadable) records of another version of the hub cannot be read, and are left out")
        }
        if count == 0, !isJSON { terminal.complain("no rule changed, as far as the log has them") }
    }

    private func isWanted(_ key: RuleKey) -> Bool { tables.isEmpty || tables.contains(key.table) }

    /// Returns the first members of a rule's JSON: offset, time, table, and policy or role.
    private func opening(_ key: RuleKey, _ book: RuleBook) -> JSONLine {
        var line = JSONLine()
        line.add("offset", book.since)
        line.add("time", TimeText.json(book.time))
        line.add("table", key.table)
        if case .policy(let name) = key.subject { line.add("policy", name) } else { line.add("policy", String?.none) }
        if case .role(let name) = key.subject { line.add("role", name) } else { line.add("role", String?.none) }
        return line
    }

    private mutating func print(_ line: JSONLine, _ book: RuleBook, _ key: RuleKey, _ text: String) throws {
        if count == 0, !isJSON { try terminal.print(heading: table) }
        count += 1
        let what =
            switch key.subject {
            case .table: "table"
            case .policy(let name): "policy \(name)"
            case .role(let name): "role \(name)"
            }
        try terminal.print(
            isJSON ? line.text : table.line(["@\(book.since)", zone.text(book.time), key.table, what, text]))
    }
}
