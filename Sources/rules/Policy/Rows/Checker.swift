/// Type checker that turns a syntax tree into a typed term. It looks up each name in the catalog. A missing or
/// ambiguous name makes the term undecided, so that PostgreSQL decides it.
///
/// A checker works for one level of scopes (`row`): terms read the row of the policy's table or of a membership's
/// table.
struct Checker {
    let catalog: PolicyCatalog
    let row: Int
    /// Number of nodes that may still be checked. The limit is needed because functions that call functions can make a
    /// short text very large.
    var budget = 20_000
    /// Nesting of the current node, including the bodies of functions.
    var nesting = 0

    private static let maximumNesting = 160

    init(_ catalog: PolicyCatalog, row: Int = 0) {
        self.catalog = catalog
        self.row = row
    }

    /// Meanings of names at one place in a text.
    struct Environment {
        var scopes: [Scope] = []
        /// Level of the innermost scope, even if its names are not visible at this place.
        var level = 0
        var arguments: [Argument] = []
        var argumentNames: [String] = []
        var reader = Membership.Reader.caller
        /// Number of function bodies that enclose this place.
        var depth = 0

        static let maximumDepth = 8
    }

    struct Scope {
        var level: Int
        var alias: String
        var relation: RelationFacts
    }

    /// Argument of a function call, with the environment of the call. Names in the argument are resolved there.
    struct Argument {
        var value: Syntax
        var environment: Environment
        var type: TypeFacts
    }

    // MARK: Expressions

    /// Checks an expression that is an argument or the side of an operator. Throws if it contains a membership, whose
    /// result is a decision.
    mutating func value(_ tree: Syntax, _ environment: Environment) throws(Undecided) -> Typed {
        let typed = try expression(tree, environment)
        guard !typed.isDecision else { throw Undecided() }
        return typed
    }

    mutating func values(_ trees: [Syntax], _ environment: Environment) throws(Undecided) -> [Typed] {
        var typed: [Typed] = []
        for tree in trees { typed.append(try value(tree, environment)) }
        return typed
    }

    mutating func expression(
        _ tree: Syntax, _ environment: Environment, isPositive: Bool = false
    ) throws(Undecided) -> Typed {
        guard budget > 0, nesting < Checker.maximumNesting else { throw Undecided() }
        budget -= 1
        nesting += 1
        defer {
            nesting -= 1
            assert(nesting >= 0, "a place that was left more often than it was entered")
        }
        switch tree {
        case .literal(let text, let type): return try literal(text, type, tree)
        case .number(let digits): return try number(digits)
        case .boolean(let value): return .constant(value ? "t" : "f", .boolean, tree)
        case .null, .row, .opaque: throw Undecided()
        case .column(let qualifier, let name): return try column(qualifier, name, environment, isPositive)
        case .parameter(let number): return try argument(number, environment, isPositive)
        case .call(let name, let arguments): return try call(name, arguments, environment, isPositive)
        case .keyword(let word): return try keyword(word, environment)
        case .cast(let inner, let type): return try cast(inner, type, environment)
        case .element(let array, let index): return try element(array, index, environment)
        case .array(let parts): return try array(parts, environment)
        case .collate(let inner, let name): return try collated(inner, name, environment)
        case .atTimeZone(let inner, let zone):
            return try call(SyntaxName("timezone"), [zone, inner], environment, isPositive)
        case .infix(let symbol, let left, let right):
            return try infix(symbol, left, right, environment, isPositive)
        case .prefix(let symbol, let inner): return try prefix(symbol, inner, environment)
        case .quantified(let symbol, let left, let quantifier, .arrayOf(let select))
        where quantifier == .any && symbol == SyntaxName("="):
            return try among(left, select, environment, isPositive)
        case .quantified(let symbol, let left, let quantifier, let array):
            return try quantified(symbol, left, quantifier, array, environment)
        case .scalar(let select): return try scalar(select, environment, isPositive)
        case .arrayOf(let select): return try arrayOf(select, environment)
        case .among(let left, let select): return try among(left, select, environment, isPositive)
        case .exists(let select): return try exists(select, environment, isPositive)
        case .special(.coalesce, let parts): return try coalesce(parts, environment, isPositive)
        case .special(let form, let parts): return try special(form, parts, environment)
        case .isDistinct(let left, let right): return try distinct(left, right, environment)
        case .choice(let operand, let branches, let otherwise):
            return try choice(operand, branches, otherwise, environment, isPositive)
        case .test(let inner, let test): return try self.test(inner, test, environment, isPositive)
        case .not(let inner):
            return try connected([condition(inner, environment)], { .not($0[0]) }, { .not($0[0]) })
        case .all(let parts):
            return try connected(conditions(parts, environment, isPositive), { .all($0) }, { .all($0) })
        case .any(let parts):
            return try connected(conditions(parts, environment, isPositive), { .any($0) }, { .any($0) })
        }
    }

    /// Calls `look` with a checker for rows of another level. Both share the budget of nodes.
    mutating func over<Result>(
        _ row: Int, _ look: (inout Checker) throws(Undecided) -> Result
    ) throws(Undecided) -> Result {
        var other = Checker(catalog, row: row)
        swap(&other.budget, &budget)
        other.nesting = nesting
        defer { swap(&other.budget, &budget) }
        return try look(&other)
    }

