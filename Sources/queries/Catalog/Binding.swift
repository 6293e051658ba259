import Diagnostics
import Policy
import Protocol

/// One `postgres_changes` entry of a join, together with the role that the client has.
public struct BindingRequest: Sendable, Hashable {
    public var role: String
    /// Schema name, in which `*` stands for any text; the same holds for `table`.
    public var schema: String
    public var table: String
    public var filter: String?
    /// Names of the columns that the client wants; nil means all.
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

    /// True if schema and table are names that PostgreSQL could have, without a pattern.
    var namesOneTable: Bool {
        [schema, table].allSatisfy { !NamePattern.isPattern($0) && !$0.utf8.contains(0) }
    }

    /// True if the request is small enough to be cached together with its outcome.
    var isSmall: Bool { BindingParameters.parts(of: filter) <= Limits.rememberedFilterParts }

    /// Size of the request's texts in bytes.
    var byteCount: Int {
        let texts = [role, schema, table, filter ?? ""] + (select ?? [])
        return texts.reduce(0) { $0 + $1.utf8.count }
    }
}

/// Result of resolving a binding request against the catalog.
public enum BindingOutcome: Sendable {
    case tables([TableBinding])
    /// The binding is refused with this `system` message of status `error`. The same request fails again unless
    /// something changes.
    case failed(ClientText)
    /// The database cannot be reached, or too many requests are waiting. The client should try again later.
    case unavailable
}

/// A binding request applied to one of the tables that it matches.
public struct TableBinding: Sendable {
    public enum Access: Sendable, Hashable {
        case readable
        /// The role may not SELECT the whole primary key: INSERT and UPDATE are sent as "Error 401: Unauthorized".
        case unauthorized
        /// INSERT and UPDATE are sent as "Error 400: Bad Request, no primary key".
        case noPrimaryKey
    }

    public var table: CatalogTable
    /// Condition of the filter; nil if every row matches.
    public var predicate: Predicate?
    /// Slots of the columns that are sent, in order: the requested columns and those of the primary key, as far as the
    /// role may SELECT them.
    public var delivered: [Int]
    /// Operations that the client asks for and the publication publishes.
    public var operations: RowOperations
    /// Operations that the client asks for but the publication does not publish. They never arrive.
    public var unpublished: RowOperations
    public var access: Access
    /// Policy that decides which rows the role may read; nil if row level security is not active for the role, so that
    /// it may read all rows.
    public var policy: PolicyBinding?

    /// True if the table has policies and the role may not read its key. A refusal for each change would then reveal
    /// that a change exists.
    public var isKeptSecret: Bool { policy != nil && access == .unauthorized }
}
