import Change
import Diagnostics
import Policy
import Postgres
import Protocol

/// Texts of `system` messages that tell a client why a binding failed. Clients show them and users search the web for
/// them, so they are identical to Supabase's texts.
public enum BindingMessages {
    private static let cannotSubscribe = "Unable to subscribe to changes with given parameters. "

    static let selectOnPattern = ClientText(
        .invalidBinding,
        "Column selection is not supported for wildcard subscriptions. Provide an explicit schema and table name.")

    private static let undefinedColumn = "42703"

    /// Returns the message for a binding that matches no published table.
    ///
    /// - Parameter other: the published table whose changes contain this table's rows; nil if there is none.
    static func nothingMatches(
        _ request: BindingRequest, _ filter: Filter?, _ other: String?, _ publication: String
    ) -> ClientText {
        let hint = other.map { other in
            ". Publication \(publication) has the rows of this table as rows of \(other): bind to that, or see "
                + "ALTER PUBLICATION \(SQLName.quoted(publication)) SET (publish_via_partition_root = …)"
        }
        return ClientText(
            other == nil ? .noSuchTable : .publishedAsOther,
            cannotSubscribe + "Please check Realtime is enabled for the given connect parameters: "
                + dump(request, filter) + (hint ?? ""))
    }

    /// Returns a sentence for the message of `nothingMatches` that names the cause: a view, a foreign table, an
    /// unpublished table.
    ///
    /// - Parameter kind: the `relkind` in `pg_class` of the relation with this name. Nil if the role may read no such
    ///   relation, so that the message reveals nothing that the role may not know.
    static func cause(of request: BindingRequest, _ kind: String?, _ publication: String) -> ClientText {
        let name = SQLName.quoted(request.schema) + "." + SQLName.quoted(request.table)
        func without(_ what: String) -> ClientText {
            ClientText(
                .notATable, ". \(name) is a \(what), of which there are no changes: bind to the tables that it reads")
        }
        switch kind {
        case "v": return without("view")
        case "m": return without("materialized view")
        case "f":
            return ClientText(
                .notATable, ". \(name) is a foreign table: its changes are in the database that it is in")
        case nil:
            return ClientText(
                .noSuchTable,
                ". There is no table \(name) that role \(SQLName.quoted(request.role)) may read: are both names written as "
                    + "the database has them (SELECT relname FROM pg_class), and is SELECT granted?")
        default:
            return ClientText(
                .notPublished,
                ". \(name) is not in publication \(publication) "
                    + "(ALTER PUBLICATION \(SQLName.quoted(publication)) ADD TABLE \(name))")
        }
    }

    /// Returns the message for a refused filter or column, worded as Supabase reports an SQL error.
    static func refusal(
        _ refusal: FilterRefusal, _ request: BindingRequest, _ filter: Filter?, _ code: TextCode = .invalidFilter
    ) -> ClientText {
        ClientText(
            code,
            cannotSubscribe
                + "An exception happened so please check your connect parameters: \(dump(request, filter)). "
                + "Exception: ERROR \(refusal.sqlState) (\(refusal.condition)) \(refusal.message)")
    }

    /// Returns the message for a refused filter. The request's own filter is parsed again for the message.
    public static func refusal(_ refusal: FilterRefusal, _ request: BindingRequest) -> ClientText {
        self.refusal(refusal, request, request.filter.flatMap { try? Filter.parse($0, within: BindingResolver.bounds) })
    }

    static func unknownRole(_ request: BindingRequest, _ filter: Filter?) -> ClientText {
        let state = SQLState.undefinedObject
        return refusal(
            FilterRefusal(
                sqlState: state, condition: SQLCondition.name(of: state),
                message: "role \"\(request.role)\" does not exist"), request, filter, .unknownRole)
    }

    static func tooManyTables(_ count: Int, _ request: BindingRequest, _ filter: Filter?) -> ClientText {
        ClientText(
            .tooManyTables,
            cannotSubscribe + "\(count) tables match, and a binding may have \(Limits.maximumTablesPerBinding): "
                + dump(request, filter))
    }

    /// Returns the warning that the hub has no login to ask PostgreSQL about the table's policies.
    public static func nobodyDecides(_ table: CatalogTable) -> ClientText {
        ClientText(
            .nobodyDecides,
            "Some rows of \(table.schema).\(table.name) are not delivered: only PostgreSQL can decide who may see them, and the "
                + "server has no login to ask it with (policy_database_url)")
    }

