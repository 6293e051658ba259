import Bytes
import Change
import Console
import EventLog
import History
import Projects
import Settings
import System

/// Command `tidewire log info`: lists the segments of a log.
struct LogInfoCommand: Command {
    let name = "info"
    let summary = "Show what the event log holds: segments, epochs, positions, size."
    let discussion = """
        Prints one line a segment, oldest first, with the offsets of its changes, the WAL position it reaches, the \
        times of its entries and its size. Then prints the totals of the log and how long it is kept. A new epoch \
        begins after a gap: changes before and after it are not one unbroken history.

        The command verifies every checksum. It prints a line on stderr for each damage, and ends with status 5. With \
        --unchecked it reads only what it shows.

        JSON. One object a segment with kind "segment", sequence, epoch, first_offset, end_offset (of the next change \
        after it), changes, entries, base_lsn, last_lsn, from, to (times; null if it is empty), bytes, sealed; then \
        one with kind "log", path, system_identifier, segments, epochs, first_offset, end_offset, changes, last_lsn, \
        from, to, bytes, retention_seconds and retention_bytes (of the log's hub; null without a limit or if unknown), \
        retention_known.
        """
    let options: [Option] = [.unchecked, .withoutProgress, .output, .json, .zone, .log, .project] + Option.asking
    let optionGroups: [OptionGroup] = [.configuration(of: [Setting(\.dataDirectory)])]
    let examples = [
        Example("tidewire log info", "What does the log of this hub hold?"),
        Example("tidewire log info --json | jq 'select(.kind == \"log\") | .bytes'", "How large is it?"),
    ]
    let exitCodes = LogAccess.exitCodes

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        if let code = try arguments.answer("info", options: allOptions, terminal) { return code }
        let zone = try arguments.zone()
        return try LogAccess.explained {
            let log = try arguments.historyLog(terminal)
            let (segments, damage) = try held(log, arguments, terminal)
            for line in damage { terminal.complain(line) }
            if !damage.isEmpty {
                terminal.complain("'tidewire help log accept-loss' explains how to continue with a damaged log")
            }
            guard !segments.isEmpty else { return .damaged }
            let info = LogInfo(
                path: log.directory.path, segments: segments, retention: RetentionFile(in: log.directory))
            if arguments.has(.json) {
                for segment in info.segments { try terminal.print(segment.json) }
                try terminal.print(info.json)
            } else {
                for line in info.table(zone).lines(on: terminal) { try terminal.print(line) }
                for line in info.sentences(zone) { try terminal.remark(line) }
            }
            return damage.isEmpty ? .ok : .damaged
        }
    }

    /// Returns the readable segments of the log, and sentences about damage.
    private func held(
        _ log: HistoryLog, _ arguments: Arguments, _ terminal: Terminal
    ) throws -> (segments: [SegmentSummary], damage: [String]) {
        if arguments.has(.unchecked) { return (try log.segments(), []) }
        let progress = Progress(terminal, isQuiet: arguments.has(.withoutProgress))
        let reports = try LogAccess.verified(log.directory, progress)
        let damage = reports.flatMap { report in
            report.problems.filter(\.isDamage).map { "\(report.path): \($0.words)" }
        }
        return (reports.compactMap(\.summary), damage)
    }
}

extension Option {
    fileprivate static let unchecked = Option.flag(
        "unchecked", "Do not verify checksums: this is faster, but finds no damage.")
}

private struct LogInfo {
    let path: String
    let segments: [SegmentSummary]
    /// Retention that the log's hub applies. Nil if the directory does not say it, as in a copy of the segments alone.
    let retention: RetentionFile?

    /// Earliest and latest commit time in the log, in microseconds since 1970; nil if the log has no changes. Messages
    /// outside of transactions have time zero, because their time is unknown.
    private var times: (from: Int64, to: Int64)? {
        let filled = segments.filter { !$0.isEmpty }
        guard let from = filled.map(\.begin).min(), let to = filled.map(\.maximumTime).max() else { return nil }
        return (from, to)
    }

    private var bytes: UInt64 { segments.reduce(0) { $0 + $1.bytes } }
    private var epochs: [UInt64] {
        segments.map(\.epoch).reduce(into: []) { if $0.last != $1 { $0.append($1) } }
    }
    private var first: SegmentSummary { segments[0] }
    private var last: SegmentSummary { segments[segments.count - 1] }

