import Calling
import Console
import Diagnostics
import Settings

/// Command `tidewire signal`.
struct SignalCommand: Command {
    let name = "signal"
    let summary = "Tell a running hub something: a mark in its log, a new segment, a pause, a table's rows."
    let discussion = """
        These commands ask the operators' API of a hub (--server URL). What they do stands in its log, between the changes \
        before and after it, where 'tidewire tail' shows it.
        """
    let subcommands: [any Command] = [
        SignalMarkCommand(), SignalRotateCommand(), SignalPauseCommand(), SignalResumeCommand(),
        SignalBackfillCommand(),
    ]
}

extension Option {
    static let because = Option.value(
        "because", "TEXT", "Why: it stands in the log beside it, for whoever asks later.")
    fileprivate static let pauseLength = Option.value(
        "for", "DURATION", "How long at most, such as 90s or 1h; 10min unless said otherwise, a day at most.")
    static let signal: [Option] = Option.asking + [.project, .json]
}

/// Command `tidewire signal mark`.
struct SignalMarkCommand: Command {
    let name = "mark"
    let summary = "Write a line into the log: a deploy, the begin of a test, what somebody saw."
    let discussion = """
        The text is of at most 1,024 bytes, is shown to everybody who reads the log, and is never masked. The log does not \
        depend on it: replays, exports of changes and clients never see it.

        JSON. One object: action, time, written (the disk has it), offset (of the change that comes next).
        """
    let operands = [Operand("TEXT", .one, "What is to be found again.")]
    let options: [Option] = Option.signal
    let examples = [
        Example(
            "tidewire signal mark \"api 4.12 deployed\" --server https://hub.example.com",
            "So that tomorrow's reader knows what came in between:")
    ]
    let exitCodes: [ExitCode] = [.notFound, .unreachable]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        try HubSignal(arguments, terminal).send("mark", text: arguments.operands[0]) { answer in
            "marked" + answer.place
        }
    }
}

/// Command `tidewire signal rotate`.
struct SignalRotateCommand: Command {
    let name = "rotate"
    let summary = "End the segment that is being written, and begin the next."
    let discussion = """
        What is in the log now lies in files then that nobody writes any more: a copy of them is a whole backup, and 'tidewire log \
        forget' reaches it. Nothing else changes.

        JSON. One object: action, time, written (the disk has it), offset (of the change that comes next).
        """
    let options: [Option] = Option.signal + [.because]
    let examples = [
        Example("tidewire signal rotate --server https://hub.example.com", "Before the log's directory is copied:")
    ]
    let exitCodes: [ExitCode] = [.notFound, .unreachable]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        try HubSignal(arguments, terminal).send("rotate", text: arguments.value(of: .because)) { answer in
            "the segment has ended" + answer.place
        }
    }
}

/// Command `tidewire signal pause`.
struct SignalPauseCommand: Command {
    let name = "pause"
    let summary = "Read nothing from the database for a while: its changes come later."
    let discussion = """
        For a migration or a restore that the hub is to keep out of. Clients stay connected; broadcasts and presence go on. \
        Changes that are committed meanwhile stay in the database's WAL, all of it, until the pause ends: see that there is \
        room (tidewire slot status), and that max_slot_wal_keep_size allows it, or they are lost, which the log then says. \
        It ends by itself, by 'tidewire signal resume', with a restart of the hub, or where the slot comes near its limits. /ready is not ready meanwhile.

        Again while it is paused: from now on for that long.

        JSON. One object: action, time, until, written (the disk has it), offset (of the change that comes next).
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

/// Command `tidewire signal resume`.
struct SignalResumeCommand: Command {
    let name = "resume"
    let summary = "End a pause: the hub reads on where it stopped."
    let discussion = """
        JSON. One object: action, time, written (the disk has it), offset (of the change that comes next).
        """
    let options: [Option] = Option.signal + [.because]
    let examples = [Example("tidewire signal resume --server https://hub.example.com", "The migration is done:")]
    let exitCodes: [ExitCode] = [.notFound, .unreachable]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        try HubSignal(arguments, terminal).send("resume", text: arguments.value(of: .because)) { answer in
            "the hub reads on" + answer.place
        }
    }
}

/// A signal to the hub that the arguments name.
struct HubSignal {
    struct Answer {
        let text: String
        let members: [String: String]

        /// Description of the signal's place in the log.
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
            throw UsageError("--server URL is missing: which hub is told?")
        }
        self.hub = hub
        self.arguments = arguments
        self.terminal = terminal
    }

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

    /// - Parameter tries: the number of attempts. A hub that is temporarily unable says so only after some seconds.
    func answer(_ name: String, _ body: [UInt8], trying tries: Int = 1) throws -> Answer {
        let answer = try hub.post("signal/\(name)", body, trying: tries)
        guard let text = HubJSON(answer.body)?.members["data"], let data = HubJSON(Array(text.utf8)) else {
            throw CommandFailure(.unreachable, "the hub's answer cannot be read", hint: "Is it of another version?")
        }
        return Answer(text: data.text, members: data.members)
    }
}