    /// Returns the warning that some deletes may be missing, because only the event log has the deleted row's columns
    /// that the policies read.
    public static func deletesAreRecalled(_ table: CatalogTable) -> ClientText {
        ClientText(
            .deletesFromLog,
            "Where row level security decides who may see a row, deletes of \(table.schema).\(table.name) are delivered only as "
                + "long as the row's last version is in the server's event log: the replica identity does not keep the deleted row "
                + "(ALTER TABLE … REPLICA IDENTITY FULL)")
    }

    /// Returns the warning that deletes are not sent, because nothing has the deleted row's columns that the policies
    /// read.
    public static func deletesAreHidden(_ table: CatalogTable) -> ClientText {
        ClientText(
            .deletesHidden,
            "Deletes of \(table.schema).\(table.name) are not delivered: row level security decides by columns that "
                + "changes do not carry of deleted rows \(wholeIdentity(table))")
    }

    /// Returns a hint in parentheses: the SQL that makes PostgreSQL include all old columns in updates and deletes.
    private static func wholeIdentity(_ table: CatalogTable) -> String {
        let name = Quoted.identifier(table.schema) + "." + Quoted.identifier(table.name)
        guard table.hasMixedIdentity else { return "(ALTER TABLE \(name) REPLICA IDENTITY FULL)" }
        return
            "(ALTER TABLE … REPLICA IDENTITY FULL, for \(name) and for each of its partitions: they have different ones)"
    }

    /// Returns the message for rows in which PostgreSQL failed to compute a generated column.
    ///
    /// - Parameter column: the column's name; nil if the role may not read the column and only a policy reads it.
    public static func couldNotCompute(_ column: String?, of table: CatalogTable) -> ClientText {
        let name = column.map { "Generated column \(SQLName.quoted($0))" } ?? "A generated column that a policy reads"
        return ClientText(
            .columnsNotComputed,
            "\(name) of \(table.quotedName) could not be computed for some rows: it is missing from them, and "
                + "filters and policies that read it do not match (may the role call what its expression calls, with search_path "
                + "pg_catalog?)")
    }

    /// Returns the refusal of a filter or column selection on a column that published changes never contain.
    static func isLeftOut(_ column: CatalogColumn, of table: CatalogTable, _ publication: String) -> FilterRefusal {
        let why =
            column.isGenerated
            ? "is generated from columns that publication \(publication) leaves out"
            : "is left out by the column list of publication \(publication)"
        let name = SQLName.quoted(publication)
        return FilterRefusal(
            sqlState: undefinedColumn, condition: SQLCondition.name(of: undefinedColumn),
            message: "column \(SQLName.quoted(column.name)) of \(table.quotedName) \(why): changes do not carry it "
                + "(ALTER PUBLICATION \(name) DROP TABLE \(table.quotedName); "
                + "ALTER PUBLICATION \(name) ADD TABLE \(table.quotedName))")
    }

    /// Returns the refusal of a filter on a generated column, because the hub has no login to compute it.
    public static func isNotComputed(_ column: CatalogColumn, of table: CatalogTable) -> FilterRefusal {
        FilterRefusal(
            sqlState: undefinedColumn, condition: SQLCondition.name(of: undefinedColumn),
            message:
                "column \(SQLName.quoted(column.name)) of \(table.quotedName) is generated: changes do not carry it, "
                + "and the server has no login to compute it with (policy_database_url)")
    }

    /// Returns the warning that the hub has no login to compute the table's generated columns.
    ///
    /// - Parameter columns: the generated columns that the role may read.
    public static func areNotComputed(_ columns: [CatalogColumn], of table: CatalogTable) -> ClientText {
        let names = columns.map { SQLName.quoted($0.name) }.joined(separator: ", ")
        let list = names.isEmpty ? "" : " (\(names))"
        return ClientText(
            .columnsNotComputed,
            "Generated columns of \(table.quotedName) are missing from its rows\(list), and "
                + "policies that read them show nothing: changes do not carry them, and the server has no login to compute "
                + "them with (policy_database_url)")
    }

    /// Returns the warning that the publication omits operations for which the client asked.
    ///
    /// - Parameter published: the operations that the publication publishes.
    public static func areNotPublished(
        _ operations: RowOperations, of table: CatalogTable, _ published: RowOperations, _ publication: String
    ) -> ClientText {
        let wanted = published.union(operations).names.joined(separator: ", ").lowercased()
        let name = SQLName.quoted(publication)
        return ClientText(
            .operationsNotPublished,
            "\(operations.names.joined(separator: " and ")) of \(table.quotedName) will not come: publication "
                + "\(publication) does not publish them (ALTER PUBLICATION \(name) SET (publish = '\(wanted), truncate'))"
        )
    }

