import Bytes
import Change
import Console
import Diagnostics
import EventLog
import Explaining
import History
import Postgres
import Settings

/// Command `tidewire who`.
struct WhoCommand: Command {
    let name = "who"
    let summary = "Show which clients were sent a change, and which had gone."
    let discussion = """
        Takes a change of the event log, and says of every client that the ledger knows of: it was sent the change, and \
        whether it certainly arrived; it was sent it later, when it had come back; its filter or a policy kept the change \
        from it; or it had gone before. Clients that listened to other tables are left out, and those that had gone more than \
        an hour before, unless --user asks for them.

        RECORDED, in the ledger (setting: ledger): who joined what, with which bindings and claims, from where in the log \
        on; how far each had come at its end, and how much of that its client had certainly got; what it was told to be \
        missing. DERIVED: filters and policies are asked again, by the rights, policies and memberships of THEN, as far as the \
        log has them (policies are recorded when they change; with the database that is configured memberships are taken back \
        by the changes of their tables); otherwise, or with --now, by those of now. Whoever \
        came back later was told of what he might see when he did: of him policies are asked as they were then, and if they became \
        others before he had certainly caught up, it is unknown. The last line \
        says which. Without either, or with --recorded, they are not asked. What held for less than a second is not recorded, \
        and what was judged while policies became others may have been by either: the answer is by those of now then, or unknown.

        With 'ledger = full' each delivery is RECORDED too: WHY says when the change was sent, a client that it was not sent to is \
        known to have been left out, and what was asked only says why. Where both disagree that is said, and what is recorded \
        counts. A line at the end says of how many clients that is so.

        A message that the database sent to a topic (an insert into realtime.messages) was for all who had joined the topic: no \
        filter and no policy is asked. Requests for changes over HTTP that were answered with what has the change in it are listed \
        as well. Broadcasts of clients and presence have no place in the log, and so there is nothing to ask about.

        A hub that was killed wrote down no ends: of its last clients it is not known whether they were sent what came within \
        the last position_interval (30 s). Where very many came and went at once there may have been no room for all that was to \
        be noted: what became of clients meanwhile is unknown then, and a line says of how many the log has nothing at all.

        JSON. One object a client: outcome (sent, received, sent_later, received_later, not_matched, not_sent, ended_before, \
        unknown), reason, user, role, topic, session, channel, since, joined, ended, losses, claims_not_kept (names), policies (then, now, \
        not_asked), basis (recorded or derived), sent_at (null where that is not recorded). Where there were clients that the \
        log had no room for, outcome not_in_log and clients, their number. Ends with status 0 when \
        anybody was sent the change, and 1 when nobody was.
        """
    let operands = [Operand("OFFSET", .one, "The change's offset in the log: 4711 or @4711.")]
    let options: [Option] =
        [.user, .recorded, .asOfNow, .clientLimit, .output, .json, .zone, .log, .project] + Option.masking
        + Option.asking
    let optionGroups: [OptionGroup] = [
        .configuration(of: [
            Setting(\.dataDirectory), Setting(\.maskRules), Setting(\.databaseURL), Setting(\.policyDatabaseURL),
            Setting(\.publication),
            Setting(\.deletesAreStrict),
        ])
    ]
    let examples = [
        Example("tidewire who @18442901", "Who was told of this change?"),
        Example("tidewire who 18442901 --user 7f3c2b1e-0c5d-4f6e-8a52-000000000001 --json", "And she?"),
        Example("tidewire who 18442901 --log ./copy/log --recorded", "From a copy of the log, without a database:"),
    ]
    let exitCodes = LogAccess.exitCodes

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        if let code = try arguments.answer("who", options: allOptions, terminal) { return code }
        let zone = try arguments.zone()
        let offset = try arguments.offset(arguments.operands[0], named: "OFFSET")
        let limit = try arguments.clientLimit()
        let configuration = try arguments.configuration(terminal)
        Log.shared.configure(level: .error, format: configuration.logFormat)
        return try LogAccess.explained {
            let log = try arguments.historyLog(terminal)
            let change = try log.change(at: offset)
            let isOfNow = arguments.has(.asOfNow)
            let judges =
                arguments.has(.recorded)
                ? nil
                : Judges(log, isOfNow: isOfNow) { record in
                    try Explainer.Settings(record, of: log, isOfNow: isOfNow, configuration, "who")
                }
            let judge = try judges?.judge(at: change.offset)
            let user = arguments.value(of: .user)
            let book = try AttendanceBook(log, at: change, of: user)
            let progress = Progress(terminal, isQuiet: arguments.has(.json))
            let record = try DeliveryRecord(of: change, in: log)
            var audience = try Self.answered {
                try ChangeAudience(change, book, record, judge == nil ? nil : judges, limit: limit) { done, all in
                    progress.note("asking filters and policies: \(done) of \(all)")
                }
            }
            progress.clear()
            audience.sort()
            let printer = AudiencePrinter(terminal, zone)
            if arguments.has(.json) {
                for client in audience.clients { try terminal.print(client.json) }
                if let line = audience.strangersJSON { try terminal.print(line) }
            } else {
                try printer.print(audience, judge, isRecordedOnly: arguments.has(.recorded))
            }
            return audience.clients.contains(where: \.isSent) ? .ok : .notFound
        }
    }

    private static func answered(_ body: () throws -> ChangeAudience) throws -> ChangeAudience {
        do {
            return try body()
        } catch AudienceFailure.databaseAway {
            throw CommandFailure(
                .unreachable, "the database does not say what its catalog is",
                hint: "Give --recorded for what is in the log alone.")
        }
    }
}

