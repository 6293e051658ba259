/// Checks of literals, columns, casts and operators.
extension Checker {
    // MARK: Types

    /// Returns the type with the name that follows `::`. `isExact` is false for a domain. `facts` is then the base
    /// type, but the domain has rules of its own.
    private func type(_ name: TypeName) throws(Undecided) -> (facts: TypeFacts, isExact: Bool) {
        guard let facts = catalog.types[name.plain] ?? Checker.builtIn[name.plain] else { throw Undecided() }
        let isExact = facts.name == name.plain || facts.oid == TypeOID.bpchar && name.base == "bpchar"
        return (facts, isExact)
    }

    private static let builtIn: [String: TypeFacts] = [
        "boolean": .boolean, "text": .text, "integer": .integer, "numeric": .numericType, "name": .nameType,
        "text[]": .textArray, "bpchar": TypeFacts(oid: TypeOID.bpchar, name: "character"),
        "uuid[]": array(2951, of: TypeFacts(oid: TypeOID.uuid, name: "uuid")),
        "integer[]": array(1007, of: .integer),
        "bigint[]": array(1016, of: TypeFacts(oid: TypeOID.int8, name: "bigint")),
        "smallint[]": array(1005, of: TypeFacts(oid: TypeOID.int2, name: "smallint")),
        "numeric[]": array(1231, of: .numericType),
        "boolean[]": array(1000, of: .boolean),
        "jsonb[]": array(3807, of: .jsonb),
        "character varying[]": array(1015, of: .varchar),
    ]

    private static func array(_ oid: UInt32, of element: TypeFacts) -> TypeFacts {
        TypeFacts(oid: oid, name: element.name + "[]", shape: .array(of: element))
    }

    func arrayType(of element: TypeFacts) throws(Undecided) -> TypeFacts {
        if let facts = catalog.types[element.name + "[]"] ?? Checker.builtIn[element.name + "[]"] { return facts }
        throw Undecided()
    }

    // MARK: Literals

    func literal(_ text: String, _ name: TypeName?, _ tree: Syntax) throws(Undecided) -> Typed {
        // A type modifier such as a length may truncate or round the value.
        guard let name, !name.hasModifier else { throw Undecided() }
        let (facts, isExact) = try type(name)
        guard isExact else { throw Undecided() }
        var typed = Typed.constant(text, facts, tree)
        typed.isBuiltIn = !facts.isOfUsers || facts.shape != .other
        return typed
    }

    func number(_ digits: String) throws(Undecided) -> Typed {
        if digits.utf8.contains(where: { !(0x30...0x39).contains($0) }) {
            return .constant(digits, .numericType, .number(digits))
        }
        guard Int32(digits) != nil else { throw Undecided() }
        return .constant(digits, .integer, .number(digits))
    }

    // MARK: Columns and arguments

    mutating func column(
        _ qualifier: [String], _ name: String, _ environment: Environment, _ isPositive: Bool
    ) throws(Undecided) -> Typed {
        guard qualifier.count <= 1 else { throw Undecided() }
        if let number = argumentNumber(qualifier.first, name) {
            return try argument(number, environment, isPositive)
        }
        for scope in environment.scopes.reversed() {
            if let wanted = qualifier.first, wanted != scope.alias { continue }
            guard let slot = scope.relation.columns.firstIndex(where: { $0.name == name }) else {
                if qualifier.isEmpty { continue }
                throw Undecided()
            }
            return try column(slot, of: scope)
        }
        guard (qualifier.first ?? "argument") == "argument",
            let index = environment.argumentNames.firstIndex(of: name)
        else { throw Undecided() }
        return try argument(index + 1, environment, isPositive)
    }

    private func column(_ slot: Int, of scope: Scope) throws(Undecided) -> Typed {
        // Terms read only rows of the level for which this checker works.
        guard scope.level == row else { throw Undecided() }
        precondition(scope.relation.columns.indices.contains(slot), "a column that the table does not have")
        let facts = scope.relation.columns[slot]
        return Typed(
            type: facts.type, collation: facts.collation == .none ? .none : .implicit(facts.collation),
            term: .column(slot, facts.type), readsRow: true, canBeAsked: false,
            syntax: .column(qualifier: [scope.alias], name: facts.name))
    }

