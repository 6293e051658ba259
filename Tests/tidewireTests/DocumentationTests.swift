import Settings
import TestSupport
import Testing

@testable import Console
@testable import tidewire

/// Tests of man pages and completions for every command. The program makes both from the commands' own declarations.
@Suite(.within(minutes: 5)) struct DocumentationTests {
    private static var all: [(path: [String], command: any Command)] { below(allCommands, []) }

    private static func below(_ commands: [any Command], _ path: [String]) -> [(path: [String], command: any Command)] {
        commands.flatMap { command -> [(path: [String], command: any Command)] in
            let own = path + [command.name]
            return [(own, command)] + below(command.subcommands, own)
        }
    }

    /// Commands that this program implements itself.
    private static var own: [(path: [String], command: any Command)] { all.filter { $0.command.otherProgram == nil } }

    private func ask(_ words: [String]) async -> Run { await run(words, commands: allCommands) }

    @Test func `lists every command for who makes a page of each`() async {
        let listed = await ask(["--commands"]).output.split(separator: "\n").map(String.init)
        #expect(listed == Self.all.map { $0.path.joined(separator: " ") })
        #expect(listed.contains("log verify"))
    }

    @Test func `a man page has every option, operand and exit code of its command`() async {
        for (path, command) in Self.own {
            let page = await ask(path + ["--man"]).output
            let lines = Set(page.split(separator: "\n").map(String.init))
            #expect(page.hasPrefix(".TH \"TIDEWIRE-\(path.joined(separator: "-").uppercased())\" 1"))
            for option in command.allOptions {
                #expect(lines.contains("\\fB\(Roff.escaped(option.synopsis))\\fR"), "\(path) \(option.name)")
                #expect(lines.contains(Roff.escaped(option.help)), "\(path) \(option.name)")
            }
            for operand in command.operands { #expect(lines.contains("\\fB\(Roff.escaped(operand.name))\\fR")) }
            for code in command.exitCodes { #expect(lines.contains(Roff.escaped(code.meaning)), "\(path)") }
        }
    }

    @Test func `no line of a man page is taken for a request by mistake`() async {
        let requests = ["TH", "SH", "PP", "TP", "RS", "RE", "nf", "fi"]
        for (path, _) in Self.own {
            for line in await ask(path + ["--man"]).output.split(separator: "\n") where line.hasPrefix(".") {
                #expect(requests.contains { line.dropFirst().hasPrefix($0) }, "\(path): \(line)")
            }
        }
        #expect(Roff.escaped(".profile") == "\\&.profile")
        #expect(Roff.escaped("a\\b 'c' -d") == "a\\eb \\(aqc\\(aq \\-d")
    }

    @Test func `the page of the configuration has every setting`() async {
        let page = await ask(["--man", "tidewire.conf"]).output
        #expect(page.hasPrefix(".TH \"TIDEWIRE.CONF\" 5"))
        for setting in Setting.all {
            #expect(page.contains("\\fB\(setting.name)\\fR\n\(Roff.escaped(setting.summary))"), "\(setting.name)")
        }
        #expect(await ask(["--man"]).output.contains("\\fBdoctor\\fR"))
    }

    @Test func `completes every command and every option`() async {
        for (path, command) in Self.all {
            #expect(await ask(["--complete"] + path).output.hasPrefix(path.last ?? "-"), "\(path)")
            guard command.subcommands.isEmpty, command.otherProgram == nil else { continue }
            let offered = await ask(["--complete"] + path + ["--"]).output.split(separator: "\n")
            let words = offered.map { String($0.prefix { $0 != "\t" }) }
            #expect(words == command.allOptions.map { "--" + $0.name }, "\(path)")
        }
    }

    @Test(arguments: [
        (["ser"], ["serve"]),
        (["help", "log", "ver"], ["verify"]), (["log", ""], LogCommand().subcommands.map(\.name)),
        (["serve", "--config", ""], [":files"]), (["serve", "--data-dir", ""], [":directories"]),
        (["serve", "--log-format", ""], ["text", "json"]), (["serve", "--log-format", "=", "j"], ["json"]),
        (["serve", "--log-format="], ["--log-format=text", "--log-format=json"]),
        (["serve", "--json", "--no-such"], []), (["nonsense", ""], []), (["completions", "z"], ["zsh"]),
    ])
    func `offers what may follow`(words: [String], expected: [String]) async {
        let offered = await ask(["--complete"] + words).output.split(separator: "\n").map(String.init)
        #expect(offered.count == expected.count)
        for (line, begin) in zip(offered, expected) { #expect(line == begin || line.hasPrefix(begin + "\t")) }
    }

    @Test func `another program answers for its own commands`() {
        #expect(
            Completion.answer(["bench", "ver"], among: allCommands)
                == .other(program: "tidewire-bench", words: ["ver"]))
    }

    @Test func `there are completions for three shells`() async {
        for shell in Shell.allCases {
            #expect(await ask(["completions", shell.rawValue]).output.contains("--complete"))
        }
        #expect(await ask(["completions", "csh"]).exitCode == .usage)
    }
}
