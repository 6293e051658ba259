/// Names that occur in a text. Names outside `pg_catalog` are qualified.
public struct PolicyNames: Sendable, Hashable {
    public var functions: Set<QualifiedName> = []
    public var operators: Set<QualifiedName> = []
    public var relations: Set<QualifiedName> = []
    /// Types as casts write them, without modifiers, and the array type of each.
    public var types: Set<String> = []

    public init() {}

    // MARK: Collecting

    mutating func add(_ tree: Syntax) {
        switch tree {
        case .literal(_, let type):
            if let type { add(type) }
        case .number, .boolean, .null, .column, .parameter, .keyword, .opaque: break
        case .call(let name, let arguments):
            functions.insert(name.qualified)
            add(arguments)
        case .special(let form, let arguments):
            if form == .nullIf { addEquality() }
            add(arguments)
        case .cast(let value, let type):
            add(value)
            add(type)
        case .element(let value, let index): add([value, index])
        case .array(let parts), .row(let parts), .all(let parts), .any(let parts): add(parts)
        case .arrayOf(let select), .exists(let select), .scalar(let select): add(select)
        case .not(let value), .test(let value, _), .collate(let value, _): add(value)
        default: addCompared(tree)
        }
    }

    private mutating func addCompared(_ tree: Syntax) {
        switch tree {
        case .choice(let operand, let branches, let otherwise):
            if operand != nil { addEquality() }
            add([operand, otherwise].compactMap { $0 } + branches.flatMap { [$0.condition, $0.value] })
        case .among(let value, let select):
            addEquality()
            add(value)
            add(select)
        case .infix(let symbol, let left, let right), .quantified(let symbol, let left, _, let right):
            operators.insert(symbol.qualified)
            add([left, right])
        case .prefix(let symbol, let value):
            operators.insert(symbol.qualified)
            add(value)
        case .isDistinct(let left, let right):
            addEquality()
            add([left, right])
        case .atTimeZone(let value, let zone):
            functions.insert(QualifiedName("pg_catalog", "timezone"))
            add([value, zone])
        default: break
        }
    }

    private mutating func add(_ parts: [Syntax]) {
        for part in parts { add(part) }
    }

    private mutating func add(_ type: TypeName) {
        types.insert(type.plain)
        types.insert(type.base)
        // An `ARRAY[…]` of such elements does not write the name of its own type.
        types.insert(type.base + "[]")
    }

    private mutating func addEquality() { operators.insert(QualifiedName("pg_catalog", "=")) }

    mutating func add(_ select: Syntax.Select) {
        for output in select.outputs { add(output.value) }
        if let source = select.source, let arguments = source.arguments {
            functions.insert(source.table.qualified)
            add(arguments)
        } else if let source = select.source {
            relations.insert(source.table.qualified)
        }
        if let condition = select.condition { add(condition) }
    }
}
