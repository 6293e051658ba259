import Diagnostics
import Policy
import Protocol

/// One `postgres_changes` entry of a join, together with the role that asks.
public struct BindingRequest: Sendable, Hashable {
    public var role: String
    /// `*` in schema and table stands for any text.
    public var schema: String
    public var table: String
    public var filter: String?
    /// Columns; nil is all.
    public var select: [String]?
    public var operations: RowOperations

    public init(
        role: String, schema: String, table: String, filter: String? = nil, select: [String]? = nil,
        operations: RowOperations = .all
    ) {
        self.role = role
        self.schema = schema
        self.table = table
        self.filter = filter
        self.select = select
        self.operations = operations
    }

    /// A name that PostgreSQL could have, and no pattern.
    var namesOneTable: Bool {
        [schema, table].allSatisfy { !NamePattern.isPattern($0) && !$0.utf8.contains(0) }
    }

    /// Small enough to be remembered, with what it came to.
    var isSmall: Bool { BindingParameters.parts(of: filter) <= Limits.rememberedFilterParts }

    /// Of its texts: what it takes to hold it.
    var byteCount: Int {
        let texts = [role, schema, table, filter ?? ""] + (select ?? [])
        return texts.reduce(0) { $0 + $1.utf8.count }
    }
}

/// What a request means.
public enum BindingOutcome: Sendable {
    case tables([TableBinding])
    /// The `system` message with status `error`. Asking again without a change does not help.
    case failed(ClientText)
    /// The database is away, or too much is asked at once: to be asked again later.
    case unavailable
}

/// A request on one of the tables that it means.
public struct TableBinding: Sendable {
    public enum Access: Sendable, Hashable {
        case readable
        /// The role may not SELECT the whole primary key: INSERT and UPDATE are sent as "Error 401: Unauthorized".
        case unauthorized
        /// INSERT and UPDATE are sent as "Error 400: Bad Request, no primary key".
        case noPrimaryKey
    }

    public var table: CatalogTable
    /// Nil: every row matches.
    public var predicate: Predicate?
    /// Slots of the columns that are sent, in order: those asked for and those of the primary key, as far as the role
    /// may SELECT them.
    public var delivered: [Int]
    /// Asked for and published.
    public var operations: RowOperations
    /// Asked for and never to come.
    public var unpublished: RowOperations
    public var access: Access
    /// Which rows the role may read; nil where row level security is not active for it: all of them.
    public var policy: PolicyBinding?

    /// Policies guard what the role may not read at all: a refusal for each change would tell it when there is one.
    public var isKeptSecret: Bool { policy != nil && access == .unauthorized }
}
