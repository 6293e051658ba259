import Bytes
import Change
import Console
import Diagnostics
import EventLog
import Explaining
import History
import Postgres
import Settings

/// `tidewire whatif`
struct WhatIfCommand: Command {
    let name = "whatif"
    let summary = "Show who would gain and who would lose which rows by a migration, before it is made."
    let discussion = """
        Takes SQL that changes policies, grants, functions or the publication, and goes through the changes that the event log \
        holds: who would have been told of which, as the database is and as it would be? Filters of subscriptions are left out: \
        it is about what somebody MAY see. Updates are judged by the new row, deletes by the old one, as the hub does.

        FOR WHOM. For those whom the ledger of the log knows (setting: ledger), the newest first; or for one, with --claims, \
        or --role and --sub. Memberships (rows of other tables that policies look into) are taken back to what they were at \
        each change, as far as the log has their tables; a line says where that is not so.

        WHERE THE SQL RUNS. In the database that --on names, in a transaction that is rolled back in any case: a copy, or the \
        source itself. It is never applied anywhere else. Its login needs the rights that the SQL takes, and has to be able to \
        become the roles in question. Locks that the SQL takes (ALTER POLICY keeps everybody from its table) are held while \
        the catalog is read, a second or so; where policies are left to PostgreSQL to decide, until the log is read: give \
        --to and --from then, or a copy. The SQL can end no transaction.

        \(AskingHelp.window) --to does not make it smaller here: memberships are taken back by what came since. What a policy \
        reads of masked columns nobody knows here: such rows count as shown to nobody, and a line says so.

        BY WHAT. Gains and losses are told apart by the policies that show the rows: of a gain, which of the proposed ones show \
        it and what keeps it now; of a loss, which show it now and what will keep it. (no policy) says that none shows it, \
        a name under KEPT BY is a restrictive policy that does not hold. Where several show the same row, all are named.

        JSON. One object a line. kind "catalog": schema, table, role, changes (texts); kind "holder": user, role, schema, table, \
        told_now, told_then, gains, losses; kind "policy": change (gain or loss), role, schema, table, shown_by, kept_by (names), \
        shown_how, kept_how (policies, no_policy, no_row_security, no_select, not_published, refused, unknown), clients, rows; \
        kind "gain" and "loss", examples: user, role, offset, schema, table, op, key, shown_by, kept_by; last kind "total": from, to (offsets), gains, losses, asked and not_asked (rows that PostgreSQL judged, or should have), \
        memberships_of_now, masked (columns that policies read and a bundle has no values of), claims_not_kept (names). Ends with status 0 when nobody gains or loses anything, and 1 when somebody does.
        """
    let options: [Option] =
        [
            .proposal, .place, .user, .claims, .role, .subject, .holderLimit, .examples, .from, .to, .withoutProgress,
            .output, .json,
            .zone, .log, .project,
        ] + Option.masking + Option.asking
    let optionGroups: [OptionGroup] = [
        .configuration(of: [
            Setting(\.dataDirectory), Setting(\.maskRules), Setting(\.publication), Setting(\.deletesAreStrict),
        ])
    ]
    let examples = [
        Example(
            "tidewire whatif --policy new-policies.sql --on postgresql://postgres@staging/app",
            "Who would see more, and who less, of what is kept?"),
        Example(
            "tidewire whatif --policy new-policies.sql --on \"$STAGING\" --from -1d --role authenticated --sub 7f3c2b1e-0c5d-4f6e-8a52-000000000001",
            "And she, of the last day?"),
    ]
    let exitCodes = LogAccess.exitCodes

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        let zone = try arguments.zone()
        guard let file = arguments.value(of: .proposal) else {
            throw UsageError("what is proposed? give --policy FILE")
        }
        guard let place = arguments.value(of: .place) else {
            throw UsageError(
                "where may it be applied, and rolled back? give --on URL: a copy of the database, or the database itself, "
                    + "where it holds its locks for a moment")
        }
        let sql = try arguments.contents(of: file, named: "--policy", terminal)
        let (limit, count) = (try arguments.count(of: .holderLimit, or: 50), try arguments.count(of: .examples, or: 3))
        let configuration = try arguments.configuration(terminal)
        Log.shared.configure(level: .error, format: configuration.logFormat)
        return try LogAccess.explained {
            // Memberships are taken back by all that came since: the whole rest of the log is needed.
            let log = try arguments.log(asking: [.from], terminal)
            let (holders, unkept) = try arguments.holders(in: log, atMost: limit, terminal)
            var query = try arguments.query(zone)
            // What a hub gave begins there.
            if arguments.value(of: .server) != nil { query.from = nil }
            let window = try log.window(from: query.from, to: query.to)
            var settings = WhatIf.Settings(
                target: ConnectionTarget(place), publication: configuration.publication,
                deletesAreStrict: configuration.deletesAreStrict)
            settings.examples = count
            let progress = Progress(terminal, isQuiet: arguments.has(.withoutProgress))
            let report = try answered(file) {
                try WhatIf(log, settings).answer(sql, for: holders, in: window) { what, offset in
                    progress.note("reading the log \(what): @\(offset)")
                }
            }
            progress.clear()
            let printer = WhatIfPrinter(report, unkept, log, zone, terminal)
            if arguments.has(.json) {
                for line in try printer.json { try terminal.print(line) }
            } else {
                try printer.print()
            }
            return report.gains + report.losses == 0 ? .ok : .notFound
        }
    }

    private func answered(_ file: String, _ body: () throws -> WhatIfReport) throws -> WhatIfReport {
        do {
            return try body()
        } catch WhatIf.Failure.refused(let error) {
            let state = error.sqlState.map { " (SQLSTATE \($0))" } ?? ""
            throw CommandFailure(
                .notFound, "the database does not take \(file): \(error.message)\(state)",
                hint: error.hint ?? "Nothing of it was applied. May the login of --on do what it says?")
        } catch WhatIf.Failure.tooLarge(let pairs, let most) {
            throw CommandFailure(
                .notFound, "\(pairs) pairs of clients and changes are more than \(most)",
                hint: "Give a smaller window (--from, --to) or fewer clients (--limit).")
        } catch let error as PostgresError {
            throw CommandFailure(
                error.isConnectionLost ? .unreachable : .notFound, "the database of --on: \(error)", hint: error.hint)
        }
    }
}

