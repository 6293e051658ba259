import Change
import Console
import EventLog
import History
import System

/// Command `tidewire log audit`: shows who used the log or the operators' API, from the audit file.
struct LogAuditCommand: Command {
    let name = "audit"
    let summary = "Show who unmasked values of the log, who replayed what, and what operators did and read."
    let discussion = """
        A command writes a line into the audit file before it unmasks values (--unmask), replays a part of the log, or \
        forgets a row. The line has the time, the user of the operating system (and who became that user by sudo), the \
        command, and the columns, the target of the replay, or how many changes of which table were forgotten. It \
        never has values or keys of rows. A running hub also writes down what its operators do: signals, cut-off users, \
        changed projects. Such a line has the claim sub of the operator's token, and for an unmasking its reason.

        READS. What operators read by the hub's API is in a second file, audit.reads, which --reads shows: who asked \
        what, without the keys and conditions. The same read of an operator is noted once a minute. When the file is \
        full (8 MiB), it becomes audit.reads.before, and replaces the one that had that name.

        The lines are in the file audit in the log's directory. For a bundle they are in FILE.audit beside it; \
        --audit-file names another file. Each line has a checksum of itself and of the line before it, so this command \
        notices a changed or removed line, unless somebody made all later lines again. If that matters, copy the file \
        to a place where others cannot write.

        JSON. One object a line: time, action (unmask, replay, forget, read, signal, kick, unblock or project), user, \
        behalf (null if unknown), operator (sub of the token, null at a terminal), command, what, reason (null if none \
        was given); for a damaged line: line and damaged (true).

        --replayed writes a line before it shows the lines: 'tidewire replay --server' asks the hub for that.
        """
    let options: [Option] = [.replayed, .reads, .auditFile, .output, .json, .zone, .log, .project] + Option.asking
    let optionGroups: [OptionGroup] = [.dataDirectory]
    let examples = [
        Example("tidewire log audit", "Who has seen masked values?"),
        Example("tidewire log audit --reads", "Which operator has read what?"),
    ]
    let exitCodes: [ExitCode] = [.notFound, .unreachable, .damaged]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        if let code = try arguments.answer("audit", options: allOptions, terminal) { return code }
        let zone = try arguments.zone()
        let log = try arguments.value(of: .auditFile) == nil ? arguments.logDirectory(terminal) : ""
        let isOfReads = arguments.has(.reads)
        let path =
            arguments.value(of: .auditFile)
            ?? (AuditTrail.path(besideLog: log) + (isOfReads ? AuditTrail.readsSuffix : ""))
        if let what = arguments.value(of: .replayed) {
            guard what.utf8.count <= 4096 else { throw UsageError("--replayed: more than 4096 bytes") }
            try arguments.audit(.replay, what, ofLog: arguments.logDirectory(terminal), terminal)
        }
        let lines: [AuditLine]
        do throws(SystemError) {
            let former =
                isOfReads && !log.isEmpty ? try AuditTrail(file: path + AuditTrail.formerSuffix).lines() : []
            lines = former + (try AuditTrail(file: path).lines())
        } catch {
            throw CommandFailure(.unreachable, "cannot read \(path): \(error)", hint: error.advice)
        }
        var table = TableStream(
            [
                .text(zone.heading, minimumWidth: 23), .text("ACTION", minimumWidth: 6), .text("USER", minimumWidth: 8),
                .text("COMMAND", minimumWidth: 16), .text("WHAT", canBeCut: terminal.isInteractive, minimumWidth: 12),
            ], on: terminal)
        if !lines.isEmpty, !arguments.has(.json) { try terminal.print(heading: table) }
        for line in lines {
            try terminal.print(arguments.has(.json) ? line.json : table.line(line.cells(zone)))
        }
        guard !lines.isEmpty else {
            if !arguments.has(.json) {
                terminal.complain(
                    isOfReads
                        ? "\(path) has no lines: no operator has read anything by the hub's API"
                        : "\(path) has no lines: nothing was unmasked, replayed or forgotten")
            }
            return .notFound
        }
        return lines.contains { if case .damaged = $0 { true } else { false } } ? .damaged : .ok
    }
}

extension Option {
    fileprivate static let replayed = Option.value(
        "replayed", "WHAT", "First write a line that this is about to be replayed elsewhere.")
    fileprivate static let reads = Option.flag("reads", "Show what operators have read by the hub's API.")
}

extension AuditLine {
    fileprivate func cells(_ zone: DisplayZone) -> [String] {
        switch self {
        case .note(let note):
            let name = note.subject.isEmpty ? note.user : note.subject
            let user = note.behalf.isEmpty ? name : "\(name) (\(note.behalf))"
            let what = note.reason.isEmpty ? note.what : "\(note.what) (because: \(note.reason))"
            return [zone.text(note.time), note.action.rawValue, user, note.command, what]
        case .damaged(let line):
            return ["-", "damaged", "-", "-", "line \(line) was changed, or a line before it was removed"]
        }
    }

    fileprivate var json: String {
        var line = JSONLine()
        switch self {
        case .note(let note):
            line.add("time", TimeText.json(note.time))
            line.add("action", note.action.rawValue)
            line.add("user", note.user)
            line.add("behalf", note.behalf.isEmpty ? nil : note.behalf)
            line.add("operator", note.subject.isEmpty ? nil : note.subject)
            line.add("command", note.command)
            line.add("what", note.what)
            line.add("reason", note.reason.isEmpty ? nil : note.reason)
        case .damaged(let number):
            line.add("line", number)
            line.add("damaged", true)
        }
        return line.text
    }
}
