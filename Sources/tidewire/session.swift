import Bytes
import Change
import Console
import EventLog
import History

/// `tidewire session`
struct SessionCommand: Command {
    let name = "session"
    let summary = "Show what happened to one client: joins, losses, tokens, ends."
    let discussion = """
        Without an ID: the clients that the ledger has in the window, one line each. With one (as 'tidewire who' prints it): \
        everything that is written down of that socket, in order: joined, with what it asked for and from where in the log \
        on; stands, where that is repeated for a log that lets go of the past; renewed, where its token became another; told, that something was missing; left, with how far it had come (OFFSET) \
        and how much its client had certainly got (GOT).

        Which claims are kept says the setting ledger_claims; tokens never are. Claims are masked by their names, and so are the \
        values that filters compare masked columns with; in rules, claims are the table tidewire.claims.

        \(SelectorHelp.text)

        JSON. One object a note: event, time, session, channel, place (where in the log it stands), offset, received, user, \
        role, topic, bindings, claims, other_claims, reason.
        """
    let operands = [Operand("ID", .any, "A socket, as 'tidewire who' names it; what follows a / is not looked at.")]
    let options: [Option] = [.from, .to, .output, .json, .zone, .log, .project] + Option.masking + Option.asking
    let optionGroups: [OptionGroup] = [.dataDirectory]
    let examples = [
        Example("tidewire session --from -15m", "Who came and went?"),
        Example("tidewire session 0189a3f2c4d5e600", "What happened to this one?"),
    ]
    let exitCodes = LogAccess.exitCodes

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        if let code = try arguments.answer("session", options: allOptions, terminal) { return code }
        guard let text = arguments.operands.first else { return try LedgerNotes.print(nil, nil, arguments, terminal) }
        guard arguments.operands.count == 1, let id = UInt64(text.prefix { $0 != "/" }, radix: 16) else {
            throw UsageError("ID \(text): expected 16 hexadecimal digits, as 'tidewire who' prints them")
        }
        return try LedgerNotes.print(id, nil, arguments, terminal)
    }
}

/// `tidewire user`
struct UserCommand: Command {
    let name = "user"
    let summary = "Show what happened to all clients of one user."
    let discussion = """
        Everything that is written down of the clients of one user, in order; see 'tidewire session'. What of it was sent, \
        'tidewire who' says of each change.

        \(SelectorHelp.text)

        JSON. As 'tidewire session --json'.
        """
    let operands = [Operand("SUB", .one, "The user's id: the claim sub.")]
    let options: [Option] = [.from, .to, .output, .json, .zone, .log, .project] + Option.masking + Option.asking
    let optionGroups: [OptionGroup] = [.dataDirectory]
    let examples = [
        Example("tidewire user 7f3c2b1e-0c5d-4f6e-8a52-000000000001 --from -2h", "Was she there?")
    ]
    let exitCodes = LogAccess.exitCodes

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        if let code = try arguments.answer("user", options: allOptions, terminal) { return code }
        return try LedgerNotes.print(nil, arguments.operands[0], arguments, terminal)
    }
}

private enum LedgerNotes {
    static func print(
        _ session: UInt64?, _ user: String?, _ arguments: Arguments, _ terminal: Terminal
    ) throws -> ExitCode {
        let zone = try arguments.zone()
        let window = try arguments.query(zone)
        var query = LedgerQuery(from: window.from, to: window.to)
        query.session = session
        query.subject = user
        return try LogAccess.explained {
            let log = try arguments.historyLog(terminal)
            var count = 0
            var table = TableStream(
                [
                    .text(zone.heading, minimumWidth: 23), .text("SESSION", minimumWidth: 18), .text("EVENT"),
                    .number("OFFSET", minimumWidth: 8), .number("GOT", minimumWidth: 8),
                    .text("USER", minimumWidth: 8), .text("WHAT", canBeCut: terminal.isInteractive, minimumWidth: 20),
                ], on: terminal)
            try log.ledger(query) { recorded in
                // Of no client, and there twice a minute.
                if recorded.note.event == .reached || recorded.note.event == .unrecorded { return }
                if arguments.has(.json) {
                    try terminal.print(recorded.json)
                } else {
                    if count == 0 { try terminal.print(heading: table) }
                    try terminal.print(table.line(recorded.cells(zone)))
                }
                count += 1
            }
            if count > 0 { return .ok }
            if !arguments.has(.json) {
                let oldest = try log.segments()[0]
                terminal.complain(
                    "the ledger has nothing of that; the log holds \(zone.text(oldest.begin)) … now (setting: ledger)")
            }
            return .notFound
        }
    }
}

extension RecordedNote {
    fileprivate func cells(_ zone: DisplayZone) -> [String] {
        let hasOffset = [.joined, .renewed, .told, .left, .stands].contains(note.event)
        return [
            zone.text(note.time), note.session == 0 ? "-" : "\(Hex.text(note.session))/\(note.channel)",
            note.event.name, hasOffset ? String(note.offset) : "-", note.received > 0 ? String(note.received) : "-",
            text(note.subject), what,
        ]
    }

    private var what: String {
        if note.event == .began { return "the hub began" }
        let parts = [note.topic, note.role, note.bindings, note.reason].filter { !$0.isEmpty && $0 != Array("[]".utf8) }
        return parts.map(text).joined(separator: " ")
    }

    private func text(_ bytes: [UInt8]) -> String { bytes.isEmpty ? "-" : String(decoding: bytes, as: UTF8.self) }

    fileprivate var json: String {
        var line = JSONLine()
        line.add("event", note.event.name)
        line.add("time", TimeText.json(note.time))
        line.add("session", Hex.text(note.session))
        line.add("channel", note.channel)
        line.add("place", place)
        line.add("offset", note.offset)
        line.add("received", note.received)
        line.add("user", String(decoding: note.subject, as: UTF8.self))
        line.add("role", String(decoding: note.role, as: UTF8.self))
        line.add("topic", String(decoding: note.topic, as: UTF8.self))
        line.add("bindings", json: note.bindings.isEmpty ? "null" : String(decoding: note.bindings, as: UTF8.self))
        line.add("claims", json: note.claims.isEmpty ? "null" : String(decoding: note.claims, as: UTF8.self))
        line.add("other_claims", String(decoding: note.otherClaims, as: UTF8.self))
        line.add("reason", String(decoding: note.reason, as: UTF8.self))
        return line.text
    }
}
