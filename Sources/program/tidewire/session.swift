import Bytes
import Change
import Console
import EventLog
import History

/// Command `tidewire session`: shows the ledger's records of one socket, or of all sockets in a window.
struct SessionCommand: Command {
    let name = "session"
    let summary = "Show what happened to one client: joins, losses, tokens, ends."
    let discussion = """
        Without an ID: shows the clients that the ledger has in the window, one line each. With an ID (as 'tidewire \
        who' prints it): shows every note about that socket, in order. joined: with its bindings, and from which \
        offset on. refused: its socket, its join or a request was refused, and why, if the token was signed; the same \
        refusal of a user is noted once a minute. stands: the client's state, repeated because retention deletes older segments. renewed: its token \
        was replaced by another. told: the hub told it that changes may be missing. left: with the offset up to which \
        it was sent everything (OFFSET), and how much its client had certainly received (GOT). For requests for \
        changes over HTTP: a stream is joined and left; a page is answered, with the changes from OFFSET on and before \
        GOT. missed: the log had no room for all notes of the time before, of this client or of others. With \
        --deliveries and 'ledger = full' also each change that it was sent: sent, with the change's OFFSET.

        The setting ledger_claims says which claims are kept; tokens never are. Claims are masked by their names, and \
        so are the values that filters compare masked columns with. In mask rules, claims are the table \
        tidewire.claims.

        \(SelectorHelp.text)

        JSON. One object a note: event, time, session, channel, place (of the note in the log), offset, received, \
        user, role, topic, bindings, claims, other_claims, reason. A delivery: event (sent), time, session, channel, \
        offset.
        """
    let operands = [Operand("ID", .any, "A socket, as 'tidewire who' prints it; a / and what follows are ignored.")]
    let options: [Option] =
        [.from, .to, .deliveries, .output, .json, .zone, .log, .project] + Option.masking + Option.asking
    let optionGroups: [OptionGroup] = [.dataDirectory]
    let examples = [
        Example("tidewire session --from -15m", "Who came and went?"),
        Example("tidewire session 0189a3f2c4d5e600", "What happened to this client?"),
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

/// Command `tidewire user`: shows the ledger's records of all clients of one user.
struct UserCommand: Command {
    let name = "user"
    let summary = "Show what happened to all clients of one user."
    let discussion = """
        Shows every note about the clients of one user, in order; see 'tidewire session'. 'tidewire who' shows which \
        of these clients were sent a given change. --deliveries shows all changes they were sent, if each delivery is \
        recorded (ledger = full).

        \(SelectorHelp.text)

        JSON. As 'tidewire session --json'.
        """
    let operands = [Operand("SUB", .one, "The user's id: the claim sub.")]
    let options: [Option] =
        [.from, .to, .deliveries, .output, .json, .zone, .log, .project] + Option.masking + Option.asking
    let optionGroups: [OptionGroup] = [.dataDirectory]
    let examples = [
        Example("tidewire user 7f3c2b1e-0c5d-4f6e-8a52-000000000001 --from -2h", "Was this user connected?")
    ]
    let exitCodes = LogAccess.exitCodes

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        if let code = try arguments.answer("user", options: allOptions, terminal) { return code }
        return try LedgerNotes.print(nil, arguments.operands[0], arguments, terminal)
    }
}

extension Option {
    fileprivate static let deliveries = Option.flag(
        "deliveries", "Also show each change that was sent, if that is recorded (ledger = full).")
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
        if arguments.has(.deliveries), session == nil, user == nil {
            throw UsageError("--deliveries needs a client: give an ID, or use 'tidewire user'")
        }
        return try LogAccess.explained {
            let log = try arguments.historyLog(terminal)
            var printer = LedgerPrinter(terminal, zone, isJSON: arguments.has(.json))
            if arguments.has(.deliveries) {
                try printer.print(query, log, withDeliveriesTo: try channels(query, log))
            } else {
                try log.ledger(query) { try printer.print($0) }
            }
            if printer.count > 0 { return .ok }
            if !arguments.has(.json) {
                let oldest = try log.segments()[0]
                terminal.complain(
                    "the ledger has no such notes; the log holds \(zone.text(oldest.begin)) … now (setting: ledger)")
            }
            return .notFound
        }
    }

