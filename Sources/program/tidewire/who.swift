import Bytes
import Change
import Console
import Diagnostics
import EventLog
import Explaining
import History
import Postgres
import Settings

/// Command `tidewire who`: shows which clients were sent a change and which were not.
struct WhoCommand: Command {
    let name = "who"
    let summary = "Show which clients were sent a change, and which had gone."
    let discussion = """
        Takes a change of the event log, and shows what happened to it for every client in the ledger: the hub sent \
        it, and whether it certainly arrived; the hub sent it later, when the client had come back; a filter or a \
        policy kept it from the client; or the client had gone before. It leaves out clients that listened to other \
        tables, and, unless you name a --user, clients that had gone more than an hour before. It also lists users \
        whose socket, join or request the hub refused in the hour before, and who had not joined since.

        The table has the clients of each user together, users whom the hub sent the change first. Clients of a user \
        for which everything but the session is the same share a line, and SESSION says how many they are. Clients that \
        had gone are counted in a line at the end; --gone and --user list them, and so does a change that concerned \
        nobody else. --outcome shows only some outcomes. -o csv, -o md and --json have one line a client.

        RECORDED in the ledger (setting: ledger): who joined what, with which bindings and claims, and from which \
        offset on; for each client that left, up to which offset it was served and how much it had certainly received; \
        which losses it was told of. DERIVED: the command evaluates filters and policies again, by the rights, \
        policies and memberships of THEN, as far as the log has them. The log records policies when they change; with \
        the configured database, the command computes past memberships from the changes of their tables. Otherwise, or \
        with --now, it uses those of now. A client that came back later was told what it was allowed to see at that \
        time, so policies are evaluated as of then; if they changed before the client had certainly caught up, the \
        outcome is unknown. The last line says which policies were used. Without either, or with --recorded, the \
        command does not evaluate them. The log does not record states that held for less than a second. While \
        policies change, a change may have been judged by the old or the new ones: the answer is then by those of now, \
        or unknown.

        With 'ledger = full' each delivery is RECORDED too. WHY shows when the change was sent. The log then shows \
        that a client was left out, and the evaluation only shows why. If both disagree, the output says so, and the \
        record counts. A line at the end says for how many clients deliveries are recorded.

        A message that the database sent to a topic (an insert into realtime.messages) was for everybody who had \
        joined the topic: no filter and no policy is evaluated. The output also lists requests for changes over HTTP \
        whose answer had the change. Broadcasts of clients and presence have no offset in the log, so this command \
        does not know them.

        A hub that was killed could not record the ends of its last clients: the outcome of changes in the last \
        position_interval (30 s) is unknown for them. If very many clients came and went at once, the log may have had \
        no room for all notes: what happened to clients meanwhile is then unknown, and a line says how many clients \
        the log does not have at all.

        JSON. One object a client: outcome (sent, received, sent_later, received_later, not_matched, not_sent, \
        ended_before, unknown, refused), reason, user, role, topic, session, channel, since, joined, ended, losses, \
        claims_not_kept (names), policies (then, now, not_asked), basis (recorded or derived), sent_at (null if not \
        recorded). It has all clients, also those that had gone, unless --outcome names outcomes. For outcome refused, \
        joined, ended, since and policies are missing, and refused is the time. If the \
        log had no room for some clients: outcome not_in_log and clients, their number. Ends with \
        status 0 if any client was sent the change, and 1 if none was, whatever outcomes are shown.
        """
    let operands = [Operand("OFFSET", .one, "The change's offset in the log: 4711 or @4711.")]
    let options: [Option] =
        [.user, .outcome, .gone, .recorded, .asOfNow, .clientLimit, .output, .json, .zone, .log, .project]
        + Option.masking
        + Option.asking
    let optionGroups: [OptionGroup] = [
        .configuration(of: [
            Setting(\.dataDirectory), Setting(\.maskRules), Setting(\.databaseURL), Setting(\.policyDatabaseURL),
            Setting(\.publication),
            Setting(\.deletesAreStrict),
        ])
    ]
    let examples = [
        Example("tidewire who @18442901", "Which clients were sent this change?"),
        Example("tidewire who 18442901 --user 7f3c2b1e-0c5d-4f6e-8a52-000000000001 --json", "And this user?"),
        Example("tidewire who @18442901 --outcome unknown,not_sent", "For whom is it unknown, or a loss?"),
        Example("tidewire who 18442901 --log ./copy/log --recorded", "From a copy of the log, without a database:"),
    ]
    let exitCodes = LogAccess.exitCodes

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        if let code = try arguments.answer("who", options: allOptions, terminal) { return code }
        let zone = try arguments.zone()
        let offset = try arguments.offset(arguments.operands[0], named: "OFFSET")
        let limit = try arguments.clientLimit()
        let wanted = try arguments.outcomes()
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
                    progress.note("evaluating filters and policies: \(done) of \(all) clients")
                }
            }
            progress.clear()
            audience.sort()
            let isListingGone = arguments.has(.gone) || user != nil || !wanted.isEmpty
            let printer = AudiencePrinter(terminal, zone, wanted, isListingGone: isListingGone)
            if arguments.has(.json) {
                for client in audience.clients where wanted.has(client) { try terminal.print(client.json) }
                if wanted.hasRefused { for refusal in audience.refusals { try terminal.print(refusal.refusalJSON) } }
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
                .unreachable, "cannot read the database's catalog",
                hint: "Use --recorded to show only what the log has.")
        }
    }
}

