import Bytes
import Console
import History

/// Command `tidewire log export`: writes the log as lines of JSON.
struct LogExportCommand: Command {
    let name = "export"
    let summary = "Write the event log, or a window of it, as NDJSON."
    let discussion = """
        Writes everything in the log to standard output, one JSON object a line: a header, each schema before its \
        first use, transactions with their changes, gaps, idle positions, and an end line that shows that the export \
        is complete. Values are in PostgreSQL's text form. 'tidewire log import' makes an identical log from an \
        export. The export contains only whole transactions: every transaction that has a change in the window. A \
        window of time includes everything in the log from its first transaction to its last.

        \(SelectorHelp.text)

        LINES. Every line has a type. header: format, version, source, epoch, offset, lsn. relation: relation (its \
        fingerprint), oid, schema, table, replica_identity, columns. transaction: offset, changes, xid, commit_lsn, \
        end_lsn, commit_time, origin, first_index, continued (the next transaction line continues this large \
        transaction), lsn, time. change: offset, op, relation, old_image (key or full), old, new, options; for \
        messages prefix, content. progress: lsn, time. gap: offset, epoch, source, reason, from, to, lsn, time. end: \
        offset, lines. NULL is null, {"unchanged":true} stands for a large value that PostgreSQL did not send, \
        {"hex":…} for bytes that are not text.

        MASKS. The export hides values of columns with well-known names (email, password, token, phone, address and \
        others), and of the columns that the file of the setting mask_rules names. In their place it has a mark such \
        as *** 1f3a90c2d47b0e85, which is the same for equal values within one export. It also hides values with such \
        names inside JSON, claims and filters. For a backup, use --unmask '*'.
        """
    let options: [Option] = [.from, .to, .withoutProgress, .zone, .log, .project] + Option.masking
    let optionGroups: [OptionGroup] = [.dataDirectory]
    let examples = [
        Example("tidewire log export --unmask '*' | gzip > log.ndjson.gz", "A backup that other programs can read:"),
        Example(
            "tidewire log export --from -1h --mask users.name > incident.ndjson",
            "A window for a colleague, masked:"),
    ]
    let exitCodes = LogAccess.exitCodes

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        let query = try arguments.query(try arguments.zone())
        try LogAccess.explained {
            let log = try arguments.historyLog(terminal)
            _ = try NameCheck(log)
            var export = try LogExport(log, from: query.from, to: query.to)
            let progress = Progress(terminal, isQuiet: arguments.has(.withoutProgress), sharesScreen: true)
            defer { progress.clear() }
            let offsets = export.offsets
            try export.run { line in
                try terminal.write(line)
            } noting: { offset in
                let done = Progress.percent(offset - min(offset, offsets.lowerBound), of: UInt64(offsets.count))
                progress.note("exported \(done), up to @\(offset)")
            }
        }
        return .ok
    }
}
