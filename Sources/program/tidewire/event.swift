import Bytes
import Change
import Console
import EventLog
import Explaining
import History

/// Command `tidewire event`: shows one change in full, and how many clients it reached.
struct EventCommand: Command {
    let name = "event"
    let summary = "Show one change in full: its transaction, each column, and how many clients listened to its table."
    let discussion = """
        Shows one change of the event log: its offset, its transaction, and each of its columns with the value before \
        and after. Then shows, from the ledger, how many of the clients that listened to the table were sent the \
        changes around this offset, how many came back to it, and how many had gone. It does not evaluate filters and \
        policies; 'tidewire who' does that, and lists the clients.

        \(MaskHelp.text)

        JSON. One object, as 'tidewire tail --json' prints it, and clients: sent, received, sent_later, \
        received_later, ended_before, unknown.
        """
    let operands = [Operand("OFFSET", .one, "The change's offset in the log: 4711 or @4711.")]
    let options: [Option] = [.output, .json, .zone, .log, .project] + Option.masking + Option.asking
    let optionGroups: [OptionGroup] = [.dataDirectory]
    let examples = [Example("tidewire event @18442901", "What did this change do?")]
    let exitCodes = LogAccess.exitCodes

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        if let code = try arguments.answer("event", options: allOptions, terminal) { return code }
        let zone = try arguments.zone()
        let offset = try arguments.offset(arguments.operands[0], named: "OFFSET")
        return try LogAccess.explained {
            let log = try arguments.historyLog(terminal)
            _ = try NameCheck(log)
            let change = try log.change(at: offset)
            let audience = try ChangeAudience(
                change, AttendanceBook(log, at: change), DeliveryRecord(of: change, in: log), nil, limit: .max
            ) { _, _ in }
            if arguments.has(.json) {
                try terminal.print(change.json.dropLast() + ",\"clients\":" + counts(audience).json + "}")
            } else {
                try print(change, counts(audience), terminal, zone)
            }
            return .ok
        }
    }

    /// Returns the number of clients for each outcome, such as sent or not sent.
    private func counts(_ audience: ChangeAudience) -> OutcomeCounts {
        var counts = OutcomeCounts()
        for client in audience.clients { counts.add(client.outcome) }
        return counts
    }

    private func print(
        _ change: RecordedChange, _ counts: OutcomeCounts, _ terminal: Terminal, _ zone: DisplayZone
    ) throws {
        let text = ChangeText(zone: zone, terminal)
        let info = change.transaction
        let origin = info.origin.isEmpty ? "" : ", origin \(info.origin)"
        let lines = [
            "@\(change.offset) \(change.operation.name) \(text.table(change)) key \(text.key(change))",
            "transaction \(info.xid), \(zone.text(change.time)) \(zone.name)\(origin), its change \(change.index + 1), "
                + "commit LSN \(info.commitLSN) … \(info.endLSN), epoch \(Hex.text(change.epoch))",
        ]
        for line in lines { try terminal.remark(ScreenText.escaped(line)) }
        if let actor = change.actor {
            let content = String(decoding: actor.content, as: UTF8.self)
            try terminal.remark(ScreenText.escaped("by \(actor.name ?? "-"), as the application says: \(content)"))
        }
        try printColumns(change, text, terminal)
        try terminal.remark("clients that listened to the table: \(counts.sentence)")
    }

    private func printColumns(_ change: RecordedChange, _ text: ChangeText, _ terminal: Terminal) throws {
        guard let relation = change.relation?.relation, change.operation != .truncate, change.forgotten == nil else {
            return try terminal.print(ScreenText.escaped(text.summary(change)))
        }
        var table = TableStream(
            [
                .text("COLUMN", minimumWidth: 12), .text("BEFORE", minimumWidth: 12),
                .text("AFTER", canBeCut: terminal.isInteractive, minimumWidth: 12),
            ], on: terminal)
        try terminal.print(heading: table)
        for (column, described) in relation.columns.enumerated() {
            let before = change.oldValue(of: column).map { text.value($0, column, change) } ?? "-"
            let after = change.operation == .delete ? nil : change.value(of: column)
            try terminal.print(
                table.line([described.name, before, after.map { text.value($0, column, change) } ?? "-"]))
        }
    }
}

/// Number of clients for each outcome of a change, such as sent, received or not sent.
private struct OutcomeCounts {
    private var counts: [ChangeAudience.Client.Outcome: Int] = [:]
    private static let order: [(ChangeAudience.Client.Outcome, String)] = [
        (.received, "were sent it and received it"), (.sent, "were sent it"),
        (.receivedLater, "came back, were sent it and received it"), (.sentLater, "came back and were sent it"),
        (.endedBefore, "had gone"), (.unknown, "unknown"), (.notMatched, "listened to other events"),
        (.notSent, "were not sent it"),
    ]

    mutating func add(_ outcome: ChangeAudience.Client.Outcome) { counts[outcome, default: 0] += 1 }

    /// Numbers of clients by outcome, as the end of a sentence.
    var sentence: String {
        let parts = Self.order.compactMap { outcome, words in counts[outcome].map { "\($0) \(words)" } }
        return parts.isEmpty ? "none" : parts.joined(separator: ", ")
    }

    var json: String {
        var line = JSONLine()
        for (outcome, _) in Self.order { line.add(outcome.rawValue, counts[outcome] ?? 0) }
        return line.text
    }
}