extension Option {
    fileprivate static let user = Option.value("user", "SUB", "Only clients of this user (the claim sub).")
    fileprivate static let outcome = Option.value(
        "outcome", "LIST", isRepeatable: true,
        "Only clients with these outcomes, separated by commas: \(OutcomeChoice.names.joined(separator: ", ")).")
    fileprivate static let gone = Option.flag("gone", "Also list clients that had gone before the change.")
    fileprivate static let recorded = Option.flag(
        "recorded", "Show only what is recorded, and evaluate no filters and policies.")
    fileprivate static let clientLimit = Option.value(
        "limit", "N", short: "n", "The most clients for which filters and policies are evaluated (default 1000).")
}

extension Arguments {
    fileprivate func clientLimit() throws(UsageError) -> Int {
        guard case .integer(let number) = try value(of: .clientLimit, as: .integer(1...1_000_000)) else { return 1000 }
        return Int(number)
    }
}

/// Choice of outcomes, such as `sent` or `unknown`, that the command shows. An empty choice shows all.
private struct OutcomeChoice {
    private var names: Set<String> = []

    /// Names of all outcomes, as they appear in JSON.
    static let names =
        [.received, .sent, .receivedLater, .sentLater, .notMatched, .notSent, .endedBefore, .unknown].map {
            (outcome: ChangeAudience.Client.Outcome) in outcome.rawValue
        } + [refused]
    private static let refused = "refused"
    /// JSON names of the outcomes that the table calls otherwise; the key is the word in the table.
    private static let synonyms = ["not_for_it": "not_matched", "had_gone": "ended_before"]

    var isEmpty: Bool { names.isEmpty }
    /// True if the output includes users whose socket, join or request the hub had refused.
    var hasRefused: Bool { isEmpty || names.contains(Self.refused) }

    /// Adds an outcome to the choice, by its name in JSON or in the table. Returns false if no outcome has that name.
    mutating func add(_ word: String) -> Bool {
        let plain = word.lowercased().split(separator: " ").joined(separator: "_").replacing("-", with: "_")
        let name = Self.synonyms[plain] ?? plain
        guard Self.names.contains(name) else { return false }
        names.insert(name)
        return true
    }

    /// True if the choice includes the client's outcome.
    func has(_ client: ChangeAudience.Client) -> Bool { isEmpty || names.contains(client.outcome.rawValue) }
}

extension Arguments {
    fileprivate func outcomes() throws(UsageError) -> OutcomeChoice {
        var choice = OutcomeChoice()
        for list in values(of: .outcome) {
            for word in list.split(separator: ",", omittingEmptySubsequences: false) where !choice.add(String(word)) {
                throw UsageError(
                    "--outcome \(word): expected one or more of \(OutcomeChoice.names.joined(separator: ", "))")
            }
        }
        return choice
    }
}

extension ChangeAudience {
    /// True if the client had left before the change was made, whether or not filters and policies let it see the
    /// change.
    fileprivate func hadGone(_ client: Client) -> Bool {
        client.outcome == .endedBefore
            || !client.isSent
                && client.attendance.reach(of: change.offset, committed: change.time ?? .min) == .endedBefore
    }

    /// Sentence about the clients whose deliveries the ledger records, so that the command need not derive them. Nil if
    /// it records none.
    fileprivate var recordedSentence: String? {
        let known = clients.count { $0.basis == .recorded }
        let others = recorded - clients.count { $0.sentAt != nil }
        guard known > 0 || recorded > 0 else { return nil }
        let strangers = others > 0 ? "; it was sent to \(others) more clients, which are not listed" : ""
        return "Deliveries are recorded (ledger = full) for \(known) of \(clients.count)\(strangers)."
    }

