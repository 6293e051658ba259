import Synchronization
import System

@testable import Console
@testable import Settings
@testable import tidewire

/// Output of one run of the program, and its exit code.
struct Run {
    let exitCode: ExitCode
    let output: String
    let errors: String

    /// Output with MARK in place of each masking mark, because marks differ from run to run.
    var unmarked: String { output.replacing(/\*\*\* [0-9a-f]{8,16}/, with: "*** MARK") }
}

/// Runs the program with a screen, an environment and files that exist only in the test.
func run(
    _ words: [String], commands: [any Command] = [ConfigCommand(), VersionCommand(), SampleLogCommand()],
    width: Int? = nil, hasErrorScreen: Bool = false,
    environment: [String: String] = [:], files: [String: String] = [:], outputFailure: OutputFailure? = nil,
    answers: (() -> String?)? = nil, time: any TimeSource = KernelTime()
) async -> Run {
    let recorder = Recorder()
    let surroundings = ConfigurationSurroundings(environment: environment, isRoot: true) { path in
        files[path].map { .bytes(Array($0.utf8)) } ?? .missing
    }
    let terminal = Terminal(
        width: width, surroundings: surroundings,
        output: { (bytes) throws(OutputFailure) in
            if let outputFailure { throw outputFailure }
            recorder.output += bytes
        },
        errors: { (bytes) throws(OutputFailure) in recorder.errors += bytes },
        hasErrorScreen: hasErrorScreen, time: time, answers: answers)
    let exitCode = await Program(commands: commands).run(words, terminal)
    return Run(
        exitCode: exitCode, output: String(decoding: recorder.output, as: UTF8.self),
        errors: String(decoding: recorder.errors, as: UTF8.self))
}

/// Runs the program with the words of a command line.
func run(
    _ words: String..., environment: [String: String] = [:], files: [String: String] = [:],
    outputFailure: OutputFailure? = nil
) async -> Run {
    await run(words, environment: environment, files: files, outputFailure: outputFailure)
}

private final class Recorder {
    var output: [UInt8] = []
    var errors: [UInt8] = []
}

/// Command that has only subcommands.
struct SampleLogCommand: Command {
    let name = "log"
    let summary = "Look after the event log."
    let discussion = "Commands about the event log's files."
    let subcommands: [any Command] = [VerifyCommand(), PickyCommand()]
}

/// Command that prints its arguments.
struct VerifyCommand: Command {
    static let limit = Option.value("limit", "N", short: "n", "How many.")
    static let mask = Option.value("mask", "COLUMN", isRepeatable: true, "What to hide.")
    static let follow = Option.flag("follow", short: "f", "Go on.")
    static let all = Option.flag("all", short: "a", "Everything.")

    let name = "verify"
    let summary = "Read every checksum."
    let discussion = "Reads."
    let operands = [Operand("TABLE", .one, "Which."), Operand("KEY", .oneOrNone, "Row.")]
    let options: [Option] = [Self.limit, Self.mask, Self.follow, Self.all, .json]
    let optionGroups: [OptionGroup] = [.configuration(of: [Setting(\.dataDirectory)])]
    let exitCodes: [ExitCode] = [.damaged]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        try terminal.print("operands \(arguments.operands)")
        try terminal.print("limit \(arguments.value(of: Self.limit) ?? "-") mask \(arguments.values(of: Self.mask))")
        try terminal.print("follow \(arguments.has(Self.follow)) all \(arguments.has(Self.all))")
        try terminal.print("data_dir \(try arguments.configuration(terminal).dataDirectory)")
        return .ok
    }
}

/// Command that prints something and then fails.
struct PickyCommand: Command {
    static let limit = Option.value("limit", "N", "How many.")

    let name = "picky"
    let summary = "Fail."
    let discussion = "Fails."
    let options: [Option] = [Self.limit]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        try terminal.print("so far")
        _ = try arguments.value(of: Self.limit, as: .integer(1...10))
        throw CommandFailure(.damaged, "segment 3 is damaged", hint: "try `tidewire log verify --repair`")
    }
}

/// Clock that moves far forward with every reading, so that every command that can report progress does.
final class SlowTime: TimeSource {
    private let looks = Atomic<UInt64>(0)

    func monotonicNanoseconds() -> UInt64 { looks.add(1, ordering: .relaxed).newValue * 600_000_000 }
    func unixMicroseconds() -> Int64 { 1_800_000_000_000_000 }
}
