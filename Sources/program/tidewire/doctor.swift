import Change
import ClusterChecks
import Console
import Embedded
import Explaining
import History
import Postgres
import Server
import Settings
import System

/// Command `tidewire doctor`: checks settings, database and tables for causes that keep changes from clients.
struct DoctorCommand: Command {
    let name = "doctor"
    let summary = "Find what keeps changes from the clients that expect them, and show how to fix it."
    let discussion = """
        Checks the settings, the NATS servers of a cluster, the server, the hub's two logins, roles, functions, publications, the schema realtime and \
        the partitions of its messages. It also checks each published table for a subscriber of each role: which rows \
        the subscriber may expect, by which policies, and what the hub would answer to its join. For each check it \
        shows the state, what follows from it, and the SQL that changes it. It changes nothing, and needs no running \
        hub. Give it the configuration that the hub will run with, because it also checks what the logins may do.

        With --table, it prints only what concerns that table: its subscribers, and other checks that failed, because \
        they may be the reason. The status counts all checks.

        With --claims (or --as-role, and --sub), it checks the view of one user: PostgreSQL counts the rows of each \
        table that this user may SELECT.

        --server URL asks a running hub to do this with its own configuration and logins.

        An optional finding does not prevent anything from working. The status is 1 if something required is missing \
        or wrong; with --strict, also if something optional is.

        JSON. One object a requirement: area, name, state (ok, missing, wrong), required, detail, hint (or null), sql \
        (or null).
        """
    let options: [Option] =
        [.output, .json, .fixSQL, .strict, .examined, .asRole, .claims, .subject] + Option.asking + [.project]
    let optionGroups: [OptionGroup] = [
        .configuration(of: [
            Setting(\.databaseURL), Setting(\.policyDatabaseURL), Setting(\.publication), Setting(\.slot),
            Setting(\.dataDirectory), Setting(\.clusterServers), Setting(\.clusterMonitors), Setting(\.jwtSecret),
            Setting(\.keySet), Setting(\.deletesAreStrict),
        ])
    ]
    let examples = [
        Example("tidewire doctor", "Is this database ready for the hub, and for the app?"),
        Example(
            "tidewire doctor --table orders --claims user.json", "Which changes of orders would this user receive?"),
        Example(
            "tidewire doctor --fix-sql > fix.sql", "Only the SQL that fixes what is wrong, to review before you run it:"
        ),
        Example("tidewire doctor --json | jq -r 'select(.state != \"ok\") | .hint'", "Only the hints:"),
    ]
    let exitCodes: [ExitCode] = [.notFound, .unreachable]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        if let code = try arguments.answer("doctor", options: allOptions, terminal) { return code }
        let holder = try arguments.tried(terminal)
        let only = try arguments.examinedTable()
        let configuration = try arguments.configuration(terminal)
        let connection = try DatabaseAccess.connect(configuration, "doctor", keepsSettings: true)
        var found = SettingsCheck(configuration, terminal.surroundings).run()
        found += try cluster(configuration, terminal.surroundings)
        found += try DatabaseAccess.asking { try DatabaseCheck(connection, settings(configuration)).run() }
        // Without a publication there are no tables to check; an earlier check reports the missing publication.
        if !found.contains(where: { $0.area == .publication && $0.isFailure }) {
            found += try tables(configuration, only, holder)
        }
        // With --table, the report has the findings about the table, and failed checks that may be their cause.
        let isStrict = arguments.has(.strict)
        let isReady = !found.contains { $0.isFailure || isStrict && $0.state != .ok }
        if only != nil { found = found.filter { $0.area == .tables || $0.isFailure } }
        if arguments.has(.fixSQL) {
            try printFixes(found, terminal)
        } else if arguments.has(.json) {
            for requirement in found { try terminal.print(requirement.json) }
        } else if terminal.form == .table {
            try show(found, terminal)
        } else {
            try printRows(found, terminal)
        }
        return isReady ? .ok : .notFound
    }

    private func settings(_ configuration: Configuration) -> DatabaseCheck.Settings {
        var settings = DatabaseCheck.Settings()
        settings.publication = configuration.publication
        settings.slot = configuration.slot
        settings.policies = configuration.policyDatabaseURL.map { ConnectionTarget($0.revealed) }
        return settings
    }

    // MARK: Cluster

    /// Checks the NATS servers of the cluster; returns nothing if the hub is alone.
    private func cluster(
        _ configuration: Configuration, _ surroundings: ConfigurationSurroundings
    ) throws -> [Requirement] {
        guard let cluster = try configuration.cluster(surroundings: surroundings, hostName: HostName.current) else {
            return []
        }
        let findings = ClusterSurvey.findings(of: cluster)
        let name = "node \(cluster.node)"
        guard !findings.isEmpty else {
            return [.ok(.cluster, name, "\(cluster.monitors.count) servers answer, and are fit for a cluster")]
        }
        return findings.map { finding in
            let isRequired = finding.severity != .warning
            return finding.severity == .wait
                ? .missing(.cluster, name, finding.message, hint: finding.hint)
                : .wrong(.cluster, name, finding.message, isRequired: isRequired, hint: finding.hint)
        }
    }

    // MARK: Tables

    /// Checks the tables of the publication for the given holder's role, or for `anon` and `authenticated`.
    /// - Parameter only: the one table to check; nil for all.
    private func tables(
        _ configuration: Configuration, _ only: TableName?, _ holder: ExplainedHolder?
    ) throws -> [Requirement] {
        guard let database = configuration.databaseURL else { return [] }
        let explainer = try Explainer(
            Explainer.Settings(
                database: ConnectionTarget(database.revealed),
                policies: configuration.policyDatabaseURL.map { ConnectionTarget($0.revealed) },
                publication: configuration.publication, deletesAreStrict: configuration.deletesAreStrict))
        let roles = holder.map { [$0.role] } ?? ["anon", "authenticated"]
        do {
            let findings = try explainer.examine(roles, only)
            if findings.isEmpty, let only {
                throw CommandFailure(
                    .notFound, "\(only) is not in publication \(configuration.publication)",
                    hint: "ALTER PUBLICATION \(configuration.publication) ADD TABLE \(only);")
            }
            let views = try holder.map { try explainer.views(of: $0, only) } ?? []
            return findings.map { Requirement($0) } + views.map { Requirement($0) }
        } catch ExplainFailure.databaseAway {
            throw CommandFailure(
                .unreachable, "cannot read the database's catalog",
                hint: "Does the server run, and are database_url and policy_database_url right?")
        }
    }

    // MARK: Output

    /// Prints the results of the checks as csv or md.
    private func printRows(_ found: [Requirement], _ terminal: Terminal) throws {
        var table = TableStream(
            [
                .text("AREA"), .text("STATE"), .text("REQUIRED"), .text("NAME"), .text("DETAIL"), .text("HINT"),
                .text("SQL"),
            ], on: terminal)
        try terminal.print(heading: table)
        for one in found {
            let cells = [
                one.area.rawValue, one.state.rawValue, one.isRequired ? "yes" : "no", one.name, one.detail,
                one.hint ?? "",
                one.sql ?? "",
            ]
            try terminal.print(table.line(cells))
        }
    }

    private func show(_ found: [Requirement], _ terminal: Terminal) throws {
        for area in Requirement.Area.allCases {
            let here = found.filter { $0.area == area }
            guard !here.isEmpty else { continue }
            try terminal.print(area.title)
            for requirement in here { try show(requirement, terminal) }
        }
        let failures = found.count(where: \.isFailure)
        let notable = found.count { !$0.isRequired && $0.state != .ok }
        let rest = notable == 0 ? "" : " \(notable) optional \(notable == 1 ? "finding" : "findings")."
        try terminal.print(
            (failures == 0 ? "The database is ready." : "\(failures) of \(found.count) checks failed.") + rest)
    }

    private func show(_ requirement: Requirement, _ terminal: Terminal) throws {
        let state = requirement.state.rawValue
        let padding = String(repeating: " ", count: 9 - state.count)
        let optional = requirement.state != .ok && !requirement.isRequired ? " (optional)" : ""
        try terminal.print(
            "  \(state)\(padding)\(ScreenText.escaped(requirement.name + optional + ": " + requirement.detail))")
        if let hint = requirement.hint { try terminal.print("           \(ScreenText.escaped(hint))") }
    }

    /// Prints the SQL that repairs the findings. It comments out each step that needs a decision, or that would show
    /// rows to clients who do not see them now.
    private func printFixes(_ found: [Requirement], _ terminal: Terminal) throws {
        var printed: Set<String> = []
        for requirement in found where requirement.state != .ok {
            guard let sql = requirement.sql, printed.insert(sql).inserted else { continue }
            try terminal.print("-- \(ScreenText.escaped("\(requirement.name): \(requirement.detail)"))")
            if let words = requirement.words { try terminal.print("-- \(ScreenText.escaped(words)):") }
            try terminal.print((requirement.isFixComplete ? "" : "-- to be decided: ") + ScreenText.escaped(sql))
        }
    }
}

