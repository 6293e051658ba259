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
            let judges = arguments.has(.recorded) ? nil : Judges(log, configuration, isOfNow: arguments.has(.asOfNow))
            let judge = try judges?.judge(at: change.offset)
            let user = arguments.value(of: .user)
            let book = try AttendanceBook(log, at: change, of: user)
            let progress = Progress(terminal, isQuiet: arguments.has(.json))
            let record = try DeliveryRecord(of: change, in: log)
            var audience = try ChangeAudience(change, book, record, judge == nil ? nil : judges, limit: limit) {
                done, all in
                progress.note("asking filters and policies: \(done) of \(all)")
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

/// Time of the policies that decided whether a client was told of a change.
enum AskedPolicies: String {
    case then, now
    case notAsked = "not_asked"

    init(_ judge: Explainer?) { self = judge.map { $0.isOfThen ? .then : .now } ?? .notAsked }
}

/// Clients that a change concerned, with the outcome for each.
struct ChangeAudience {
    struct Client {
        enum Outcome: String {
            case sent, received
            case sentLater = "sent_later"
            case receivedLater = "received_later"
            /// The filter, the event or a policy did not match.
            case notMatched = "not_matched"
            /// The record says that the change was not sent, but not why.
            case notSent = "not_sent"
            case endedBefore = "ended_before"
            case unknown
        }

        /// Source of the outcome.
        enum Basis: String { case recorded, derived }

        let attendance: Attendance
        let holder: RecordedNote
        let outcome: Outcome
        let reason: String
        let asked: AskedPolicies
        var basis = Basis.derived
        /// Time at which the change was sent, if that is recorded.
        var sentAt: Int64?

        var isSent: Bool { [.sent, .received, .sentLater, .receivedLater].contains(outcome) }
    }

    let change: RecordedChange
    private(set) var clients: [Client] = []
    /// Number of further clients that were not examined.
    private(set) var left = 0
    /// True if the change is a message from the database to a topic.
    private(set) var isMessage = false
    /// Number of channels to which the change is recorded as sent.
    private(set) var recorded = 0
    /// Number of clients without a record that came, left or asked over HTTP, at that time or later.
    let strangers: UInt64

    init(
        _ change: RecordedChange, _ book: AttendanceBook, _ record: DeliveryRecord, _ judges: Judges?, limit: Int,
        _ progress: (Int, Int) -> Void
    ) throws {
        self.change = change
        strangers = book.strangers
        guard let relation = change.relation?.relation else { return }
        recorded = record.count
        let committed = change.time ?? .min
        var concerned: [(Attendance, RecordedNote, Attendance.Reach, [ListedBinding])] = []
        let message = KeptMessage(change, relation)
        isMessage = message != nil
        for attendance in book.all {
            let reach = attendance.reach(of: change.offset, committed: committed)
            let holder = attendance.holder(at: change.offset)
            guard reach != .notYet else { continue }
            if let message {
                if message.isFor(attendance) { concerned.append((attendance, holder, reach, [])) }
                continue
            }
            let bindings = attendance.joined.bindings.filter { $0.isAbout(relation.schema, relation.name) }
            if !bindings.isEmpty { concerned.append((attendance, holder, reach, bindings)) }
        }
        left = max(0, concerned.count - limit)
        var verdicts = Verdicts(change, isJudged: judges != nil)
        for (done, (attendance, holder, reach, bindings)) in concerned.prefix(limit).enumerated() {
            progress(done, min(limit, concerned.count))
            if isMessage {
                clients.append(Client(told: message, attendance, holder, reach, record.finding(attendance, of: book)))
                continue
            }
            let later = try Self.isLater(reach) ? judges?.place(at: attendance.joined) : nil
            var place = max(change.offset, later ?? change.offset)
            if later != nil, let judges { place = try judges.beforeTurns(since: attendance.joined, place) }
            // The judge is chosen once. A record may arrive meanwhile, and the verdict must be reported with the judge
            // that gave it.
            let judge = try judges?.judge(at: place)
            let (isMatch, reason) = try verdicts.verdict(of: bindings, attendance, at: place, judge, judges)
            let asked = AskedPolicies(judge)
            var client = Client(
                attendance: attendance, holder: holder,
                outcome: isMatch.map { Self.outcome(reach, isMatch: $0) } ?? .unknown, reason: reason, asked: asked)
            client.take(record.finding(attendance, of: book), reach, isMatch: asked == .notAsked ? nil : isMatch)
            client.nameAnswer()
            clients.append(client)
        }
        try verdicts.checkThatSomebodyAnswered()
    }

    /// True if the client received the change after its return. The rights at its return then count.
    private static func isLater(_ reach: Attendance.Reach) -> Bool {
        if case .sentLater = reach { true } else { false }
    }

    fileprivate static func outcome(_ reach: Attendance.Reach, isMatch: Bool) -> Client.Outcome {
        guard isMatch else { return .notMatched }
        switch reach {
        case .sent(let isReceived): return isReceived ? .received : .sent
        case .sentLater(let isReceived): return isReceived ? .receivedLater : .sentLater
        case .endedBefore, .notYet: return .endedBefore
        case .unknown: return .unknown
        }
    }

    /// Names of claims that are unknown, so that policies were evaluated without them.
    var claimsNotKept: [String] {
        Set(clients.flatMap { ExplainedHolder.unknownClaims(of: $0.holder) }).sorted()
    }

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

    /// Sorts the clients to whom the change was sent before the others.
    mutating func sort() {
        let order = clients.enumerated().sorted { one, other in
            (one.element.isSent ? 0 : 1, one.offset) < (other.element.isSent ? 0 : 1, other.offset)
        }
        clients = order.map(\.element)
    }
}

/// A message from the database to a topic, read from `realtime.messages` or one of its partitions.
private struct KeptMessage {
    private let topic: [UInt8]
    private let isPrivate: Bool

    /// Reads the message; nil if the change is none.
    init?(_ change: RecordedChange, _ relation: Relation) {
        guard relation.schema == "realtime", relation.name == "messages" || relation.name.hasPrefix("messages_"),
            change.operation == .insert, change.forgotten == nil
        else { return nil }
        func text(_ name: String) -> String? {
            relation.columns.firstIndex { $0.name == name }.flatMap { change.value(of: $0)?.plainText }
        }
        guard let topic = text("topic") else { return nil }
        self.topic = Array("realtime:\(topic)".utf8)
        isPrivate = text("private") == "t"
    }

    func isFor(_ attendance: Attendance) -> Bool {
        let note = attendance.joined.note
        return note.topic == topic && note.isPrivate == isPrivate && !note.isDeaf
    }
}

extension ChangeAudience.Client {
    fileprivate init(
        _ other: Self, _ outcome: Outcome, _ basis: Basis, _ reason: String? = nil, sentAt: Int64? = nil
    ) {
        let parts = [reason, other.reason.isEmpty ? nil : other.reason].compactMap(\.self)
        self.init(
            attendance: other.attendance, holder: other.holder, outcome: outcome, reason: parts.joined(separator: "; "),
            asked: other.asked, basis: basis, sentAt: sentAt)
    }

    /// Creates the outcome for a database message. It is for all clients joined to its topic, so no filter or policy is
    /// evaluated.
    fileprivate init(
        told message: KeptMessage?, _ attendance: Attendance, _ holder: RecordedNote, _ reach: Attendance.Reach,
        _ finding: DeliveryRecord.Finding
    ) {
        self.init(
            attendance: attendance, holder: holder, outcome: ChangeAudience.outcome(reach, isMatch: true),
            reason: "joined to its topic", asked: .notAsked)
        take(finding, reach, isMatch: nil)
    }

    /// Corrects the outcome of a client that asked over HTTP: it did not leave and return.
    fileprivate mutating func nameAnswer() {
        guard attendance.isAnswer else { return }
        let outcome: Outcome =
            switch outcome {
            case .sentLater: .sent
            case .receivedLater: .received
            default: outcome
            }
        self = Self(self, outcome, basis, sentAt: sentAt)
    }

    /// Applies the recorded outcome, which takes precedence over the derived one.
    ///
    /// - Parameter isMatch: the verdict of filters and policies; nil if it is unknown.
    fileprivate mutating func take(_ finding: DeliveryRecord.Finding, _ reach: Attendance.Reach, isMatch: Bool?) {
        switch finding {
        case .none: break
        case .sent(let time):
            let isLater = if case .sentLater = reach { true } else { false }
            let isReceived = reach == .sent(isReceived: true) || reach == .sentLater(isReceived: true)
            let outcome: Outcome =
                isLater ? isReceived ? .receivedLater : .sentLater : isReceived ? .received : .sent
            let contradicts = isMatch == false ? "though by what was asked it is not for it" : nil
            self = Self(self, outcome, .recorded, contradicts, sentAt: time)
        case .notSent where outcome == .notMatched: self = Self(self, .notMatched, .recorded)
        case .notSent:
            let contradicts = isMatch == true ? "though by what was asked it is for it" : nil
            self = Self(self, .notSent, .recorded, contradicts)
        case .unknown where isSent: self = Self(self, .unknown, .derived, "what was sent then is not written down")
        case .unknown: break
        }
    }
}

/// Judges for the catalogs in force at different places of the log.
final class Judges {
    private let log: HistoryLog
    private let configuration: Configuration
    private let isOfNow: Bool
    /// Judges by the offset from which their catalog record counts; nil stands for the present catalog.
    private var known: [UInt64?: Explainer?] = [:]
    /// Judges by offset. The same judge is used for an offset again, even if new records arrive in the log.
    private var places: [UInt64: Explainer?] = [:]
    /// Turns of the log at the first question; nil before it.
    private var turns: [PastCatalogs.Turn]?

    init(_ log: HistoryLog, _ configuration: Configuration, isOfNow: Bool) {
        self.log = log
        self.configuration = configuration
        self.isOfNow = isOfNow
    }

    /// Returns judges for the catalogs that came into force after one place and up to another.
    func judges(after first: UInt64, through last: UInt64) throws -> [Explainer?] {
        if isOfNow { return [] }
        return try allTurns().filter { $0.place > first && $0.place <= last }.map { try judge(at: $0.place) }
    }

    /// Returns a place at which no catalog counts yet that was written down after a client had come back. The loop at the log's
    /// end may have lagged behind the log: it began to judge by such a catalog at a place from before the return, and later
    /// than the return.
    func beforeTurns(since joined: RecordedNote, _ place: UInt64) throws -> UInt64 {
        if isOfNow { return place }
        let first = try allTurns().first { $0.written > joined.note.time && $0.place <= place }
        return first.map { $0.place > 0 ? $0.place - 1 : 0 } ?? place
    }

    private func allTurns() throws -> [PastCatalogs.Turn] {
        if let turns { return turns }
        let found = try PastCatalogs.turns(of: log)
        turns = found
        return found
    }

    /// Returns the offset of the last change before a client joined. The note of a join reaches the log a moment later,
    /// after changes committed meanwhile.
    func place(at joined: RecordedNote) throws -> UInt64 {
        var next = joined.place
        var reader = try HistoryReader(log, HistoryQuery(from: .time(joined.note.time), to: .offset(joined.place)))
        if case .change(let change)? = try reader.next() { next = min(next, change.offset) }
        return next > 0 ? next - 1 : 0
    }

    /// Returns the judge for an offset; nil if neither the log nor a database has a catalog.
    func judge(at place: UInt64) throws -> Explainer? {
        if let judge = places[place] { return judge }
        let judge = try newJudge(at: place)
        places[place] = .some(judge)
        return judge
    }

    private func newJudge(at place: UInt64) throws -> Explainer? {
        let record = isOfNow ? nil : try PastCatalogs.record(of: log, at: place)
        if let judge = known[record?.since] { return judge }
        let settings = try Explainer.Settings(record, of: log, isOfNow: isOfNow, configuration, "who")
        let judge = try settings.map { try Explainer($0) }
        known[record?.since] = .some(judge)
        return judge
    }
}

/// Verdicts whether a change matches bindings; each question is evaluated once. Masked claims and filters are told
/// apart by their marks.
private struct Verdicts {
    private struct Question: Hashable {
        var claims: [UInt8]
        var role: [UInt8]
        var event: String
        var filter: String?
        var judge: ObjectIdentifier
    }

    private let change: RecordedChange
    /// True if policies are evaluated, where a catalog is known.
    private let isJudged: Bool
    /// Result of an evaluation; `isMatch` is nil if it is unknown.
    typealias Verdict = (isMatch: Bool?, reason: String)

    private var known: [Question: Verdict] = [:]
    private var answers = 0
    private var isAway = false

    init(_ change: RecordedChange, isJudged: Bool) {
        self.change = change
        self.isJudged = isJudged
    }

    /// Returns whether the client was sent the change. The log does not record when a client in catch-up reached the
    /// change. The verdict is unknown if rights, policies or tokens give different answers over the time until the
    /// client had certainly passed it.
    mutating func verdict(
        of bindings: [ListedBinding], _ attendance: Attendance, at place: UInt64, _ judge: Explainer?, _ judges: Judges?
    ) throws -> Verdict {
        let first = try verdict(of: bindings, attendance.holder(at: change.offset), judge)
        guard let judges, let end = attendance.catchUpEnd(to: change.offset) else { return first }
        // The range begins at the client's return, because the note of the return may follow the change of rights in
        // the log.
        let others = try judges.judges(after: place, through: end)
        for holder in attendance.holders(at: change.offset, through: end) {
            for other in [judge] + others {
                let verdict = try verdict(of: bindings, holder, other)
                if verdict.isMatch != first.isMatch { return (nil, Self.changedMeanwhile) }
            }
        }
        return first
    }

    private static let changedMeanwhile =
        "what it may see became another while it caught up, and when it came to the change is not recorded (ledger = full records it)"

    /// Returns the verdict of the first binding that matches, or else the reason why the last one does not.
    private mutating func verdict(
        of bindings: [ListedBinding], _ holder: RecordedNote, _ judge: Explainer?
    ) throws -> Verdict {
        var last: Verdict = (false, "")
        let isUnknown = judge == nil && isJudged
        for binding in bindings {
            guard binding.event == "*" || binding.event == change.operation.name else {
                if last.isMatch != nil { last = (false, "the subscription is for \(binding.event) only") }
                continue
            }
            let found: Verdict = isUnknown ? (nil, Self.unrecorded) : try verdict(of: binding, holder, judge)
            if found.isMatch == true { return found }
            // A known negative verdict does not replace an unknown one.
            if last.isMatch != nil { last = found }
        }
        return last
    }

    private static let unrecorded = "the log has not got what the catalog said when it came back"

    private mutating func verdict(
        of binding: ListedBinding, _ holder: RecordedNote, _ judge: Explainer?
    ) throws -> Verdict {
        guard let judge else { return (true, binding.filter.map { "if \($0)" } ?? "") }
        let question = Question(
            claims: holder.note.claims, role: holder.note.role, event: binding.event, filter: binding.filter,
            judge: ObjectIdentifier(judge))
        if let known = known[question] { return known }
        let found = ask(judge, holder, binding)
        known[question] = found
        return found
    }

    private mutating func ask(_ judge: Explainer, _ holder: RecordedNote, _ binding: ListedBinding) -> Verdict {
        do throws(ExplainFailure) {
            let explanation = try judge.explain(Explainer.Question(change, to: ExplainedHolder(holder), binding))
            answers += 1
            if explanation.isUndecided { return (nil, explanation.sentence) }
            let reason = explanation.sentence.split(separator: "told: ", maxSplits: 1).last.map(String.init) ?? ""
            return (explanation.isTold, reason)
        } catch {
            switch error {
            case .noRow:
                answers += 1
                return (true, "a truncate is for everybody who listens to the table")
            case .badClaims(let reason): return (nil, "not asked: \(reason)")
            case .roleNotRecorded(let role): return (nil, "the log has not got what role \(role) was allowed then")
            case .databaseAway:
                isAway = true
                return (nil, "the database does not say what its catalog is")
            }
        }
    }

    /// Throws if the database is unreachable and it was the only one to ask.
    func checkThatSomebodyAnswered() throws {
        guard isAway, answers == 0 else { return }
        throw CommandFailure(
            .unreachable, "the database does not say what its catalog is",
            hint: "Give --recorded for what is in the log alone.")
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
