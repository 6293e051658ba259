import Bytes
import Catalog
import Change
import Console
import Diagnostics
import EventLog
import Explaining
import History
import Postgres
import Settings

/// Command `tidewire whatif`: shows which clients would gain or lose rows by proposed policies.
struct WhatIfCommand: Command {
    let name = "whatif"
    let summary =
        "Show which users would gain or lose which rows by a migration or by other filters, before you apply it."
    let discussion = """
        Takes SQL that changes policies, grants, functions or the publication, and goes through the changes in the \
        event log: which users would have been told of which changes, with the database as it is, and with the SQL \
        applied? It ignores the filters of subscriptions, because it shows what a user MAY see. It judges updates by \
        the new row and deletes by the old row, as the hub does.

        WITH --binding it shows what a user asks for and may see. It compares proposed subscriptions with each \
        client's present ones, from all its sessions in the ledger (for a user named by --claims or --role: every row). \
        Several bindings for a table count together, like several of one client; other tables are left out. --policy \
        is then optional. (not asked for) marks rows that no policy keeps back, but the filter or the event does. Rows \
        whose filter only PostgreSQL can decide are left out, and a line says so.

        FOR WHOM. For the users in the log's ledger (setting: ledger), newest first; or for one, with --claims, or \
        --role and --sub. The command computes memberships (rows of other tables that policies read) as they were at \
        each change, as far as the log has their tables; a line says where it cannot. A bundle lacks the changes after \
        its end.

        WHERE THE SQL RUNS. In the database that --on names, in a transaction that is always rolled back: a copy, or \
        the source itself. It is never applied anywhere else. The login needs the rights that the SQL needs, and must \
        be able to become the roles in question. Locks that the SQL takes (ALTER POLICY locks everybody out of its \
        table) are held while the catalog is read, about a second. If PostgreSQL has to decide policies, they are held \
        until the log is read: then use --from and --to, or a copy. The SQL cannot end the transaction.

        \(AskingHelp.window) --to does not make it smaller here: to compute past memberships, the command needs all \
        later changes. If a policy reads masked columns, their values are unknown here: such rows count as shown to \
        nobody, and a line says so.

        REASONS. The output splits gains and losses by the policies that show the rows. For a gain: which proposed \
        policies show it, and what hides it now. For a loss: which policies show it now, and what will hide it. (no \
        policy) means that no policy shows it; a name under KEPT BY is a restrictive policy that does not hold. If \
        several policies show the same row, all are named.

        JSON. One object a line. kind "binding": schema, table, asked (a text); kind "catalog": schema, table, role, \
        changes (texts); kind "holder": user, role, schema, table, told_now, told_then, gains, losses; kind "policy": \
        change (gain or loss), role, schema, table, shown_by, kept_by (names), shown_how, kept_how (policies, \
        no_policy, not_asked_for, no_row_security, no_select, not_published, refused, unknown), clients, rows; kind \
        "gain" and "loss", examples: user, role, offset, schema, table, op, key, shown_by, kept_by; last kind "total": \
        from, to (offsets), gains, losses, asked and not_asked (rows that PostgreSQL judged, or should have judged), \
        memberships_of_now, masked (columns that policies read and whose values a bundle lacks), not_filtered (rows \
        whose filter only PostgreSQL could decide), masked_filters, claims_not_kept (names), not_published (tables of \
        the log that --on's database does not publish, now or then). Ends with status 0 if nobody gains or loses \
        anything, and 1 if somebody does.
        """
    let options: [Option] =
        [
            .proposal, .bindings, .place, .user, .claims, .role, .subject, .holderLimit, .examples, .from, .to,
            .withoutProgress,
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
            "Which users would see more or fewer of the changes in the log?"),
        Example(
            "tidewire whatif --binding \"INSERT notes room=eq.5\" --on \"$STAGING\" --from -1d",
            "Which changes would clients miss with a narrower subscription?"),
        Example(
            "tidewire whatif --policy new-policies.sql --on \"$STAGING\" --from -1d --role authenticated --sub 7f3c2b1e-0c5d-4f6e-8a52-000000000001",
            "The same for one user and the last day:"),
    ]
    let exitCodes = LogAccess.exitCodes

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        let zone = try arguments.zone()
        let bindings = try arguments.bindings()
        let file = arguments.value(of: .proposal)
        guard file != nil || !bindings.isEmpty else {
            throw UsageError("no proposal is given: use --policy FILE, or --binding BINDING")
        }
        guard let place = arguments.value(of: .place) else {
            throw UsageError(
                "--on URL is missing: name a database in which the SQL is applied and rolled back: a copy of the database, "
                    + "or the database itself, where the SQL holds its locks for a moment")
        }
        let sql = try file.map { try arguments.contents(of: $0, named: "--policy", terminal) } ?? "-- nothing"
        let (limit, count) = (try arguments.count(of: .holderLimit, or: 50), try arguments.count(of: .examples, or: 3))
        let configuration = try arguments.configuration(terminal)
        Log.shared.configure(level: .error, format: configuration.logFormat)
        return try LogAccess.explained {
            // Fetches the log to its end, because past memberships are computed by undoing all later changes.
            let log = try arguments.log(asking: [.from], terminal)
            let audience = try arguments.audience(in: log, atMost: limit, of: bindings, terminal)
            let holders = audience.holders
            var query = try arguments.query(zone)
            // The fetched bundle already begins at --from.
            if arguments.value(of: .server) != nil { query.from = nil }
            let window = try log.window(from: query.from, to: query.to)
            var settings = WhatIf.Settings(
                target: ConnectionTarget(place), publication: configuration.publication,
                deletesAreStrict: configuration.deletesAreStrict)
            settings.examples = count
            settings.logMayEndEarly = log.lost != nil && arguments.value(of: .server) == nil
            let progress = Progress(terminal, isQuiet: arguments.has(.withoutProgress))
            let proposed = bindings.isEmpty ? nil : ProposedBindings(then: bindings, now: audience.bindings)
            let report = try Self.answered(file ?? "--policy") {
                try WhatIf(log, settings).answer(sql, for: holders, asking: proposed, in: window) { what, offset in
                    progress.note("reading the log \(what): @\(offset)")
                }
            }
            progress.clear()
            let printer = WhatIfPrinter(report, audience, bindings, log, zone, terminal)
            if arguments.has(.json) {
                for line in try printer.json { try terminal.print(line) }
            } else {
                try printer.print()
            }
            return report.gains + report.losses == 0 ? .ok : .notFound
        }
    }

    /// Runs a body that applies SQL in the database of `--on`. Turns its errors into messages with exit codes.
    static func answered<Report>(_ file: String, _ body: () throws -> Report) throws -> Report {
        do {
            return try body()
        } catch WhatIf.Failure.refused(let error) {
            let state = error.sqlState.map { " (SQLSTATE \($0))" } ?? ""
            throw CommandFailure(
                .notFound, "the database does not accept \(file): \(error.message)\(state)",
                hint: error.hint ?? "Nothing of it was applied. Does the login of --on have the rights that it needs?")
        } catch WhatIf.Failure.badBinding(let table, let reason) {
            throw CommandFailure(
                .notFound, "--binding for \(table): the hub would refuse it: \(reason)",
                hint: "Write the filter as clients do: COLUMN=eq.VALUE, with a column of \(table).")
        } catch WhatIf.Failure.unpublished(let table) {
            throw CommandFailure(
                .notFound, "--binding: there is no table \(table) in the publication of the database of --on",
                hint: "A table's name is notes (which is public.notes), app.notes or \"Odd Schema\".\"t\".")
        } catch WhatIf.Failure.tooLarge(let pairs, let most) {
            throw CommandFailure(
                .notFound, "\(pairs) pairs of clients and changes are more than \(most)",
                hint: "Give a smaller window (--from, --to) or fewer clients (--limit).")
        } catch let error as PostgresError {
            throw CommandFailure(
                error.isConnectionLost ? .unreachable : .notFound, "the database of --on: \(error)", hint: error.advice)
        }
    }
}

