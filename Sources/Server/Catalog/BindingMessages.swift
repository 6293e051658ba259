import Diagnostics
import Policy
import Postgres

/// The `system` messages that tell a client why a binding failed. Clients show them, and people search for them: they
/// are the reference's to the letter.
enum BindingMessages {
    private static let cannotSubscribe = "Unable to subscribe to changes with given parameters. "

    static let selectOnPattern =
        "Column selection is not supported for wildcard subscriptions. Provide an explicit schema and table name."

    static func nothingMatches(_ request: BindingRequest, _ filter: Filter?) -> String {
        cannotSubscribe + "Please check Realtime is enabled for the given connect parameters: \(dump(request, filter))"
    }

    /// An SQL error, or what the reference raises as one.
    static func refusal(_ refusal: FilterRefusal, _ request: BindingRequest, _ filter: Filter?) -> String {
        cannotSubscribe + "An exception happened so please check your connect parameters: \(dump(request, filter)). "
            + "Exception: ERROR \(refusal.sqlState) (\(refusal.condition)) \(refusal.message)"
    }

    static func unknownRole(_ request: BindingRequest, _ filter: Filter?) -> String {
        let state = SQLState.undefinedObject
        return refusal(
            FilterRefusal(
                sqlState: state, condition: SQLCondition.name(of: state),
                message: "role \"\(request.role)\" does not exist"), request, filter)
    }

    static func tooManyTables(_ count: Int, _ request: BindingRequest, _ filter: Filter?) -> String {
        cannotSubscribe + "\(count) tables match, and a binding may have \(Limits.maximumTablesPerBinding): "
            + dump(request, filter)
    }

    static func nobodyDecides(_ table: CatalogTable) -> String {
        "Some rows of \(table.schema).\(table.name) are not delivered: only PostgreSQL can decide who may see them, and the "
            + "server has no login to ask it with (policy_database_url)"
    }

    static func deletesAreRecalled(_ table: CatalogTable) -> String {
        "Where row level security decides who may see a row, deletes of \(table.schema).\(table.name) are delivered only as "
            + "long as the row's last version is in the server's event log: the replica identity does not keep the deleted row "
            + "(ALTER TABLE … REPLICA IDENTITY FULL)"
    }

    static func deletesAreHidden(_ table: CatalogTable) -> String {
        let name = Quoted.identifier(table.schema) + "." + Quoted.identifier(table.name)
        return "Deletes of \(table.schema).\(table.name) are not delivered: row level security decides by columns that "
            + "changes do not carry of deleted rows (ALTER TABLE \(name) REPLICA IDENTITY FULL)"
    }

    static func filteredDeletesAreRecalled(_ table: CatalogTable) -> String {
        "A filter is held against deletes of \(table.schema).\(table.name) only as long as the row's last version is in the "
            + "server's event log: the replica identity does not keep what the filter looks at "
            + "(ALTER TABLE … REPLICA IDENTITY FULL)"
    }

    static func filteredDeletesAreHidden(_ table: CatalogTable) -> String {
        let name = Quoted.identifier(table.schema) + "." + Quoted.identifier(table.name)
        return
            "Deletes of \(table.schema).\(table.name) are not delivered to a filter that looks at columns which changes do "
            + "not carry of deleted rows (ALTER TABLE \(name) REPLICA IDENTITY FULL)"
    }

    static func nothingIsReadable(_ table: CatalogTable) -> String {
        "Changes of \(table.schema).\(table.name) are not delivered: row level security is active, and the role may not "
            + "SELECT its primary key"
    }

    /// The parameters as Elixir's `inspect` and interpolation print them.
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
