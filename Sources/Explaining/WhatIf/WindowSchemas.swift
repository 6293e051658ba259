import Bytes
import Catalog
import Change
import Delivery
import History

/// The schemas of a window's rows, told from tables by their names: a copy of a database has other numbers.
struct WindowSchemas {
    struct Schema {
        /// With the number that the catalog has for the table; none where it has no such table.
        var relation: Relation
        /// Columns that the table has not, or not with that type.
        var foreign: Set<Int>
    }

    enum Image {
        case new
        case old
    }

    private let tables: [TableName: CatalogTable]
    private var schemas: [UInt64: Schema] = [:]

    /// `alsoRelated`: tables too that only policies read.
    init(_ snapshot: CatalogSnapshot, alsoRelated: Bool = false) {
        let all = alsoRelated ? snapshot.tables + snapshot.tablesOfPolicies : snapshot.tables
        tables = Dictionary(
            all.map { (TableName(schema: $0.schema, name: $0.name), $0) }, uniquingKeysWith: { first, _ in first })
    }

    mutating func learn(_ stored: RawSpan) throws(ByteError) {
        let fingerprint = RelationCodec.fingerprint(of: stored)
        guard schemas[fingerprint] == nil else { return }
        var relation = try RelationCodec.decode(stored)
        let table = tables[TableName(schema: relation.schema, name: relation.name)]
        relation.oid = table?.oid ?? 0
        let foreign = relation.columns.indices.filter { place in
            !(table?.columns.contains { $0.isSame(as: relation.columns[place]) } ?? false)
        }
        schemas[fingerprint] = Schema(relation: relation, foreign: Set(foreign))
    }

    func schema(_ fingerprint: UInt64) throws(ByteError) -> Schema {
        guard let found = schemas[fingerprint] else {
            throw ByteError(expected: "the schema of each change before it", offset: 0)
        }
        return found
    }

    /// A large value that did not change is in the old image, if that has the column at all.
    func value(
        of column: CatalogColumn, in change: borrowing Change, _ image: Image
    ) throws(ByteError) -> ColumnText {
        let relation = try schema(change.relation).relation
        guard let place = relation.columns.firstIndex(where: column.isSame) else { return .absent }
        if image == .new, let new = change.new, let found = try Self.value(at: place, of: new) { return found }
        guard let old = change.old, change.oldImage == .full || relation.columns[place].isIdentity else {
            return .absent
        }
        return try Self.value(at: place, of: old) ?? .absent
    }

    private static func value(at place: Int, of row: borrowing Tuple) throws(ByteError) -> ColumnText? {
        switch try row.value(at: place) {
        case .text(let text)?: .text(text.copied())
        case .null?: .null
        case .unchanged?, .binary?, nil: nil
        }
    }
}
