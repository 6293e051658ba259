import Bytes
import Change
import Console
import EventLog
import History
import Ingest
import System

/// Command `tidewire log forget`: removes the values of one row from the log for good.
struct LogForgetCommand: Command {
    let name = "forget"
    let summary = "Remove the values of one row from the event log for good."
    let discussion = """
        For a person's right to be forgotten. All images of the row, old and new, lose their values in all segments of \
        the log, also in large transactions and under former names and schemas of the table. Of each change these \
        remain: its operation, table, offset, transaction and time, the day it was forgotten, and up to four bytes of \
        a hash of the row's key. By the hash, 'tidewire row' can say "forgotten on DATE" to someone who knows the key. \
        Someone who guesses keys can check a guess by it. Everything else stays the same: offsets, positions, counts, \
        checksums.

        Without --go it only shows how many changes in how many segments it would remove. Name the row as for \
        'tidewire row': by the values of its key, or by column=value. With column=value, the command removes every \
        change whose row had these values before or after it. If a change gave the row another key, the history under \
        that key is not removed: forget that key too.

        WITH A RUNNING HUB, use --server. The hub begins a new segment, so that everything written before is in sealed \
        segments. It then writes each segment with changes of the row again, and keeps serving. A client that is \
        catching up in a replaced segment reads it to its end as it was, and values that the hub had read before may \
        stay in its memory until it restarts. Without --server the hub must not run, because it writes to one of the \
        segments and deletes others: stop it, forget, start it. With --write-down, the command needs no stop: it notes \
        in the log's directory what to remove from sealed segments, and the hub does it at its next start or at the \
        next such request.

        If a removal is interrupted, the next one or the hub's next start completes it; until then 'tidewire log \
        verify' reports it. The hub tells clients that resume from a position before a forgotten change that changes \
        of its table may be missing (ChangesMissing), and they fetch.

        The command does not search these places: other tables with the same values (it lists the tables), other rows, \
        messages that the database wrote into its WAL, presence payloads of clients, the ledger (claims and filters of \
        joined clients), and everything outside the log: bundles, exports, backups, what 'log accept-loss' set aside, \
        free blocks of the disk, and the database itself.

        The command first writes a line into the log's audit file, without the key: see 'tidewire log audit'.

        JSON. One object: table, changes, segments, other_keys (changes that gave the row another key), \
        already_forgotten, not_looked_at (a list of tables), newest_segment (changes that --write-down leaves, because \
        the hub writes to their segment), done.
        """
    let operands = [
        Operand("TABLE", .one, "The table: notes (which is public.notes), app.notes or \"Odd Schema\".\"t\"."),
        Operand("KEY", .any, "A value for each column of the key, or column=value."),
    ]
    let options: [Option] = [.go, .writeDown, .auditFile, .withoutProgress, .json, .log, .project] + Option.asking
    let optionGroups: [OptionGroup] = [.dataDirectory]
    let examples = [
        Example("tidewire log forget users 4711", "How many changes of this user does the log have?"),
        Example("tidewire log forget users 4711 --go", "Remove them, while no hub runs:"),
        Example(
            "tidewire log forget users 4711 --go --server https://hub.example.com", "Let a running hub remove them:"),
        Example("tidewire log forget realtime.messages id=7f3c2b1e-0c5d-4f6e-8a52-000000000001 --go", "One message:"),
    ]
    let exitCodes = LogAccess.exitCodes

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        guard let table = TableName(arguments.operands[0]) else {
            throw UsageError(
                "TABLE \(arguments.operands[0]): expected table, schema.table or \"Quoted Schema\".\"table\"")
        }
        guard arguments.operands.count > 1 else {
            throw UsageError("KEY is missing: give the values of the row's key, or column=value")
        }
        guard !arguments.has(.writeDown) || arguments.has(.go) else { throw UsageError("--write-down goes with --go") }
        if let code = try arguments.forgetting(terminal) { return code }
        let path = try arguments.logDirectory(terminal)
        return try LogAccess.explained {
            let directory = try LogAccess.openDirectory(path)
            let progress = Progress(terminal, isQuiet: arguments.has(.withoutProgress))
            defer { progress.clear() }
            guard arguments.has(.go) else {
                let plan = try plan(table, arguments, directory, progress)
                progress.clear()
                return try show(plan, table, isDone: false, arguments, terminal)
            }
            if arguments.has(.writeDown) { return try writeDown(table, arguments, directory, progress, terminal) }
            let erasure = try erasure(directory)
            if erasure.segmentsFinished > 0 {
                terminal.complain(
                    "finished an interrupted removal first, in \(erasure.segmentsFinished) segments")
            }
            let plan = try plan(table, arguments, directory, progress)
            if plan.changes > 0 {
                let what = "\(table), \(plan.changes) changes in \(plan.segments.count) segments"
                try arguments.audit(.forget, what, ofLog: path, terminal)
            }
            try erasure.perform(plan.patches) { done, all in
                progress.note("writing segments again: \(done) of \(all)")
            }
            progress.clear()
            return try show(plan, table, isDone: true, arguments, terminal)
        }
    }

    /// Records in the log's directory which values to remove from sealed segments. The running hub then removes them.
    private func writeDown(
        _ table: TableName, _ arguments: Arguments, _ directory: DiskDirectory, _ progress: Progress,
        _ terminal: Terminal
    ) throws -> ExitCode {
        let newest = try EventLogErasure.newestSegment(directory)
        let plan = try plan(table, arguments, directory, progress)
        let patches = plan.patches.filter { $0.segment < newest }
        if !patches.isEmpty {
            let segments = Set(patches.map(\.segment)).count
            try arguments.audit(
                .forget, "\(table), \(plan.changes(before: newest)) changes in \(segments) segments",
                ofLog: try arguments.logDirectory(terminal), terminal)
        }
        do throws(EventLogError) {
            try EventLogErasure.writeDown(patches, in: directory)
        } catch {
            guard case .lockedElsewhere = error else { throw error }
            throw CommandFailure(
                .notFound, "\(error)", hint: "Another removal is noted or running: wait until it is done.")
        }
        progress.clear()
        return try show(plan, table, isDone: false, newest: newest, arguments, terminal)
    }

    /// Finds all changes of the row whose values the command removes.
    private func plan(
        _ table: TableName, _ arguments: Arguments, _ directory: any StorageDirectory, _ progress: Progress
    ) throws -> Forgetting {
        let log = HistoryLog(directory: directory, masking: .nothing)
        do {
            return try Forgetting(
                of: RowName(Array(arguments.operands.dropFirst())), in: table, log, at: Clock.unixMicroseconds()
            ) { offset in progress.note("searching the log: @\(offset)") }
        } catch let error as RowNameError {
            throw RowCommand.explained(error, try NameCheck(log))
        } catch ForgettingError.tooMuch(let changes) {
            throw CommandFailure(
                .notFound, "more than \(changes) changes match, which is more than one command can forget",
                hint: "Is that one row? With column=value, every change whose row had the value matches.")
        }
    }

    /// Locks the log for the removal of values. Throws if a hub is running on it.
    private func erasure(_ directory: DiskDirectory) throws -> EventLogErasure {
        do throws(EventLogError) {
            return try EventLogErasure(directory, options: IngestService.indexOptions())
        } catch {
            guard case .lockedElsewhere = error else { throw error }
            throw CommandFailure(
                .notFound, "\(error)",
                hint: "Use --server URL to let the hub do it, or stop the hub first: it writes to one of the segments.")
        }
    }

    private func show(
        _ plan: Forgetting, _ table: TableName, isDone: Bool, newest: UInt64? = nil, _ arguments: Arguments,
        _ terminal: Terminal
    ) throws -> ExitCode {
        let text = ForgettingText(
            plan, table, isDone ? .done : newest == nil ? .planned : .writtenDown,
            left: newest.map { plan.changes - plan.changes(before: $0) } ?? 0)
        if arguments.has(.json) {
            try terminal.print(text.json)
        } else {
            for line in text.lines { try terminal.print(ScreenText.escaped(line)) }
        }
        return plan.changes > 0 ? .ok : .notFound
    }
}

