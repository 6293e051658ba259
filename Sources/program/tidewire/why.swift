import Bytes
import Catalog
import Change
import Console
import Diagnostics
import EventLog
import Explaining
import Glibc
import History
import Postgres
import Settings
import System

/// Command `tidewire why`.
struct WhyCommand: Command {
    let name = "why"
    let summary = "Explain who was told of a change, who was not, and why."
    let discussion = """
        Takes a change of the event log and somebody's claims, and goes the way of the change to him: the publication, \
        the role's rights, what the binding sends, the filter, and each policy with each part of its expression, as the \
        hub evaluates it and, beside it, as PostgreSQL does. It ends with one line to quote:

          alice@x (authenticated) was NOT told: policy "own" is false
          because owner = auth.uid() is false

        The change is named by --offset (see 'tidewire tail'), or by --key: then it is the newest change of that row. \
        --claims is the payload of a token as JSON, without its signature; --role and --sub say what is not in it, or \
        make claims alone.

        It judges by rights, policies, memberships and the clock as they were THEN, as far as the log has them (setting: \
        ledger): policies are recorded when they change, and memberships are taken back by the changes of their tables. Notes \
        say what is of now; --now judges all by that. Without a database (none configured, or one that is not the log's) what \
        is recorded suffices, but for what only PostgreSQL can decide. PostgreSQL's column is always of now. A hub need not \
        run, and one that runs is not disturbed. What policies say runs as the login of policy_database_url, as in the \
        hub, in a transaction that only reads. Where both are of now and differ, that is a bug of the hub's: a line says so.

        \(MaskHelp.text) Whether conditions hold is shown, whatever they read.

        As csv and md it is a table with a row for each step and each part: STEP, ROW (new or old, of an update), PART, HUB and \
        POSTGRESQL; the last step, result, has the line to quote.

        Rights, filter and policies say who WOULD HAVE BEEN told; that somebody was told is said where the ledger has it that a client \
        of his, by the claim sub, listened with that filter and was served so far. Otherwise a note says what it has.

        Where each delivery is recorded (ledger = full) and the user is known, a note says to which of his clients the change was \
        sent, and when.

        JSON. One object: told, sentence, change (as 'tidewire tail --json' prints it), publication, role, binding, \
        image, old_image (filter, policies with their parts, memberships, visible), old_record (none, keys, whole), \
        differences, notes, listening (listened, absent, otherwise: by the ledger, whether a client of his asked for it so; or \
        not_known), recorded (of each of the user's clients of which that is recorded: session, sent_at, null where it was \
        not sent). A part has text, depth, hub and postgres (true, false, NULL, a value, or words).

        Ends with status 0 when the row was told or would have been, and 1 when not.
        """
    let options: [Option] =
        [
            .changedTable, .changeOffset, .changedKey, .claims, .role, .subject, .subscribedFilter, .event, .asOfNow,
            .output, .json, .zone, .log, .project,
        ] + Option.masking + Option.asking
    let optionGroups: [OptionGroup] = [
        .configuration(of: [
            Setting(\.dataDirectory), Setting(\.maskRules), Setting(\.databaseURL), Setting(\.policyDatabaseURL),
            Setting(\.publication),
            Setting(\.deletesAreStrict),
        ])
    ]
    let examples = [
        Example(
            "tidewire why --table notes --offset 18442901 --role authenticated --sub 7f3c2b1e-0c5d-4f6e-8a52-000000000001",
            "Why did she not hear of this change?"),
        Example(
            "tidewire why --table app.orders --key id=4711 --claims claims.json --filter status=eq.open --json",
            "The newest change of order 4711, for a subscription with a filter:"),
    ]
    let exitCodes = LogAccess.exitCodes

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        if let code = try arguments.answer("why", options: allOptions, terminal) { return code }
        let zone = try arguments.zone()
        let table = try arguments.changedTable()
        let holder = try arguments.holder(terminal)
        let operations = try arguments.events()
        let configuration = try arguments.configuration(terminal)
        let choice = try arguments.changeChoice()
        let filter = arguments.value(of: .subscribedFilter)
        let log = try arguments.historyLog(terminal)
        let change = try LogAccess.explained {
            if let filter, log.masking.mentions(Array(filter.utf8), of: [table]) {
                throw UsageError(
                    "--filter: it names a masked column, and whoever asks for its values could find them out; "
                        + "--unmask COLUMN allows it, and is written down")
            }
            return try find(choice, table, log)
        }
        Log.shared.configure(level: .error, format: configuration.logFormat)
        let settings = try LogAccess.explained {
            try Explainer.Settings(judging: change, of: log, isOfNow: arguments.has(.asOfNow), configuration, "why")
        }
        guard let settings else {
            throw UsageError(
                "no database is configured\(arguments.has(.asOfNow) ? "" : ", and the log has no catalog of then"): set TIDEWIRE_DATABASE_URL or give --database-url"
            )
        }
        let question = Explainer.Question(
            change, to: holder, filter: filter, operations: operations)
        var explanation = try explained { try Explainer(settings).explain(question) }
        let recorded = try LogAccess.explained { try RecordedForUser(question, log) }
        if recorded.listening == .listened { explanation = explanation.confirmed() }
        if arguments.has(.json) {
            try terminal.print(
                explanation.json(change).dropLast()
                    + ",\"listening\":\"\(recorded.listening.rawValue)\",\"recorded\":" + recorded.json + "}")
        } else {
            explanation.notes += recorded.sentences(zone, isTold: explanation.isTold)
            var printer = ExplanationPrinter(terminal, zone)
            try printer.print(explanation, change)
        }
        return explanation.isTold ? .ok : .notFound
    }

    // MARK: Finding the change

    private func find(
        _ choice: ChangeChoice, _ table: TableName, _ log: HistoryLog
    ) throws -> RecordedChange {
        let names = try NameCheck(log)
        guard try log.relations().contains(where: { $0.table == table }) else { throw names.unknown(table) }
        switch choice {
        case .offset(let offset): return try change(at: offset, table, log)
        case .key(let key): return try newest(of: key, table, log)
        }
    }

    private func change(
        at offset: UInt64, _ table: TableName, _ log: HistoryLog
    ) throws -> RecordedChange {
        let change = try log.change(at: offset)
        guard change.relation?.table == table else {
            let found = change.relation?.table.description ?? "a message"
            throw CommandFailure(.notFound, "the change at @\(offset) is one of \(found), not of \(table)")
        }
        return change
    }

    private func newest(
        of key: [String], _ table: TableName, _ log: HistoryLog
    ) throws -> RecordedChange {
        var newest: RecordedChange?
        do {
            var history = try RowHistory(log, table, RowName(key), HistoryQuery(from: nil, to: nil))
            while let item = try history.next() {
                if case .version(let version) = item, version.change.operation != .truncate, !version.wasRead {
                    newest = version.change
                }
            }
        } catch RowNameError.masked(let table, let column) {
            throw NameCheck.masked("--key", column, of: table)
        } catch RowNameError.doesNotFit(_, let columns, _) {
            throw UsageError("--key does not fit: the key of \(table) is \(columns.joined(separator: ", "))")
        } catch RowNameError.impossible(_, let column, let value, let expected) {
            throw UsageError(
                "--key \(value): \(column) of \(table) is \(expected), which this is not; write COLUMN=VALUE")
        }
        if let newest { return newest }
        throw CommandFailure(.notFound, "the log has no change of this row; \(try log.extent())")
    }

    // MARK: Errors

    private func explained<T>(_ body: () throws -> T) throws -> T {
        do {
            return try body()
        } catch ExplainFailure.databaseAway {
            throw CommandFailure(
                .unreachable, "the database does not say what its catalog is",
                hint: "May the login read it? Is there a publication?")
        } catch ExplainFailure.roleNotRecorded(let role) {
            throw CommandFailure(
                .notFound, "the log has not got what role \(role) was allowed then: nobody of it had joined before",
                hint: "--now judges by what it is allowed now.")
        } catch ExplainFailure.noRow {
            throw UsageError("that change is none of a row: truncates and messages are told by other rules")
        }
    }
}