extension Option {
    fileprivate static let fixSQL = Option.flag(
        "fix-sql", "Print only the SQL that fixes what is wrong.")
    fileprivate static let strict = Option.flag(
        "strict", "End with status 1 also if something optional is missing or wrong.")
    fileprivate static let examined = Option.value(
        "table", "TABLE", short: "t", "Only this table of the publication: notes (which is public.notes) or app.notes.")
    fileprivate static let asRole = Option.value("as-role", "ROLE", "The role, if the claims have none.")
    fileprivate static let claims = Option.value(
        "claims", "FILE", "A file with a user's claims, one JSON object; - is standard input.")
    fileprivate static let subject = Option.value(
        "sub", "ID", "The claim sub, if there are no claims or if they have none.")
}

extension Arguments {
    /// Returns the table of `--table`; nil if the option is not given.
    fileprivate func examinedTable() throws(UsageError) -> TableName? {
        guard let text = value(of: .examined) else { return nil }
        guard let table = TableName(text) else {
            throw UsageError("--table \(text): expected table, schema.table or \"Quoted Schema\".\"table\"")
        }
        return table
    }

    /// Returns the holder (role and claims) whose access the command checks; nil if the arguments name none.
    fileprivate func tried(_ terminal: Terminal) throws(UsageError) -> ExplainedHolder? {
        guard value(of: .claims) != nil || value(of: .asRole) != nil else {
            if value(of: .subject) != nil { throw UsageError("--sub needs --as-role or --claims") }
            return nil
        }
        return try holder(claims: value(of: .claims), role: value(of: .asRole), subject: value(of: .subject), terminal)
    }
}