    /// Returns the warning that the publication's row filter omits some rows.
    public static func rowsAreLeftOut(_ table: CatalogTable, _ publication: String) -> ClientText {
        let name = SQLName.quoted(publication)
        return ClientText(
            .rowsLeftOut,
            "Rows of \(table.quotedName) outside the row filter of publication \(publication) are not delivered, and "
                + "a row that an update takes across it comes as an INSERT or a DELETE (ALTER PUBLICATION \(name) DROP "
                + "TABLE \(table.quotedName); ALTER PUBLICATION \(name) ADD TABLE \(table.quotedName))")
    }

    /// Returns the warning that a filter can be evaluated on a delete only while the event log has the row's last
    /// version.
    public static func filteredDeletesAreRecalled(_ table: CatalogTable) -> ClientText {
        ClientText(
            .deletesFromLog,
            "A filter is held against deletes of \(table.schema).\(table.name) only as long as the row's last version is in the "
                + "server's event log: the replica identity does not keep what the filter looks at "
                + "(ALTER TABLE … REPLICA IDENTITY FULL)")
    }

    /// Returns the warning that deletes are not sent to clients with a filter, because they lack the filter's columns.
    public static func filteredDeletesAreHidden(_ table: CatalogTable) -> ClientText {
        ClientText(
            .deletesHidden,
            "Deletes of \(table.schema).\(table.name) are not delivered to a filter that looks at columns which changes do "
                + "not carry of deleted rows \(wholeIdentity(table))")
    }

    /// Returns the warning that a filter on the row before an update can be evaluated only while the event log has that
    /// row.
    public static func oldRowsAreRecalled(_ table: CatalogTable) -> ClientText {
        ClientText(
            .oldRowsFromLog,
            "The filter is held against updates of \(table.quotedName) only as long as the row's former version is in the "
                + "server's event log: the replica identity does not keep what the filter looks at \(wholeIdentity(table))"
        )
    }

    /// Returns the refusal of a filter on the row before an update, because nothing has that row.
    static func oldRowsAreUnknown(_ table: CatalogTable) -> FilterRefusal {
        .raised(
            "`changed` and `old.` look at what a row of \(table.quotedName) was, and its changes do not say it "
                + wholeIdentity(table))
    }

    /// Returns the refusal of a filter on the row before a change, because only PostgreSQL can decide who may see that
    /// row.
    public static func oldRowsAreAsked(_ table: CatalogTable) -> FilterRefusal {
        .raised(
            "`changed` and `old.` need row level security that the server can decide by itself, and only PostgreSQL can "
                + "decide which rows of \(table.quotedName) the role may see (tidewire doctor names the policy)")
    }

    /// Returns the warning that `moves` does not report rows which cease to match a filter because time passes.
    public static func rowsAge(_ table: CatalogTable) -> ClientText {
        ClientText(
            .rowsAge,
            "Rows of \(table.quotedName) enter and leave a filter with `now` as time passes, and the server reports only what "
                + "changes of rows do: remove a row at the time at which the filter ceases to hold, and fetch rows that "
                + "come by time")
    }

    /// Returns the warning that the option `moves` has no effect on a filter on what changed.
    public static func eventsDoNotMove(_ table: CatalogTable) -> ClientText {
        ClientText(
            .movesHidden,
            "Rows of \(table.quotedName) that leave the view are not told by `moves` to a filter with `changed` or `old.`: "
                + "it selects events, so rows do not enter or leave it")
    }

    /// Returns the warning that a row which an update hides from a client is announced only while the event log has the
    /// row's former version.
    public static func movesAreRecalled(_ table: CatalogTable) -> ClientText {
        ClientText(
            .movesFromLog,
            "Rows of \(table.quotedName) that an update takes out of view are told only as long as the row's former version is in "
                + "the server's event log: the replica identity does not keep it \(wholeIdentity(table))")
    }

    /// Returns the warning that a row which an update hides from a client is not announced.
    public static func movesAreHidden(_ table: CatalogTable) -> ClientText {
        ClientText(
            .movesHidden,
            "Rows of \(table.quotedName) that an update takes out of view are not told: changes do not say what the row was "
                + wholeIdentity(table))
    }