    /// Sentence about clients of which the ledger has no records, because the log had no room for them. Nil if there
    /// are none.
    fileprivate var strangersSentence: String? {
        guard strangers > 0 else { return nil }
        let clients = strangers == 1 ? "1 client that" : "\(strangers) clients that"
        return "The log has no notes of \(clients) came and went then or later: it had no room for so many notes."
    }

    /// JSON line with the number of clients of which the ledger has no records; nil if there are none.
    fileprivate var strangersJSON: String? {
        guard strangers > 0 else { return nil }
        var line = JSONLine()
        line.add("outcome", "not_in_log")
        line.add("clients", strangers)
        return line.text
    }
}

/// Printer of a change's clients and their outcomes, for people.
private struct AudiencePrinter {
    private let terminal: Terminal
    private let zone: DisplayZone
    private let wanted: OutcomeChoice
    private let isListingGone: Bool

    init(_ terminal: Terminal, _ zone: DisplayZone, _ wanted: OutcomeChoice, isListingGone: Bool) {
        self.terminal = terminal
        self.zone = zone
        self.wanted = wanted
        self.isListingGone = isListingGone
    }

    /// Line of the table, which clients share that differ only in their sessions.
    private struct Line {
        let cells: [String]
        var sessions: [String]

        /// Cells of the line. The session's cell has the first session and the number of further ones.
        var printed: [String] {
            var printed = cells
            let more = sessions.count - 1
            printed[3] = more == 0 ? sessions[0] : "\(sessions[0]) and \(more) more"
            return printed
        }
    }

    /// Returns the lines of the clients, those of a user together. In the table for people, clients that differ only in
    /// their session share a line.
    private func lines(_ clients: [ChangeAudience.Client], where asked: AskedPolicies) -> [[String]] {
        let cells = clients.map { $0.cells(zone, where: asked) }
        guard terminal.form == .table else { return cells }
        var order: [String] = []
        var users: [String: [Line]] = [:]
        var places: [[String]: Int] = [:]
        for line in cells {
            let (user, session) = (line[1], line[3])
            if users[user] == nil { order.append(user) }
            var common = line
            common[3] = ""
            if let place = places[common] {
                users[user]?[place].sessions.append(session)
            } else {
                places[common] = users[user]?.count ?? 0
                users[user, default: []].append(Line(cells: common, sessions: [session]))
            }
        }
        return order.flatMap { users[$0, default: []].map(\.printed) }
    }

