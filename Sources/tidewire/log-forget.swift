import Change
import Console
import EventLog
import History
import Ingest
import System

/// `tidewire log forget`
struct LogForgetCommand: Command {
    let name = "forget"
    let summary = "Remove the values of one row from the event log for good."
    let discussion = """
        For who has to be forgotten. All images of the row, old and new, lose their values in all segments that are kept, also \
        in large transactions and under former names and schemas of the table. What is left of each change is that it was \
        there: its operation, table, offset, transaction and time, the day it was forgotten, and up to four bytes of a hash of \
        the row's key, by which 'tidewire row' can say "forgotten on DATE" to who knows the key. Whoever guesses at keys can \
        check a guess by them. Everything else stays what it was: offsets, positions, counts, checksums.

        Without --go it only says how many changes of how many segments it would take. A row is named as for 'tidewire row': by \
        the values of its key, or by column=value; with column=value, every change is taken whose row had these values before \
        or after it. Where a change gave the row another key, its history under that one is not taken: forget that key, too.

        The hub must not run meanwhile: it writes to one of the segments and deletes others, and has rows of the past in \
        memory. Stop it, forget, start it. An interrupted forgetting is done to its end by the next one or by the hub's next \
        start; until then 'tidewire log verify' says that there is one. Clients that come back to a place before a change that \
        was forgotten are told that changes of its table may be missing (ChangesMissing), and fetch.

        Not looked at: the same values in other tables (the tables are listed), in other rows, in messages that the database \
        wrote into its WAL, in what clients told of themselves (presence), in the ledger (claims and filters of who was \
        joined), and whatever lies elsewhere: bundles, exports, backups, what 'log accept-loss' set aside, blocks of the disk \
        that no file has any more, and the database itself.

        It is written down in the log's audit file first, without the key: see 'tidewire log audit'.

        JSON. One object: table, changes, segments, other_keys (changes that gave the row another key), already_forgotten, \
        not_looked_at (a list of tables), done.
        """
    let operands = [
        Operand("TABLE", .one, "notes (which is public.notes), app.notes or \"Odd Schema\".\"t\"."),
        Operand("KEY", .any, "A value for each column of the key, or column=value."),
    ]
    let options: [Option] = [.go, .auditFile, .withoutProgress, .json, .log, .project]
    let optionGroups: [OptionGroup] = [.dataDirectory]
    let examples = [
        Example("tidewire log forget users 4711", "How much does the log have of this user?"),
        Example("tidewire log forget users 4711 --go", "Remove it:"),
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
            let erasure = try erasure(directory)
            if erasure.segmentsFinished > 0 {
                terminal.complain(
                    "finished what an interrupted forgetting had left, in \(erasure.segmentsFinished) segments")
            }
            let plan = try plan(table, arguments, directory, progress)
            if plan.changes > 0 {
                let what = "\(table), \(plan.changes) changes in \(plan.segments.count) segments"
                try arguments.audit(.forget, what, ofLog: path, terminal)
            }
            try erasure.perform(plan.patches) { done, all in
                progress.note("writing segments anew: \(done) of \(all)")
            }
            progress.clear()
            return try show(plan, table, isDone: true, arguments, terminal)
        }
    }

    private func plan(
        _ table: TableName, _ arguments: Arguments, _ directory: any StorageDirectory, _ progress: Progress
    ) throws -> Forgetting {
        let log = HistoryLog(directory: directory, masking: .nothing)
        do {
            return try Forgetting(
                of: RowName(Array(arguments.operands.dropFirst())), in: table, log, at: Clock.unixMicroseconds()
            ) { offset in progress.note("looking for it: @\(offset)") }
        } catch let error as RowNameError {
            throw RowCommand.explained(error, try NameCheck(log))
        } catch ForgettingError.tooMuch(let changes) {
            throw CommandFailure(
                .notFound, "more than \(changes) changes would be forgotten, which is more than can be done at once",
                hint: "Is that one row? With column=value every change is taken whose row had the value.")
        }
    }

    private func erasure(_ directory: DiskDirectory) throws -> EventLogErasure {
        do throws(EventLogError) {
            return try EventLogErasure(directory, options: IngestService.indexOptions())
        } catch {
            guard case .lockedElsewhere = error else { throw error }
            throw CommandFailure(
                .notFound, "\(error)",
                hint: "Stop the hub first: it writes to one of the segments and has rows in memory.")
        }
    }

    private func show(
        _ plan: Forgetting, _ table: TableName, isDone: Bool, _ arguments: Arguments, _ terminal: Terminal
    ) throws -> ExitCode {
        if arguments.has(.json) {
            try terminal.print(plan.json(table, isDone: isDone && plan.changes > 0))
        } else {
            for line in plan.lines(table, isDone: isDone) { try terminal.print(ScreenText.escaped(line)) }
        }
        return plan.changes > 0 ? .ok : .notFound
    }
}

extension Option {
    fileprivate static let go = Option.flag("go", "Do it. Without this it is only said what would be done.")
}

extension Forgetting {
    fileprivate func lines(_ table: TableName, isDone: Bool) -> [String] {
        var lines: [String] = []
        let names = tables.subtracting([table]).map(\.description).sorted()
        let also = names.isEmpty ? "" : " (also called \(names.joined(separator: ", ")))"
        if changes == 0 {
            lines.append("the log has no change of this row of \(table)\(also)")
        } else {
            let held = "\(Self.count(changes, "change")) of \(table)\(also) in \(Self.count(segments.count, "segment"))"
            lines.append(isDone ? "forgot \(held)" : "would forget \(held); nothing was done: --go does it, for good")
        }
        if forgotten > 0 { lines.append("\(Self.count(forgotten, "change")) of it may have been forgotten before") }
        if changesOfKey > 0 {
            lines.append(
                "\(Self.count(changesOfKey, "change")) gave the row another key: what it was under that one is not forgotten "
                    + "by this ('tidewire row' shows the keys as long as they are there)")
        }
        let others = otherTables.map(\.description).sorted()
        lines.append(
            "not looked at: " + (others.isEmpty ? "" : "the tables \(others.joined(separator: ", ")); ")
                + "the ledger, presence, messages of the WAL; bundles, exports and backups")
        return lines
    }

    private static func count(_ number: Int, _ name: String) -> String {
        number == 1 ? "1 \(name)" : "\(number) \(name)s"
    }

    fileprivate func json(_ table: TableName, isDone: Bool) -> String {
        var line = JSONLine()
        line.add("table", table.description)
        line.add("changes", changes)
        line.add("segments", segments.count)
        line.add("other_keys", changesOfKey)
        line.add("already_forgotten", forgotten)
        line.add(
            "not_looked_at",
            json: "[" + otherTables.map(\.description).sorted().map(JSONLine.quoted).joined(separator: ",") + "]")
        line.add("done", isDone)
        return line.text
    }
}