    /// Returns the number of a function's argument that is written as a column named `"$1"` and so on; otherwise nil.
    private func argumentNumber(_ qualifier: String?, _ name: String) -> Int? {
        guard (qualifier ?? "argument") == "argument", name.hasPrefix("$") else { return nil }
        return Int(name.dropFirst())
    }

    mutating func argument(
        _ number: Int, _ environment: Environment, _ isPositive: Bool
    ) throws(Undecided) -> Typed {
        guard number > 0, number <= environment.arguments.count else { throw Undecided() }
        let argument = environment.arguments[number - 1]
        let typed = try expression(argument.value, argument.environment, isPositive: isPositive)
        guard typed.type.oid == argument.type.oid, !typed.isSet else { throw Undecided() }
        return typed
    }

    func keyword(_ word: String, _ environment: Environment) throws(Undecided) -> Typed {
        // In a SECURITY DEFINER function, the current user is the function's owner.
        guard word == "CURRENT_USER" || word == "CURRENT_ROLE", environment.reader == .caller else {
            throw Undecided()
        }
        return Typed(
            type: .nameType, collation: .implicit(.bytewise), term: .role, syntax: .keyword(word))
    }

    // MARK: Casts

    mutating func cast(_ inner: Syntax, _ name: TypeName, _ environment: Environment) throws(Undecided) -> Typed {
        let (target, isExact) = try type(name)
        if !name.hasModifier, isExact, let constant = try constantCast(inner, name, target, environment) {
            return constant
        }
        let part = try value(inner, environment)
        let syntax = Syntax.cast(part.syntax, name)
        guard isExact, !isMade(part.type, target) else { throw Undecided() }
        if !name.hasModifier, let same = unchanged(part, target, syntax) { return same }
        let function =
            name.hasModifier
            ? nil
            : Function.cast(
                part.type, to: target, text: catalog.text.encoding, timeZone: catalog.timeZone)
        return try combined(
            [part], target, canBeAsked: Checker.canAskForCast(part.type, target),
            isBuiltIn: !part.type.isOfUsers && (!target.isOfUsers || target.shape != .other), syntax
        ) { terms in function.map { .apply($0, terms) } }
    }

    /// True if a function of a user or an extension does the cast, also of an array's elements.
    private func isMade(_ source: TypeFacts, _ target: TypeFacts) -> Bool {
        if catalog.madeCasts.contains(CastPair(from: source.oid, to: target.oid)) { return true }
        guard let element = source.element, let other = target.element else { return false }
        return isMade(element, other)
    }

    /// Returns the cast of a literal without a type of its own, or of an array whose elements can be cast one by one.
    /// Nil for all other expressions.
    private mutating func constantCast(
        _ inner: Syntax, _ name: TypeName, _ target: TypeFacts, _ environment: Environment
    ) throws(Undecided) -> Typed? {
        let syntax = Syntax.cast(inner, name)
        switch inner {
        case .null: return .constant(nil, target, syntax)
        case .array(let parts) where parts.isEmpty: return .constant("{}", target, syntax)
        case .array(let parts) where name.isArray && !parts.contains(where: { $0 == .null }):
            guard let array = try? self.array(parts, environment), array.type.oid != target.oid else { return nil }
            assert(array.type.element != nil, "an array of nothing")
            let element = TypeName(name.base, written: name.written)
            return try self.array(parts.map { .cast($0, element) }, environment)
        case .number(let digits):
            guard Int32(digits) != nil, [TypeOID.int8, TypeOID.numeric].contains(target.oid) else { return nil }
            return .constant(digits, target, syntax)
        case .literal(let text, let type):
            guard let type, !type.hasModifier, [TypeOID.varchar, TypeOID.text].contains(target.oid) else { return nil }
            let isText = ["text", "character varying"].contains(type.plain)
            return isText ? .constant(text, target, syntax) : nil
        default: return nil
        }
    }

