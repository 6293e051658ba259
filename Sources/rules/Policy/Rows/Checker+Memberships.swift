/// Checks of sub-selects: those that read only claims, and those that read another table, which define memberships.
extension Checker {
    // MARK: Over no table

    mutating func scalar(
        _ select: Syntax.Select, _ environment: Environment, _ isPositive: Bool
    ) throws(Undecided) -> Typed {
        guard select.source == nil, select.condition == nil, select.outputs.count == 1 else { throw Undecided() }
        let typed = try expression(select.outputs[0].value, environment, isPositive: isPositive)
        guard !typed.isSet else { throw Undecided() }
        return typed
    }

    /// Checks `ARRAY(SELECT jsonb_array_elements_text(…))`, which must depend on claims only.
    mutating func arrayOf(_ select: Syntax.Select, _ environment: Environment) throws(Undecided) -> Typed {
        let (select, environment) = try unfolded(select, environment)
        guard select.source == nil, select.condition == nil, select.outputs.count == 1 else { throw Undecided() }
        let part = try value(select.outputs[0].value, environment)
        guard !part.readsRow, part.canBeAsked else { throw Undecided() }
        precondition(!part.isDecision, "a decision that reads no row")
        if case .array = part.type.shape { throw Undecided() }
        let type = try arrayType(of: part.type)
        let written = Syntax.Select(outputs: [Syntax.Output(value: part.syntax)])
        return Typed(
            type: type, collation: .ofResult(type, part.collation), term: nil, isBuiltIn: part.isBuiltIn,
            syntax: .arrayOf(written))
    }

    /// Returns the body of a set-returning function if the select only calls this function; otherwise the select
    /// itself.
    private func unfolded(
        _ select: Syntax.Select, _ environment: Environment
    ) throws(Undecided) -> (select: Syntax.Select, environment: Environment) {
        var (select, environment) = (select, environment)
        select = Checker.called(select)
        while select.source == nil, select.condition == nil, select.outputs.count == 1,
            case .call(let name, let arguments) = select.outputs[0].value, let facts = setFunction(name)
        {
            guard facts.language == "sql", facts.volatility != .volatile, let body = Checker.body(facts),
                !facts.isStrict || arguments.isEmpty
            else { throw Undecided() }
            environment = try inside(facts, arguments, environment)
            select = Checker.called(body)
        }
        return (select, environment)
    }

    /// Converts `SELECT f.x FROM f() f(x)` to `SELECT f()`. Returns other selects unchanged.
    private static func called(_ select: Syntax.Select) -> Syntax.Select {
        guard let source = select.source, let arguments = source.arguments, source.columns.count == 1,
            select.condition == nil, select.outputs.count == 1,
            case .column(let qualifier, source.columns[0]) = select.outputs[0].value,
            qualifier.isEmpty || qualifier == [source.alias ?? source.table.name]
        else { return select }
        return Syntax.Select(outputs: [Syntax.Output(value: .call(source.table, arguments))])
    }

    private func setFunction(_ name: SyntaxName) -> FunctionFacts? {
        let candidates = catalog.functions[name.qualified] ?? []
        guard candidates.count == 1, candidates[0].returnsSet, !candidates[0].isBuiltIn else { return nil }
        return candidates[0]
    }

    // MARK: IN and EXISTS

    mutating func among(
        _ left: Syntax, _ select: Syntax.Select, _ environment: Environment, _ isPositive: Bool
    ) throws(Undecided) -> Typed {
        let (select, inside) = try unfolded(select, environment)
        guard select.outputs.count == 1 else { throw Undecided() }
        let key = try value(left, environment)
        guard let source = select.source else {
            return try amongClaims(key, select, inside)
        }
        let found = try shape(select, source, inside)
        if isPositive, !key.readsRow || found.correlation != nil {
            // `auth.uid() IN (SELECT m.user_id … WHERE m.team_id = t.team_id)` has two keys; as an EXISTS it has one.
            guard !key.readsRow else { throw Undecided() }
            return try exists(found, isPositive: true, equal: (key, select.outputs[0].value))
        }
        guard found.correlation == nil else { throw Undecided() }
        let output = try over(found.scope.level) { inner throws(Undecided) in
            try inner.value(select.outputs[0].value, found.environment)
        }
        guard let slot = Checker.plainColumn(output), output.type.oid == facts(found, slot).type.oid else {
            throw Undecided()
        }
        return try member(found, slot, key)
    }

    private mutating func amongClaims(
        _ key: Typed, _ select: Syntax.Select, _ inside: Environment
    ) throws(Undecided) -> Typed {
        if select.source == nil, select.condition == nil, case let value = select.outputs[0].value,
            let single = try? self.value(value, inside), !single.isSet
        {
            return try equal(key, single)
        }
        let array = try arrayOf(select, inside)
        return try quantified(
            SyntaxName("="), [key, array], .any,
            .quantified(SyntaxName("="), key.syntax, .any, array.syntax))
    }

