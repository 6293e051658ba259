import Change
import History

/// Policies by which the outcome for a client was derived: those at the time of the change, the present ones, or none.
public enum AskedPolicies: String, Sendable {
    case then, now
    case notAsked = "not_asked"

    public init(_ judge: Explainer?) { self = judge.map { $0.isOfThen ? .then : .now } ?? .notAsked }
}

/// Clients that one change concerned, with the outcome for each: sent, received, hidden by a policy, and so on.
public struct ChangeAudience {
    public struct Client {
        public enum Outcome: String, Sendable {
            case sent, received
            case sentLater = "sent_later"
            case receivedLater = "received_later"
            /// The client's filter, its operations or a policy did not match the change.
            case notMatched = "not_matched"
            /// The delivery record says that the hub did not send the change, but not why.
            case notSent = "not_sent"
            case endedBefore = "ended_before"
            case unknown
        }

        /// Source of the outcome: the delivery record of the log, or the filters and policies, evaluated again.
        public enum Basis: String, Sendable { case recorded, derived }

        public let attendance: Attendance
        public let holder: RecordedNote
        public let outcome: Outcome
        public let reason: String
        public let asked: AskedPolicies
        public internal(set) var basis = Basis.derived
        /// Unix time in microseconds at which the hub sent the change; nil if the log does not record it.
        public internal(set) var sentAt: Int64?

        public var isSent: Bool { [.sent, .received, .sentLater, .receivedLater].contains(outcome) }
    }

    public let change: RecordedChange
    public private(set) var clients: [Client] = []
    /// Notes of refused sockets, joins and requests before the change that could have received it. The ledger shows
    /// what some of them asked for; those that asked for something else are left out.
    public private(set) var refusals: [RecordedNote] = []
    /// Number of clients beyond the limit, which were not examined.
    public private(set) var left = 0
    /// True if the change is a message from the database to a topic.
    public private(set) var isMessage = false
    /// Number of channels for which the log records that the hub sent them the change.
    public private(set) var recorded = 0
    /// Number of clients without a note in the ledger that joined, left or sent an HTTP request at the time of the
    /// change or later.
    public let strangers: UInt64

    /// Evaluates the change for each client in the attendance book, up to `limit` clients.
    ///
    /// - Throws: `AudienceFailure` if the database is unreachable and nothing else could answer.
    public init(
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
        let refused = book.refusals.filter { refusal in
            if refusal.note.topic.isEmpty { return true }
            if let message { return message.isFor(refused: refusal.note) }
            let bindings = refusal.bindings
            return refusal.note.topic != LedgerNote.topicOfPosts
                && (bindings.isEmpty || bindings.contains { $0.isAbout(relation.schema, relation.name) })
        }
        refusals = Array(refused.suffix(limit))
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
        // Clients that had left cannot have received the change, so they are the first that the limit excludes.
        let hadGone = concerned.filter { $0.2 == .endedBefore }
        concerned = concerned.filter { $0.2 != .endedBefore } + hadGone
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
            // The explainer is chosen once: the log may get another catalog record at any time, and the verdict must be
            // reported with the explainer that gave it.
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
        assert(clients.count + left == concerned.count, "each client that a change concerns is examined or counted")
        try verdicts.checkThatSomebodyAnswered()
    }

    /// True if the hub sent the client the change after its return. The client's rights at its return then count.
    private static func isLater(_ reach: Attendance.Reach) -> Bool {
        if case .sentLater = reach { true } else { false }
    }

    static func outcome(_ reach: Attendance.Reach, isMatch: Bool) -> Client.Outcome {
        assert(reach != .notYet, "a change does not concern a client that came later")
        guard isMatch else { return .notMatched }
        switch reach {
        case .sent(let isReceived): return isReceived ? .received : .sent
        case .sentLater(let isReceived): return isReceived ? .receivedLater : .sentLater
        case .endedBefore, .notYet: return .endedBefore
        case .unknown: return .unknown
        }
    }

    /// Names of claims whose values are unknown, so that policies were evaluated without them.
    public var claimsNotKept: [String] {
        Set(clients.flatMap { ExplainedHolder.unknownClaims(of: $0.holder) }).sorted()
    }

    /// Sorts the clients: those to whom the hub sent the change are first.
    public mutating func sort() {
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

    /// Reads the message from the change's row; nil if the change is no message of the database.
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

    /// True if the refused client asked for the message's topic.
    func isFor(refused note: LedgerNote) -> Bool { note.topic == topic }

    /// True if the channel had joined the message's topic, was private if the message is, and could read broadcasts.
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

    /// Creates the outcome of a database message for one client. Such a message is for all clients that joined its
    /// topic, so no filter or policy is evaluated.
    fileprivate init(
        told message: KeptMessage?, _ attendance: Attendance, _ holder: RecordedNote, _ reach: Attendance.Reach,
        _ finding: DeliveryRecord.Finding
    ) {
        self.init(
            attendance: attendance, holder: holder, outcome: ChangeAudience.outcome(reach, isMatch: true),
            reason: "joined to its topic", asked: .notAsked)
        take(finding, reach, isMatch: nil)
    }

    /// Corrects the outcome of a client that asked over HTTP. Such a client did not leave and return, so "sent later"
    /// becomes "sent".
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

    /// Applies the outcome in the delivery record, which takes precedence over the derived one.
    ///
    /// - Parameter isMatch: verdict of filters and policies; nil if it is unknown.
    fileprivate mutating func take(_ finding: DeliveryRecord.Finding, _ reach: Attendance.Reach, isMatch: Bool?) {
        assert(basis == .derived, "a record is taken once")
        switch finding {
        case .none: break
        case .sent(let time):
            let isLater = if case .sentLater = reach { true } else { false }
            let isReceived = reach == .sent(isReceived: true) || reach == .sentLater(isReceived: true)
            let outcome: Outcome =
                isLater ? isReceived ? .receivedLater : .sentLater : isReceived ? .received : .sent
            let contradicts =
                isMatch == false ? "although filters and policies say that it is not for this client" : nil
            self = Self(self, outcome, .recorded, contradicts, sentAt: time)
        case .notSent where outcome == .notMatched: self = Self(self, .notMatched, .recorded)
        case .notSent:
            let contradicts = isMatch == true ? "although filters and policies say that it is for this client" : nil
            self = Self(self, .notSent, .recorded, contradicts)
        case .unknown where isSent: self = Self(self, .unknown, .derived, "what was sent then is not recorded")
        case .unknown: break
        }
    }
}
