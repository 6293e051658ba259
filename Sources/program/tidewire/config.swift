import Console
import Settings

/// Command `tidewire config`: shows the effective settings and the source of each value.
struct ConfigCommand: Command {
    let name = "config"
    let summary = "Print the effective configuration, or a sample file to start from."
    let discussion = """
        Prints every setting with its effective value and the source of the value: a flag, the environment, a file, or \
        none (default). A * marks values that differ from the default. Secrets are not shown.

        With a NAME, prints only the named settings. The command fails if any setting, printed or not, is unknown or \
        malformed.
        """
    let operands = [Operand("NAME", .any, "A setting's name, such as data_dir.")]
    let options: [Option] = [.output, .json, .defaults, .example]
    let optionGroups: [OptionGroup] = [.configuration]
    let examples = [
        Example("tidewire config", "Which values would a hub use if it started here now?"),
        Example(
            "tidewire config --json | jq -r 'select(.default | not) | .name'",
            "The names of the settings that differ from the default:"),
        Example("tidewire config --example > tidewire.conf", "A file to start from:"),
    ]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        if arguments.has(.example) {
            try terminal.write(Array(ConfigurationSample.text(surroundings: terminal.surroundings).utf8))
            return .ok
        }
        let configuration = try configuration(arguments, terminal)
        let rows = try select(arguments.operands, from: configuration.effective)
        if arguments.has(.json) {
            for row in rows { try terminal.print(row.json) }
        } else {
            for line in table(rows).lines(on: terminal) { try terminal.print(line) }
            if arguments.operands.isEmpty { try tellWithoutEffect(configuration.variablesWithoutEffect, terminal) }
        }
        return .ok
    }

    private func configuration(_ arguments: Arguments, _ terminal: Terminal) throws -> Configuration {
        guard arguments.has(.defaults) else { return try arguments.configuration(terminal) }
        return try Configuration.load(surroundings: terminal.surroundings.withoutSettings)
    }

    /// Prints the environment variables of Supabase's Realtime that are set but that this hub ignores.
    private func tellWithoutEffect(_ names: [String], _ terminal: Terminal) throws {
        guard !names.isEmpty else { return }
        try terminal.remark("")
        try terminal.remark(
            "Environment variables of Supabase's Realtime that are set, but have no effect on this hub:")
        for name in names { try terminal.remark("   \(name)") }
    }

    /// Returns the rows of the named settings; all rows if no setting is named. Throws for an unknown name.
    private func select(_ names: [String], from rows: [Configuration.Effective]) throws -> [Configuration.Effective] {
        for name in names where Setting.named(name) == nil {
            let hint = NearestName.to(name, among: Setting.all.map(\.name)).map { "; did you mean \($0)?" }
            throw UsageError("there is no setting \(name)\(hint ?? "")")
        }
        return names.isEmpty ? rows : rows.filter { names.contains($0.setting.name) }
    }

    private func table(_ rows: [Configuration.Effective]) -> Table {
        var table = Table([.text(" "), .text("NAME"), .text("VALUE", canBeCut: true), .text("SOURCE", canBeCut: true)])
        for row in rows {
            table.add([row.isDefault ? "" : "*", row.setting.name, row.shown, row.source.description])
        }
        return table
    }
}

extension Option {
    fileprivate static let defaults = Option.flag("defaults", "Print the defaults, and ignore what is set.")
    fileprivate static let example = Option.flag("example", "Print a commented tidewire.conf with every setting.")
}

extension Configuration.Effective {
    fileprivate var json: String {
        var line = JSONLine()
        line.add("name", setting.name)
        line.add("value", shown.isEmpty ? nil : shown)
        line.add("source", source.description)
        line.add("default", isDefault)
        line.add("group", setting.group.rawValue)
        line.add("summary", setting.summary)
        return line.text
    }
}