    // MARK: Conditions

    /// Checks a condition. If the checker does not understand it, the returned condition is undecided: PostgreSQL
    /// decides the row. Three-valued logic keeps the undecided part of the policy small.
    ///
    /// `isPositive` is true if only TRUE matters in the end, so that NULL and FALSE are the same.
    mutating func condition(_ tree: Syntax, _ environment: Environment, isPositive: Bool = false) -> Typed {
        do throws(Undecided) {
            let typed = try expression(tree, environment, isPositive: isPositive)
            guard typed.type.oid == TypeOID.bool, !typed.isSet else { return .undecided }
            precondition(typed.term != nil || typed.canBeAsked, "a condition that nobody can tell")
            return typed
        } catch {
            return .undecided
        }
    }

    private mutating func conditions(_ trees: [Syntax], _ environment: Environment, _ isPositive: Bool) -> [Typed] {
        var typed: [Typed] = []
        for tree in trees { typed.append(condition(tree, environment, isPositive: isPositive)) }
        return typed
    }

    /// Combines conditions by AND, OR, NOT or a similar operation.
    private func connected(
        _ parts: [Typed], _ make: ([Term]) -> Term, _ write: ([Syntax]) -> Syntax
    ) throws(Undecided) -> Typed {
        var parts = parts
        // A part that cannot be evaluated once for a holder becomes undecided, without affecting the others.
        for index in parts.indices {
            do throws(Undecided) { _ = try parts[index].sealed() } catch { parts[index] = .undecided }
        }
        return try combined(
            parts, .boolean, canBeAsked: true, isBuiltIn: true, write(parts.map(\.syntax)),
            collation: DerivedCollation.none, make)
    }

    /// Combines parts into one expression. If a part reads the row, the result is evaluated for each row, otherwise
    /// once for each holder (a role with its claims).
    func combined(
        _ parts: [Typed], _ type: TypeFacts, canBeAsked: Bool, isBuiltIn: Bool, _ syntax: Syntax,
        collation: DerivedCollation? = nil, _ make: ([Term]) -> Term?
    ) throws(Undecided) -> Typed {
        var made = Typed(
            type: type, collation: collation ?? .ofResult(type, parts.collation), term: nil, syntax: syntax)
        made.isDecision = parts.contains { $0.isDecision }
        made.isBuiltIn = isBuiltIn && parts.allSatisfy { $0.isBuiltIn }
        made.isSet = parts.contains { $0.isSet }
        if parts.contains(where: { $0.readsRow }) {
            made.readsRow = true
            made.canBeAsked = false
            var terms: [Term] = []
            for part in parts { terms.append(try part.sealed()) }
            precondition(terms.count == parts.count, "a part was lost")
            made.term = make(terms)
            guard made.term != nil else { throw Undecided() }
            return made
        }
        let terms = parts.compactMap { $0.term }
        made.term = terms.count == parts.count && !made.isSet ? make(terms) : nil
        assert(!parts.contains { $0.isDecision }, "a decision that reads no row")
        made.canBeAsked = canBeAsked && parts.allSatisfy { $0.canBeAsked }
        guard made.term != nil || made.canBeAsked else { throw Undecided() }
        return made
    }

    private mutating func test(
        _ inner: Syntax, _ test: Syntax.Test, _ environment: Environment, _ isPositive: Bool
    ) throws(Undecided) -> Typed {
        let isPositiveInside = isPositive && test == .isTrue
        let isCondition = test != .isNull && test != .isNotNull
        let part =
            isCondition
            ? condition(inner, environment, isPositive: isPositiveInside) : try expression(inner, environment)
        // A composite value counts as NULL if all its fields are NULL, which the hub does not evaluate.
        guard isCondition || part.type.shape != .other || catalog.textTwins.contains(part.type.oid) else {
            throw Undecided()
        }
        return try connected([part], { Checker.tested($0[0], test, isPositive) }, { .test($0[0], test) })
    }

    private static func tested(_ term: Term, _ test: Syntax.Test, _ isPositive: Bool) -> Term {
        switch test {
        case .isNull, .isUnknown: .isNull(term)
        case .isNotNull, .isNotUnknown: .not(.isNull(term))
        case .isTrue: isPositive ? term : .isTrue(term)
        case .isNotTrue: .not(.isTrue(term))
        case .isFalse: .isFalse(term)
        case .isNotFalse: .not(.isFalse(term))
        }
    }

    // MARK: CASE, COALESCE, NULLIF

