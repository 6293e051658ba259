import Change
import History

/// Of the log's table; a target's columns have a type of that name of their own.
typealias RelationColumn = Column

/// A table as it is where changes are to be written.
public struct TargetTable: Sendable, Hashable {
    public struct Column: Sendable, Hashable {
        public var name: String
        public var type: TargetType
        /// What it is made of is computed by PostgreSQL alone.
        public var isGenerated: Bool
        /// An identity that is given values only where that is asked for.
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
    /// As the log alone knows it: of types of the user's own no more than their names, nothing of generated columns.
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
