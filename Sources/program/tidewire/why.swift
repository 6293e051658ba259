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

/// Command `tidewire why`: explains for one user why a change was or was not sent.
struct WhyCommand: Command {
    let name = "why"
    let summary = "Explain why a user was told of a change, or was not."
    let discussion = """
        Takes a change of the event log and the claims of a user, and follows the change's way to this user: the \
        publication, the role's rights, the columns that the binding sends, the filter, and each policy with each part \
        of its expression, as the hub evaluates it and, beside it, as PostgreSQL does. It ends with one line to quote:

          alice@x (authenticated) was NOT told: policy "own" is false
          because owner = auth.uid() is false

        Name the change by --offset (see 'tidewire tail'), or by --key: the newest change of that row. --claims is the \
        payload of a token as JSON, without its signature. --role and --sub give what the claims lack, or are enough \
        without claims. --session names a client instead, as 'tidewire who' prints it: its claims and its filter are \
        those that the ledger recorded.

        The command judges by the rights, policies, memberships and clock of THEN, as far as the log has them \
        (setting: ledger). The log records policies when they change; the command computes past memberships from the \
        changes of their tables. Notes say which parts are as of now; with --now everything is. Without a database \
        (none is configured, or it is not the log's), the record is enough, except for what only PostgreSQL can \
        decide. PostgreSQL's column is always as of now. The command needs no running hub and disturbs none. Policies \
        run with the login of policy_database_url, as in the hub, in a read-only transaction. If both columns are as \
        of now and differ, that is a bug of the hub, and a line says so.

        \(MaskHelp.text) The output shows whether conditions hold even if they read masked values.

        As csv and md it is a table with a row for each step and each part: STEP, ROW (new or old, of an update), \
        PART, HUB and POSTGRESQL; the last step, result, has the line to quote.

        Rights, filter and policies show who WOULD HAVE BEEN told. The command says that a user was told only if the \
        ledger shows that a client of this user (by the claim sub) was subscribed with that filter and had been sent \
        everything up to the change. Otherwise a note says what the ledger shows.

        If each delivery is recorded (ledger = full) and the user is known, a note says to which clients of the user \
        the change was sent, and when.

        JSON. One object: told, sentence, change (as 'tidewire tail --json' prints it), publication, role, binding, \
        image, old_image (filter, policies with their parts, memberships, visible), old_record (none, keys, whole), \
        differences, notes, listening (whether, by the ledger, a client of the user was subscribed like this: \
        listened, absent, otherwise, or not_known), refused (the last refusal of the user's socket, join or request \
        before the change, if the user had not joined since: time, topic, reason), recorded (each client of the user with a recorded delivery: \
        session, sent_at, null if it was not sent). A part has text, depth, hub and postgres (true, false, NULL, a \
        value, or words).

        Ends with status 0 if the user was or would have been told, and 1 if not.
        """
    let options: [Option] =
        [
            .changedTable, .changeOffset, .changedKey, .claims, .role, .subject, .client, .subscribedFilter, .event,
            .asOfNow,
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
            "Why was this user not told of this change?"),
        Example(
            "tidewire why --table app.orders --key id=4711 --claims claims.json --filter status=eq.open --json",
            "The newest change of order 4711, for a subscription with a filter:"),
    ]
    let exitCodes = LogAccess.exitCodes

    func run(_ arguments: Arguments, _ terminal: Terminal) throws -> ExitCode {
        if let code = try arguments.answer("why", options: allOptions, terminal) { return code }
        let zone = try arguments.zone()
        let table = try arguments.changedTable()
        let client = try arguments.client()
        let given = client == nil ? try arguments.holder(terminal) : nil
        let operations = try arguments.events()
        let configuration = try arguments.configuration(terminal)
        let choice = try arguments.changeChoice()
        let log = try arguments.historyLog(terminal)
        let (change, subscriber) = try LogAccess.explained {
            let change = try find(choice, table, log)
            let subscriber =
                if let client {
                    try self.subscriber(client, change, table, log)
                } else if let given {
                    Subscriber(
                        holder: given, filter: arguments.value(of: .subscribedFilter), operations: operations)
                } else {
                    throw UsageError("no user is named")
                }
            try checkMasks(
                of: subscriber.filter, "\(client == nil ? "--filter" : "the filter of --session")", table, log)
            return (change, subscriber)
        }
        Log.shared.configure(level: .error, format: configuration.logFormat)
        let settings = try LogAccess.explained {
            try Explainer.Settings(judging: change, of: log, isOfNow: arguments.has(.asOfNow), configuration, "why")
        }
        guard let settings else {
            throw UsageError(
                "no database is configured\(arguments.has(.asOfNow) ? "" : ", and the log has no catalog for that time"): set TIDEWIRE_DATABASE_URL or give --database-url"
            )
        }
        let question = Explainer.Question(
            change, to: subscriber.holder, filter: subscriber.filter, operations: subscriber.operations)
        var explanation = try explained { try Explainer(settings).explain(question) }
        let recorded = try LogAccess.explained { try RecordedForUser(question, log) }
        if recorded.listening == .listened { explanation = explanation.confirmed() }
        if arguments.has(.json) {
            try terminal.print(
                explanation.json(change).dropLast()
                    + ",\"listening\":\"\(recorded.listening.rawValue)\",\"refused\":\(recorded.refusedJSON),\"recorded\":"
                    + recorded.json + "}")
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
            throw CommandFailure(
                .notFound, "the change at @\(offset) belongs to \(found), not to \(table)",
                hint:
                    "Give --table \(found), or the offset of a change of \(table): 'tidewire tail --table \(table)' lists them."
            )
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
                "--key \(value): \(column) of \(table) must be \(expected); write COLUMN=VALUE")
        }
        if let newest { return newest }
        throw CommandFailure(
            .notFound, "the log has no change of this row; \(try log.extent())",
            hint: "Is the key right? 'tidewire tail --table \(table)' lists the table's changes.")
    }

    /// Refuses a filter that could reveal masked values.
    private func checkMasks(
        of filter: String?, _ name: String, _ table: TableName, _ log: HistoryLog
    ) throws(UsageError) {
        guard let filter, log.masking.mentions(Array(filter.utf8), of: [table]) else { return }
        throw UsageError(
            "\(name) names a masked column, and could reveal its values; --unmask COLUMN allows it, and the log's audit "
                + "file records it")
    }

    /// User whose rights, and subscription whose filter, are judged.
    private struct Subscriber {
        let holder: ExplainedHolder
        let filter: String?
        let operations: RowOperations
    }

    /// Returns the claims that a client had at a change, and its binding that is about the table, as the ledger recorded
    /// them.
    private func subscriber(
        _ client: RecordedClient, _ change: RecordedChange, _ table: TableName, _ log: HistoryLog
    ) throws -> Subscriber {
        let book = try AttendanceBook(log, at: change)
        let stays = book.all.filter { stay in
            stay.session == client.session && client.channel.map { $0 == stay.channel } ?? true
        }
        guard !stays.isEmpty else {
            throw CommandFailure(
                .notFound, "the ledger has no client \(client.name) around @\(change.offset)",
                hint: "'tidewire who @\(change.offset) --gone' lists the clients of that time.")
        }
        for stay in stays {
            guard let binding = stay.joined.bindings.first(where: { $0.isAbout(table.schema, table.name) }) else {
                continue
            }
            do throws(ExplainFailure) {
                return Subscriber(
                    holder: try ExplainedHolder(stay.holder(at: change.offset)), filter: binding.filter,
                    operations: RowOperations(event: binding.event))
            } catch {
                throw CommandFailure(
                    .notFound, "the ledger does not keep enough claims of the client \(client.name)",
                    hint: "Give --role and --sub, or --claims. The setting ledger_claims says which claims are kept.")
            }
        }
        throw CommandFailure(
            .notFound, "the client \(client.name) did not listen to \(table)",
            hint: "'tidewire session \(client.name)' shows its channels with their bindings.")
    }

    // MARK: Errors

    private func explained<T>(_ body: () throws -> T) throws -> T {
        do {
            return try body()
        } catch ExplainFailure.databaseAway {
            throw CommandFailure(
                .unreachable, "cannot read the database's catalog",
                hint: "May the login read the catalog? Does the publication exist?")
        } catch ExplainFailure.roleNotRecorded(let role) {
            throw CommandFailure(
                .notFound,
                "the log does not have the rights of role \(role) for that time: no client with it had joined before",
                hint: "--now judges by the rights that it has now.")
        } catch ExplainFailure.noRow {
            throw UsageError("that change is not of a row: other rules apply to truncates and messages")
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
    fileprivate static let role = Option.value("role", "ROLE", "The role, if the claims have none.")
    fileprivate static let subject = Option.value(
        "sub", "ID", "The claim sub, if there are no claims or if they have none.")
    fileprivate static let client = Option.value(
        "session", "ID", "The client whose recorded claims and filter are judged, as 'tidewire who' prints it.")
    fileprivate static let subscribedFilter = Option.value(
        "filter", "FILTER", "The subscription's filter, as clients write it: status=eq.open.")
    fileprivate static let event = Option.value(
        "event", "EVENT", "The subscription's event: INSERT, UPDATE, DELETE or * (default).")
}

/// Client in the ledger: a socket's session, and possibly the number of one of its channels.
private struct RecordedClient {
    let name: String
    let session: UInt64
    let channel: UInt32?

    init?(_ text: String) {
        let parts = text.split(separator: "/", maxSplits: 1, omittingEmptySubsequences: false)
        guard let session = UInt64(parts[0], radix: 16) else { return nil }
        (name, self.session) = (text, session)
        channel = parts.count == 2 ? UInt32(parts[1]) : nil
        if parts.count == 2, channel == nil { return nil }
    }
}

/// Change that the arguments name: by its offset, or as the newest change of the row with this key.
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

    /// Returns the change that `--offset` or `--key` names.
    fileprivate func changeChoice() throws(UsageError) -> ChangeChoice {
        let key = values(of: .changedKey)
        guard let text = value(of: .changeOffset) else {
            if key.isEmpty {
                throw UsageError("no change is named: give --offset, or --key for the newest change of a row")
            }
            return .key(key)
        }
        guard key.isEmpty else { throw UsageError("--offset and --key both name a change: give one of them") }
        return .offset(try offset(text, named: "--offset"))
    }

    /// Returns the client that `--session` names; nil without this option.
    fileprivate func client() throws(UsageError) -> RecordedClient? {
        guard let text = value(of: .client) else { return nil }
        for option in [Option.claims, .role, .subject, .subscribedFilter, .event] where value(of: option) != nil {
            throw UsageError("--session and --\(option.name) both say who is meant: give one of them")
        }
        guard let client = RecordedClient(text) else {
            throw UsageError("--session \(text): expected 16 hexadecimal digits, as 'tidewire who' prints them")
        }
        return client
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
            throw UsageError("no user is named: give --claims, or --role (and --sub)")
        }
        return try holder(claims: value(of: .claims), role: value(of: .role), subject: value(of: .subject), terminal)
    }

    /// Returns the holder with this role and these claims.
    /// - Parameter file: the path of the file that contains the claims as JSON.
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