extension Option {
    fileprivate static let changedTable = Option.value(
        "table", "TABLE", short: "t", "The change's table: notes (which is public.notes) or app.notes.")
    fileprivate static let changeOffset = Option.value("offset", "N", "The change's offset in the log: 4711 or @4711.")
    fileprivate static let changedKey = Option.value(
        "key", "COLUMN=VALUE", isRepeatable: true, "The newest change of the row with this key; once for each column.")
    fileprivate static let claims = Option.value(
        "claims", "FILE", "A file with the claims, one JSON object; - is standard input.")
    fileprivate static let role = Option.value("role", "ROLE", "The role, where the claims have none.")
    fileprivate static let subject = Option.value(
        "sub", "ID", "The claim sub, where there are no claims or none in them.")
    fileprivate static let subscribedFilter = Option.value(
        "filter", "FILTER", "The subscription's filter, as clients write it: status=eq.open.")
    fileprivate static let event = Option.value(
        "event", "EVENT", "What the subscription is for: INSERT, UPDATE, DELETE or * (default).")
}

/// Way in which the arguments name the change.
enum ChangeChoice: Equatable {
    case offset(UInt64)
    case key([String])
}

extension Arguments {
    fileprivate func changedTable() throws(UsageError) -> TableName {
        guard let text = value(of: .changedTable) else { throw UsageError("--table is missing") }
        guard let table = TableName(text) else {
            throw UsageError("--table \(text): expected table, schema.table or \"Quoted Schema\".\"table\"")
        }
        return table
    }

    fileprivate func changeChoice() throws(UsageError) -> ChangeChoice {
        let key = values(of: .changedKey)
        guard let text = value(of: .changeOffset) else {
            if key.isEmpty { throw UsageError("which change? give --offset, or --key for a row's newest") }
            return .key(key)
        }
        guard key.isEmpty else { throw UsageError("--offset and --key each name a change: give one of them") }
        return .offset(try offset(text, named: "--offset"))
    }

    fileprivate func events() throws(UsageError) -> RowOperations {
        guard let text = value(of: .event) else { return .all }
        guard ["INSERT", "UPDATE", "DELETE", "*"].contains(text.uppercased()) else {
            throw UsageError("--event \(text): expected INSERT, UPDATE, DELETE or *")
        }
        return RowOperations(event: text)
    }

    fileprivate func holder(_ terminal: Terminal) throws -> ExplainedHolder {
        guard value(of: .claims) != nil || value(of: .role) != nil else {
            throw UsageError("for whom? give --claims, or --role (and --sub)")
        }
        return try holder(claims: value(of: .claims), role: value(of: .role), subject: value(of: .subject), terminal)
    }

    /// - Parameter file: the file that holds the claims.
    func holder(
        claims file: String?, role: String?, subject: String?, _ terminal: Terminal
    ) throws(UsageError) -> ExplainedHolder {
        let claims = try file.map { path throws(UsageError) in try contents(of: path, named: "--claims", terminal) }
        do throws(ExplainFailure) {
            return try ExplainedHolder(claims: claims, role: role, subject: subject)
        } catch {
            guard case .badClaims(let reason) = error else { throw UsageError("the claims cannot be read") }
            throw UsageError(reason)
        }
    }
}