    func print(_ audience: ChangeAudience, _ judge: Explainer?, isRecordedOnly: Bool) throws {
        let text = ChangeText(zone: zone, terminal)
        let change = audience.change
        let time = change.time.map { "\(zone.text($0)) \(zone.name)" } ?? "-"
        try terminal.remark(
            ScreenText.escaped(
                "@\(change.offset) \(change.operation.name) \(text.table(change)) key \(text.key(change)), "
                    + "committed \(time), xid \(change.transaction.xid)"))
        let chosen = audience.clients.filter(wanted.has)
        let gone = isListingGone ? [] : chosen.filter(audience.hadGone)
        // If all clients had left before the change, the table lists them.
        let isShort = gone.count < chosen.count
        let listed = isShort && !isListingGone ? chosen.filter { !audience.hadGone($0) } : chosen
        guard !audience.clients.isEmpty else {
            try terminal.remark(
                "told nobody: the ledger (setting: ledger) shows no client that listened to the table then")
            if let sentence = audience.strangersSentence { try terminal.remark(sentence) }
            for refusal in audience.refusals {
                let user = ScreenText.escaped(String(decoding: refusal.note.subject, as: UTF8.self))
                try terminal.remark("user \(user): \(ScreenText.escaped(refusal.sentence(zone)))")
            }
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
        for line in lines(listed, where: asked) { try terminal.print(table.line(line)) }
        if wanted.hasRefused {
            for refusal in audience.refusals { try terminal.print(table.line(refusal.refusalCells(zone))) }
        }
        if isShort, !gone.isEmpty {
            let clients = gone.count == 1 ? "1 client" : "\(gone.count) clients"
            try terminal.remark("Not listed (see --gone): \(clients) that had gone before the change.")
        }
        if judge != nil, !audience.claimsNotKept.isEmpty {
            let claims = ScreenText.escaped(audience.claimsNotKept.joined(separator: ", "))
            try terminal.remark(
                "Policies were evaluated without claims that are not kept (setting: ledger_claims). They may have held by: \(claims)"
            )
        }
        if let sentence = audience.recordedSentence { try terminal.remark(sentence) }
        if let sentence = audience.strangersSentence { try terminal.remark(sentence) }
        if audience.left > 0 { try terminal.remark("… and \(audience.left) more; a higher --limit includes them") }
        if audience.isMessage {
            return try terminal.remark(
                "Sessions and their topics are recorded. Unless a line says so, it is derived that joined clients were told; limits may have dropped the message."
            )
        }
        try terminal.remark(
            judge.map { judge in
                judge.isOfThen
                    ? "Sessions, bindings, ends and policies are recorded. The policies were evaluated again, as of when each client was or would have been sent the change."
                    : "Sessions, bindings and ends are recorded. Filters and policies are those of now, and may have been others then."
            } ?? Self.unasked(isRecordedOnly))
    }

    /// Returns the sentence that the command did not evaluate filters and policies. It has the reason unless the user
    /// asked for that.
    /// - Parameter isRecordedOnly: true if the user asked for recorded facts only.
    private static func unasked(_ isRecordedOnly: Bool) -> String {
        let reason =
            isRecordedOnly
            ? ""
            : ": the log does not have the policies of then, and no database is configured (TIDEWIRE_DATABASE_URL)"
        return "Sessions, bindings and ends are recorded. Filters and policies were not evaluated\(reason)."
    }
}

extension ChangeAudience.Client {
    /// Returns the client's cells in the table: outcome, user, role, session, topic and reason.
    /// - Parameter asked: the time of the policies that decided most outcomes. The reason names the policies' time only
    ///   where it differs.
    fileprivate func cells(_ zone: DisplayZone, where asked: AskedPolicies) -> [String] {
        [
            word, attendance.text(holder.note.subject), attendance.text(holder.note.role), attendance.name,
            attendance.text(attendance.joined.note.topic), why(zone, asked),
        ]
    }

    /// Word for the client's outcome in the table.
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

    /// Returns the text of the WHY column: the time of sending, the client's end, and the reason of the outcome.
    private func why(_ zone: DisplayZone, _ common: AskedPolicies) -> String {
        let ending: String? =
            switch (outcome, attendance.end) {
            case (_, .left(_, _, let time, let reason)) where attendance.isAnswer:
                "asked over HTTP, answered at \(zone.text(time)): \(reason)"
            case (.endedBefore, .left(_, _, let time, let reason)): "\(reason) at \(zone.text(time))"
            case (.endedBefore, .cut(_, _, let time)), (.unknown, .cut(_, _, let time)):
                "the hub was killed before \(zone.text(time))"
            case (.unknown, .missed(_, _, let time)):
                "its later notes are missing: the log had no room before \(zone.text(time))"
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

extension RecordedNote {
    /// Returns the cells of a refused user in the table of clients.
    fileprivate func refusalCells(_ zone: DisplayZone) -> [String] {
        ["refused", text(note.subject), text(note.role), "\(Hex.text(note.session))/\(note.channel)", text(note.topic)]
            + ["\(text(note.reason)) at \(zone.text(note.time))"]
    }

    fileprivate var refusalJSON: String {
        var line = JSONLine()
        line.add("outcome", "refused")
        line.add("reason", text(note.reason))
        line.add("user", text(note.subject))
        line.add("role", text(note.role))
        line.add("topic", text(note.topic))
        line.add("session", Hex.text(note.session))
        line.add("channel", note.channel)
        line.add("refused", TimeText.json(note.time))
        line.add("basis", "recorded")
        return line.text
    }

    private func text(_ bytes: [UInt8]) -> String { bytes.isEmpty ? "-" : String(decoding: bytes, as: UTF8.self) }
}

extension Attendance {
    /// Name of the channel as commands accept it: the socket's session and the channel's number.
    var name: String { "\(Hex.text(session))/\(channel)" }

    func text(_ bytes: [UInt8]) -> String { bytes.isEmpty ? "-" : String(decoding: bytes, as: UTF8.self) }

    /// Time at which the client left or its hub was killed, in microseconds since 1970; nil if the ledger has no end.
    fileprivate var ended: Int64? {
        switch end {
        case .none, .missed: nil
        case .left(_, _, let time, _), .cut(_, _, let time): time
        }
    }
}
