import Change
import Console
import EventLog
import Glibc
import History
import System

/// Command `tidewire log verify`: verifies the checksums of a log, and repairs an incomplete end.
struct LogVerifyCommand: Command {
    let name = "verify"
    let summary = "Verify every checksum of the event log, and repair a torn tail."
    let discussion = """
        Reads every byte of every segment and verifies checksums, the order of entries, and that each segment \
        continues where the one before ends. It changes nothing and may run beside the hub.

        A torn tail is what a crash leaves of a write that was never confirmed. The next start of the hub cuts it off, \
        and the database sends those changes again; if it no longer has them, the hub records a gap. --repair cuts the \
        tail off now. It repairs nothing else, and not while a hub runs, which may just be writing there. Damage is \
        different: these bytes were durable, and are unreadable now. Restore the segment from a backup, or give up \
        what is lost with 'tidewire log accept-loss'.

        JSON. One object a segment: sequence, path, ok, changes, first_offset, end_offset, bytes (the last four are \
        null if its header is unreadable), forgotten (how many changes were), problems: a list of objects with kind \
        (torn_tail, damaged, bad_index, missing_segment, discontinuity), position and text.
        """
    let options: [Option] = [.repair, .withoutProgress, .output, .json, .log, .project] + Option.asking
    let optionGroups: [OptionGroup] = [.dataDirectory]
    let examples = [
        Example("tidewire log verify", "Is every byte as it was written?"),
        Example(
            "tidewire log verify --repair --log /backup/log", "Repair a copy that was taken while the hub was writing:"),
    ]
    let exitCodes: [ExitCode] = [.notFound, .unreachable, .damaged]

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        if let code = try arguments.answer("verify", options: allOptions, terminal) { return code }
        return try LogAccess.explained {
            let directory = try LogAccess.open(arguments.logDirectory(terminal))
            if arguments.has(.repair) { try repair(directory, terminal) }
            let progress = Progress(terminal, isQuiet: arguments.has(.withoutProgress))
            var forgotten: [UInt64: Int] = [:]
            let reports = try LogAccess.verified(directory, progress) { segment, kind, payload in
                let count = ForgottenCount.of(kind, payload)
                if count > 0 { forgotten[segment, default: 0] += count }
            }
            if terminal.form == .csv || terminal.form == .markdown {
                try printRows(reports, forgotten, terminal)
            } else {
                for report in reports { try show(report, forgotten[report.sequence] ?? 0, arguments, terminal) }
            }
            let verdict = Verdict(reports)
            guard !arguments.has(.json) else { return verdict.exitCode }
            try terminal.remark(verdict.sentence)
            try tell(of: forgotten.values.reduce(0, +), directory, terminal)
            return verdict.exitCode
        }
    }

    /// Prints the report of each segment as csv or md.
    private func printRows(
        _ reports: [SegmentReport], _ forgotten: [UInt64: Int], _ terminal: Terminal
    ) throws {
        var table = TableStream(
            ["SEQUENCE", "PATH", "OK", "CHANGES", "FIRST", "END", "BYTES", "FORGOTTEN", "PROBLEMS"].map { .text($0) },
            on: terminal)
        try terminal.print(heading: table)
        for report in reports {
            let summary = report.summary
            let cells: [String] = [
                "\(report.sequence)", report.path, report.problems.isEmpty ? "yes" : "no",
                summary.map { "\($0.changes)" } ?? "", summary.map { "\($0.firstOffset)" } ?? "",
                summary.map { "\($0.endOffset)" } ?? "", summary.map { "\($0.bytes)" } ?? "",
                "\(forgotten[report.sequence] ?? 0)", report.problems.map(\.words).joined(separator: "; "),
            ]
            try terminal.print(table.line(cells))
        }
    }

    private func tell(of forgotten: Int, _ directory: any StorageDirectory, _ terminal: Terminal) throws {
        if forgotten > 0 {
            let changes =
                forgotten == 1
                ? "1 change was forgotten: its mark is" : "\(forgotten) changes were forgotten: their marks are"
            try terminal.remark("\(changes) readable")
        }
        if try EventLogVerifier.hasUnfinishedErasure(directory) {
            try terminal.remark(
                "a 'tidewire log forget' was interrupted: the hub's next start finishes it, or the next such command")
        }
    }

    private func repair(_ directory: any StorageDirectory, _ terminal: Terminal) throws {
        let recovery: EventLogRecovery
        do throws(EventLogError) {
            recovery = try EventLogVerifier.repair(directory)
        } catch {
            throw refusal(error)
        }
        if let cut = recovery.cutAt {
            terminal.complain("cut off \(ByteText.write(recovery.cutBytes)) of a torn tail at byte \(cut)")
        }
    }

    private func refusal(_ error: EventLogError) -> CommandFailure {
        guard case .lockedElsewhere(let path, let process) = error else { return LogAccess.failure(error) }
        let owner = process.map { "process \($0)" } ?? "another process"
        return CommandFailure(
            .notFound, "the event log \(path) is in use by \(owner): --repair needs a log that no process writes",
            hint: "Stop the hub first; or leave it: each start of the hub also repairs a torn tail.")
    }

    private func show(
        _ report: SegmentReport, _ forgotten: Int, _ arguments: Arguments, _ terminal: Terminal
    ) throws {
        if arguments.has(.json) { return try terminal.print(report.json(forgotten)) }
        for problem in report.problems { try terminal.print("\(report.path): \(problem.words)") }
    }
}

