import Change
import Policy
import Postgres

/// Conversion of a value from its column's former type to the present one, as ALTER COLUMN TYPE does without USING.
public struct ValueConversion: Sendable, Hashable {
    /// SQL expression over `$1`, the text.
    public let sql: String
    public let text: [UInt8]

    /// Creates the conversion; nil if PostgreSQL must not be asked. Casts of user-defined types may run users' code,
    /// and the hub's login runs only code that came with PostgreSQL.
    public init?(_ text: [UInt8], of oid: UInt32, to column: CatalogColumn) {
        guard let sql = Self.expression(from: oid, to: column) else { return nil }
        self.sql = sql
        self.text = text
    }

    static func expression(from oid: UInt32, to column: CatalogColumn) -> String? {
        let type = column.facts.type
        // A domain's checks are users' code too.
        let target = type.oid == column.typeOID ? column.declaredType : SQLType.name(type)
        // A text that is no label is an error. An enumeration accepts only its labels.
        if case .enumeration = type.shape { return "CAST($1 AS \(target))" }
        guard BuiltInType.name(of: type.oid) != nil, let source = BuiltInType.name(of: oid) else { return nil }
        return "CAST(CAST($1 AS pg_catalog.\(Quoted.identifier(source))) AS \(target))"
    }
}
