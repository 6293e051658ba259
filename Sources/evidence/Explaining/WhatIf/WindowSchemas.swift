import Bytes
import Catalog
import Change
import History

/// Schemas of a window's rows, matched to the catalog's tables by name, because the oids differ in a copy of a
/// database.
struct WindowSchemas {
    struct Schema {
        /// Relation from the log, with the oid of the catalog's table of that name, or 0 if the catalog has none.
        var relation: Relation
        /// Indexes of columns whose values are unknown: the catalog's table lacks them or has them with another type,
        /// or a bundle has masked them.
        var foreign: Set<Int>
    }

    enum Image {
        case new
        case old
    }

    private let tables: [TableName: CatalogTable]
    private let lost: Masking?
    private var schemas: [UInt64: Schema] = [:]

    /// Prepares an empty set of schemas. `alsoRelated` includes tables that only policies read. `lost` has the masks of
    /// a bundle.
    init(_ snapshot: CatalogSnapshot, alsoRelated: Bool = false, lost: Masking?) {
        self.lost = lost
        let all = alsoRelated ? snapshot.tables + snapshot.tablesOfPolicies : snapshot.tables
        tables = Dictionary(
            all.map { (TableName(schema: $0.schema, name: $0.name), $0) }, uniquingKeysWith: { first, _ in first })
    }

    /// Stores a schema from the log, matched to the catalog's table of the same name.
    mutating func learn(_ stored: RawSpan) throws(ByteError) {
        let fingerprint = RelationCodec.fingerprint(of: stored)
        guard schemas[fingerprint] == nil else { return }
        var relation = try RelationCodec.decode(stored)
        let name = TableName(schema: relation.schema, name: relation.name)
        let table = tables[name]
        relation.oid = table?.oid ?? 0
        let foreign = relation.columns.indices.filter { place in
            !(table?.columns.contains { $0.isSame(as: relation.columns[place]) } ?? false)
                || lost?.masks(relation.columns[place].name, of: name) ?? false
        }
        schemas[fingerprint] = Schema(relation: relation, foreign: Set(foreign))
    }

    func schema(_ fingerprint: UInt64) throws(ByteError) -> Schema {
        guard let found = schemas[fingerprint] else {
            throw ByteError(expected: "the schema of each change before it", offset: 0)
        }
        return found
    }

    /// Returns the column's value in an image. A TOASTed value that an update did not change is read from the old
    /// image, if that has the column.
    func value(
        of column: CatalogColumn, in change: borrowing Change, _ image: Image
    ) throws(ByteError) -> ColumnText {
        let schema = try schema(change.relation)
        let relation = schema.relation
        guard let place = relation.columns.firstIndex(where: column.isSame), !schema.foreign.contains(place) else {
            return .absent
        }
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
