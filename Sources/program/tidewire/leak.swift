import Bytes
import Change
import Console
import Diagnostics
import EventLog
import Explaining
import History
import Postgres
import Settings

/// Command `tidewire leak`: compares past deliveries with those that the right policies would have made.
struct LeakCommand: Command {
    let name = "leak"
    let summary = "Show which deliveries of the past the right policies would not have made."
    let discussion = """
        Takes the policies that should have held, and goes through a window of the event log: which changes were \
        delivered to clients that may not see them by these policies (leaked), or with columns that they may not read \
        (columns), and which were kept from clients that may see them (missed). The right policies are those that the \
        database of --on has now; --policy FILE changes them first, in a transaction that is always rolled back.

        EACH CHANNEL of the ledger (setting: ledger) is judged by its own bindings and claims, as of the commit of each \
        change: by the right policies, and by those of then, as the log recorded them. With 'ledger = full' the \
        deliveries are recorded, and the record counts; otherwise they are derived, as 'who' derives them. Requests for \
        changes over HTTP count too.

        UNKNOWN. A delivery that neither the log nor the ledger settles counts as unknown, never as leaked or not. The \
        output names the causes: the log does not have the policies of then (a bundle has them if it was made with \
        --policies); policies read claims that the ledger does not keep (setting: ledger_claims) or columns that the \
        change lacks or a bundle has masked; memberships cannot be computed back; only PostgreSQL can decide the \
        policy, and it knows only what holds now; the hub was killed; the client caught up while its rights changed. \
        --assume-unchanged takes memberships, and what only PostgreSQL can decide, as they are now.

        LIMITS. The old row that an update shows beside the new one is not judged by itself, nor are rows that a client \
        fetched as a snapshot, broadcasts and presence.

        WHERE THE SQL RUNS. As with 'whatif': in the database that --on names, the source itself or a copy that has \
        its transaction numbers. The login must be able to become the clients' roles.

        \(AskingHelp.window) --to does not make it smaller here: to compute past memberships, the command needs all \
        later changes.

        JSON. One object a line. kind "catalog": from, to (offsets), schema, table, role, changes (texts that lead from \
        the policies of then to the right ones); kind "user": user, role, schema, table, delivered, leaked, columns, \
        missed, unknown, column_names, causes; kind "reason": user, role, schema, table, change (leaked or missed), \
        shown_by, shown_how, kept_by, kept_how as in 'whatif', deliveries, examples (offsets); kind "row": schema, \
        table, key, leaked, missed (deliveries), users; kind "delivery": change (leaked, columns, missed, unknown), \
        offset, time, schema, table, op, key, user, role, session, topic, sent_at (null if derived), cause, columns; \
        last kind "total": from, to, channels, delivered, leaked, columns, missed, unknown, rows, listed, recorded, \
        asked, causes, masked, memberships_of_now, not_in_log, ledger_from (offset). Ends with status 0 if every delivery is as \
        the right policies make it, and 1 if any differs or is unknown.
        """
    let options: [Option] =
        [
            .proposal, .place, .user, .listed, .unchanged, .from, .to, .withoutProgress, .output, .json, .zone, .log,
            .project,
        ] + Option.masking + Option.asking
    let optionGroups: [OptionGroup] = [
        .configuration(of: [
            Setting(\.dataDirectory), Setting(\.maskRules), Setting(\.publication), Setting(\.deletesAreStrict),
        ])
    ]
    let examples = [
        Example(
            "tidewire leak --on postgresql://postgres@db/app --from 2026-11-14T10:00 --to 2026-11-14T10:10",
            "A policy was wrong for ten minutes and is repaired: who got what he may not see?"),
        Example(
            "tidewire leak --policy right.sql --on \"$STAGING\" --from -1d --json",
            "By policies that are not in force yet, for a program:"),
        Example(
            "tidewire leak --on \"$STAGING\" --log incident.bundle --assume-unchanged",
            "From a bundle that was made with --policies:"),
    ]
    let exitCodes = LogAccess.exitCodes

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        let zone = try arguments.zone()
        guard let place = arguments.value(of: .place) else {
            throw UsageError(
                "--on URL is missing: name the database that has the right policies, or in which --policy FILE makes them "
                    + "and is rolled back")
        }
        let file = arguments.value(of: .proposal)
        let sql = try file.map { try arguments.contents(of: $0, named: "--policy", terminal) }
        let count = try arguments.listedCount()
        let configuration = try arguments.configuration(terminal)
        Log.shared.configure(level: .error, format: configuration.logFormat)
        return try LogAccess.explained {
            // Fetches the log to its end, because past memberships are computed by undoing all later changes.
            let log = try arguments.log(asking: [.from], withPolicies: true, terminal)
            var query = try arguments.query(zone)
            // The fetched bundle already begins at --from.
            if arguments.value(of: .server) != nil { query.from = nil }
            let window = try log.window(from: query.from, to: query.to)
            var settings = Leak.Settings(
                target: ConnectionTarget(place), publication: configuration.publication,
                deletesAreStrict: configuration.deletesAreStrict)
            settings.items = count
            settings.assumesUnchanged = arguments.has(.unchanged)
            settings.logMayEndEarly = log.lost != nil && arguments.value(of: .server) == nil
            let progress = Progress(terminal, isQuiet: arguments.has(.withoutProgress))
            let report = try WhatIfCommand.answered(file ?? "--policy") {
                try Leak(log, settings).answer(sql, of: arguments.value(of: .user), in: window) { what, offset in
                    progress.note("reading the log \(what): @\(offset)")
                }
            }
            progress.clear()
            let printer = try LeakPrinter(report, window, log, zone, terminal, isOfBundle: log.lost != nil)
            if arguments.has(.json) {
                for line in printer.json { try terminal.print(line) }
            } else {
                try printer.print()
            }
            return LeakReport.Kind.allCases.allSatisfy { report.count($0) == 0 } ? .ok : .notFound
        }
    }
}