    /// Returns the expression with the new type if the cast does not change the value; otherwise nil.
    private func unchanged(_ part: Typed, _ target: TypeFacts, _ syntax: Syntax) -> Typed? {
        var part = part
        let isTwin = catalog.textTwins.contains(part.type.oid) && target.oid == TypeOID.text
        guard part.type.oid == target.oid || isTwin else { return nil }
        if isTwin {
            switch part.term {
            case .column(let slot, _)?: part.term = .column(slot, target)
            case .constant(let text, _)?: part.term = .constant(text, target)
            default: return nil
            }
            part.collation = .ofResult(target, part.collation)
        }
        part.type = target
        part.syntax = syntax
        return part
    }

    private static func canAskForCast(_ from: TypeFacts, _ target: TypeFacts) -> Bool {
        // Results for times depend on `'now'` and on the time zone. Names of objects are looked up in the catalog.
        !from.isTemporal && !target.isTemporal && !target.isCatalogName
    }

    // MARK: Arrays

    mutating func array(_ trees: [Syntax], _ environment: Environment) throws(Undecided) -> Typed {
        let parts = try values(trees, environment)
        guard let element = parts.first?.type, parts.allSatisfy({ $0.type.oid == element.oid }) else {
            throw Undecided()
        }
        // `ARRAY[ARRAY[…]]` is one array with two dimensions.
        if case .array = element.shape { throw Undecided() }
        let type = try arrayType(of: element)
        return try combined(parts, type, canBeAsked: true, isBuiltIn: true, .array(parts.map(\.syntax))) {
            .array($0, element)
        }
    }

    mutating func element(
        _ array: Syntax, _ index: Syntax, _ environment: Environment
    ) throws(Undecided) -> Typed {
        let parts = try values([array, index], environment)
        guard case .array(let element) = parts[0].type.shape, parts[1].type.oid == TypeOID.int4 else {
            throw Undecided()
        }
        return try combined(
            parts, element, canBeAsked: true, isBuiltIn: true,
            .element(parts[0].syntax, index: parts[1].syntax),
            collation: .ofResult(element, parts[0].collation)
        ) { .element($0[0], index: $0[1]) }
    }

    mutating func collated(
        _ inner: Syntax, _ name: SyntaxName, _ environment: Environment
    ) throws(Undecided) -> Typed {
        guard name.schema == nil else { throw Undecided() }
        var part = try value(inner, environment)
        switch name.name {
        case "C", "POSIX": part.collation = .explicit(.bytewise)
        case "default": part.collation = .explicit(DerivedCollation.database)
        default: throw Undecided()
        }
        part.syntax = .collate(part.syntax, name)
        return part
    }

    // MARK: Operators

    /// Returns the operator for exactly these types. If there is none, returns the operator for any array or any
    /// enumeration, provided that it is the only one.
    func operatorFacts(_ name: QualifiedName, _ left: TypeFacts?, _ right: TypeFacts) -> OperatorFacts? {
        let candidates = catalog.operators[name] ?? []
        let exact = candidates.filter { $0.left?.oid == left?.oid && $0.right.oid == right.oid }
        if exact.count == 1 { return exact[0] }
        guard exact.isEmpty, let left, left.oid == right.oid, let any = left.anyOfItsKind else { return nil }
        let polymorphic = candidates.filter { $0.left?.oid == any && $0.right.oid == any }
        return polymorphic.count == 1 ? polymorphic[0] : nil
    }

    mutating func infix(
        _ symbol: SyntaxName, _ left: Syntax, _ right: Syntax, _ environment: Environment, _ isPositive: Bool
    ) throws(Undecided) -> Typed {
        if symbol == SyntaxName("="), case .boolean(let wanted) = right {
            let inner = condition(left, environment, isPositive: isPositive && wanted)
            return wanted ? inner : try negated(inner)
        }
        let parts = try values([left, right], environment)
        guard let facts = operatorFacts(symbol.qualified, parts[0].type, parts[1].type) else { throw Undecided() }
        assert(facts.left != nil, "a prefix operator with two sides")
        let function = try function(symbol, facts, parts, parts[0].type, parts[1].type)
        return try combined(
            parts, try result(facts, parts), canBeAsked: canAsk(facts), isBuiltIn: facts.isBuiltIn,
            .infix(symbol, parts[0].syntax, parts[1].syntax)
        ) { terms in function.map { .apply($0, terms) } }
    }

