import Change
import Policy
import Postgres

/// A value of a type that its column had once, as one of the type that the column has now: what ALTER COLUMN TYPE makes
/// of it where nothing else was said (USING).
public struct ValueConversion: Sendable, Hashable {
    /// One expression over `$1`, the text.
    public let sql: String
    public let text: [UInt8]

    /// Nil where PostgreSQL is not asked: types of somebody's own may have casts that run somebody's code, and the hub's
    /// login runs nothing but what came with PostgreSQL.
    public init?(_ text: [UInt8], of oid: UInt32, to column: CatalogColumn) {
        guard let sql = Self.expression(from: oid, to: column) else { return nil }
        self.sql = sql
        self.text = text
    }

    static func expression(from oid: UInt32, to column: CatalogColumn) -> String? {
        let type = column.facts.type
        // A domain's checks are somebody's code too.
        let target = type.oid == column.typeOID ? column.declaredType : SQLType.name(type)
        // What is no label is an error; there are no other ways into an enumeration but by its labels.
        if case .enumeration = type.shape { return "CAST($1 AS \(target))" }
        guard BuiltInType.name(of: type.oid) != nil, let source = BuiltInType.name(of: oid) else { return nil }
        return "CAST(CAST($1 AS pg_catalog.\(Quoted.identifier(source))) AS \(target))"
    }
}