extension Option {
    fileprivate static let proposal = Option.value("policy", "FILE", "The proposed SQL; - is standard input.")
    fileprivate static let bindings = Option.value(
        "binding", "BINDING",
        "A proposed subscription in place of each client's own: [EVENT] TABLE [FILTER], such as \"notes room=eq.5\". Repeat for more."
    )
    fileprivate static let place = Option.value(
        "on", "URL",
        "The database in which the SQL is applied, in a transaction that is rolled back. The password may be in PGPASSWORD or PGPASSFILE."
    )
    fileprivate static let user = Option.value(
        "user", "SUB", "Only clients of this user (the claim sub) in the ledger.")
    fileprivate static let claims = Option.value(
        "claims", "FILE", "For a user with these claims, one JSON object in a file; - is standard input.")
    fileprivate static let role = Option.value("role", "ROLE", "For this role, if the claims have none.")
    fileprivate static let subject = Option.value("sub", "ID", "For this claim sub.")
    fileprivate static let holderLimit = Option.value(
        "limit", "N", short: "n", "The most users from the ledger, newest first (default 50).")
    fileprivate static let examples = Option.value(
        "examples", "N", "The number of examples of each kind for each client, table and policy (default 3).")
}

extension Arguments {
    fileprivate func count(of option: Option, or fallback: Int) throws(UsageError) -> Int {
        guard case .integer(let number) = try value(of: option, as: .integer(0...10_000)) else { return fallback }
        return Int(number)
    }