    /// Returns the warning that the hub does not notice when a client may see other rows although no row changed.
    public static func setsAreUnknown(_ table: CatalogTable) -> ClientText {
        ClientText(
            .setsUnknown,
            "PostgreSQL alone decides who sees rows of \(table.quotedName), so the server does not notice if something else than "
                + "a row changes what this channel sees: fetch the rows then (tidewire doctor shows the policies)")
    }

    /// Returns one warning in place of those that are too many to be sent each: their codes, with the tables.
    public static func andMore(_ warnings: [(table: CatalogTable, text: ClientText)]) -> ClientText {
        let byCode = Dictionary(grouping: warnings, by: \.text.code).sorted { $0.key.rawValue < $1.key.rawValue }
        let parts = byCode.map { code, all in
            let named = all.prefix(Limits.maximumNamedTables).map(\.table.quotedName).joined(separator: ", ")
            let others = all.count - min(all.count, Limits.maximumNamedTables)
            return "\(code.rawValue) for \(named)\(others > 0 ? " and \(others) more" : "")"
        }
        return ClientText(
            .moreWarnings,
            "These limits, too: \(parts.joined(separator: "; ")) (subscribe to a table by its name to read about it)")
    }

    /// Returns the message that changes may be missing, because the table was out of the publication for a while.
    public static func wasUnpublished(_ table: CatalogTable) -> ClientText {
        ClientText(
            .changesMissing,
            "\(table.quotedName) was out of the publication for a while: changes may be missing, fetch them again")
    }

    /// Returns the message that an operator removed values of one of the table's rows from the event log. The hub can
    /// no longer tell which row it was.
    public static func hasForgotten(_ table: CatalogTable) -> ClientText {
        ClientText(
            .changesMissing,
            "Changes of a row of \(table.quotedName) were removed from the server's event log on demand: fetch again what is "
                + "shown")
    }

    public static let hasForgottenMessages = ClientText(
        .changesMissing, "A message was removed from the server's event log on demand: messages may be missing")

    /// Returns the message that TRUNCATE removed all rows of the table without a DELETE for each.
    public static func isTruncated(_ table: CatalogTable) -> ClientText {
        ClientText(
            .truncated,
            "TRUNCATE took all rows of \(table.quotedName), of which no DELETE tells: fetch again what is shown")
    }

    /// Returns the warning that no changes are sent, because policies apply and the role may not read the primary key.
    public static func nothingIsReadable(_ table: CatalogTable) -> ClientText {
        ClientText(
            .nothingReadable,
            "Changes of \(table.schema).\(table.name) are not delivered: row level security is active, and the role may not "
                + "SELECT its primary key")
    }

    /// Returns the warning for a client that is told of changes but not of their rows, because the table has no primary
    /// key or `role` may not read it. Nil if the client receives rows.
    public static func rowsAreRefused(
        _ table: CatalogTable, _ access: TableBinding.Access, _ role: String
    ) -> ClientText? {
        let why: String
        let fix: String
        switch access {
        case .readable: return nil
        case .unauthorized:
            why =
                "role \(SQLName.quoted(role)) may not SELECT its primary key, so INSERT and UPDATE come as \"Error 401: "
                + "Unauthorized\" and DELETE with what it may SELECT"
            fix = "GRANT SELECT ON \(table.quotedName) TO \(SQLName.quoted(role))"
        case .noPrimaryKey:
            why =
                "it has no primary key, so INSERT and UPDATE come as \"Error 400: Bad Request, no primary key\" and DELETE "
                + "with what the replica identity keeps"
            fix = "ALTER TABLE \(table.quotedName) ADD PRIMARY KEY (…)"
        }
        return ClientText(.rowsRefused, "Rows of \(table.quotedName) are not told: \(why) (\(fix))")
    }

    /// Returns the parameters in the syntax that Elixir prints, as Supabase does.
    private static func dump(_ request: BindingRequest, _ filter: Filter?) -> String {
        let conditions = (filter?.conditions ?? []).map { condition in
            "{\(Inspection.text(of: condition.column)), \"\(condition.comparison.rawValue)\", "
                + "\(Inspection.text(of: condition.value)), \(condition.isNegated)}"
        }
        let select = request.select.map { "[" + $0.map { Inspection.text(of: $0) }.joined(separator: ", ") + "]" }
        return "[event: \(request.operations.event), schema: \(request.schema), table: \(request.table), "
            + "filters: [\(conditions.joined(separator: ", "))], select: \(select ?? "nil")]"
    }
}