extension Option {
    fileprivate static let proposal = Option.value(
        "policy", "FILE", "SQL that makes the right policies of those of --on; - is standard input.")
    fileprivate static let place = Option.value(
        "on", "URL",
        "The database that has the right policies. The SQL of --policy is rolled back there. The password may be in PGPASSWORD or PGPASSFILE."
    )
    fileprivate static let user = Option.value("user", "SUB", "Only clients of this user (the claim sub).")
    fileprivate static let listed = Option.value(
        "limit", "N", short: "n", "The most deliveries to list (default 1000); the counts include all.")
    fileprivate static let unchanged = Option.flag(
        "assume-unchanged",
        "Take memberships that the log cannot compute back, and what only PostgreSQL can decide, as they are now.")
}

extension Arguments {
    fileprivate func listedCount() throws(UsageError) -> Int {
        guard case .integer(let number) = try value(of: .listed, as: .integer(0...1_000_000)) else { return 1000 }
        return Int(number)
    }
}

/// Printer of the deliveries that differ from those that the right policies would have made.
private struct LeakPrinter {
    /// Row of a table with the numbers of its deliveries that the right policies would not have made (`leaked`) and
    /// that the hub did not make although they would (`missed`).
    private struct Row {
        var table: TableName
        var key: String
        var leaked = 0
        var missed = 0
        var users: Set<String> = []
    }

    private let report: LeakReport
    private let log: HistoryLog
    private let zone: DisplayZone
    private let terminal: Terminal
    private let isOfBundle: Bool
    /// Changes of the listed deliveries; the key is the offset.
    private var changes: [UInt64: RecordedChange] = [:]
    private var rows: [Row] = []

    init(
        _ report: LeakReport, _ window: HistoryWindow, _ log: HistoryLog, _ zone: DisplayZone, _ terminal: Terminal,
        isOfBundle: Bool
    ) throws {
        (self.report, self.log, self.zone, self.terminal) = (report, log, zone, terminal)
        self.isOfBundle = isOfBundle
        let text = ChangeText(zone: zone, terminal)
        var places: [String: Int] = [:]
        for item in report.items {
            if changes[item.offset] == nil { changes[item.offset] = try log.change(at: item.offset) }
            guard let change = changes[item.offset], item.kind != .unknown else { continue }
            let line = report.lines[item.line]
            let key = text.key(change)
            let name = "\(line.table) \(key)"
            let place = places[name] ?? rows.count
            if places[name] == nil {
                places[name] = place
                rows.append(Row(table: line.table, key: key))
            }
            if item.kind == .missed { rows[place].missed += 1 } else { rows[place].leaked += 1 }
            rows[place].users.insert(line.user)
        }
        rows.sort { ($1.leaked, $1.missed) < ($0.leaked, $0.missed) }
    }