extension Option {
    fileprivate static let go = Option.flag("go", "Do it. Without --go the command only shows what it would do.")
    fileprivate static let writeDown = Option.flag(
        "write-down", "Note what to remove from sealed segments, so that the hub does it later.")
}

extension Arguments {
    /// Lets a hub remove the row's values, or without `--go` only count its changes. Nil if `--server` is not given.
    fileprivate func forgetting(_ terminal: Terminal) throws -> ExitCode? {
        guard let hub = try AskedHub(self, terminal) else { return nil }
        for option in [Option.log, .writeDown, .auditFile] where value(of: option) != nil {
            throw UsageError("--\(option.name) is only for files, and does not go with --server")
        }
        var items = [("table", operands[0])] + operands.dropFirst().map { ("key", $0) }
        if has(.json) { items.append(("json", "true")) }
        let query = items.map { "\($0)=\(PercentText.encoded($1))" }.joined(separator: "&")
        let answer = try has(.go) ? hub.delete("log/rows?\(query)") : hub.get("log/rows?\(query)")
        return try hub.show(answer, terminal)
    }
}

/// Text and JSON about the removal of a row's values, as planned, recorded for the hub, or done.
private struct ForgettingText {
    enum Stage { case planned, writtenDown, done }

    private let plan: Forgetting
    private let table: TableName
    private let stage: Stage
    /// Number of the row's changes in the segment that the hub is still writing. Their values stay for now.
    private let left: Int

