import Change
import Console
import Diagnostics
import EventLog
import Glibc
import History
import Server
import System

/// Command `tidewire tail`: prints the changes of a window, and with --follow also new ones.
struct TailCommand: Command {
    let name = "tail"
    let summary = "Show changes: the last ones, a window, or live."
    let discussion = """
        Without --from it shows the last 10 changes (or -n of them); with --from, all changes in the window (or the \
        first -n of them). With --follow it continues with new changes until Ctrl-C.

        It reads the event log's files and needs neither hub nor database; a hub may run meanwhile. A line marks each \
        place where changes were lost before they reached the log. Another line marks each place where an operator \
        wrote a mark or paused the hub, unless you select certain changes.

        \(SelectorHelp.text)

        COLUMNS. LSN is where the transaction's commit record begins. The last column shows, for an insert, the row; \
        for an update, what changed if the table has REPLICA IDENTITY FULL (before→after), otherwise the row; for a \
        delete, the known columns of the row. (unchanged) is a large value that PostgreSQL did not send. A row of \
        realtime.messages is shown as event → topic: payload. With --presence, lines with P show who joined or left a \
        topic (in the column TABLE).

        \(MaskHelp.text)

        JSON. One object a line: offset, epoch, lsn, end_lsn, xid, index (in the transaction), time, origin, op, \
        schema, table; for rows key, record, old_record, and for updates changed (null if the log does not show it) \
        and unchanged (large values that were not sent, which record lacks); for op MESSAGE transactional, prefix, \
        content (null if it is not text: then content_hex); for op TRUNCATE cascade, restart_identity; for op GAP \
        reason, from_lsn, to_lsn; for op PRESENCE event (joined, left, updated, missing), topic, private, key, ref, meta; for \
        op MARK event (marked, paused, resumed, rotated), text.
        """
    let options: [Option] =
        [
            .from, .to, .table, .operation, .condition, .presence, .follow, .limit, .output, .json, .zone, .log,
            .project,
        ] + Option.masking + Option.asking
    let optionGroups: [OptionGroup] = [.dataDirectory]
    let examples = [
        Example("tidewire tail -f", "Watch the database change:"),
        Example(
            "tidewire tail --from -15m --table orders --op U,D",
            "What happened to orders in the last quarter of an hour?"),
        Example(
            "tidewire tail --from 2026-11-14T10:00Z --to 2026-11-14T10:05Z --where owner_id=7 --json", "For a script:"),
        Example("tidewire tail --from xid:7421 -n 50 --unmask users.email", "From a transaction on, with addresses:"),
    ]
    let exitCodes = LogAccess.exitCodes

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        if let code = try arguments.answer("tail", options: allOptions, terminal) { return code }
        let zone = try arguments.zone()
        var query = try arguments.query(zone)
        query.includesPresence = arguments.has(.presence)
        // Operators' marks match no table, operation or condition, so a query with one of these omits them.
        query.includesMarks = query.tables.isEmpty && query.operations.isEmpty && query.conditions.isEmpty
        let limit = try arguments.limit()
        let follows = arguments.has(.follow)
        if follows, query.to != nil { throw UsageError("--follow has no end, so it takes no --to") }
        if follows { Hub.blockSignals() }
        var printer = ChangePrinter(terminal, isJSON: arguments.has(.json), zone: zone)
        return try LogAccess.explained {
            guard let log = try open(arguments, terminal, follows) else { return .ok }
            try checkNames(log, query, terminal, follows)
            let renewal = follows ? RulesRenewal(log) { try arguments.historyLog(terminal) } : nil
            return try tail(log, query, limit, renewal, &printer)
        }
    }

    /// Opens the log. With `--follow` it waits until a hub creates the log. Nil if the user interrupts that wait.
    private func open(_ arguments: Arguments, _ terminal: Terminal, _ follows: Bool) throws -> HistoryLog? {
        var hasSaid = false
        while true {
            do {
                let log = try LogAccess.explained {
                    let log = try arguments.historyLog(terminal)
                    _ = try log.segments()
                    return log
                }
                return log
            } catch let failure as CommandFailure where failure.exitCode == .unreachable && follows {
                if !hasSaid { terminal.complain("tidewire: \(failure.message); waiting for it") }
                hasSaid = true
                if Hub.waitForSignal(milliseconds: 500) != nil { return nil }
            }
        }
    }

    /// Checks the tables and columns of the query against the log. Unknown ones cause an error; with `--follow` only a
    /// message, because a later change may bring them.
    private func checkNames(_ log: HistoryLog, _ query: HistoryQuery, _ terminal: Terminal, _ follows: Bool) throws {
        do {
            try NameCheck(log).check(query)
        } catch let failure as CommandFailure where follows {
            terminal.complain("tidewire: \(failure.message) yet; waiting for them")
        } catch let error as UsageError where follows {
            terminal.complain("tidewire: \(error.message) (yet)")
        }
    }

    private static let usualCount = 10

    private func tail(
        _ log: HistoryLog, _ query: HistoryQuery, _ limit: Int?, _ renewal: RulesRenewal?,
        _ printer: inout ChangePrinter
    ) throws -> ExitCode {
        let follows = renewal != nil
        if query.from == nil {
            var last = try log.last(limit ?? Self.usualCount, of: query)
            for item in last.items { try printer.print(item) }
            if let renewal { return try follow(&last.reader, renewal, &printer) }
        } else {
            var reader = try HistoryReader(log, query)
            while printer.count < limit ?? .max, let item = try reader.next() {
                try printer.print(item)
                if follows, printer.isInterrupted { return .ok }
            }
            if let renewal, printer.count < limit ?? .max {
                return try follow(&reader, renewal, &printer, until: limit)
            }
        }
        try printer.finish()
        return printer.isEmpty ? .notFound : .ok
    }

    /// Time in milliseconds between two looks at the log for new entries. Each look costs two system calls.
    private static let interval = 100
    /// Number of printed items after which the command reads the mask rules again.
    private static let itemsBetweenChecks = 256

    private func follow(
        _ reader: inout HistoryReader, _ renewal: RulesRenewal, _ printer: inout ChangePrinter, until limit: Int? = nil
    ) throws -> ExitCode {
        while true {
            if let renewed = try renewal.log() {
                var query = reader.query
                query.from = .offset(reader.offset)
                reader = try HistoryReader(renewed, query)
            }
            var printed = 0
            while printed < Self.itemsBetweenChecks, let item = try reader.next() {
                try printer.print(item)
                printed += 1
                if let limit, printer.count >= limit { return .ok }
                if printer.isInterrupted { return .ok }
            }
            if printed == Self.itemsBetweenChecks { continue }
            try printer.flush()
            if Hub.waitForSignal(milliseconds: Self.interval) != nil { return .ok }
        }
    }
}