    private mutating func choice(
        _ operand: Syntax?, _ branches: [Syntax.Branch], _ otherwise: Syntax?, _ environment: Environment,
        _ isPositive: Bool
    ) throws(Undecided) -> Typed {
        var parts: [Typed] = []
        for branch in branches {
            let tree = operand.map { Syntax.infix(SyntaxName("="), $0, branch.condition) } ?? branch.condition
            let condition = condition(tree, environment)
            // The `=` of such a CASE is not written. For an enumeration it could be a user's own operator.
            if operand != nil, try value(branch.condition, environment).type.isOfUsers { throw Undecided() }
            parts.append(condition)
        }
        var results: [Typed?] = []
        for tree in branches.map(\.value) + [otherwise ?? .null] {
            results.append(tree == .null ? nil : try outcome(tree, environment, isPositive))
        }
        guard let type = results.lazy.compactMap({ $0?.type }).first else { throw Undecided() }
        precondition(
            results.count == parts.count + 1, "each condition has its value, and there is what holds otherwise")
        let values = results.map { $0 ?? .constant(nil, type, .null) }
        guard values.allSatisfy({ $0.type.oid == type.oid }) else { throw Undecided() }
        let collation = DerivedCollation.ofResult(type, values.collation)
        let count = parts.count
        let written = zip(parts, values).map { Syntax.Branch(condition: $0.syntax, value: $1.syntax) }
        let syntax = Syntax.choice(operand: nil, written, otherwise: values[count].syntax)
        return try combined(
            parts + values, type, canBeAsked: true, isBuiltIn: true, syntax, collation: collation
        ) { terms in
            .choice(
                (0..<count).map { Term.Branch(when: terms[$0], then: terms[count + $0]) },
                otherwise: terms[2 * count])
        }
    }

    /// Checks the value of a branch of CASE. A value that is not understood becomes undecided if it is certainly
    /// boolean.
    private mutating func outcome(
        _ tree: Syntax, _ environment: Environment, _ isPositive: Bool
    ) throws(Undecided) -> Typed {
        do throws(Undecided) {
            return try expression(tree, environment, isPositive: isPositive)
        } catch {
            guard looksBoolean(tree) else { throw error }
            return .undecided
        }
    }

    /// True if an expression that the checker does not understand is certainly boolean.
    private func looksBoolean(_ tree: Syntax) -> Bool {
        switch tree {
        case .exists, .among, .all, .any, .not, .test, .isDistinct, .quantified: return true
        case .call(let name, let arguments):
            let named = (catalog.functions[name.qualified] ?? []).filter { $0.arguments.count == arguments.count }
            return !named.isEmpty && named.allSatisfy { $0.result.oid == TypeOID.bool && !$0.returnsSet }
        default: return false
        }
    }

    private mutating func coalesce(
        _ trees: [Syntax], _ environment: Environment, _ isPositive: Bool
    ) throws(Undecided) -> Typed {
        // `COALESCE(condition, false)` means the same as `condition IS TRUE`.
        if trees.count == 2, case .boolean(let fallback) = trees[1] {
            let tested: Syntax.Test = fallback ? .isNotFalse : .isTrue
            return try test(trees[0], tested, environment, isPositive)
        }
        let parts = try values(trees, environment)
        guard let type = parts.first?.type, parts.allSatisfy({ $0.type.oid == type.oid }) else { throw Undecided() }
        return try combined(
            parts, type, canBeAsked: true, isBuiltIn: true, .special(.coalesce, parts.map(\.syntax))
        ) { .coalesce($0) }
    }

    private mutating func special(
        _ form: Syntax.SpecialForm, _ trees: [Syntax], _ environment: Environment
    ) throws(Undecided) -> Typed {
        let parts = try values(trees, environment)
        guard let type = parts.first?.type else { throw Undecided() }
        let equality = form == .nullIf ? try self.equality(parts) : nil
        guard form == .nullIf || parts.allSatisfy({ $0.type.oid == type.oid }) else { throw Undecided() }
        let collation = form == .nullIf ? DerivedCollation.ofResult(type, parts[0].collation) : nil
        return try combined(
            parts, type, canBeAsked: !type.isOfUsers, isBuiltIn: true, .special(form, parts.map(\.syntax)),
            collation: collation
        ) { terms in equality.map { .nullIf($0, terms[0], terms[1]) } }
    }

    private mutating func distinct(
        _ left: Syntax, _ right: Syntax, _ environment: Environment
    ) throws(Undecided) -> Typed {
        let parts = try values([left, right], environment)
        let equality = try equality(parts)
        return try combined(
            parts, .boolean, canBeAsked: true, isBuiltIn: true, .isDistinct(parts[0].syntax, parts[1].syntax)
        ) { terms in equality.map { .isDistinct($0, terms[0], terms[1]) } }
    }

    /// Returns the equality that NULLIF and IS DISTINCT FROM imply: the built-in operator of built-in types. Nil if the
    /// hub cannot evaluate it.
    func equality(_ sides: [Typed]) throws(Undecided) -> Function? {
        guard sides.count == 2, !sides[0].type.isOfUsers, !sides[1].type.isOfUsers else { throw Undecided() }
        let symbol = QualifiedName("pg_catalog", "=")
        guard let facts = operatorFacts(symbol, sides[0].type, sides[1].type), facts.isBuiltIn else {
            throw Undecided()
        }
        return Function.infix(
            "=", sides[0].type, sides[1].type, try sides.collation.decided(),
            text: catalog.text, timeZone: catalog.timeZone)
    }
}
