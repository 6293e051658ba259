import Change
import Console
import History
import Replaying
import Settings

/// Printer of a planned replay, of its progress and of its outcome, as text or JSON.
struct ReplayText {
    private let plan: ReplayPlan
    private let speed: Pacer.Speed
    private let zone: DisplayZone
    private let isJSON: Bool
    private let terminal: Terminal

    init(_ plan: ReplayPlan, _ speed: Pacer.Speed, _ zone: DisplayZone, _ isJSON: Bool, _ terminal: Terminal) {
        self.plan = plan
        self.speed = speed
        self.zone = zone
        self.isJSON = isJSON
        self.terminal = terminal
    }

    // MARK: The plan

    /// Prints the plan: the tables with their counts, and the reasons why the target does not accept the plan.
    /// - Parameter isGo: true if the replay follows, false if the command only shows the plan.
    func print(into place: String, _ obstacles: [String], isGo: Bool) throws {
        if isJSON {
            for table in plan.tables { try terminal.print(json(table)) }
            return try terminal.print(json(obstacles, isGo))
        }
        guard plan.transactions > 0, let window = window else {
            return terminal.complain("this window has nothing to replay" + leftOut)
        }
        try terminal.print(ScreenText.escaped("\(window) into \(place):"))
        try terminal.print("")
        for line in table.lines(on: terminal) { try terminal.print(line) }
        try terminal.print("")
        try terminal.print("\(Self.count(plan.transactions, "transaction")), \(length)\(leftOut).")
        for obstacle in obstacles { try terminal.print(ScreenText.escaped("It cannot be replayed: \(obstacle).")) }
        if !isGo { try terminal.print("Nothing was written: --go replays it.") }
    }

    private var window: String? {
        guard let offsets = plan.offsets, let times = plan.times else { return nil }
        return "@\(offsets.lowerBound) to @\(offsets.upperBound), \(zone.text(times.lowerBound)) to "
            + "\(zone.text(times.upperBound)) \(zone.heading.replacing("TIME ", with: "")),"
    }

    private var table: Table {
        var table = Table([
            .text("TABLE", canBeCut: true), .text("INTO", canBeCut: true), .number("I"), .number("U"), .number("D"),
            .number("T"), .text("MASKED", canBeCut: true),
        ])
        for found in plan.tables {
            let counts = found.counts
            table.add(
                [found.source.description, found.target.description]
                    + [counts.inserts, counts.updates, counts.deletes, counts.truncates].map { String($0) }
                    + [found.maskedColumns.isEmpty ? "-" : found.maskedColumns.joined(separator: ", ")])
        }
        return table
    }

    /// Planned duration of the replay in whole seconds; nil if it is not known.
    private var seconds: UInt64? {
        guard speed != .maximum, let times = plan.times else { return nil }
        return Pacer(speed).nanoseconds(from: times.lowerBound, to: times.upperBound) / 1_000_000_000
    }

    private var length: String {
        "\(Self.count(plan.changes, "change")) \(speed)" + (seconds.map { ", which takes \(Self.duration($0))" } ?? "")
    }

