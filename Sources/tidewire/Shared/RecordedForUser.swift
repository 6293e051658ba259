import Change
import Console
import Explaining
import History

/// To which clients of a user a change is recorded as sent: beside what policies say that he was to be told.
struct RecordedForUser {
    private let findings: [(name: String, finding: DeliveryRecord.Finding)]

    init(_ holder: ExplainedHolder, _ change: RecordedChange, _ log: HistoryLog) throws {
        guard let subject = holder.subject else {
            findings = []
            return
        }
        let record = try DeliveryRecord(of: change, in: log)
        let book = try AttendanceBook(log, at: change, of: subject)
        findings = book.all.filter { $0.since <= change.offset }
            .map { ($0.name, record.finding($0, of: book)) }
            .filter { $0.1 != .none && $0.1 != .unknown }
    }

    func sentences(_ zone: DisplayZone) -> [String] {
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