    /// Returns the user's name in tables; `-` for clients without a user.
    private static func name(_ user: String) -> String { user.isEmpty ? "-" : user }

    // MARK: Text

    func print() throws {
        guard terminal.form == .table else {
            for line in users.lines(on: terminal) { try terminal.print(line) }
            for line in sums { try terminal.remark(ScreenText.escaped(line)) }
            return
        }
        for line in catalogs { try terminal.remark(ScreenText.escaped(line)) }
        if !report.lines.isEmpty {
            for line in [""] + users.lines(on: terminal) { try terminal.print(line) }
            if report.lines.contains(where: { !$0.shifts.isEmpty }) {
                for line in [""] + reasons.lines(on: terminal) { try terminal.print(line) }
            }
            if !rows.isEmpty { for line in [""] + table(of: rows).lines(on: terminal) { try terminal.print(line) } }
            if !report.items.isEmpty { for line in [""] + deliveries.lines(on: terminal) { try terminal.print(line) } }
            try terminal.print("")
        }
        for line in sums { try terminal.print(ScreenText.escaped(line)) }
    }

    /// Lines about the differences between the policies of each part of the window and the right ones.
    private var catalogs: [String] {
        report.parts.flatMap { part in
            let place = "@\(part.offsets.lowerBound) to @\(part.offsets.upperBound)"
            guard let differences = part.differences else {
                return ["\(place): the log does not have the policies of then"]
            }
            return differences.tables.flatMap { table in
                table.changes.map { "\(place), \(table.name) for \(table.role): \($0)" }
            }
        }
    }

    /// Table of the numbers of deliveries by user, role and table.
    private var users: Table {
        var table = Table([
            .text("USER", canBeCut: true), .text("ROLE", canBeCut: true), .text("TABLE", canBeCut: true),
            .number("DELIVERED"), .number("LEAKED"), .number("COLUMNS"), .number("MISSED"), .number("UNKNOWN"),
        ])
        for line in report.lines {
            table.add(
                [Self.name(line.user), line.role, line.table.description]
                    + [
                        line.delivered, line.count(.leaked), line.count(.columns), line.count(.missed),
                        line.count(.unknown),
                    ].map { String($0) })
        }
        return table
    }

    /// Table of the policies that make the difference between the deliveries and the right ones.
    private var reasons: Table {
        var table = Table([
            .text("CHANGE"), .number("DELIVERIES"), .text("USER", canBeCut: true), .text("TABLE", canBeCut: true),
            .text("SHOWN BY", canBeCut: true), .text("KEPT BY", canBeCut: true),
        ])
        for line in report.lines {
            for shift in line.shifts {
                table.add([
                    shift.isGain ? "missed" : "leaked", "\(shift.rows)", Self.name(line.user), line.table.description,
                    shift.shownBy.words, shift.keptBy.words,
                ])
            }
        }
        return table
    }

    private func table(of rows: [Row]) -> Table {
        var table = Table([
            .text("TABLE", canBeCut: true), .text("KEY", canBeCut: true), .number("LEAKED"), .number("MISSED"),
            .text("USERS", canBeCut: true),
        ])
        for row in rows {
            table.add([
                row.table.description, row.key, "\(row.leaked)", "\(row.missed)",
                row.users.map(Self.name).sorted().joined(separator: ", "),
            ])
        }
        return table
    }