    /// Returns the channels of the requested clients that have records before the end of the window.
    private static func channels(_ query: LedgerQuery, _ log: HistoryLog) throws -> Set<LedgerChannel> {
        var channels: Set<LedgerChannel> = []
        var all = query
        all.from = nil
        try log.ledger(all) {
            if $0.note.session != 0 { channels.insert(LedgerChannel($0.note.session, $0.note.channel)) }
        }
        return channels
    }
}

/// Identity of a channel in the ledger: its socket's session and its number on that socket.
private struct LedgerChannel: Hashable {
    let session: UInt64
    let channel: UInt32

    init(_ session: UInt64, _ channel: UInt32) { (self.session, self.channel) = (session, channel) }

    /// Name of the channel as commands accept it: the socket's session and the channel's number.
    var name: String { "\(Hex.text(session))/\(channel)" }
}

private struct LedgerPrinter {
    private let terminal: Terminal
    private let zone: DisplayZone
    private let isJSON: Bool
    /// Number of printed records that count as found, for the exit code.
    private(set) var count = 0
    private var hasHeading = false
    private var table: TableStream

    init(_ terminal: Terminal, _ zone: DisplayZone, isJSON: Bool) {
        (self.terminal, self.zone, self.isJSON) = (terminal, zone, isJSON)
        table = TableStream(
            [
                .text(zone.heading, minimumWidth: 23), .text("SESSION", minimumWidth: 18), .text("EVENT"),
                .number("OFFSET", minimumWidth: 8), .number("GOT", minimumWidth: 8),
                .text("USER", minimumWidth: 8), .text("WHAT", canBeCut: terminal.isInteractive, minimumWidth: 20),
            ], on: terminal)
    }

    /// Prints the records in the order of their times.
    mutating func print(
        _ query: LedgerQuery, _ log: HistoryLog, withDeliveriesTo channels: Set<LedgerChannel>
    ) throws {
        var notes: [RecordedNote] = []
        try log.ledger(query) { notes.append($0) }
        var left = notes[...]
        var failure: (any Error)?
        var printer = self
        try log.deliveries(from: query.from, to: query.to) { delivery in
            let channel = LedgerChannel(delivery.session, delivery.channel)
            guard failure == nil, channels.contains(channel) else { return }
            do {
                while let note = left.first, note.note.time <= delivery.time {
                    try printer.print(left.removeFirst())
                }
                try printer.print(delivery, channel)
            } catch {
                failure = error
            }
        }
        if let failure { throw failure }
        for note in left { try printer.print(note) }
        self = printer
    }

    mutating func print(_ recorded: RecordedNote) throws {
        // These records belong to no client, and appear twice a minute.
        if recorded.note.event == .reached || recorded.note.event == .unrecorded { return }
        let zone = zone
        try print(recorded.json, recorded.cells(zone))
        if recorded.note.event == .missed { count -= 1 }
    }

    private mutating func print(_ delivery: DeliveryBlock.Delivery, _ channel: LedgerChannel) throws {
        var line = JSONLine()
        line.add("event", "sent")
        line.add("time", TimeText.json(delivery.time))
        line.add("session", Hex.text(delivery.session))
        line.add("channel", delivery.channel)
        line.add("offset", delivery.offset)
        let zone = zone
        try print(
            line.text, [zone.text(delivery.time), channel.name, "sent", String(delivery.offset), "-", "-", ""])
    }

    private mutating func print(_ json: @autoclosure () -> String, _ cells: @autoclosure () -> [String]) throws {
        if isJSON {
            try terminal.print(json())
        } else {
            if !hasHeading { try terminal.print(heading: table) }
            hasHeading = true
            try terminal.print(table.line(cells()))
        }
        count += 1
    }
}

extension RecordedNote {
    fileprivate func cells(_ zone: DisplayZone) -> [String] {
        let hasOffset = [.joined, .renewed, .told, .left, .stands, .answered].contains(note.event)
        return [
            zone.text(note.time), note.session == 0 ? "-" : "\(Hex.text(note.session))/\(note.channel)",
            note.event.name, hasOffset ? String(note.offset) : "-",
            note.received > 0 && note.event != .missed ? String(note.received) : "-",
            text(note.subject), what,
        ]
    }

    private var what: String {
        if note.event == .began { return "the hub started" }
        if note.event == .missed {
            return
                "the log had no room: it lacks \(note.offset) notes of clients, and all notes of \(note.received) others"
        }
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
