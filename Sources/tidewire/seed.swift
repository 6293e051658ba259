import Change
import Console
import EventLog
import History
import Replaying
import Settings

/// `tidewire seed`
struct SeedCommand: Command {
    let name = "seed"
    let summary = "Write the rows that the log knows at a moment as SQL, masked, for a staging database."
    let discussion = """
        The rows that 'tidewire asof' shows, of the tables that are named or of all, as a script for psql: one transaction of \
        INSERTs into tables that are there and empty. It is what 'tidewire replay' of the window that follows begins with; both \
        take the same --mask-key then, so that masked keys are found again.

        It knows what the log tells. Rows that nothing has touched since the oldest change that is kept are not in it, and a \
        comment at each table says so, unless the table was emptied since. A value that the log does not tell is left to its \
        default. The columns of a row are those that its table had when it was last changed. Tables without a key and \
        realtime.messages are left out; sequences stay where they are.

        The script sets session_replication_role to replica, so that triggers and foreign keys do not act while rows come table \
        by table: whoever loads it needs to be a superuser or to be granted that.

        \(MaskHelp.text)

        WHAT STANDS IN for a masked value is one that its column takes: \(StandIn.description); other types, and those of the \
        user's own, which the log knows by name only, get NULL, and a comment says so.
        """
    let options: [Option] = [.table, .to, .mostRows, .zone, .log, .project] + Option.masking + [.maskKey]
    let optionGroups: [OptionGroup] = [.dataDirectory]
    let examples = [
        Example(
            "tidewire seed --to -1h --mask-key key | psql -v ON_ERROR_STOP=1 \"$STAGING\"",
            "What there was an hour ago:"),
        Example(
            "tidewire replay --from -1h --mask-key key --target \"$STAGING\" --go", "And what happened to it since:"),
    ]
    let exitCodes = LogAccess.exitCodes

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        let query = try arguments.query(try arguments.zone())
        let most = try arguments.mostRows()
        return try LogAccess.explained {
            let log = try arguments.historyLog(terminal)
            let names = try NameCheck(log)
            try names.check(query)
            do {
                let report = try SeedScript(log, query, atMost: most).write { line in try terminal.print(line) }
                return report.rows > 0 ? .ok : .notFound
            } catch TableAsOfError.unknownTable(let table) {
                throw names.unknown(table)
            } catch TableAsOfError.tooManyRows(let most) {
                throw CommandFailure(.notFound, "a table has more than \(most) rows", hint: "Raise --limit.")
            }
        }
    }
}
