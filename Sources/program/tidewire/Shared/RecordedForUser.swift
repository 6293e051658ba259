import Change
import Console
import Explaining
import History

/// Ledger's record of a user's clients at a change. It complements the verdict of the policies.
struct RecordedForUser {
    /// State of the user's clients at the change. `listened`: a client with the same binding on the table was sent the
    /// change, if policies allowed it.
    enum Listening: String {
        case listened, absent, otherwise
        case notKnown = "not_known"
    }

    private let findings: [(name: String, finding: DeliveryRecord.Finding)]
    let listening: Listening

    init(_ question: Explainer.Question, _ log: HistoryLog) throws {
        let (holder, change) = (question.holder, question.change)
        guard let subject = holder.subject else {
            (findings, listening) = ([], .notKnown)
            return
        }
        let record = try DeliveryRecord(of: change, in: log)
        let book = try AttendanceBook(log, at: change, of: subject)
        listening = Self.listening(book, question, record)
        findings = book.all.filter { $0.since <= change.offset }
            .map { ($0.name, record.finding($0, of: book)) }
            .filter { $0.1 != .none && $0.1 != .unknown }
    }

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

    private var listeningSentence: String {
        switch listening {
        case .listened: "by the ledger a client of his listened to the table then"
        case .absent: "by the ledger no client of his listened to the table then, so he was told nothing of it"
        case .otherwise:
            "by the ledger clients of his listened otherwise, or came back to it later: tidewire who says what became of each"
        case .notKnown:
            "whether a client of his listened to the table then is not in the ledger (setting: ledger; --sub or the claim sub)"
        }
    }

    /// - Parameter isTold: true if rights, filter and policies let the user see the change.
    func sentences(_ zone: DisplayZone, isTold: Bool) -> [String] {
        (isTold ? [listeningSentence] : []) + recordedSentences(zone)
    }

    private func recordedSentences(_ zone: DisplayZone) -> [String] {
        guard !findings.isEmpty else { return [] }
        let sent = findings.compactMap { name, finding -> String? in
            guard case .sent(let time) = finding else { return nil }
            return "recorded: it was sent to \(name) at \(zone.text(time))"
        }
        let others = findings.count - sent.count
        guard others > 0 else { return sent }
        let names = others == 1 ? "a client of his" : "\(others) clients of his"
        return sent + ["recorded: it was not sent to \(names) that had joined"]
    }

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
