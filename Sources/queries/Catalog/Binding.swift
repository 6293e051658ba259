import Diagnostics
import Policy
import Protocol

/// One `postgres_changes` entry of a client's join, with the client's role.
public struct BindingRequest: Sendable, Hashable {
    public var role: String
    /// Schema name or pattern. In a pattern, `*` matches any text.
    public var schema: String
    /// Table name or pattern. In a pattern, `*` matches any text.
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

    /// True if schema and table are valid PostgreSQL names without `*`.
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
    /// The binding is refused. The client receives this text in a `system` message with status `error`. The same
    /// request fails again unless the catalog or the role's rights change.
    case failed(ClientText)
    /// The database cannot be reached, or too many requests are waiting. The client should try again later.
    case unavailable
}

/// Binding request applied to one table that it matches.
public struct TableBinding: Sendable {
    public enum Access: Sendable, Hashable {
        case readable
        /// The role may not SELECT the whole primary key. The hub sends its INSERTs and UPDATEs as "Error 401:
        /// Unauthorized".
        case unauthorized
        /// The table has no primary key. The hub sends INSERTs and UPDATEs as "Error 400: Bad Request, no primary key".
        case noPrimaryKey
    }

    public var table: CatalogTable
    /// Filter of the client as a predicate; nil if every row matches.
    public var predicate: Predicate?
    /// Column slots that the hub sends, in order: the requested columns and those of the primary key, without columns
    /// that the role may not SELECT.
    public var delivered: [Int]
    /// Operations that the client asks for and the publication publishes.
    public var operations: RowOperations
    /// Operations that the client asks for but the publication does not publish. The client never receives them.
    public var unpublished: RowOperations
    public var access: Access
    /// Policy that decides which rows the role may read. Nil if row level security is not active for the role, which
    /// may then read all rows.
    public var policy: PolicyBinding?

    /// True if the table has policies and the role may not read its primary key. The hub then sends nothing, because an
    /// error message for each change would reveal that a change exists.
    public var isKeptSecret: Bool { policy != nil && access == .unauthorized }

    /// True if the filter reads the row before the change, so that it selects events and not rows.
    public var readsOldRow: Bool { predicate?.readsOldRow ?? false }

    /// True if the filter compares a column with the time of the commit, so that rows begin and cease to match as time
    /// passes.
    public var readsClock: Bool { predicate?.readsClock ?? false }
}
