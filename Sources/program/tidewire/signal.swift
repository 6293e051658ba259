import Calling
import Console
import Diagnostics
import Settings

/// Command `tidewire signal`: the group of commands that act on a running hub and leave a line in its log.
struct SignalCommand: Command {
    let name = "signal"
    let summary = "Send a command to a running hub: mark, rotate, pause, resume or backfill."
    let discussion = """
        These commands use the operators' API of a hub (--server URL). Each one leaves a line in the hub's log, \
        between the changes before and after it, and 'tidewire tail' shows that line.
        """
    let subcommands: [any Command] = [
        SignalMarkCommand(), SignalRotateCommand(), SignalPauseCommand(), SignalResumeCommand(),
        SignalBackfillCommand(),
    ]
}

extension Option {
    static let because = Option.value(
        "because", "TEXT", "The reason, which is written into the log too.")
    fileprivate static let pauseLength = Option.value(
        "for", "DURATION", "The longest time, such as 90s or 1h; default 10min, at most a day.")
    static let signal: [Option] = Option.asking + [.project, .json]
}

/// Command `tidewire signal mark`: writes a line of text into a running hub's log.
struct SignalMarkCommand: Command {
    let name = "mark"
    let summary = "Write a line into the log, for example about a deploy, the begin of a test, or what somebody saw."
    let discussion = """
        The text has at most 1,024 bytes. Everybody who reads the log sees it, and it is never masked. Replays, \
        exports of changes and clients never see it.

        JSON. One object: action, time, written (true: it is on the disk), offset (of the next change).
        """
    let operands = [Operand("TEXT", .one, "The text of the line.")]
    let options: [Option] = Option.signal
    let examples = [
        Example(
            "tidewire signal mark \"api 4.12 deployed\" --server https://hub.example.com",
            "So that later readers see which changes came after the deploy:")
    ]
    let exitCodes: [ExitCode] = [.notFound, .unreachable]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        try HubSignal(arguments, terminal).send("mark", text: arguments.operands[0]) { answer in
            "marked" + answer.place
        }
    }
}

/// Command `tidewire signal rotate`: lets a running hub begin a new segment of its log.
struct SignalRotateCommand: Command {
    let name = "rotate"
    let summary = "Complete the current segment of the log, and begin the next."
    let discussion = """
        Everything that is in the log now is then in files that the hub no longer writes: a copy of them is a complete \
        backup, and 'tidewire log forget' can change them. Nothing else changes.

        JSON. One object: action, time, written (true: it is on the disk), offset (of the next change).
        """
    let options: [Option] = Option.signal + [.because]
    let examples = [
        Example("tidewire signal rotate --server https://hub.example.com", "Before you copy the log's directory:")
    ]
    let exitCodes: [ExitCode] = [.notFound, .unreachable]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        try HubSignal(arguments, terminal).send("rotate", text: arguments.value(of: .because)) { answer in
            "the segment has ended" + answer.place
        }
    }
}

/// Command `tidewire signal pause`: lets a running hub stop reading from its database for a while.
struct SignalPauseCommand: Command {
    let name = "pause"
    let summary = "Stop reading from the database for a while; clients receive the changes afterwards."
    let discussion = """
        For a migration or a restore during which the hub should not read. Clients stay connected; broadcasts and \
        presence continue. PostgreSQL keeps the WAL of all changes that are committed meanwhile until the pause ends. \
        Make sure that the disk has room (tidewire slot status) and that max_slot_wal_keep_size allows it. Otherwise \
        the changes are lost, and the log records a gap. The pause ends after its time, by 'tidewire signal resume', \
        by a restart of the hub, or when the slot comes near its limits. /ready reports "not ready" during the pause.

        If the hub is already paused, the new time counts from now.

        JSON. One object: action, time, until, written (true: it is on the disk), offset (of the next change).
        """
    let options: [Option] = Option.signal + [.pauseLength, .because]
    let examples = [
        Example(
            "tidewire signal pause --for 30min --because \"migration 42\" --server https://hub.example.com",
            "Before a migration that rewrites a large table:")
    ]
    let exitCodes: [ExitCode] = [.notFound, .unreachable]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        var seconds = Limits.usualPause.wholeSeconds
        if case .duration(let wanted) = try arguments.value(
            of: .pauseLength, as: .duration(Duration.seconds(1)...Limits.maximumPause))
        {
            seconds = wanted.wholeSeconds
        }
        return try HubSignal(arguments, terminal).send(
            "pause", text: arguments.value(of: .because), [("seconds", String(seconds))]
        ) { answer in
            "paused until \(answer.members["until"] ?? "?")" + answer.place
        }
    }
}

/// Command `tidewire signal resume`: ends a pause of a running hub.
struct SignalResumeCommand: Command {
    let name = "resume"
    let summary = "End a pause: the hub continues where it stopped."
    let discussion = """
        JSON. One object: action, time, written (true: it is on the disk), offset (of the next change).
        """
    let options: [Option] = Option.signal + [.because]
    let examples = [Example("tidewire signal resume --server https://hub.example.com", "The migration is done:")]
    let exitCodes: [ExitCode] = [.notFound, .unreachable]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        try HubSignal(arguments, terminal).send("resume", text: arguments.value(of: .because)) { answer in
            "the hub continues to read" + answer.place
        }
    }
}

/// Request of `tidewire signal` to the running hub that `--server` names.
struct HubSignal {
    /// Answer of the hub to a signal: its JSON, and the members of that JSON.
    struct Answer {
        let text: String
        let members: [String: String]

        /// Words for the position of the signal's line in the log, such as ` before @4711`.
        var place: String {
            let offset = members["offset"].map { " before @\($0)" } ?? ""
            return members["written"] == "false" ? "; the log does not have it yet" : offset
        }
    }

    private let hub: AskedHub
    private let arguments: Arguments
    private let terminal: Terminal

    init(_ arguments: Arguments, _ terminal: Terminal) throws {
        guard let hub = try AskedHub(arguments, terminal) else {
            throw UsageError("--server URL is missing: name the hub")
        }
        self.hub = hub
        self.arguments = arguments
        self.terminal = terminal
    }

    /// Sends a signal and prints the answer.
    /// - Parameter words: the sentence to print about an answer, unless `--json` is given.
    func send(
        _ name: String, text: String?, _ members: [(String, String)] = [], _ words: (Answer) -> String
    ) throws -> ExitCode {
        var body = JSONLine()
        if let text { body.add("text", text) }
        for (name, value) in members { body.add(name, json: value) }
        let answer = try answer(name, Array(body.text.utf8))
        try terminal.print(arguments.has(.json) ? answer.text : words(answer))
        return .ok
    }

    /// Posts a signal to the hub and returns the answer.
    /// - Parameter tries: the maximum number of attempts while the hub answers that it cannot do this now (503).
    func answer(_ name: String, _ body: [UInt8], trying tries: Int = 1) throws -> Answer {
        let answer = try hub.post("signal/\(name)", body, trying: tries)
        guard let text = HubJSON(answer.body)?.members["data"], let data = HubJSON(Array(text.utf8)) else {
            throw CommandFailure(.unreachable, "the hub's answer cannot be read", hint: "Is it of another version?")
        }
        return Answer(text: data.text, members: data.members)
    }
}