    private func equal(_ left: Typed, _ right: Typed) throws(Undecided) -> Typed {
        let function = try equality([left, right])
        return try combined(
            [left, right], .boolean, canBeAsked: true, isBuiltIn: true,
            .infix(SyntaxName("="), left.syntax, right.syntax)
        ) { terms in function.map { .apply($0, terms) } }
    }

    mutating func exists(
        _ select: Syntax.Select, _ environment: Environment, _ isPositive: Bool
    ) throws(Undecided) -> Typed {
        // A select with an aggregate returns a row even if the table has none.
        guard let source = select.source, source.arguments == nil, select.outputs.allSatisfy({ $0.value.isPlain })
        else { throw Undecided() }
        return try exists(try shape(select, source, environment), isPositive: isPositive, equal: nil)
    }

    private mutating func exists(
        _ found: Shape, isPositive: Bool, equal: (key: Typed, column: Syntax)?
    ) throws(Undecided) -> Typed {
        var found = found
        if let equal { try add(equal.key, equals: equal.column, to: &found) }
        precondition(equal == nil || !found.conditions.isEmpty, "a key that is compared with nothing")
        guard let correlation = found.correlation else { return try member(found, nil, nil) }
        var typed = try member(found, correlation.slot, correlation.key)
        // EXISTS is never NULL.
        if !isPositive, let term = typed.term { typed.term = .isTrue(term) }
        return typed
    }

    // MARK: Shape of a membership (one table, conditions on it alone joined by AND, one key)

    struct Shape {
        var scope: Scope
        var environment: Environment
        var conditions: [Typed] = []
        var correlation: (slot: Int, key: Typed)?
    }

    private func facts(_ shape: Shape, _ slot: Int) -> ColumnFacts { shape.scope.relation.columns[slot] }

    private mutating func shape(
        _ select: Syntax.Select, _ source: Syntax.Source, _ environment: Environment
    ) throws(Undecided) -> Shape {
        guard source.arguments == nil, let relation = catalog.relations[source.table.qualified],
            relation.canBeFollowed
        else { throw Undecided() }
        let scope = Scope(
            level: environment.level + 1, alias: source.alias ?? source.table.name, relation: relation)
        var inside = environment
        inside.level += 1
        inside.scopes.append(scope)
        var shape = Shape(scope: scope, environment: inside)
        for part in select.condition.map(Checker.conjuncts) ?? [] { try add(part, to: &shape) }
        return shape
    }

    private static func conjuncts(_ tree: Syntax) -> [Syntax] {
        if case .all(let parts) = tree { return parts.flatMap(conjuncts) }
        return [tree]
    }

    private mutating func add(_ part: Syntax, to shape: inout Shape) throws(Undecided) {
        let environment = shape.environment
        let typed = try over(shape.scope.level) { inner throws(Undecided) in
            inner.condition(part, environment, isPositive: true)
        }
        if !typed.isDecision { return shape.conditions.append(typed) }
        guard shape.correlation == nil, case .infix(SyntaxName("="), let left, let right) = part else {
            throw Undecided()
        }
        shape.correlation = try correlation(left, right, shape)
        if shape.correlation == nil { shape.correlation = try correlation(right, left, shape) }
        if shape.correlation == nil { throw Undecided() }
    }

    /// Returns the slot and the key of a comparison `m.x = <value of the outer row>`. Nil unless `column` is a column
    /// of the membership's table.
    private mutating func correlation(
        _ column: Syntax, _ key: Syntax, _ shape: Shape
    ) throws(Undecided) -> (slot: Int, key: Typed)? {
        let column = try? over(shape.scope.level) { inner throws(Undecided) in
            try inner.value(column, shape.environment)
        }
        guard let column, let slot = Checker.plainColumn(column) else { return nil }
        return (slot, try value(key, shape.environment))
    }

    /// Returns the slot of the column whose text the value has, if the value is only a column; otherwise nil.
    private static func plainColumn(_ typed: Typed) -> Int? {
        switch typed.term {
        case .column(let slot, _)?: slot
        case .apply(let function, let parts)?
        where parts.count == 1 && function == Function.cast(.varchar, to: .text, text: .utf8, timeZone: nil):
            if case .column(let slot, .varchar) = parts[0] { slot } else { nil }
        default: nil
        }
    }

    private mutating func add(_ key: Typed, equals column: Syntax, to shape: inout Shape) throws(Undecided) {
        let environment = shape.environment
        let own = try over(shape.scope.level) { inner throws(Undecided) in try inner.value(column, environment) }
        shape.conditions.append(try equal(own, key))
    }