extension Option {
    fileprivate static let proposal = Option.value("policy", "FILE", "The SQL that is proposed; - is standard input.")
    fileprivate static let place = Option.value(
        "on", "URL",
        "The database in which it is applied, in a transaction that is rolled back. Passwords may come from PGPASSWORD or PGPASSFILE."
    )
    fileprivate static let user = Option.value(
        "user", "SUB", "Only clients of this user (the claim sub) in the ledger.")
    fileprivate static let claims = Option.value(
        "claims", "FILE", "For who has these claims, one JSON object in a file; - is standard input.")
    fileprivate static let role = Option.value("role", "ROLE", "For this role, where the claims have none.")
    fileprivate static let subject = Option.value("sub", "ID", "For this claim sub.")
    fileprivate static let holderLimit = Option.value(
        "limit", "N", short: "n", "How many of those in the ledger at most, the newest first (default 50).")
    fileprivate static let examples = Option.value(
        "examples", "N", "How many examples of each kind for each client, table and policy (default 3).")
}

extension Arguments {
    fileprivate func count(of option: Option, or fallback: Int) throws(UsageError) -> Int {
        guard case .integer(let number) = try value(of: option, as: .integer(0...10_000)) else { return fallback }
        return Int(number)
    }

    /// Whoever is named, or else those whom the ledger knows; and the names of claims of theirs that are not known.
    fileprivate func holders(
        in log: HistoryLog, atMost limit: Int, _ terminal: Terminal
    ) throws -> (holders: [ExplainedHolder], unkept: Set<String>) {
        let (claims, role, subject) = (value(of: .claims), value(of: .role), value(of: .subject))
        guard claims == nil, role == nil else {
            return ([try holder(claims: claims, role: role, subject: subject, terminal)], [])
        }
        guard subject == nil else { throw UsageError("--sub needs --role, or --claims") }
        var seen: Set<[UInt8]> = []
        var holders: [ExplainedHolder] = []
        var unkept: Set<String> = []
        for attendance in try AttendanceBook(log).all.reversed() where holders.count < limit {
            let recorded = attendance.holder(at: .max)
            guard value(of: .user).map({ Array($0.utf8) == recorded.note.subject }) ?? true else { continue }
            guard !recorded.note.role.isEmpty, seen.insert(recorded.note.role + [0] + recorded.note.claims).inserted,
                let holder = try? ExplainedHolder(recorded)
            else { continue }
            holders.append(holder)
            unkept.formUnion(ExplainedHolder.unknownClaims(of: recorded))
        }
        guard holders.isEmpty else { return (holders, unkept) }
        throw CommandFailure(
            .notFound, "for whom? the ledger of this log knows nobody",
            hint: "Give --claims, or --role and --sub. The hub writes the ledger where the setting ledger is not off.")
    }
}

