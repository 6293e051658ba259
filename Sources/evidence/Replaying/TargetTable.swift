import Change
import History

/// Column of a table in the log. The name distinguishes it from the type `Column` of target tables.
typealias RelationColumn = Column

/// A table in the target of a replay, with its columns.
public struct TargetTable: Sendable, Hashable {
    public struct Column: Sendable, Hashable {
        public var name: String
        public var type: TargetType
        /// True for a generated column, to which no statement may assign a value.
        public var isGenerated: Bool
        /// True for an identity column that accepts values only with OVERRIDING SYSTEM VALUE.
        public var isAlwaysIdentity: Bool
        public var takesNull: Bool

        public init(
            _ name: String, _ type: TargetType, isGenerated: Bool = false, isAlwaysIdentity: Bool = false,
            takesNull: Bool = true
        ) {
            self.name = name
            self.type = type
            self.isGenerated = isGenerated
            self.isAlwaysIdentity = isAlwaysIdentity
            self.takesNull = takesNull
        }
    }

    public var name: TableName
    public var columns: [Column]

    public init(name: TableName, columns: [Column]) {
        self.name = name
        self.columns = columns
    }

    func column(named name: String) -> Column? { columns.first { $0.name == name } }
}

extension TargetTable {
    /// Derives the table from its description in the log. The log has only the names of user-defined types, and does
    /// not show which columns are generated.
    public init(_ relation: Relation) {
        self.init(
            name: TableName(schema: relation.schema, name: relation.name),
            columns: relation.columns.map { Column($0.name, TargetType($0)) })
    }
}

extension TargetType {
    init(_ column: RelationColumn) {
        if BuiltInType.name(of: column.typeOID) == nil {
            self = .named(column.typeName, modifier: column.typeModifier)
        } else if let element = BuiltInType.element(of: column.typeOID) {
            self = .array(of: .builtIn(element, modifier: column.typeModifier))
        } else {
            self = .builtIn(column.typeOID, modifier: column.typeModifier)
        }
    }
}
