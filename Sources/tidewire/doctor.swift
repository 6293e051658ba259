import Console
import Embedded
import Postgres
import Settings

/// `tidewire db check`
struct DatabaseCheckCommand: Command {
    let name = "check"
    let summary = "Check that the database has all the hub needs."
    let discussion = """
        Looks at the server's settings, the hub's two logins, roles, functions, publications and their tables, schema \
        realtime and the partitions of its messages, and says of each how it stands and what to do. It changes nothing. Give \
        it the configuration that the hub will run with: what the logins may do is part of the question.

        What is marked optional is worth knowing, but keeps nothing from working; the status is 1 only if something required \
        is missing or wrong.

        JSON. One object a requirement: area, name, state (ok, missing, wrong), required, detail, hint (or null).
        """
    let options: [Option] = [.json]
    let optionGroups: [OptionGroup] = [
        .configuration(of: [
            Setting(\.databaseURL), Setting(\.policyDatabaseURL), Setting(\.publication), Setting(\.slot),
        ])
    ]
    let examples = [
        Example("tidewire db check", "Is this database ready for the hub?"),
        Example("tidewire db check --json | jq -r 'select(.state != \"ok\") | .hint'", "Only what there is to do:"),
    ]
    let exitCodes: [ExitCode] = [.notFound, .unreachable]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        let configuration = try arguments.configuration(terminal)
        let connection = try DatabaseAccess.connect(configuration, "db check")
        var settings = DatabaseCheck.Settings()
        settings.publication = configuration.publication
        settings.slot = configuration.slot
        settings.policies = configuration.policyDatabaseURL.map { ConnectionTarget($0.revealed) }
        let found = try DatabaseAccess.asking { try DatabaseCheck(connection, settings).run() }
        if arguments.has(.json) {
            for requirement in found { try terminal.print(requirement.json) }
        } else {
            try show(found, terminal)
        }
        return found.contains(where: \.isFailure) ? .notFound : .ok
    }

    private func show(_ found: [Requirement], _ terminal: Terminal) throws {
        for area in Requirement.Area.allCases {
            let here = found.filter { $0.area == area }
            guard !here.isEmpty else { continue }
            try terminal.print(area.title)
            for requirement in here { try show(requirement, terminal) }
        }
        let failures = found.count(where: \.isFailure)
        try terminal.print(failures == 0 ? "The database is ready." : "\(failures) of \(found.count) stand in the way.")
    }

    private func show(_ requirement: Requirement, _ terminal: Terminal) throws {
        let state = requirement.state.rawValue
        let padding = String(repeating: " ", count: 9 - state.count)
        let optional = requirement.state != .ok && !requirement.isRequired ? " (optional)" : ""
        try terminal.print(
            "  \(state)\(padding)\(ScreenText.escaped(requirement.name + optional + ": " + requirement.detail))")
        if let hint = requirement.hint { try terminal.print("           \(ScreenText.escaped(hint))") }
    }
}

extension Requirement {
    fileprivate var json: String {
        var line = JSONLine()
        line.add("area", area.rawValue)
        line.add("name", name)
        line.add("state", state.rawValue)
        line.add("required", isRequired)
        line.add("detail", detail)
        line.add("hint", hint)
        return line.text
    }
}