    func table(_ zone: DisplayZone) -> Table {
        var table = Table([
            .number("SEGMENT"), .text("EPOCH"), .number("FIRST OFFSET"), .number("CHANGES"), .text("LAST LSN"),
            .text("FROM (\(zone.name))"), .text("TO"), .text("SIZE"),
        ])
        for segment in segments {
            table.add([
                String(segment.sequence), Hex.text(segment.epoch), String(segment.firstOffset), String(segment.changes),
                LSN(segment.lastLSN).description, zone.text(segment.isEmpty ? nil : segment.begin),
                zone.text(segment.isEmpty ? nil : segment.maximumTime),
                ByteText.write(segment.bytes) + (segment.isSealed ? "" : " (being written)"),
            ])
        }
        return table
    }

    func sentences(_ zone: DisplayZone) -> [String] {
        let epochs = epochs.count == 1 ? "1 epoch" : "\(epochs.count) epochs (\(epochs.count - 1) marked by gaps)"
        let kept = retention.map { retention in
            let age = retention.seconds.map { DurationText.write(.seconds($0)) } ?? "any age"
            let size = retention.bytes.map { SizeText.write($0) } ?? "any size"
            return "kept by its hub for \(age) or \(size), whichever comes first (retention_age, retention_size)"
        }
        return [
            "",
            "\(path): \(last.endOffset - first.firstOffset) changes, @\(first.firstOffset) … @\(last.endOffset), "
                + "\(epochs), \(ByteText.write(bytes))",
            "from \(zone.text(times?.from)) to \(zone.text(times?.to)) \(zone.name), up to \(LSN(last.lastLSN)), "
                + "of database system \(last.header.source)",
            kept ?? "how long a hub keeps it is not known: no hub has run on this directory",
        ]
    }

    var json: String {
        var line = JSONLine()
        line.add("kind", "log")
        line.add("path", path)
        line.add("system_identifier", String(last.header.source))
        line.add("segments", segments.count)
        line.add("epochs", json: "[" + epochs.map { JSONLine.quoted(Hex.text($0)) }.joined(separator: ",") + "]")
        line.add("first_offset", first.firstOffset)
        line.add("end_offset", last.endOffset)
        line.add("changes", last.endOffset - first.firstOffset)
        line.add("last_lsn", LSN(last.lastLSN).description)
        line.add("from", times.map { TimeText.json($0.from) })
        line.add("to", times.map { TimeText.json($0.to) })
        line.add("bytes", bytes)
        line.add("retention_seconds", json: retention?.seconds.map { String($0) } ?? "null")
        line.add("retention_bytes", json: retention?.bytes.map { String($0) } ?? "null")
        line.add("retention_known", retention != nil)
        return line.text
    }
}

extension SegmentSummary {
    fileprivate var json: String {
        var line = JSONLine()
        line.add("kind", "segment")
        line.add("sequence", sequence)
        line.add("epoch", Hex.text(epoch))
        line.add("first_offset", firstOffset)
        line.add("end_offset", endOffset)
        line.add("changes", changes)
        line.add("entries", entries)
        line.add("base_lsn", LSN(header.baseLSN).description)
        line.add("last_lsn", LSN(lastLSN).description)
        line.add("from", isEmpty ? nil : TimeText.json(begin))
        line.add("to", isEmpty ? nil : TimeText.json(maximumTime))
        line.add("bytes", bytes)
        line.add("sealed", isSealed)
        return line.text
    }
}

/// Formatter for numbers of bytes: three digits and a unit, each 1024 times the unit before it.
enum ByteText {
    static func write(_ bytes: some BinaryInteger) -> String {
        var value = Double(bytes)
        var units = ["B", "kB", "MB", "GB", "TB"][...]
        while value >= 1000, units.count > 1 {
            value /= 1024
            units.removeFirst()
        }
        let digits = units.first == "B" || value >= 100 ? 0 : value >= 10 ? 1 : 2
        let scale = [1.0, 10.0, 100.0][digits]
        let tenths = Int((value * scale).rounded())
        let whole = String(tenths / Int(scale))
        guard digits > 0 else { return "\(whole) \(units.first ?? "B")" }
        let fraction = String(tenths % Int(scale))
        return "\(whole).\(String(repeating: "0", count: digits - fraction.count))\(fraction) \(units.first ?? "B")"
    }
}
