import Change
import Console
import Embedded
import Explaining
import History
import Postgres
import Settings
import System

/// Command `tidewire doctor`.
struct DoctorCommand: Command {
    let name = "doctor"
    let summary = "Say what keeps changes from those who expect them, and what to do about it."
    let discussion = """
        Looks at the settings, the server, the hub's two logins, roles, functions, publications, schema realtime and the \
        partitions of its messages; and at each published table as a subscriber of each role would: which rows it may \
        expect, by which policies, and what it would be told at its join. It says of each how it stands, what follows from \
        that, and the SQL that changes it. It changes nothing, and needs no hub that runs. Give it the configuration that \
        the hub will run with: what the logins may do is part of the question.

        With --claims (or --as-role, and --sub), somebody's view is tried: PostgreSQL counts the rows of each table that \
        he may SELECT.

        What is marked optional is worth knowing, but keeps nothing from working; the status is 1 only if something required \
        is missing or wrong, with --strict also if something optional is.

        JSON. One object a requirement: area, name, state (ok, missing, wrong), required, detail, hint (or null), sql (or \
        null).
        """
    let options: [Option] = [.output, .json, .fixSQL, .strict, .examined, .asRole, .claims, .subject]
    let optionGroups: [OptionGroup] = [
        .configuration(of: [
            Setting(\.databaseURL), Setting(\.policyDatabaseURL), Setting(\.publication), Setting(\.slot),
            Setting(\.dataDirectory), Setting(\.jwtSecret), Setting(\.keySet), Setting(\.deletesAreStrict),
        ])
    ]
    let examples = [
        Example("tidewire doctor", "Is this database ready for the hub, and for the app?"),
        Example("tidewire doctor --table orders --claims user.json", "What would this user hear of orders?"),
        Example("tidewire doctor --fix-sql > fix.sql", "Only the statements that put things right, to be read first:"),
        Example("tidewire doctor --json | jq -r 'select(.state != \"ok\") | .hint'", "Only what there is to do:"),
    ]
    let exitCodes: [ExitCode] = [.notFound, .unreachable]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        let holder = try arguments.tried(terminal)
        let only = try arguments.examinedTable()
        let configuration = try arguments.configuration(terminal)
        let connection = try DatabaseAccess.connect(configuration, "doctor", keepsSettings: true)
        var found = SettingsCheck(configuration, terminal.surroundings).run()
        found += try DatabaseAccess.asking { try DatabaseCheck(connection, settings(configuration)).run() }
        // Without a publication there are no tables, and the missing publication has been reported.
        if !found.contains(where: { $0.area == .publication && $0.isFailure }) {
            found += try tables(configuration, only, holder)
        }
        if arguments.has(.fixSQL) {
            try printFixes(found, terminal)
        } else if arguments.has(.json) {
            for requirement in found { try terminal.print(requirement.json) }
        } else if terminal.form == .table {
            try show(found, terminal)
        } else {
            try printRows(found, terminal)
        }
        let isStrict = arguments.has(.strict)
        return found.contains { $0.isFailure || isStrict && $0.state != .ok } ? .notFound : .ok
    }

    private func settings(_ configuration: Configuration) -> DatabaseCheck.Settings {
        var settings = DatabaseCheck.Settings()
        settings.publication = configuration.publication
        settings.slot = configuration.slot
        settings.policies = configuration.policyDatabaseURL.map { ConnectionTarget($0.revealed) }
        return settings
    }

    // MARK: Tables

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
                throw CommandFailure(.notFound, "\(only) is not in publication \(configuration.publication)")
            }
            let views = try holder.map { try explainer.views(of: $0, only) } ?? []
            return findings.map { Requirement($0) } + views.map { Requirement($0) }
        } catch ExplainFailure.databaseAway {
            throw CommandFailure(.unreachable, "the database does not say what its catalog is")
        }
    }

    // MARK: Output

    /// Prints the requirements as csv or md.
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
        let rest = notable == 0 ? "" : " \(notable) more \(notable == 1 ? "is" : "are") worth knowing."
        try terminal.print(
            (failures == 0 ? "The database is ready." : "\(failures) of \(found.count) stand in the way.") + rest)
    }

    private func show(_ requirement: Requirement, _ terminal: Terminal) throws {
        let state = requirement.state.rawValue
        let padding = String(repeating: " ", count: 9 - state.count)
        let optional = requirement.state != .ok && !requirement.isRequired ? " (optional)" : ""
        try terminal.print(
            "  \(state)\(padding)\(ScreenText.escaped(requirement.name + optional + ": " + requirement.detail))")
        if let hint = requirement.hint { try terminal.print("           \(ScreenText.escaped(hint))") }
    }

    /// Prints a script. Steps that need a decision are commented out. So are steps that would show rows to clients who
    /// do not see them now.
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
        "fix-sql", "Print the statements that put things right, and nothing else.")
    fileprivate static let strict = Option.flag("strict", "Let the status say also what is optional.")
    fileprivate static let examined = Option.value(
        "table", "TABLE", short: "t", "Only this table of the publication: notes (which is public.notes) or app.notes.")
    fileprivate static let asRole = Option.value("as-role", "ROLE", "The role, where the claims have none.")
    fileprivate static let claims = Option.value(
        "claims", "FILE", "A file with somebody's claims, one JSON object; - is standard input.")
    fileprivate static let subject = Option.value(
        "sub", "ID", "The claim sub, where there are no claims or none in them.")
}

extension Arguments {
    fileprivate func examinedTable() throws(UsageError) -> TableName? {
        guard let text = value(of: .examined) else { return nil }
        guard let table = TableName(text) else {
            throw UsageError("--table \(text): expected table, schema.table or \"Quoted Schema\".\"table\"")
        }
        return table
    }

    /// Returns the holder whose access is checked; nil if none is given.
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

/// Checks of the configuration that need no database.
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
                    .settings, name, "there is no key to check them with: every client is refused",
                    hint: "set jwt_secret, jwks or api_keys to what signs the app's tokens")
            }
            let note = keys.notes.first.map { "; \($0)" } ?? ""
            return .ok(.settings, name, "there is a key to check them with\(note)")
        } catch {
            return .wrong(.settings, name, "\(error)", hint: "put right what it names")
        }
    }

    /// Checks the free space on the disk; nil if the data directory does not exist yet.
    private func disk() -> Requirement? {
        let path = configuration.dataDirectory
        guard let directory = try? DiskDirectory(path), let free = try? directory.freeBytes()
        else { return nil }
        let segments = UInt64(clamping: configuration.segmentBytes)
        let detail = "\(SizeText.write(Int64(clamping: free))) free in \(path)"
        guard free < 4 * segments else { return .ok(.settings, "disk", detail) }
        return .wrong(
            .settings, "disk", "\(detail): the event log ends where it is full, and PostgreSQL keeps its WAL meanwhile",
            hint: "make room, or lower retention_size")
    }
}