extension Option {
    fileprivate static let user = Option.value("user", "SUB", "Only clients of this user (the claim sub).")
    fileprivate static let recorded = Option.flag(
        "recorded", "Only what is recorded: neither filters nor policies are asked.")
    fileprivate static let clientLimit = Option.value(
        "limit", "N", short: "n", "Of how many clients filters and policies are asked at most (default 1000).")
}

extension Arguments {
    fileprivate func clientLimit() throws(UsageError) -> Int {
        guard case .integer(let number) = try value(of: .clientLimit, as: .integer(1...1_000_000)) else { return 1000 }
        return Int(number)
    }
}

extension ChangeAudience {
    /// Sentence about outcomes that are recorded, not derived; nil if deliveries are not recorded.
    fileprivate var recordedSentence: String? {
        let known = clients.count { $0.basis == .recorded }
        let others = recorded - clients.count { $0.sentAt != nil }
        guard known > 0 || recorded > 0 else { return nil }
        let strangers = others > 0 ? "; it was sent to \(others) more, who are not listed" : ""
        return "Recorded delivery by delivery (ledger = full): \(known) of \(clients.count)\(strangers)."
    }

    fileprivate var strangersSentence: String? {
        guard strangers > 0 else { return nil }
        let clients = strangers == 1 ? "1 client that" : "\(strangers) clients that"
        return "Of \(clients) came and went then or later the log has nothing: there was no room for so many notes."
    }

    fileprivate var strangersJSON: String? {
        guard strangers > 0 else { return nil }
        var line = JSONLine()
        line.add("outcome", "not_in_log")
        line.add("clients", strangers)
        return line.text
    }
}

/// Printer for people.
private struct AudiencePrinter {
    private let terminal: Terminal
    private let zone: DisplayZone

    init(_ terminal: Terminal, _ zone: DisplayZone) {
        self.terminal = terminal
        self.zone = zone
    }

    func print(_ audience: ChangeAudience, _ judge: Explainer?, isRecordedOnly: Bool) throws {
        let text = ChangeText(zone: zone, terminal)
        let change = audience.change
        let time = change.time.map { "\(zone.text($0)) \(zone.name)" } ?? "-"
        try terminal.remark(
            ScreenText.escaped(
                "@\(change.offset) \(change.operation.name) \(text.table(change)) key \(text.key(change)), "
                    + "committed \(time), xid \(change.transaction.xid)"))
        guard !audience.clients.isEmpty else {
            try terminal.remark("told nobody: by the ledger (setting: ledger) nobody listened to the table then")
            if let sentence = audience.strangersSentence { try terminal.remark(sentence) }
            return
        }
        var table = TableStream(
            [
                .text("OUTCOME", minimumWidth: 14), .text("USER", minimumWidth: 8), .text("ROLE", minimumWidth: 13),
                .text("SESSION", minimumWidth: 18), .text("TOPIC", minimumWidth: 12),
                .text("WHY", canBeCut: terminal.isInteractive, minimumWidth: 12),
            ], on: terminal)
        try terminal.print(heading: table)
        let asked = AskedPolicies(judge)
        for client in audience.clients { try terminal.print(table.line(client.cells(zone, where: asked))) }
        if judge != nil, !audience.claimsNotKept.isEmpty {
            let claims = ScreenText.escaped(audience.claimsNotKept.joined(separator: ", "))
            try terminal.remark(
                "Policies were asked without claims that are not kept (setting: ledger_claims), and may have been true by: \(claims)"
            )
        }
        if let sentence = audience.recordedSentence { try terminal.remark(sentence) }
        if let sentence = audience.strangersSentence { try terminal.remark(sentence) }
        if audience.left > 0 { try terminal.remark("… and \(audience.left) more; --limit asks about them") }
        if audience.isMessage {
            return try terminal.remark(
                "Sessions and their topics are recorded; that who was joined was told is derived, unless it says so: not whether limits dropped the message."
            )
        }
        try terminal.remark(
            judge.map { judge in
                judge.isOfThen
                    ? "Sessions, bindings and ends are recorded, and so are the policies; they were asked again, as of when each was or would have been sent it."
                    : "Sessions, bindings and ends are recorded; filters and policies were asked now, and may have been others."
            } ?? Self.unasked(isRecordedOnly))
    }