extension Requirement {
    fileprivate init(_ finding: TableFinding) {
        let roles = finding.roles.joined(separator: " and ")
        self.init(
            .tables, "\(finding.table) for \(roles)", finding.weight == .fine ? .ok : .wrong, finding.detail,
            isRequired: finding.weight != .notable, words: nil, sql: finding.sql, showsMore: finding.showsMore)
    }

    fileprivate var json: String {
        var line = JSONLine()
        line.add("area", area.rawValue)
        line.add("name", name)
        line.add("state", state.rawValue)
        line.add("required", isRequired)
        line.add("detail", detail)
        line.add("hint", hint)
        line.add("sql", sql)
        return line.text
    }
}

/// Checks of the settings that need no database: the keys of tokens, and the disk.
private struct SettingsCheck {
    private let configuration: Configuration
    private let surroundings: ConfigurationSurroundings

    init(_ configuration: Configuration, _ surroundings: ConfigurationSurroundings) {
        self.configuration = configuration
        self.surroundings = surroundings
    }

    func run() -> [Requirement] { [tokens(), disk()].compactMap(\.self) }

    private func tokens() -> Requirement {
        let name = "tokens"
        do {
            let keys = try configuration.tokenKeys(surroundings: surroundings)
            guard keys.canRecogniseAnyone else {
                return .missing(
                    .settings, name, "the hub has no key to check tokens with, so it refuses every client",
                    hint: "set jwt_secret or jwks to the key that signs the app's tokens, or api_keys")
            }
            let note = keys.notes.first.map { "; \($0)" } ?? ""
            return .ok(.settings, name, "the hub has a key to check tokens with\(note)")
        } catch {
            return .wrong(.settings, name, "\(error)", hint: "correct the setting that the message names")
        }
    }

    /// Checks the free space on the disk of the data directory; nil if that directory does not exist yet.
    private func disk() -> Requirement? {
        let path = configuration.dataDirectory
        guard let directory = try? DiskDirectory(path), let free = try? directory.freeBytes()
        else { return nil }
        let segments = UInt64(clamping: configuration.segmentBytes)
        let detail = "\(SizeText.write(Int64(clamping: free))) free in \(path)"
        guard free < 4 * segments else { return .ok(.settings, "disk", detail) }
        return .wrong(
            .settings, "disk",
            "\(detail): when the disk is full, the hub stops writing the event log, and PostgreSQL keeps its WAL",
            hint: "make room, or lower retention_size")
    }
}
