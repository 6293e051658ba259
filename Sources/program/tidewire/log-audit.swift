import Change
import Console
import History
import System

/// Command `tidewire log audit`.
struct LogAuditCommand: Command {
    let name = "audit"
    let summary = "Show who saw masked values of the log, who replayed what, and what was forgotten."
    let discussion = """
        Whoever gives --unmask to a command, replays a part of the log or has a row forgotten is written down first: when, who \
        (of the operating system, and who became that by sudo), with which command, which columns, what was replayed where, \
        how many changes of which table were forgotten. Values never are, keys of rows neither.

        The lines stand in the file audit in the log's directory (for a bundle: in FILE.audit beside it; or where --audit-file \
        says). Each line has a checksum of itself and says which one comes before it: one that is changed or removed is noticed, \
        as long as not all that follow are made anew; send the file where others cannot write if that matters.

        JSON. One object a line: time, action (unmask, replay or forget), user, behalf (null where nobody is known), command, what; for a \
        damaged line line and damaged (true).

        --replayed writes a line, before it shows them: 'tidewire replay --server' asks the hub for it.
        """
    let options: [Option] = [.replayed, .auditFile, .output, .json, .zone, .log, .project] + Option.asking
    let optionGroups: [OptionGroup] = [.dataDirectory]
    let examples = [Example("tidewire log audit", "Who looked?")]
    let exitCodes: [ExitCode] = [.notFound, .unreachable, .damaged]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        if let code = try arguments.answer("audit", options: allOptions, terminal) { return code }
        let zone = try arguments.zone()
        let path = try arguments.value(of: .auditFile) ?? AuditTrail.path(besideLog: arguments.logDirectory(terminal))
        if let what = arguments.value(of: .replayed) {
            guard what.utf8.count <= 4096 else { throw UsageError("--replayed: more than 4096 bytes") }
            try arguments.audit(.replay, what, ofLog: arguments.logDirectory(terminal), terminal)
        }
        let lines: [AuditLine]
        do throws(SystemError) {
            lines = try AuditTrail(file: path).lines()
        } catch {
            throw CommandFailure(.unreachable, "cannot read \(path): \(error)")
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
                terminal.complain("nothing was unmasked, replayed or forgotten by what \(path) says")
            }
            return .notFound
        }
        return lines.contains { if case .damaged = $0 { true } else { false } } ? .damaged : .ok
    }
}

extension Option {
    fileprivate static let replayed = Option.value(
        "replayed", "WHAT", "Write down first that this is about to be replayed elsewhere.")
}

extension AuditLine {
    fileprivate func cells(_ zone: DisplayZone) -> [String] {
        switch self {
        case .note(let note):
            let user = note.behalf.isEmpty ? note.user : "\(note.user) (\(note.behalf))"
            return [zone.text(note.time), note.action.rawValue, user, note.command, note.what]
        case .damaged(let line):
            return ["-", "damaged", "-", "-", "line \(line) is not what was written, or one before it is gone"]
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
            line.add("command", note.command)
            line.add("what", note.what)
        case .damaged(let number):
            line.add("line", number)
            line.add("damaged", true)
        }
        return line.text
    }
}