/// A report as it is printed.
private struct WhatIfPrinter {
    private let report: WhatIfReport
    private let unkept: Set<String>
    private let log: HistoryLog
    private let zone: DisplayZone
    private let terminal: Terminal

    init(_ report: WhatIfReport, _ unkept: Set<String>, _ log: HistoryLog, _ zone: DisplayZone, _ terminal: Terminal) {
        self.terminal = terminal
        self.report = report
        self.unkept = unkept
        self.log = log
        self.zone = zone
    }

    // MARK: For people

    func print() throws {
        for line in catalog { try terminal.remark(line) }
        guard terminal.form == .table else {
            for line in policiesOfHolders.lines(on: terminal) { try terminal.print(line) }
            for line in sums { try terminal.remark(ScreenText.escaped(line)) }
            return
        }
        for line in try tables + examples + [""] + sums.map(ScreenText.escaped) { try terminal.print(line) }
    }

    private var tables: [String] {
        guard !report.lines.isEmpty else { return [] }
        return [""] + table.lines(on: terminal)
            + (report.gains + report.losses == 0 ? [] : [""] + policies.lines(on: terminal))
    }

    private var examples: [String] {
        get throws {
            var lines: [String] = []
            for (title, isGain) in [("Gains, for example", true), ("Losses, for example", false)] {
                var found: [String] = []
                for line in report.lines {
                    for shift in line.shifts where shift.isGain == isGain {
                        for offset in shift.examples { found.append("  " + (try example(offset, line, shift))) }
                    }
                }
                if !found.isEmpty { lines += ["", title] + found }
            }
            return lines
        }
    }

    private var catalog: [String] {
        if report.differences.tables.isEmpty { return ["Nothing that clients are told by is different."] }
        return report.differences.tables.flatMap { table in
            table.changes.map { ScreenText.escaped("\(table.name) for \(table.role): \($0)") }
        }
    }

    private var table: Table {
        var table = Table([
            .text("USER", canBeCut: true), .text("ROLE", canBeCut: true), .text("TABLE", canBeCut: true),
            .number("NOW"), .number("THEN"), .number("GAINS"), .number("LOSSES"),
        ])
        for line in report.lines {
            let holder = report.holders[line.holder]
            table.add(
                [holder.name(shownBy: log.masking), holder.role, line.table.description]
                    + [line.before, line.after, line.gains, line.losses].map { String($0) })
        }
        return table
    }

    /// By role, table and what shows and keeps the rows.
    private var policies: Table {
        var table = Table([
            .text("CHANGE"), .number("ROWS"), .number("CLIENTS"), .text("TABLE", canBeCut: true),
            .text("ROLE", canBeCut: true), .text("SHOWN BY", canBeCut: true), .text("KEPT BY", canBeCut: true),
        ])
        for group in PolicyGroup.all(of: report) {
            table.add([
                group.shift.isGain ? "gained" : "lost", "\(group.shift.rows)", "\(group.clients)",
                group.table.description, group.role, group.shift.shownBy.words, group.shift.keptBy.words,
            ])
        }
        return table
    }