    private var deliveries: Table {
        var table = Table([
            .text("CHANGE"), .number("OFFSET"), .text("COMMITTED"), .text("TABLE", canBeCut: true), .text("OP"),
            .text("KEY", canBeCut: true), .text("USER", canBeCut: true), .text("SESSION"),
            .text("WHY", canBeCut: terminal.isInteractive),
        ])
        let text = ChangeText(zone: zone, terminal)
        for item in report.items {
            guard let change = changes[item.offset] else { continue }
            let line = report.lines[item.line]
            let why: [String?] = [
                item.sentAt.map { "sent at \(zone.text($0))" },
                item.columns.isEmpty ? nil : "with \(item.columns.joined(separator: ", "))", item.cause?.words,
            ]
            table.add([
                item.kind.rawValue, "@\(item.offset)", zone.text(change.time), line.table.description,
                change.operation.name, text.key(change), Self.name(line.user), item.attendance.name,
                why.compactMap(\.self).joined(separator: "; "),
            ])
        }
        return table
    }

    /// Number of all differences in the report, also of unknown deliveries and of those that it does not list.
    private var differing: Int { LeakReport.Kind.allCases.reduce(0) { $0 + report.count($1) } }

    /// Lines with the totals of the window.
    private var sums: [String] {
        let (first, end) = (report.offsets.lowerBound, report.offsets.upperBound)
        let channels = report.channels == 1 ? "1 channel" : "\(report.channels) channels"
        var lines = [
            "Of the changes @\(first) to @\(end), \(report.delivered) deliveries to \(channels): \(report.count(.leaked)) leaked, "
                + "\(report.count(.columns)) with columns too many; \(report.count(.missed)) missed; \(report.count(.unknown)) unknown."
        ]
        if !report.causes.isEmpty {
            lines.append("Unknown, because:")
            lines += UnknownCause.allCases.filter(report.causes.contains).map { "  \($0.words)" }
        }
        if report.items.count < differing {
            lines.append(
                "\(report.items.count) of \(differing) are listed; --limit lists more, and --from, --to and --user select."
            )
        }
        if report.recorded == 0, report.delivered > 0 {
            lines.append("Deliveries are derived from the ledger; 'ledger = full' records each of them.")
        }
        if report.asked > 0 {
            lines.append(
                "PostgreSQL judged \(report.asked) rows, by what it knows now, and by the claims that the ledger keeps."
            )
        }
        if report.membershipsAreOfNow {
            lines.append("Memberships that the log cannot compute back are those of now, as --assume-unchanged says.")
        }
        if !report.lost.isEmpty {
            lines.append(
                "The bundle masks columns that policies or filters read: \(report.lost.sorted().joined(separator: ", ")). "
                    + "--unmask, when the bundle is made, leaves them readable.")
        }
        if isOfBundle, report.parts.contains(where: { $0.differences == nil }) {
            lines.append("A bundle has the policies of then only if it was made with --policies.")
        }
        if let from = report.ledgerFrom, from > first {
            lines.append("The ledger's first note of a client is at @\(from). Of clients before it nothing is known.")
        } else if report.ledgerFrom == nil {
            lines.append("The log has no notes of clients (setting: ledger), so nothing is known of deliveries.")
        }
        if report.strangers > 0 {
            lines.append("The log has no notes of \(report.strangers) clients that came and went then or later.")
        }
        return lines
    }

    // MARK: JSON

    var json: [String] { catalogLines + userLines + rowLines + deliveryLines + [total] }

    private var catalogLines: [String] {
        report.parts.flatMap { part -> [String] in
            guard let differences = part.differences else { return [] }
            return differences.tables.map { table in
                var line = JSONLine()
                line.add("kind", "catalog")
                line.add("from", part.offsets.lowerBound)
                line.add("to", part.offsets.upperBound)
                add(table.name, to: &line)
                line.add("role", table.role)
                line.add("changes", json: Self.list(table.changes))
                return line.text
            }
        }
    }

    private var userLines: [String] {
        report.lines.flatMap { found -> [String] in
            var line = head("user", found)
            line.add("delivered", found.delivered)
            for kind in LeakReport.Kind.allCases { line.add(kind.rawValue, found.count(kind)) }
            line.add("column_names", json: Self.list(found.columns.sorted()))
            line.add("causes", json: Self.list(found.causes.map(\.rawValue).sorted()))
            return [line.text]
                + found.shifts.map { shift in
                    var line = head("reason", found)
                    line.add("change", shift.isGain ? "missed" : "leaked")
                    shift.add(to: &line)
                    line.add("deliveries", shift.rows)
                    line.add("examples", json: "[" + shift.examples.map(String.init).joined(separator: ",") + "]")
                    return line.text
                }
        }
    }

