import Console
import Projects
import TestSupport
import Testing

@testable import tidewire

/// Tests that the questions which a hub accepts match the options of the commands.
@Suite(.within(minutes: 1)) struct AskedCommandsTests {
    private static var commands: [String: any Command] {
        let all = allCommands + allCommands.flatMap { $0.name == "log" ? $0.subcommands : [] }
        return Dictionary(all.map { ($0.name, $0) }) { one, _ in one }
    }

    @Test(arguments: LogQuestion.commands.keys.sorted())
    func `each question is a command with these operands, and can be asked by it`(name: String) throws {
        let command = try #require(Self.commands[name])
        let wanted = LogQuestion.commands[name]?.operands ?? []
        if name != "bundle" {
            let operands = command.operands.map { $0.name.lowercased() + ($0.count == .any ? "…" : "") }
            #expect(wanted.count == operands.count, "\(operands)")
        }
        #expect(command.options.contains(.server) && command.options.contains(.certificates))
    }

    @Test func `each option that may be asked is one of a command that may be`() {
        let known = Set(LogQuestion.commands.keys.flatMap { Self.commands[$0]?.options.map(\.name) ?? [] })
        let options = Set(LogQuestion.options.keys)
        #expect(options.subtracting(known).isEmpty)
        let files = Set(
            LogQuestion.commands.keys.flatMap { Self.commands[$0]?.allOptions ?? [] }
                .filter { ["FILE", "DIR"].contains($0.valueName) }.map(\.name))
        #expect(options.isDisjoint(with: files), "no file of the hub's machine is named from afar")
    }
}