    /// Returns the proposed bindings (`--binding`) of each table.
    fileprivate func bindings() throws(UsageError) -> [TableName: [AskedBinding]] {
        var bindings: [TableName: [AskedBinding]] = [:]
        for text in values(of: .bindings) {
            var words = text.split(separator: " ", maxSplits: 1, omittingEmptySubsequences: true)
            var operations = RowOperations.all
            if let event = words.first, ["*", "INSERT", "UPDATE", "DELETE"].contains(event.uppercased()),
                words.count > 1
            {
                operations = RowOperations(event: String(event))
                words = words[1].split(separator: " ", maxSplits: 1, omittingEmptySubsequences: true)
            }
            guard let name = words.first, let table = TableName(String(name)) else {
                throw UsageError(
                    "--binding \(text): expected [EVENT] TABLE [FILTER], such as \"UPDATE app.notes room=eq.5\"")
            }
            let filter = words.count > 1 ? String(words[1]) : nil
            bindings[table, default: []].append(AskedBinding(operations: operations, filter: filter))
        }
        return bindings
    }

    /// Returns the holders (role and claims) for whom the command examines the proposal: the one that the arguments
    /// name, or else those in the ledger. It includes their present bindings on the given tables.
    /// - Parameter limit: the maximum number of holders.
    fileprivate func audience(
        in log: HistoryLog, atMost limit: Int, of tables: [TableName: [AskedBinding]], _ terminal: Terminal
    ) throws -> WhatIfAudience {
        let (claims, role, subject) = (value(of: .claims), value(of: .role), value(of: .subject))
        var audience = WhatIfAudience()
        guard claims == nil, role == nil else {
            audience.holders = [try holder(claims: claims, role: role, subject: subject, terminal)]
            audience.bindings = [tables.mapValues { _ in [AskedBinding()] }]
            return audience
        }
        guard subject == nil else { throw UsageError("--sub needs --role, or --claims") }
        var seen: [[UInt8]: Int] = [:]
        for attendance in try AttendanceBook(log).all.reversed() {
            let recorded = attendance.holder(at: .max)
            guard value(of: .user).map({ Array($0.utf8) == recorded.note.subject }) ?? true else { continue }
            guard !recorded.note.role.isEmpty else { continue }
            let identity = recorded.note.role + [0] + recorded.note.claims
            if let known = seen[identity] {
                audience.note(attendance.joined.bindings, of: known, tables)
                continue
            }
            guard audience.holders.count < limit, let holder = try? ExplainedHolder(recorded) else { continue }
            seen[identity] = audience.holders.count
            audience.holders.append(holder)
            audience.bindings.append([:])
            audience.unkept.formUnion(ExplainedHolder.unknownClaims(of: recorded))
            audience.note(attendance.joined.bindings, of: audience.holders.count - 1, tables)
        }
        guard audience.holders.isEmpty else { return audience }
        throw CommandFailure(
            .notFound, "the ledger of this log has no users",
            hint: "Give --claims, or --role and --sub. The hub writes the ledger unless the setting ledger is off.")
    }
}