    // MARK: Membership

    private func member(_ shape: Shape, _ slot: Int?, _ key: Typed?) throws(Undecided) -> Typed {
        precondition((slot == nil) == (key == nil), "a key and the column that it is looked for in")
        precondition(shape.scope.relation.canBeFollowed, "a membership on a table that cannot be followed")
        var conditions: [Term] = []
        for part in shape.conditions {
            guard part.isBuiltIn else { throw Undecided() }
            conditions.append(try part.sealed())
        }
        let condition =
            conditions.isEmpty
            ? Term.constant(Array("t".utf8), .boolean) : conditions.count == 1 ? conditions[0] : .all(conditions)
        let relation = shape.scope.relation
        guard condition.columns.union(slot.map { [$0] } ?? []).isSubset(of: relation.carried) else {
            throw Undecided()
        }
        guard !condition.isUncertain else { throw Undecided() }
        precondition(!condition.holdsMembership, "a membership that depends on another one is not followed")
        if let slot, let key { try checkKey(relation.columns[slot], key) }
        let membership = Membership(
            table: relation.oid, keySlot: slot, condition: condition, reader: shape.environment.reader,
            fillSQL: fillSQL(shape, slot))
        return Typed(
            type: .boolean, collation: .none, term: .member(membership, key: try key?.sealed()), readsRow: true,
            isDecision: true, canBeAsked: false, isBuiltIn: false, syntax: .null)
    }

    /// Throws unless equal texts mean equal keys. That requires the ordinary equality of one type.
    private func checkKey(_ column: ColumnFacts, _ key: Typed) throws(Undecided) {
        let isString = [column.type, key.type].allSatisfy { $0.oid == TypeOID.text || $0.oid == TypeOID.varchar }
        guard column.type.oid == key.type.oid || isString, column.type.isPlainKey else { throw Undecided() }
        guard catalog.text.encoding != .other || column.type.isWrittenInASCII else { throw Undecided() }
        let own: DerivedCollation = column.collation == .none ? .none : .implicit(column.collation)
        switch try own.merged(with: key.collation).decided() {
        case .none, .bytewise, .deterministic: break
        case .nondeterministic: throw Undecided()
        }
    }

    private func fillSQL(_ shape: Shape, _ slot: Int?) -> String {
        let relation = shape.scope.relation
        let output =
            slot.map { slot in
                Syntax.cast(
                    .column(qualifier: [shape.scope.alias], name: relation.columns[slot].name), TypeName("text"))
            } ?? .literal("", type: TypeName("text"))
        let conditions = shape.conditions.map(\.syntax)
        return Renderer.text(
            Syntax.Select(
                outputs: [Syntax.Output(value: output)],
                source: Syntax.Source(
                    table: SyntaxName(relation.name.name, in: relation.name.schema), alias: shape.scope.alias),
                condition: conditions.isEmpty ? nil : conditions.count == 1 ? conditions[0] : .all(conditions)),
            .qualified)
    }
}

extension Syntax {
    /// True for a constant or a column. Such an output does not change the number of rows.
    fileprivate var isPlain: Bool {
        switch self {
        case .literal, .number, .boolean, .null, .column: true
        case .cast(let value, _): value.isPlain
        default: false
        }
    }
}

extension TypeFacts {
    static let varchar = TypeFacts(oid: TypeOID.varchar, name: "character varying")

    /// True if each value of the type has only one text: with all session settings, and in the replication stream.
    fileprivate var isPlainKey: Bool {
        if case .enumeration = shape { return true }
        return [
            TypeOID.uuid, TypeOID.int2, TypeOID.int4, TypeOID.int8, TypeOID.text, TypeOID.varchar, TypeOID.name,
        ].contains(oid)
    }
}

extension Term {
    /// Slots of the row's columns that the term reads.
    var columns: Set<Int> {
        var slots: Set<Int> = []
        visit { if case .column(let slot, _) = $0 { slots.insert(slot) } }
        return slots
    }

    /// True if the hub cannot decide the term for all rows, or if the value can change with time. The hub then cannot
    /// store which rows of the membership's table satisfy it.
    fileprivate var isUncertain: Bool {
        var isUncertain = false
        visit { part in
            switch part {
            case .apply(let function, _), .isDistinct(let function, _, _), .nullIf(let function, _, _),
                .anyElement(let function, _, _), .allElements(let function, _, _):
                if function.mayAsk || function.mayFail || function.readsClock { isUncertain = true }
            default: break
            }
        }
        return isUncertain
    }

    /// Calls `look` with the term and its parts. Skips what is inside memberships and inside terms that are evaluated
    /// once for a holder.
    func visit(_ look: (Term) -> Void) {
        look(self)
        if case .ofClaims = self { return }
        for part in parts { part.visit(look) }
    }
}