    /// Returns the sentence that filters and policies were not evaluated, with the reason unless the user asked for
    /// that.
    private static func unasked(_ isRecordedOnly: Bool) -> String {
        let reason =
            isRecordedOnly
            ? ""
            : ": the log has not got the policies of then, and no database is configured (TIDEWIRE_DATABASE_URL)"
        return "Sessions, bindings and ends are recorded; filters and policies were not asked\(reason)."
    }
}

extension ChangeAudience.Client {
    /// - Parameter asked: the time of the policies that decided most outcomes. It is printed below the table.
    fileprivate func cells(_ zone: DisplayZone, where asked: AskedPolicies) -> [String] {
        [
            word, attendance.text(holder.note.subject), attendance.text(holder.note.role), attendance.name,
            attendance.text(attendance.joined.note.topic), why(zone, asked),
        ]
    }

    private var word: String {
        switch outcome {
        case .sent: "sent"
        case .received: "received"
        case .sentLater: "sent later"
        case .receivedLater: "received later"
        case .notMatched: "not for it"
        case .notSent: "not sent"
        case .endedBefore: "had gone"
        case .unknown: "unknown"
        }
    }

    private func why(_ zone: DisplayZone, _ common: AskedPolicies) -> String {
        let ending: String? =
            switch (outcome, attendance.end) {
            case (_, .left(_, _, let time, let reason)) where attendance.isAnswer:
                "asked over HTTP, answered at \(zone.text(time)): \(reason)"
            case (.endedBefore, .left(_, _, let time, let reason)): "\(reason) at \(zone.text(time))"
            case (.endedBefore, .cut(_, _, let time)), (.unknown, .cut(_, _, let time)):
                "the hub ended without a word before \(zone.text(time))"
            case (.unknown, .missed(_, _, let time)):
                "what became of it was not written down: there was no room before \(zone.text(time))"
            case (.sentLater, _), (.receivedLater, _): "joined again at \(zone.text(attendance.joined.note.time))"
            default: nil
            }
        let sent = sentAt.map { "sent at \(zone.text($0))" }
        let loss = attendance.losses.first.map { "told at \(zone.text($0.note.time)) that something was missing" }
        let other = asked == .now && asked != common ? "by the policies of now" : nil
        return ([sent, ending, reason.isEmpty ? nil : reason, other, loss] as [String?]).compactMap(\.self).joined(
            separator: "; ")
    }

    var json: String {
        var line = JSONLine()
        line.add("outcome", outcome.rawValue)
        line.add("reason", reason)
        line.add("user", attendance.text(holder.note.subject))
        line.add("role", attendance.text(holder.note.role))
        line.add("topic", attendance.text(attendance.joined.note.topic))
        line.add("session", Hex.text(attendance.session))
        line.add("channel", attendance.channel)
        line.add("since", attendance.since)
        line.add("joined", TimeText.json(attendance.joined.note.time))
        line.add("ended", attendance.ended.map(TimeText.json))
        line.add("losses", UInt64(attendance.losses.count))
        line.add("claims_not_kept", String(decoding: holder.note.otherClaims, as: UTF8.self))
        line.add("policies", asked.rawValue)
        line.add("basis", basis.rawValue)
        line.add("sent_at", sentAt.map(TimeText.json))
        return line.text
    }
}

extension Attendance {
    /// Name of the channel as commands accept it: the socket's session and the channel's number.
    var name: String { "\(Hex.text(session))/\(channel)" }

    func text(_ bytes: [UInt8]) -> String { bytes.isEmpty ? "-" : String(decoding: bytes, as: UTF8.self) }

    fileprivate var ended: Int64? {
        switch end {
        case .none, .missed: nil
        case .left(_, _, let time, _), .cut(_, _, let time): time
        }
    }
}