/// Holders (role and claims) for whom the command examines the proposal, with their present bindings.
private struct WhatIfAudience {
    var holders: [ExplainedHolder] = []
    /// Names of the holders' claims whose values the ledger does not keep.
    var unkept: Set<String> = []
    /// Present bindings of each holder, in the order of `holders`, on the tables that have proposed bindings.
    var bindings: [[TableName: [AskedBinding]]] = []
    /// Number of bindings that are left out because the bundle masks the values of their filters.
    var maskedFilters = 0

    /// Adds a channel's bindings on the given tables to those of a holder.
    /// - Parameter holder: the index in `holders`.
    mutating func note(_ listed: [ListedBinding], of holder: Int, _ tables: [TableName: [AskedBinding]]) {
        for table in tables.keys {
            for binding in listed where binding.isAbout(table.schema, table.name) {
                guard let asked = AskedBinding(binding) else {
                    maskedFilters += 1
                    continue
                }
                if bindings[holder][table]?.contains(asked) != true {
                    bindings[holder][table, default: []].append(asked)
                }
            }
        }
    }
}

/// Printer of the rows that clients would gain or lose by the proposal, as tables or JSON.
private struct WhatIfPrinter {
    private let report: WhatIfReport
    private let audience: WhatIfAudience
    private let bindings: [TableName: [AskedBinding]]
    private let log: HistoryLog
    private let zone: DisplayZone
    private let terminal: Terminal

    init(
        _ report: WhatIfReport, _ audience: WhatIfAudience, _ bindings: [TableName: [AskedBinding]], _ log: HistoryLog,
        _ zone: DisplayZone, _ terminal: Terminal
    ) {
        self.terminal = terminal
        self.report = report
        self.audience = audience
        self.bindings = bindings
        self.log = log
        self.zone = zone
    }