    private func negated(_ part: Typed) throws(Undecided) -> Typed {
        try combined([part], .boolean, canBeAsked: true, isBuiltIn: true, .not(part.syntax)) { .not($0[0]) }
    }

    private func result(_ facts: OperatorFacts, _ parts: [Typed]) throws(Undecided) -> TypeFacts {
        guard facts.result.isPolymorphic else { return facts.result }
        guard case .array = parts[0].type.shape, parts[0].type.oid == parts[1].type.oid else { throw Undecided() }
        return parts[0].type
    }

    /// True if PostgreSQL's result may be stored for a holder. Results of other operators depend on a clock, a time
    /// zone or the catalog.
    private func canAsk(_ facts: OperatorFacts) -> Bool { facts.volatility == .immutable }

    /// Returns the function with which the hub evaluates the operator; nil if there is none. Throws if collations
    /// conflict, because the hub does not know if PostgreSQL would raise an error.
    private func function(
        _ symbol: SyntaxName, _ facts: OperatorFacts, _ parts: [Typed], _ left: TypeFacts, _ right: TypeFacts
    ) throws(Undecided) -> Function? {
        guard facts.isBuiltIn, symbol.qualified.schema == "pg_catalog" else { return nil }
        let function = Function.infix(
            symbol.name, left, right, try parts.collation.decided(),
            text: catalog.text, timeZone: catalog.timeZone)
        guard let function, function.result.oid == facts.result.oid || facts.result.isPolymorphic else { return nil }
        return function
    }

    mutating func prefix(
        _ symbol: SyntaxName, _ inner: Syntax, _ environment: Environment
    ) throws(Undecided) -> Typed {
        let part = try value(inner, environment)
        guard let facts = operatorFacts(symbol.qualified, nil, part.type), !facts.result.isPolymorphic else {
            throw Undecided()
        }
        return try combined(
            [part], facts.result, canBeAsked: canAsk(facts), isBuiltIn: facts.isBuiltIn,
            .prefix(symbol, part.syntax)
        ) { _ in nil }
    }

    mutating func quantified(
        _ symbol: SyntaxName, _ left: Syntax, _ quantifier: Syntax.Quantifier, _ array: Syntax,
        _ environment: Environment
    ) throws(Undecided) -> Typed {
        let parts = try values([left, array], environment)
        return try quantified(
            symbol, parts, quantifier, .quantified(symbol, parts[0].syntax, quantifier, parts[1].syntax))
    }

    func quantified(
        _ symbol: SyntaxName, _ parts: [Typed], _ quantifier: Syntax.Quantifier, _ syntax: Syntax
    ) throws(Undecided) -> Typed {
        guard case .array(let element) = parts[1].type.shape,
            let facts = operatorFacts(symbol.qualified, parts[0].type, element), facts.result.oid == TypeOID.bool
        else { throw Undecided() }
        let function = try function(symbol, facts, parts, parts[0].type, element)
        return try combined(
            parts, .boolean, canBeAsked: canAsk(facts), isBuiltIn: facts.isBuiltIn, syntax
        ) { terms in
            function.map {
                quantifier == .any
                    ? .anyElement($0, terms[0], array: terms[1]) : .allElements($0, terms[0], array: terms[1])
            }
        }
    }
}

extension TypeFacts {
    /// Oid of the pseudo-type `anyarray` or `anyenum`, for which operators on all types of that kind are declared.
    fileprivate var anyOfItsKind: UInt32? {
        switch shape {
        case .array: 2277
        case .enumeration: 3500
        case .base, .other: nil
        }
    }

    /// True for `anyelement` and similar pseudo-types.
    var isPolymorphic: Bool { TypeFacts.polymorphic.contains(oid) }

    private static let polymorphic: Set<UInt32> = [
        2276, 2277, 2283, 2776, 3500, 3831, 4537, 4538, 5077, 5078, 5079, 5080,
    ]

    /// True for `regclass` and similar types, whose values are names of objects in the catalog.
    fileprivate var isCatalogName: Bool {
        if case .array(let element) = shape { return element.isCatalogName }
        return [24, 2202, 2203, 2204, 2205, 2206, 3734, 3769, 4089, 4096, 4191].contains(oid)
    }
}
