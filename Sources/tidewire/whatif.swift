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

        JSON. One object a line. kind "catalog": schema, table, role, changes (texts); kind "holder": user, role, schema, table, \
        told_now, told_then, gains, losses; kind "gain" and "loss", examples: user, role, offset, schema, table, op, key; last \
        kind "total": from, to (offsets), gains, losses, asked and not_asked (rows that PostgreSQL judged, or should have), \
        memberships_of_now. Ends with status 0 when nobody gains or loses anything, and 1 when somebody does.
        """
    let options: [Option] =
        [
            .proposal, .place, .user, .claims, .role, .subject, .holderLimit, .examples, .from, .to, .withoutProgress,
            .json,
            .zone, .log, .project,
        ] + Option.masking
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
            let log = try arguments.historyLog(terminal)
            let holders = try arguments.holders(in: log, atMost: limit, terminal)
            let query = try arguments.query(zone)
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
            let printer = WhatIfPrinter(report, log, zone, terminal)
            for line in try arguments.has(.json) ? printer.json : printer.text { try terminal.print(line) }
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
        "examples", "N", "How many examples of each kind for each client and table (default 3).")
}

extension Arguments {
    fileprivate func count(of option: Option, or fallback: Int) throws(UsageError) -> Int {
        guard case .integer(let number) = try value(of: option, as: .integer(0...10_000)) else { return fallback }
        return Int(number)
    }

    /// Whoever is named, or else those whom the ledger knows.
    fileprivate func holders(
        in log: HistoryLog, atMost limit: Int, _ terminal: Terminal
    ) throws -> [ExplainedHolder] {
        let (claims, role, subject) = (value(of: .claims), value(of: .role), value(of: .subject))
        guard claims == nil, role == nil else {
            return [try holder(claims: claims, role: role, subject: subject, terminal)]
        }
        guard subject == nil else { throw UsageError("--sub needs --role, or --claims") }
        var seen: Set<[UInt8]> = []
        var holders: [ExplainedHolder] = []
        for attendance in try AttendanceBook(log).all.reversed() where holders.count < limit {
            let recorded = attendance.holder(at: .max)
            guard value(of: .user).map({ Array($0.utf8) == recorded.note.subject }) ?? true else { continue }
            guard !recorded.note.role.isEmpty, seen.insert(recorded.note.role + [0] + recorded.note.claims).inserted,
                let holder = try? ExplainedHolder(recorded)
            else { continue }
            holders.append(holder)
        }
        guard holders.isEmpty else { return holders }
        throw CommandFailure(
            .notFound, "for whom? the ledger of this log knows nobody",
            hint: "Give --claims, or --role and --sub. The hub writes the ledger where the setting ledger is not off.")
    }
}

/// A report as it is printed.
private struct WhatIfPrinter {
    private let report: WhatIfReport
    private let log: HistoryLog
    private let zone: DisplayZone
    private let terminal: Terminal

    init(_ report: WhatIfReport, _ log: HistoryLog, _ zone: DisplayZone, _ terminal: Terminal) {
        self.terminal = terminal
        self.report = report
        self.log = log
        self.zone = zone
    }

    // MARK: For people

    var text: [String] {
        get throws {
            var lines = catalog
            if !report.lines.isEmpty { lines += [""] + table.lines(on: terminal) }
            let changed = report.lines.filter { $0.gains + $0.losses > 0 }
            for (title, offsets) in [
                ("Gains, for example", \WhatIfReport.Line.gained), ("Losses, for example", \.lost),
            ] {
                let found = changed.filter { !$0[keyPath: offsets].isEmpty }
                if found.isEmpty { continue }
                lines += ["", title]
                for line in found {
                    for offset in line[keyPath: offsets] { lines.append("  " + (try example(offset, line))) }
                }
            }
            return lines + [""] + sums
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

    private func example(_ offset: UInt64, _ line: WhatIfReport.Line) throws -> String {
        let change = try log.change(at: offset)
        let text = ChangeText(zone: zone, terminal)
        let holder = report.holders[line.holder]
        return ScreenText.escaped(
            "\(holder.name(shownBy: log.masking)): @\(offset) \(change.operation.name) \(text.table(change)) key \(text.key(change)), "
                + "\(zone.text(change.time))")
    }

    private var sums: [String] {
        let (first, end) = (report.offsets.lowerBound, report.offsets.upperBound)
        var lines = [
            report.gains + report.losses == 0
                ? "Of the changes @\(first) to @\(end) nobody of \(report.holders.count) would gain or lose any."
                : "Of the changes @\(first) to @\(end), \(report.holders.count) clients would gain \(report.gains) and lose \(report.losses)."
        ]
        if report.asked > 0 { lines.append("PostgreSQL judged \(report.asked) rows, by what it knows now.") }
        if report.unasked > 0 {
            lines.append(
                "\(report.unasked) rows were left out: more than may be asked about. A smaller window says more.")
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
                for offset in found.gained { lines.append(try example("gain", offset, found)) }
                for offset in found.lost { lines.append(try example("loss", offset, found)) }
            }
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

    private func example(_ kind: String, _ offset: UInt64, _ found: WhatIfReport.Line) throws -> String {
        let change = try log.change(at: offset)
        var line = JSONLine()
        line.add("kind", kind)
        line.add("user", report.holders[found.holder].name(shownBy: log.masking))
        line.add("role", report.holders[found.holder].role)
        line.add("offset", offset)
        add(found.table, to: &line)
        line.add("op", change.operation.name)
        line.add("key", ChangeText(zone: zone, terminal).key(change))
        return line.text
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
        return line.text
    }
}
