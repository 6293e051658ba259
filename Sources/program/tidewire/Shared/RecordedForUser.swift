import Change
import Console
import Explaining
import History

/// Facts from the ledger about a user's clients at the time of a change: whether they listened, were sent the change,
/// or were refused. `tidewire why` prints them beside the policies' verdict.
struct RecordedForUser {
    /// State of the user's clients at the change. `listened`: one had the asked filter and role on the table, or the
    /// ledger records that it was sent the change. `otherwise`: they listened with another filter or role, or caught up
    /// later. `absent`: none listened.
    enum Listening: String {
        case listened, absent, otherwise
        case notKnown = "not_known"
    }

    private let findings: [(name: String, finding: DeliveryRecord.Finding)]
    let listening: Listening
    /// Last record that the hub refused a socket, join or request of the user before the change. Nil if there is none,
    /// or the user joined after it.
    private let refusal: RecordedNote?

    init(_ question: Explainer.Question, _ log: HistoryLog) throws {
        let (holder, change) = (question.holder, question.change)
        guard let subject = holder.subject else {
            (findings, listening, refusal) = ([], .notKnown, nil)
            return
        }
        let record = try DeliveryRecord(of: change, in: log)
        let book = try AttendanceBook(log, at: change, of: subject)
        listening = Self.listening(book, question, record)
        refusal = book.refusals.last { $0.note.topic != LedgerNote.topicOfPosts }
        findings = book.all.filter { $0.since <= change.offset }
            .map { ($0.name, record.finding($0, of: book)) }
            .filter { $0.1 != .none && $0.1 != .unknown }
    }

    /// Returns the state of the user's clients at the change, from their joins and ends in the ledger.
    private static func listening(
        _ book: AttendanceBook, _ question: Explainer.Question, _ record: DeliveryRecord
    ) -> Listening {
        guard let relation = question.change.relation?.relation else { return .notKnown }
        if book.all.contains(where: { if case .sent = record.finding($0, of: book) { true } else { false } }) {
            return .listened
        }
        guard book.strangers == 0, book.isKept(at: question.change.offset) else { return .notKnown }
        var found = Listening.absent
        for stay in book.all {
            let bindings = stay.joined.bindings.filter {
                $0.isAbout(relation.schema, relation.name) && ["*", question.change.operation.name].contains($0.event)
            }
            guard !bindings.isEmpty else { continue }
            switch stay.reach(of: question.change.offset, committed: question.change.time ?? .min) {
            case .notYet, .endedBefore: continue
            case .unknown: found = .notKnown
            case .sent, .sentLater:
                let isSame =
                    bindings.contains { $0.filter == question.filter }
                    && String(decoding: stay.holder(at: question.change.offset).note.role, as: UTF8.self)
                        == question.holder.role
                if isSame, stay.catchUpEnd(to: question.change.offset) == nil,
                    record.finding(stay, of: book) != .notSent
                {
                    return .listened
                }
                if found == .absent { found = .otherwise }
            }
        }
        return found
    }

    /// Sentence about whether a client of the user listened to the table at the time of the change.
    private var listeningSentence: String {
        switch listening {
        case .listened: "by the ledger, a client of the user listened to the table then"
        case .absent: "by the ledger, no client of the user listened to the table then, so the user was not told"
        case .otherwise:
            "by the ledger, clients of the user listened with another filter or role, or came back later: 'tidewire who' shows each"
        case .notKnown:
            "the ledger does not show whether a client of the user listened to the table then (setting: ledger; --sub or the claim sub)"
        }
    }

    /// Returns the sentences about the user's clients for the explanation of a change.
    /// - Parameter isTold: true if rights, filter and policies let the user see the change.
    func sentences(_ zone: DisplayZone, isTold: Bool) -> [String] {
        (isTold ? [listeningSentence] : []) + (refusal.map { [$0.sentence(zone)] } ?? []) + recordedSentences(zone)
    }

    /// Returns the sentences about deliveries that the ledger records (`ledger = full`).
    private func recordedSentences(_ zone: DisplayZone) -> [String] {
        guard !findings.isEmpty else { return [] }
        let sent = findings.compactMap { name, finding -> String? in
            guard case .sent(let time) = finding else { return nil }
            return "recorded: it was sent to \(name) at \(zone.text(time))"
        }
        let others = findings.count - sent.count
        guard others > 0 else { return sent }
        let names = others == 1 ? "a client of the user" : "\(others) clients of the user"
        return sent + ["recorded: it was not sent to \(names) that had joined"]
    }

    /// JSON object of the last refusal of the user before the change; null if there is none, or the user joined after
    /// it.
    var refusedJSON: String {
        guard let note = refusal?.note else { return "null" }
        var line = JSONLine()
        line.add("time", TimeText.json(note.time))
        line.add("topic", String(decoding: note.topic, as: UTF8.self))
        line.add("reason", String(decoding: note.reason, as: UTF8.self))
        return line.text
    }

    /// JSON array of the user's clients whose delivery of the change is recorded, each with the time at which it was
    /// sent.
    var json: String {
        let items = findings.map { name, finding in
            var line = JSONLine()
            line.add("session", name)
            let time: Int64? = if case .sent(let time) = finding { time } else { nil }
            line.add("sent_at", time.map(TimeText.json))
            return line.text
        }
        return "[" + items.joined(separator: ",") + "]"
    }
}

extension RecordedNote {
    /// Returns the sentence about a refusal: its time, the refused socket, join or request, and the reason.
    func sentence(_ zone: DisplayZone) -> String {
        let topic = String(decoding: note.topic, as: UTF8.self)
        let reason = String(decoding: note.reason, as: UTF8.self)
        let what =
            if topic.isEmpty { "the socket" } else if topic.hasPrefix("http:") { "a request (\(topic))" } else {
                "the join of \(topic)"
            }
        return "recorded: at \(zone.text(note.time)) the hub refused \(what): \(reason)"
    }
}