    /// Returns the first members of a JSON line: its kind, and the user, role and table.
    private func head(_ kind: String, _ found: LeakReport.Line) -> JSONLine {
        var line = JSONLine()
        line.add("kind", kind)
        line.add("user", found.user.isEmpty ? nil : found.user)
        line.add("role", found.role)
        add(found.table, to: &line)
        return line
    }

    private var rowLines: [String] {
        rows.map { row in
            var line = JSONLine()
            line.add("kind", "row")
            add(row.table, to: &line)
            line.add("key", row.key)
            line.add("leaked", row.leaked)
            line.add("missed", row.missed)
            line.add("users", json: Self.list(row.users.sorted()))
            return line.text
        }
    }

    private var deliveryLines: [String] {
        let text = ChangeText(zone: zone, terminal)
        return report.items.compactMap { item in
            guard let change = changes[item.offset] else { return nil }
            let found = report.lines[item.line]
            var line = JSONLine()
            line.add("kind", "delivery")
            line.add("change", item.kind.rawValue)
            line.add("offset", item.offset)
            line.add("time", change.time.map(TimeText.json))
            add(found.table, to: &line)
            line.add("op", change.operation.name)
            line.add("key", text.key(change))
            line.add("user", found.user.isEmpty ? nil : found.user)
            line.add("role", found.role)
            line.add("session", item.attendance.name)
            line.add("topic", String(decoding: item.attendance.joined.note.topic, as: UTF8.self))
            line.add("sent_at", item.sentAt.map(TimeText.json))
            line.add("cause", item.cause?.rawValue)
            line.add("columns", json: Self.list(item.columns))
            return line.text
        }
    }

    private var total: String {
        var line = JSONLine()
        line.add("kind", "total")
        line.add("from", report.offsets.lowerBound)
        line.add("to", report.offsets.upperBound)
        line.add("channels", report.channels)
        line.add("delivered", report.delivered)
        for kind in LeakReport.Kind.allCases { line.add(kind.rawValue, report.count(kind)) }
        line.add("rows", rows.count)
        line.add("listed", report.items.count)
        line.add("recorded", report.recorded)
        line.add("asked", report.asked)
        line.add("causes", json: Self.list(report.causes.map(\.rawValue).sorted()))
        line.add("masked", json: Self.list(report.lost.sorted()))
        line.add("memberships_of_now", report.membershipsAreOfNow)
        line.add("not_in_log", report.strangers)
        line.add("ledger_from", json: report.ledgerFrom.map(String.init) ?? "null")
        return line.text
    }

    private func add(_ table: TableName, to line: inout JSONLine) {
        line.add("schema", table.schema)
        line.add("table", table.name)
    }

    private static func list(_ names: [String]) -> String {
        "[" + names.map(JSONLine.quoted).joined(separator: ",") + "]"
    }
}

extension UnknownCause {
    /// Sentence about the reason why the log cannot decide whether a delivery was right.
    fileprivate var words: String {
        switch self {
        case .catalog: "the log does not have the policies of then, or not the rights of the client's role"
        case .claims: "policies read claims that are not kept (setting: ledger_claims), masked or unreadable"
        case .filters: "only PostgreSQL can decide the filter, or the bundle masks it"
        case .memberships: "memberships of then cannot be computed from the log (--assume-unchanged takes those of now)"
        case .columns: "the change lacks a column that policies read, or the bundle masks it"
        case .onlyPostgres: "only PostgreSQL can decide the policy (--assume-unchanged asks it, by what holds now)"
        case .limit: "PostgreSQL would have to judge too many rows: use a smaller window"
        case .ledger: "the ledger does not say how far the client had come"
        case .caughtUp: "the client caught up while its rights changed"
        case .unexplained: "the delivery is recorded, but the policies of then do not explain it"
        }
    }
}
