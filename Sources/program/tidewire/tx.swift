import Bytes
import Change
import Console
import EventLog
import History

/// Command `tidewire tx`: shows all changes of one transaction.
struct TransactionCommand: Command {
    let name = "tx"
    let summary = "Show all changes of one transaction."
    let discussion = """
        Name the transaction by its number (7421), or by the LSN at which its commit record begins or ends \
        (0/16B3748). 'tidewire tail' prints both. PostgreSQL uses transaction numbers again after four billion \
        transactions, and after a restore: this command shows all transactions with the number, newest first.

        A line before the changes shows when the transaction was committed, its replication origin (if it was not made \
        in this database) and how many changes it has.

        \(MaskHelp.text)

        JSON. One object a change, as 'tidewire tail --json' prints them.
        """
    let operands = [Operand("XID|LSN", .one, "7421, xid:7421, 0/16B3748 or lsn:0/16B3748.")]
    let options: [Option] =
        [.limit, .withoutProgress, .output, .json, .zone, .log, .project] + Option.masking + Option.asking
    let optionGroups: [OptionGroup] = [.dataDirectory]
    let examples = [
        Example("tidewire tx 7421", "What else did this transaction do?"),
        Example(
            "tidewire tx 0/5A48B20 --json | jq -r .table | sort | uniq -c",
            "How many changes did it make in each table?"),
    ]
    let exitCodes = LogAccess.exitCodes

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        if let code = try arguments.answer("tx", options: allOptions, terminal) { return code }
        let zone = try arguments.zone()
        let query = try arguments.query(zone)
        let limit = try arguments.limit()
        guard let name = TransactionName(arguments.operands[0]) else {
            throw UsageError("\(arguments.operands[0]): expected a transaction (7421) or an LSN (0/16B3748)")
        }
        return try LogAccess.explained {
            let log = try arguments.historyLog(terminal)
            _ = try NameCheck(log)
            var found = 0
            let progress = Progress(terminal, isQuiet: arguments.has(.withoutProgress), sharesScreen: true)
            defer { progress.clear() }
            try log.transactions(name, noting: { progress.note("searching the log: @\($0)") }) { transaction in
                found += 1
                progress.clear()
                if !arguments.has(.json) {
                    if found > 1 { try terminal.remark("") }
                    try terminal.remark(heading(transaction, zone))
                }
                var printer = ChangePrinter(terminal, isJSON: arguments.has(.json), zone: zone)
                try print(transaction, log, query, limit, &printer)
                return true
            }
            if found > 0 { return .ok }
            if !arguments.has(.json) { terminal.complain(try absent(name, log, zone)) }
            return .notFound
        }
    }

    private func print(
        _ transaction: RecordedTransaction, _ log: HistoryLog, _ query: HistoryQuery, _ limit: Int?,
        _ printer: inout ChangePrinter
    ) throws {
        var query = query
        query.from = .offset(transaction.offsets.lowerBound)
        query.to = .offset(transaction.offsets.upperBound)
        var reader = try HistoryReader(log, query)
        while printer.count < limit ?? .max, let item = try reader.next() {
            // A gap just before the transaction does not belong to it.
            if item.isChange { try printer.print(item) }
        }
    }

    private func heading(_ transaction: RecordedTransaction, _ zone: DisplayZone) -> String {
        let info = transaction.info
        let time = info.commitTime == 0 ? "outside of a transaction" : zone.text(info.commitTime) + " " + zone.name
        let origin = info.origin.isEmpty ? "" : ", origin \(ScreenText.escaped(info.origin))"
        let count = transaction.offsets.count == 1 ? "1 change" : "\(transaction.offsets.count) changes"
        return "transaction \(info.xid), \(time)\(origin), \(count), commit LSN \(info.commitLSN) … \(info.endLSN), "
            + "epoch \(Hex.text(transaction.epoch))"
    }

    private func absent(_ name: TransactionName, _ log: HistoryLog, _ zone: DisplayZone) throws -> String {
        let what =
            switch name {
            case .xid(let xid): "no transaction \(xid)"
            case .lsn(let lsn): "no transaction at \(lsn)"
            }
        let oldest = try log.segments()[0]
        return "the log has \(what); it holds \(zone.text(oldest.begin)) … now, from @\(oldest.firstOffset) on"
    }
}