    /// As a table for spreadsheets: of each client, too.
    private var policiesOfHolders: Table {
        var table = Table([
            .text("USER"), .text("ROLE"), .text("TABLE"), .text("CHANGE"), .number("ROWS"), .text("SHOWN BY"),
            .text("KEPT BY"),
        ])
        for line in report.lines {
            let holder = report.holders[line.holder]
            for shift in line.shifts {
                table.add([
                    holder.name(shownBy: log.masking), holder.role, line.table.description,
                    shift.isGain ? "gained" : "lost", "\(shift.rows)", shift.shownBy.words, shift.keptBy.words,
                ])
            }
        }
        return table
    }

    private func example(
        _ offset: UInt64, _ line: WhatIfReport.Line, _ shift: WhatIfReport.Shift
    ) throws -> String {
        let change = try log.change(at: offset)
        let text = ChangeText(zone: zone, terminal)
        let holder = report.holders[line.holder]
        return ScreenText.escaped(
            "\(holder.name(shownBy: log.masking)): @\(offset) \(change.operation.name) \(text.table(change)) key \(text.key(change)), "
                + "\(zone.text(change.time)), shown by \(shift.shownBy.words)")
    }

    private var sums: [String] {
        let (first, end) = (report.offsets.lowerBound, report.offsets.upperBound)
        let clients = report.holders.count == 1 ? "1 client" : "\(report.holders.count) clients"
        var lines = [
            report.gains + report.losses == 0
                ? "Of the changes @\(first) to @\(end) nobody of \(clients) would gain or lose any."
                : "Of the changes @\(first) to @\(end), \(clients) would gain \(report.gains) and lose \(report.losses)."
        ]
        if report.asked > 0 { lines.append("PostgreSQL judged \(report.asked) rows, by what it knows now.") }
        if report.unasked > 0 {
            lines.append(
                "\(report.unasked) rows were left out: more than may be asked about. A smaller window says more.")
        }
        if !report.lost.isEmpty {
            lines.append(
                "Masked in the bundle, so that rows which policies judge by it count as shown to nobody: "
                    + "\(report.lost.sorted().joined(separator: ", ")). --unmask, where it is made, leaves it readable."
            )
        }
        if !unkept.isEmpty {
            lines.append(
                "Policies were asked without claims that are not kept (setting: ledger_claims) or masked: "
                    + unkept.sorted().joined(separator: ", "))
        }
        if report.membershipsAreOfNow {
            lines.append("Some memberships are as they are now: the log does not say what they were.")
        }
        return lines
    }

    // MARK: For programs

    var json: [String] {
        get throws {
            var lines: [String] = report.differences.tables.map { table in
                var line = JSONLine()
                line.add("kind", "catalog")
                add(table.name, to: &line)
                line.add("role", table.role)
                line.add("changes", json: "[" + table.changes.map(JSONLine.quoted).joined(separator: ",") + "]")
                return line.text
            }
            for found in report.lines {
                lines.append(holder(found))
                for shift in found.shifts {
                    for offset in shift.examples { lines.append(try json(offset, found, shift)) }
                }
            }
            lines += PolicyGroup.all(of: report).map(policy)
            return lines + [total]
        }
    }

    private func add(_ table: TableName, to line: inout JSONLine) {
        line.add("schema", table.schema)
        line.add("table", table.name)
    }

    private func holder(_ found: WhatIfReport.Line) -> String {
        var line = JSONLine()
        line.add("kind", "holder")
        line.add("user", report.holders[found.holder].name(shownBy: log.masking))
        line.add("role", report.holders[found.holder].role)
        add(found.table, to: &line)
        line.add("told_now", found.before)
        line.add("told_then", found.after)
        line.add("gains", found.gains)
        line.add("losses", found.losses)
        return line.text
    }