extension Option {
    fileprivate static let repair = Option.flag("repair", "Cut off a torn tail.")
}

private struct Verdict {
    private let reports: [SegmentReport]

    init(_ reports: [SegmentReport]) { self.reports = reports }

    private var problems: [EventLogProblem] { reports.flatMap(\.problems) }
    private var isDamaged: Bool { problems.contains { $0.isDamage } }
    /// True if the log ends with an incomplete entry, as after a crash.
    private var isTorn: Bool { problems.contains { $0.isTorn } }

    /// Exit code of the verification: `damaged`, `notFound` for an incomplete last entry, otherwise `ok`. A missing
    /// index only makes reads slower, so it is no failure.
    var exitCode: ExitCode { isDamaged ? .damaged : isTorn ? .notFound : .ok }

    var sentence: String {
        let summaries = reports.compactMap(\.summary)
        let size = ByteText.write(summaries.reduce(0) { $0 + $1.bytes })
        let segments = reports.count == 1 ? "1 segment" : "\(reports.count) segments"
        let held = "\(segments), \(summaries.reduce(0) { $0 + $1.changes }) changes, \(size) read"
        if isDamaged { return "the event log is damaged: \(held)" }
        if isTorn {
            return
                "the log has a torn tail, and is otherwise undamaged: \(held); --repair cuts the tail off, and so does the hub's next start"
        }
        return "every checksum is correct: \(held)"
    }
}

extension EventLogProblem {
    fileprivate var isTorn: Bool { if case .tornTail = self { true } else { false } }

    fileprivate var kind: String {
        switch self {
        case .tornTail: "torn_tail"
        case .damaged: "damaged"
        case .badIndex: "bad_index"
        case .missingSegment: "missing_segment"
        case .discontinuity: "discontinuity"
        }
    }

    var words: String {
        switch self {
        case .tornTail(let position, let bytes):
            "\(bytes) bytes of an unfinished write at byte \(position) (a running hub may be writing it just now)"
        case .damaged(let position, let finding): "damaged at byte \(position): \(finding)"
        case .badIndex: "its index is missing or wrong; the hub's next start makes it again"
        case .missingSegment: "the segment is missing"
        case .discontinuity(let expected, let found): "it begins at @\(found) where @\(expected) was expected"
        }
    }

    fileprivate var position: UInt64? {
        switch self {
        case .tornTail(let position, _), .damaged(let position, _): position
        case .badIndex, .missingSegment, .discontinuity: nil
        }
    }

    fileprivate var json: String {
        var line = JSONLine()
        line.add("kind", kind)
        line.add("position", json: position.map { String($0) } ?? "null")
        line.add("text", words)
        return line.text
    }
}

extension SegmentReport {
    fileprivate func json(_ forgotten: Int) -> String {
        var line = JSONLine()
        line.add("sequence", sequence)
        line.add("path", path)
        line.add("ok", problems.isEmpty)
        for (name, value) in [
            ("changes", summary?.changes), ("first_offset", summary?.firstOffset), ("end_offset", summary?.endOffset),
            ("bytes", summary?.bytes),
        ] {
            line.add(name, json: value.map { String($0) } ?? "null")
        }
        line.add("forgotten", forgotten)
        line.add("problems", json: "[" + problems.map(\.json).joined(separator: ",") + "]")
        return line.text
    }
}