    // MARK: Text

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
        let asked = bindings.sorted { $0.key.description < $1.key.description }.flatMap { table, bindings in
            bindings.map {
                ScreenText.escaped("\(table) for all clients: \($0.words) instead of their present subscriptions")
            }
        }
        if report.differences.tables.isEmpty {
            return asked.isEmpty ? ["The proposal changes nothing that decides what clients are told."] : asked
        }
        return asked
            + report.differences.tables.flatMap { table in
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

    /// Table of gains and losses by role, by table, and by the policies that show or hide the rows.
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

    /// Table of gains and losses for spreadsheets: a row for each client, table and reason.
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

    /// Returns the line about a change by which a holder gains or loses a row.
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
                ? "Of the changes @\(first) to @\(end), \(clients) would gain none and lose none."
                : "Of the changes @\(first) to @\(end), \(clients) would gain \(report.gains) and lose \(report.losses)."
        ]
        if report.asked > 0 { lines.append("PostgreSQL judged \(report.asked) rows, by what it knows now.") }
        if report.unasked > 0 {
            lines.append(
                "\(report.unasked) rows were left out, because PostgreSQL would have to judge too many. Use a smaller window."
            )
        }
        if report.unfiltered > 0 {
            lines.append(
                "\(report.unfiltered) rows were left out: only PostgreSQL can say whether the filter holds for them.")
        }
        if !report.unpublished.isEmpty {
            lines.append(
                "Tables that the database of --on does not publish, so that nobody is told of them, now or then: "
                    + report.unpublished.map(\.description).joined(separator: ", "))
        }
        if audience.maskedFilters > 0 {
            lines.append(
                "The bundle masks filters of subscriptions (\(audience.maskedFilters)), so they are left out. "
                    + "--unmask, when the bundle is made, leaves them readable."
            )
        }
        if !report.lost.isEmpty {
            lines.append(
                "The bundle masks columns that policies read, so their rows count as shown to nobody: "
                    + "\(report.lost.sorted().joined(separator: ", ")). --unmask, when the bundle is made, leaves them readable."
            )
        }
        if !audience.unkept.isEmpty {
            lines.append(
                "Policies were evaluated without claims that are not kept (setting: ledger_claims) or are masked: "
                    + audience.unkept.sorted().joined(separator: ", "))
        }
        if report.membershipsAreOfNow {
            lines.append("Some memberships are as they are now: the log does not say what they were.")
        }
        if report.membershipsMayBeLater {
            lines.append(
                "Memberships that changed after the end of the bundle count as they are now, because it lacks those changes. "
                    + "Use the hub (--server) or its log (--log) to include them."
            )
        }
        return lines
    }

    // MARK: JSON

    var json: [String] {
        get throws {
            var lines: [String] = bindings.sorted { $0.key.description < $1.key.description }.flatMap { table, asked in
                asked.map { binding in
                    var line = JSONLine()
                    line.add("kind", "binding")
                    add(table, to: &line)
                    line.add("asked", binding.words)
                    return line.text
                }
            }
            lines += report.differences.tables.map { table in
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
        line.add("memberships_of_now", report.membershipsAreOfNow || report.membershipsMayBeLater)
        line.add("masked", json: Self.list(report.lost.sorted()))
        line.add("not_filtered", UInt64(report.unfiltered))
        line.add("masked_filters", UInt64(audience.maskedFilters))
        line.add("claims_not_kept", json: Self.list(audience.unkept.sorted()))
        line.add("not_published", json: Self.list(report.unpublished.map(\.description)))
        return line.text
    }
}

/// Sum of the gains, or of the losses, that all holders of a role have in one table for the same reason.
private struct PolicyGroup {
    private struct Key: Hashable {
        var role: String
        var table: TableName
        var isGain: Bool
        var shownBy: RulingReason
        var keptBy: RulingReason
    }

    let role: String
    let table: TableName
    var clients = 0
    var shift: WhatIfReport.Shift

    /// Returns the sums of all gains and losses in the report, those with the most rows first.
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
    func add(to line: inout JSONLine) {
        line.add("shown_by", json: shownBy.json)
        line.add("shown_how", shownBy.how)
        line.add("kept_by", json: keptBy.json)
        line.add("kept_how", keptBy.how)
    }
}

extension AskedBinding {
    /// Text of the binding: its event and its filter.
    fileprivate var words: String {
        let names = [(RowOperations.insert, "INSERT"), (.update, "UPDATE"), (.delete, "DELETE")]
        let event = operations == .all ? "every change" : names.first { $0.0 == operations }?.1 ?? "nothing"
        return event + (filter.map { " where \($0)" } ?? "")
    }
}

extension RulingReason {
    /// Text of the reason in tables: names of policies, or why there is none.
    var words: String {
        switch self {
        case .policies(let names): names.joined(separator: ", ")
        case .noPolicy: "(no policy)"
        case .notAskedFor: "(not asked for)"
        case .open: "(no row security)"
        case .unreadable: "(no SELECT)"
        case .unpublished: "(not published)"
        case .refused: "(refused)"
        case .unknown: "(unknown)"
        }
    }

    /// Stable name of the kind of reason, for JSON.
    var how: String {
        switch self {
        case .policies: "policies"
        case .noPolicy: "no_policy"
        case .notAskedFor: "not_asked_for"
        case .open: "no_row_security"
        case .unreadable: "no_select"
        case .unpublished: "not_published"
        case .refused: "refused"
        case .unknown: "unknown"
        }
    }

    /// JSON array of the names of the policies; empty for other reasons.
    var json: String {
        guard case .policies(let names) = self else { return "[]" }
        return "[" + names.map(JSONLine.quoted).joined(separator: ",") + "]"
    }
}