    init(_ plan: Forgetting, _ table: TableName, _ stage: Stage, left: Int) {
        self.plan = plan
        self.table = table
        self.stage = stage
        self.left = left
    }

    var lines: [String] {
        let names = plan.tables.subtracting([table]).map(\.description).sorted()
        let also = names.isEmpty ? "" : " (also called \(names.joined(separator: ", ")))"
        var lines: [String] = []
        if plan.changes == 0 {
            lines.append("the log has no change of this row of \(table)\(also)")
        } else {
            let held =
                "\(Self.count(plan.changes, "change")) of \(table)\(also) in \(Self.count(plan.segments.count, "segment"))"
            switch stage {
            case .planned:
                lines.append("would forget \(held); nothing was changed: --go does it, and it cannot be undone")
            case .writtenDown: lines.append("forgets \(held): noted for the hub to do")
            case .done: lines.append("forgot \(held)")
            }
        }
        if left > 0 {
            lines.append(
                "except \(Self.count(left, "change")) of them: the hub writes to their segment. Do it again later")
        }
        if plan.forgotten > 0 {
            lines.append("\(Self.count(plan.forgotten, "change")) of the row may have been forgotten before")
        }
        if plan.changesOfKey > 0 {
            lines.append(
                "\(Self.count(plan.changesOfKey, "change")) gave the row another key: its history under that key is not "
                    + "forgotten by this command ('tidewire row' shows the keys until then)")
        }
        return lines + [notLookedAt]
    }

    private var others: [String] { plan.otherTables.map(\.description).sorted() }

    private var notLookedAt: String {
        "not searched: " + (others.isEmpty ? "" : "the tables \(others.joined(separator: ", ")); ")
            + "the ledger, presence, messages of the WAL; bundles, exports and backups"
    }

    /// Returns a number with its noun, in the singular or plural.
    private static func count(_ number: Int, _ name: String) -> String {
        number == 1 ? "1 \(name)" : "\(number) \(name)s"
    }

    var json: String {
        var line = JSONLine()
        line.add("table", table.description)
        line.add("changes", plan.changes)
        line.add("segments", plan.segments.count)
        line.add("other_keys", plan.changesOfKey)
        line.add("already_forgotten", plan.forgotten)
        line.add("not_looked_at", json: "[" + others.map(JSONLine.quoted).joined(separator: ",") + "]")
        line.add("newest_segment", left)
        line.add("done", stage == .done && plan.changes > 0)
        return line.text
    }
}
