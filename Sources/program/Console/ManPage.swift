import Settings

/// Generator of pages for man(1) from the declarations that `--help` uses.
public enum ManPage {
    private static let version = "\(Product.name) \(Product.version)"

    /// Returns the page of a command, such as `tidewire-log-verify(1)`.
    public static func of(_ command: any Command, path: [String]) -> String {
        var page = Roff(title: name(path), section: 1, version: version)
        page.heading("name")
        page.plain("\(name(path)) - \(withoutPeriod(command.summary))")
        page.heading("synopsis")
        let words =
            command.subcommands.isEmpty ? ["[OPTION...]"] + command.operands.map(\.synopsis) : ["COMMAND [ARGUMENT...]"]
        page.bold(([Product.name] + path).joined(separator: " "), then: words.joined(separator: " "))
        page.heading("description")
        page.paragraphs(command.discussion)
        page.list("commands", command.subcommands.map { ($0.name, $0.summary) })
        page.list("operands", command.operands.map { ($0.name, $0.help) })
        page.list("options", (command.options + [.help]).map { ($0.synopsis, $0.help) })
        for group in command.optionGroups {
            page.heading(group.title)
            if let note = group.note { page.paragraphs(note) }
            for option in group.options { page.item(option.synopsis, option.help) }
        }
        if !command.examples.isEmpty {
            page.heading("examples")
            page.paragraphs(
                command.examples.map { "\($0.explanation)\n\n    \($0.command)" }.joined(separator: "\n\n"))
        }
        let codes = Set(command.exitCodes + [.ok, .usage]).sorted { $0.rawValue < $1.rawValue }
        page.list("exit status", codes.map { (String($0.rawValue), $0.meaning) })
        page.seeAlso(
            [name(Array(path.dropLast()))] + command.subcommands.map { name(path + [$0.name]) }, isConfigured: true)
        return page.text
    }

    /// Returns the page `tidewire(1)`.
    public static func overview(_ commands: [any Command]) -> String {
        var page = Roff(title: Product.name, section: 1, version: version)
        page.heading("name")
        page.plain("\(Product.name) - an event-sourced realtime hub for PostgreSQL")
        page.heading("synopsis")
        page.bold(Product.name, then: "COMMAND [ARGUMENT...]")
        page.heading("description")
        page.paragraphs(
            """
            Follows a PostgreSQL database by logical replication, keeps every change in an append-only event log, and sends \
            changes to Supabase clients over WebSocket: to each the rows it may see, with the filters it asked for.

            Each command has a page of its own, such as \(name(["serve"]))(1), which `tidewire help COMMAND` shows as well.
            """)
        page.list("commands", commands.map { ($0.name, $0.summary) })
        page.list(
            "files",
            [
                (
                    "/etc/tidewire/tidewire.conf",
                    "The configuration, unless --config or TIDEWIRE_CONFIG names another file."
                ),
                ("/var/lib/tidewire", "The event log, where root or the service runs the hub."),
            ])
        page.list("exit status", ExitCode.allCases.map { (String($0.rawValue), $0.meaning) })
        page.seeAlso(commands.map { name([$0.name]) }, isConfigured: true)
        return page.text
    }

    /// Page `tidewire.conf(5)`.
    public static var configuration: String {
        var page = Roff(title: "tidewire.conf", section: 5, version: version)
        page.heading("name")
        page.plain("tidewire.conf - configuration of the realtime hub for PostgreSQL")
        page.heading("description")
        page.paragraphs(
            """
            One setting a line, in the syntax of postgresql.conf:

                listen = '0.0.0.0:4000'
                include '/etc/tidewire/more.conf'
                include_if_exists '/etc/tidewire/perhaps.conf'

            A value with spaces or signs stands in single quotes; what follows a # is a remark. Of several lines with the same \
            name the last one counts, and an unknown name is an error.

            The environment wins over the file (data_dir is TIDEWIRE_DATA_DIR there), and flags (--data-dir) win over both. \
            `tidewire config` shows what came of all three.
            """)
        for group in Setting.Group.allCases {
            page.heading(group.rawValue)
            for setting in Setting.all where setting.group == group {
                let usual = setting.defaultText.map { " Default: \($0)." } ?? ""
                page.item(setting.name, "\(setting.summary)\(usual) Expects \(setting.type.allowed).")
            }
        }
        page.seeAlso([Product.name, name(["config"]), name(["serve"])], isConfigured: false)
        return page.text
    }

    public static func name(_ path: [String]) -> String {
        ([Product.name] + path).joined(separator: "-")
    }

    private static func withoutPeriod(_ sentence: String) -> String {
        sentence.hasSuffix(".") ? String(sentence.dropLast()) : sentence
    }
}

extension Roff {
    fileprivate mutating func list(_ title: String, _ items: [(term: String, meaning: String)]) {
        guard !items.isEmpty else { return }
        heading(title)
        for entry in items { item(entry.term, entry.meaning) }
    }

    fileprivate mutating func seeAlso(_ pages: [String], isConfigured: Bool) {
        heading("see also")
        plain((pages.map { $0 + "(1)" } + (isConfigured ? ["tidewire.conf(5)"] : [])).joined(separator: ", "))
    }
}