    private func policy(_ group: PolicyGroup) -> String {
        var line = JSONLine()
        line.add("kind", "policy")
        line.add("change", group.shift.isGain ? "gain" : "loss")
        line.add("role", group.role)
        add(group.table, to: &line)
        group.shift.add(to: &line)
        line.add("clients", group.clients)
        line.add("rows", group.shift.rows)
        return line.text
    }

    private func json(_ offset: UInt64, _ found: WhatIfReport.Line, _ shift: WhatIfReport.Shift) throws -> String {
        let change = try log.change(at: offset)
        var line = JSONLine()
        line.add("kind", shift.isGain ? "gain" : "loss")
        line.add("user", report.holders[found.holder].name(shownBy: log.masking))
        line.add("role", report.holders[found.holder].role)
        line.add("offset", offset)
        add(found.table, to: &line)
        line.add("op", change.operation.name)
        line.add("key", ChangeText(zone: zone, terminal).key(change))
        shift.add(to: &line)
        return line.text
    }

    private static func list(_ names: [String]) -> String {
        "[" + names.map(JSONLine.quoted).joined(separator: ",") + "]"
    }

    private var total: String {
        var line = JSONLine()
        line.add("kind", "total")
        line.add("from", report.offsets.lowerBound)
        line.add("to", report.offsets.upperBound)
        line.add("gains", report.gains)
        line.add("losses", report.losses)
        line.add("asked", report.asked)
        line.add("not_asked", report.unasked)
        line.add("memberships_of_now", report.membershipsAreOfNow)
        line.add("masked", json: Self.list(report.lost.sorted()))
        line.add("claims_not_kept", json: Self.list(unkept.sorted()))
        return line.text
    }
}

/// What all holders of a role gain or lose of a table for the same reason.
private struct PolicyGroup {
    private struct Key: Hashable {
        var role: String
        var table: TableName
        var isGain: Bool
        var shownBy: Ground
        var keptBy: Ground
    }

    let role: String
    let table: TableName
    var clients = 0
    var shift: WhatIfReport.Shift

    /// The largest first.
    static func all(of report: WhatIfReport) -> [PolicyGroup] {
        var groups: [PolicyGroup] = []
        var places: [Key: Int] = [:]
        for line in report.lines {
            let role = report.holders[line.holder].role
            for shift in line.shifts {
                let key = Key(
                    role: role, table: line.table, isGain: shift.isGain, shownBy: shift.shownBy,
                    keptBy: shift.keptBy)
                let place = places[key] ?? groups.count
                if place == groups.count {
                    places[key] = place
                    var empty = shift
                    empty.rows = 0
                    groups.append(PolicyGroup(role: role, table: line.table, shift: empty))
                }
                groups[place].clients += 1
                groups[place].shift.rows += shift.rows
            }
        }
        return groups.enumerated().sorted {
            ($1.element.shift.rows, $0.offset) < ($0.element.shift.rows, $1.offset)
        }.map(\.element)
    }
}

extension WhatIfReport.Shift {
    fileprivate func add(to line: inout JSONLine) {
        line.add("shown_by", json: shownBy.json)
        line.add("shown_how", shownBy.how)
        line.add("kept_by", json: keptBy.json)
        line.add("kept_how", keptBy.how)
    }
}

extension Ground {
    fileprivate var words: String {
        switch self {
        case .policies(let names): names.joined(separator: ", ")
        case .noPolicy: "(no policy)"
        case .open: "(no row security)"
        case .unreadable: "(no SELECT)"
        case .unpublished: "(not published)"
        case .refused: "(refused)"
        case .unknown: "(unknown)"
        }
    }

    fileprivate var how: String {
        switch self {
        case .policies: "policies"
        case .noPolicy: "no_policy"
        case .open: "no_row_security"
        case .unreadable: "no_select"
        case .unpublished: "not_published"
        case .refused: "refused"
        case .unknown: "unknown"
        }
    }

    fileprivate var json: String {
        guard case .policies(let names) = self else { return "[]" }
        return "[" + names.map(JSONLine.quoted).joined(separator: ",") + "]"
    }
}
