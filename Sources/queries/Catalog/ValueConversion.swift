import Change
import Policy
import Postgres

/// Conversion of a value from the former type of its column to the present one, as ALTER COLUMN TYPE without USING does
/// it.
public struct ValueConversion: Sendable, Hashable {
    /// SQL expression that converts the text `$1`.
    public let sql: String
    public let text: [UInt8]

    /// Creates the conversion. Nil if a cast might run users' code: the hub's login runs only functions that come with
    /// PostgreSQL.
    public init?(_ text: [UInt8], of oid: UInt32, to column: CatalogColumn) {
        guard let sql = Self.expression(from: oid, to: column) else { return nil }
        self.sql = sql
        self.text = text
    }

    static func expression(from oid: UInt32, to column: CatalogColumn) -> String? {
        let type = column.facts.type
        // The checks of a domain are users' code too.
        let target = type.oid == column.typeOID ? column.declaredType : SQLType.name(type)
        // A text that is not one of the enumeration's labels is an error.
        if case .enumeration = type.shape { return "CAST($1 AS \(target))" }
        guard BuiltInType.name(of: type.oid) != nil, let source = BuiltInType.name(of: oid) else { return nil }
        return "CAST(CAST($1 AS pg_catalog.\(Quoted.identifier(source))) AS \(target))"
    }
}