    private static func duration(_ seconds: UInt64) -> String {
        let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60)
        let parts = [(days, "d"), (hours, "h"), (minutes, "min"), (seconds % 60, "s")].drop { $0.0 == 0 }.prefix(2)
        return parts.isEmpty ? "less than a second" : parts.map { "\($0.0) \($0.1)" }.joined(separator: " ")
    }

    private var leftOut: String {
        let parts = [
            (plan.messages, "message"), (plan.messageRows, "row of realtime.messages"),
            (UInt64(plan.gaps.count), "gap in the log"), (plan.forgotten, "change that was forgotten"),
        ].filter { $0.0 > 0 }.map { count, name in
            count == 1 ? "1 \(name)" : "\(count) " + name.replacing(/^(row|gap|message|change)/) { "\($0.output.0)s" }
        }
        return parts.isEmpty ? "" : "; left out: " + parts.joined(separator: ", ")
    }

    private static func count(_ number: UInt64, _ name: String) -> String {
        number == 1 ? "1 \(name)" : "\(number) \(name)s"
    }

    private func json(_ table: ReplayPlan.Table) -> String {
        var line = JSONLine()
        line.add("kind", "table")
        line.add("schema", table.source.schema)
        line.add("table", table.source.name)
        line.add("target_schema", table.target.schema)
        line.add("target_table", table.target.name)
        line.add("inserts", table.counts.inserts)
        line.add("updates", table.counts.updates)
        line.add("deletes", table.counts.deletes)
        line.add("truncates", table.counts.truncates)
        line.add("masked", json: Self.list(table.maskedColumns))
        return line.text
    }

    private static func list(_ texts: [String]) -> String {
        "[" + texts.map(JSONLine.quoted).joined(separator: ",") + "]"
    }

    private func json(_ obstacles: [String], _ isGo: Bool) -> String {
        var line = JSONLine()
        line.add("kind", "plan")
        line.add("from", json: plan.offsets.map { String($0.lowerBound) } ?? "null")
        line.add("to", json: plan.offsets.map { String($0.upperBound) } ?? "null")
        line.add("transactions", plan.transactions)
        line.add("changes", plan.changes)
        line.add("seconds", json: seconds.map { String($0) } ?? "null")
        line.add("messages", plan.messages)
        line.add("message_rows", plan.messageRows)
        line.add("gaps", plan.gaps.count)
        line.add("forgotten", plan.forgotten)
        line.add("obstacles", json: Self.list(obstacles))
        line.add("go", isGo)
        return line.text
    }

    // MARK: The audit

    func audited(into place: String, tag: String) -> String {
        let offsets = plan.offsets.map { "@\($0.lowerBound) to @\($0.upperBound)" } ?? ""
        let tables = plan.tables.map(\.source.description).joined(separator: ", ")
        return "\(offsets) into \(place), \(Self.count(plan.transactions, "transaction")), "
            + "\(Self.count(plan.changes, "change")) of \(tables)" + (tag.isEmpty ? "" : ", tag \(tag)")
    }

    // MARK: Progress and outcome

    func question(_ mark: ReplayMark, _ isStep: Bool) -> String {
        let info = mark.transaction
        return "\(isStep ? "next" : "pause before"): @\(mark.offset) xid \(info.xid) \(zone.text(info.commitTime)) "
            + "[Enter, c, q] "
    }

    func print(_ report: ReplayReport) throws {
        if isJSON {
            for conflict in report.conflicts { try terminal.print(json(conflict)) }
            return try terminal.print(json(report))
        }
        for conflict in report.conflicts {
            try terminal.print(ScreenText.escaped("Conflict: \(conflict)."))
        }
        let done =
            "Replayed \(Self.count(report.transactions, "transaction")), \(Self.count(report.changes, "change"))"
            + (report.skipped > 0 ? "; left out because of conflicts: \(report.skipped)" : "")
        guard report.end != .whole else { return try terminal.print(done + ".") }
        try terminal.print("\(done). \(report.end.sentence): --from @\(report.next ?? 0) continues.")
    }

    private func json(_ conflict: ReplayConflict) -> String {
        var line = JSONLine()
        line.add("kind", "conflict")
        line.add("offset", conflict.offset)
        line.add("schema", conflict.table?.schema)
        line.add("table", conflict.table?.name)
        line.add("reason", conflict.reason)
        return line.text
    }

    private func json(_ report: ReplayReport) -> String {
        var line = JSONLine()
        line.add("kind", "end")
        line.add("end", report.end.name)
        line.add("transactions", report.transactions)
        line.add("changes", report.changes)
        line.add("skipped", report.skipped)
        line.add("next", json: report.end == .whole ? "null" : report.next.map { String($0) } ?? "null")
        return line.text
    }
}

extension ReplayReport.End {
    fileprivate var name: String {
        switch self {
        case .whole: "whole"
        case .interrupted: "interrupted"
        case .stopped: "stopped"
        case .conflict: "conflict"
        }
    }

    fileprivate var sentence: String {
        switch self {
        case .whole: "Done"
        case .interrupted: "Interrupted"
        case .stopped: "Stopped"
        case .conflict: "Stopped at a conflict"
        }
    }
}