extension Option {
    static let presence = Option.flag(
        "presence",
        "Also show who joined a topic, left it, or changed its presence, if the hub records that (presence_timeline).")
    static let follow = Option.flag("follow", short: "f", "Continue with new changes until Ctrl-C.")
}

/// Watch over the file of mask rules in a log that a command follows, because the hub may write other rules at any
/// time.
final class RulesRenewal {
    private let directory: any StorageDirectory
    private let open: () throws -> HistoryLog
    private var rules: [UInt8]?

    init(_ log: HistoryLog, _ open: @escaping () throws -> HistoryLog) {
        directory = log.directory
        self.open = open
        // Nil if the rules cannot be read. Then `log()` opens the log again, which throws the reason.
        rules = try? MaskRulesFile.read(in: directory)
    }

    /// Returns the log, opened again with the new mask rules; nil if the rules have not changed.
    func log() throws -> HistoryLog? {
        let now = try? MaskRulesFile.read(in: directory)
        guard now != rules else { return nil }
        let log = try open()
        rules = now
        return log
    }
}

/// Printer of changes, gaps, marks and presence, as lines of a table or as JSON.
struct ChangePrinter {
    private let terminal: Terminal
    private let isJSON: Bool
    private let text: ChangeText
    private var table: TableStream
    private(set) var count = 0
    private(set) var isEmpty = true

    init(_ terminal: Terminal, isJSON: Bool, zone: DisplayZone) {
        self.terminal = terminal
        self.isJSON = isJSON
        text = ChangeText(zone: zone, terminal)
        table = TableStream(
            [
                .number("OFFSET", minimumWidth: 8), .text(zone.heading, minimumWidth: 23),
                .text("LSN", minimumWidth: 10),
                .number("XID", minimumWidth: 6), .text("OP"), .text("TABLE", minimumWidth: 16),
                .text("KEY", canBeCut: true, minimumWidth: 12),
                .text("CHANGED", canBeCut: terminal.isInteractive, minimumWidth: 24),
            ], on: terminal)
    }

    mutating func print(_ item: HistoryItem) throws {
        if isEmpty, !isJSON { try terminal.print(heading: table) }
        isEmpty = false
        switch item {
        case .change(let change):
            count += 1
            try terminal.print(isJSON ? change.json : line(change))
        case .gap(let gap):
            if isJSON { try terminal.print(gap.json) } else { try terminal.remark(text.line(gap)) }
        case .presence(let presence):
            try terminal.print(isJSON ? presence.json : table.line(text.line(presence)))
        case .mark(let mark):
            if isJSON { try terminal.print(mark.json) } else { try terminal.remark(text.line(mark)) }
        // Rows of backfills are shown by 'tidewire row' and 'asof'.
        case .kept: break
        }
    }

    private mutating func line(_ change: RecordedChange) -> String {
        table.line(text.place(change) + [text.table(change), text.key(change), text.summary(change)])
    }

    func flush() throws { try terminal.flush() }

    /// True if the user pressed Ctrl-C. Only for commands that block that signal. To save system calls, it checks only
    /// after every 64th printed change.
    var isInterrupted: Bool { count % 64 == 0 && Hub.waitForSignal(milliseconds: 0) != nil }

    /// Ends the output. In output for people, it says so if there were no changes.
    func finish() throws {
        if isEmpty, !isJSON { terminal.complain("no changes found") }
    }
}
