import Console
import Embedded
import Postgres
import Settings

/// Command `tidewire db apply`: creates the roles, functions and publications that the hub needs in a database.
struct DatabaseApplyCommand: Command {
    let name = "apply"
    let summary = "Create in the database what the hub needs and what is missing."
    let discussion = """
        First shows what each file of sql/ would create or change, and asks. It finds that out by applying the files \
        in a transaction that is rolled back. Then it applies each file in a transaction of its own. Existing objects \
        keep their definition, owner and rights; a second run changes nothing.

        If Supabase's Realtime made the schema realtime, the command leaves that schema alone as a whole. It then adds \
        only the hub's own functions in schema tidewire, its two roles, and the publication for messages.

        Log in as a superuser, or as a role that may create roles, owns the database and is a member of the owner of \
        realtime.messages. From PostgreSQL 16 on the role also needs anon, authenticated and service_role WITH ADMIN \
        OPTION, if another role created them. If the role lacks a right, a warning shows the statement that a \
        superuser has to run. The hub's own login does not have enough rights.

        Without --yes the command asks on a terminal. Without a terminal it shows the plan and ends with status 2. With \
        --yes it prints only what it applied.

        JSON. One object a file with kind ("plan", then "applied"), file, made, changed, warnings (each with message \
        and hint) and error.
        """
    let options: [Option] = [.yes, .definitions, .actors, .json]
    let optionGroups: [OptionGroup] = [.configuration(of: [Setting(\.databaseURL)])]
    let examples = [
        Example(
            "tidewire db apply --database-url postgresql://postgres@db/app", "Show what would be created, and ask:"),
        Example("tidewire db apply --yes --json | jq 'select(.kind == \"applied\").made[]'", "In a script:"),
    ]
    let exitCodes: [ExitCode] = [.notFound, .unreachable]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        let connection = try DatabaseAccess.connect(arguments.configuration(terminal), "db apply")
        let installation = Installation(connection)
        let files =
            SQLFile.foundation + (arguments.has(.definitions) ? SQLFile.extras : [])
            + (arguments.has(.actors) ? SQLFile.actors : [])
        let report = InstallationReport(terminal, asJSON: arguments.has(.json))
        let plan = try DatabaseAccess.asking { try installation.plan(files) }
        let isSettled = arguments.has(.yes) && plan.allSatisfy { $0.failure == nil } && !plan.allSatisfy(\.doesNothing)
        if isSettled, !arguments.has(.json) {
            // With --yes there is no question, so the plan is not printed before its execution.
            try terminal.print("Applying to \(connection.place)")
        } else {
            try report.show(plan, of: connection.place)
        }
        if let broken = plan.first(where: { $0.failure != nil }) {
            throw CommandFailure(
                .notFound, "\(broken.file) cannot be applied: \(broken.failure?.message ?? "")",
                hint: broken.failure.map { "Nothing was applied. \(Self.hint($0))" } ?? "Nothing was applied.")
        }
        if plan.allSatisfy(\.doesNothing) {
            terminal.complain("nothing is missing; nothing was applied")
            return .ok
        }
        guard try arguments.has(.yes) || agrees(terminal) else {
            terminal.complain("nothing was applied; add --yes to apply it")
            return .usage
        }
        for file in files {
            let step = try DatabaseAccess.asking { try installation.apply(file) }
            try report.show(applied: step)
            if let failure = step.failure {
                throw CommandFailure(.notFound, "\(file.name): \(failure.message)", hint: Self.hint(failure))
            }
        }
        tellNextSteps(plan, terminal)
        return .ok
    }

    private static func hint(_ failure: PostgresError) -> String {
        let needed =
            "that is a superuser (in Supabase's stack: supabase_admin), or the login that prepared the database"
        return DatabaseAccess.hint(failure, who: needed)
    }

    /// Asks the user whether to apply the plan. Returns the answer.
    private func agrees(_ terminal: Terminal) throws -> Bool {
        try terminal.flush()
        return ["y", "yes"].contains(terminal.ask("Apply this? [y/N] ")?.lowercased())
    }

    private func tellNextSteps(_ plan: [InstallationStep], _ terminal: Terminal) {
        let roles = plan.flatMap(\.made).filter { $0.kind == "role" }.map(\.name)
        for role in ["tidewire", "tidewire_policies"] where roles.contains(role) {
            terminal.complain("role \(role) has no password yet: ALTER ROLE \(role) PASSWORD '…';")
        }
    }
}

extension Option {
    fileprivate static let yes = Option.flag("yes", "Apply it without asking.")
    fileprivate static let actors = Option.flag(
        "actors", "Also create the functions of actors/010_actors.sql, which note who makes a change.")
    fileprivate static let definitions = Option.flag(
        "ddl-messages", "Also create the event triggers of 050_ddl_messages.sql, which needs a superuser.")
}

/// Printer of the objects that `tidewire db apply` would create or has created, as text or JSON.
private struct InstallationReport {
    private let terminal: Terminal
    private let isJSON: Bool

    init(_ terminal: Terminal, asJSON: Bool) {
        self.terminal = terminal
        isJSON = asJSON
    }

    func show(_ plan: [InstallationStep], of place: String) throws {
        if isJSON { return try plan.forEach { try terminal.print(json($0, "plan")) } }
        try terminal.print("Plan for \(place)")
        for step in plan { try lines(step, making: "would create", changing: "would change") }
    }

    func show(applied step: InstallationStep) throws {
        if isJSON { return try terminal.print(json(step, "applied")) }
        try lines(step, making: "created", changing: "changed")
    }

    private func lines(_ step: InstallationStep, making: String, changing: String) throws {
        try terminal.print("\(step.file)\(step.doesNothing && step.failure == nil ? ": nothing to create" : "")")
        for object in step.made { try terminal.print("  \(making) \(ScreenText.escaped(object.description))") }
        for object in step.changed { try terminal.print("  \(changing) \(ScreenText.escaped(object.description))") }
        for warning in step.warnings {
            try terminal.print("  warning: \(ScreenText.escaped(warning.message))")
            if let hint = warning.hint { try terminal.print("    \(ScreenText.escaped(hint))") }
        }
        if let failure = step.failure {
            try terminal.print("  cannot be applied: \(ScreenText.escaped(failure.message))")
        }
    }

    private func json(_ step: InstallationStep, _ kind: String) -> String {
        let list = { (objects: [DatabaseObject]) in
            "[" + objects.map { JSONLine.quoted($0.description) }.joined(separator: ",") + "]"
        }
        var line = JSONLine()
        line.add("kind", kind)
        line.add("file", step.file)
        line.add("made", json: list(step.made))
        line.add("changed", json: list(step.changed))
        line.add(
            "warnings",
            json: "["
                + step.warnings.map { warning in
                    var line = JSONLine()
                    line.add("message", warning.message)
                    line.add("hint", warning.hint)
                    return line.text
                }.joined(separator: ",") + "]")
        line.add("error", step.failure?.message)
        return line.text
    }
}
