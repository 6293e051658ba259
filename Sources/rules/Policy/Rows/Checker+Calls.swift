/// Checks of calls: built-in functions, settings, and functions written in SQL, which the checker replaces by their
/// bodies.
extension Checker {
    mutating func call(
        _ name: SyntaxName, _ arguments: [Syntax], _ environment: Environment, _ isPositive: Bool
    ) throws(Undecided) -> Typed {
        if name == SyntaxName("current_setting"), let setting = try setting(arguments, environment) {
            return setting
        }
        let written = try values(arguments, environment)
        let facts = try functionFacts(name.qualified, written.map(\.type))
        guard facts.volatility != .volatile else { throw Undecided() }
        assert(written.count == arguments.count, "an argument was lost")
        if facts.isBuiltIn { return try builtIn(name, facts, written) }
        if facts.language == "sql" { return try inlined(facts, arguments, environment, isPositive) }
        return try foreign(name, facts, written)
    }

    // MARK: Resolution

    /// Returns the function with exactly these argument types. If there is none, returns the only function of that name
    /// if it accepts the types.
    private func functionFacts(_ name: QualifiedName, _ types: [TypeFacts]) throws(Undecided) -> FunctionFacts {
        let candidates = catalog.functions[name] ?? []
        let exact = candidates.filter { $0.arguments.map(\.oid) == types.map(\.oid) }
        if exact.count == 1 { return exact[0] }
        let possible = candidates.filter { Checker.accepts($0.arguments, types) }
        guard exact.isEmpty, possible.count == 1, candidates.count == 1 else { throw Undecided() }
        return possible[0]
    }

    private static func accepts(_ declared: [TypeFacts], _ types: [TypeFacts]) -> Bool {
        // An argument `VARIADIC "any"` accepts any number of further arguments.
        let isOpen = declared.last?.oid == 2276 && types.count >= declared.count
        guard isOpen || declared.count == types.count else { return false }
        return zip(declared, types).allSatisfy { $0.oid == $1.oid || $0.isPolymorphic }
    }

    private func result(_ facts: FunctionFacts, _ parts: [Typed]) throws(Undecided) -> TypeFacts {
        guard facts.result.isPolymorphic else { return facts.result }
        guard facts.arguments.count == parts.count,
            let place = facts.arguments.firstIndex(where: { $0.isPolymorphic })
        else { throw Undecided() }
        let (declared, actual) = (facts.arguments[place].oid, parts[place].type)
        if declared == facts.result.oid { return actual }
        // If the argument is `anyarray`, the result `anyelement` is the type of its elements.
        guard declared == 2277, facts.result.oid == 2283, case .array(let element) = actual.shape else {
            throw Undecided()
        }
        return element
    }

    // MARK: Built-in functions

    private func builtIn(
        _ name: SyntaxName, _ facts: FunctionFacts, _ parts: [Typed]
    ) throws(Undecided) -> Typed {
        let type = try result(facts, parts)
        let syntax = Syntax.call(name, parts.map(\.syntax))
        let function = facts.returnsSet ? nil : try function(name, type, parts)
        if let function, function.readsClock {
            precondition(parts.isEmpty, "a clock that looks at something")
            return Typed(
                type: type, collation: .ofResult(type, parts.collation),
                term: .apply(function, parts.compactMap { $0.term }), readsRow: true, canBeAsked: false,
                syntax: syntax)
        }
        // For a time, the results of these functions depend on the session's time zone.
        let canBeAsked =
            facts.volatility == .immutable
            || Checker.readOnlyClaims.contains(name.name) && !parts.contains { $0.type.isTemporal }
        var typed = try combined(parts, type, canBeAsked: canBeAsked, isBuiltIn: true, syntax) { terms in
            function.map { .apply($0, terms) }
        }
        if facts.returnsSet { typed.isSet = true }
        return typed
    }

    private func function(
        _ name: SyntaxName, _ type: TypeFacts, _ parts: [Typed]
    ) throws(Undecided) -> Function? {
        guard name.qualified.schema == "pg_catalog" else { return nil }
        let function = Function.named(
            name.name, parts.map(\.type), try parts.collation.decided(), text: catalog.text)
        guard let function, function.result.oid == type.oid else { return nil }
        return function
    }

    /// Stable functions that depend only on their arguments and on settings, not on a table or a clock.
    private static let readOnlyClaims: Set<String> = [
        "current_setting", "to_json", "to_jsonb", "json_build_array", "json_build_object", "jsonb_build_array",
        "jsonb_build_object", "array_to_json", "array_to_string", "concat", "concat_ws", "format",
    ]

    // MARK: Settings

    /// Returns the value of a setting if the hub knows it; nil if PostgreSQL must be asked.
    private func setting(_ arguments: [Syntax], _ environment: Environment) throws(Undecided) -> Typed? {
        guard case .literal(let written, let type)? = arguments.first, type?.plain == "text",
            arguments.count == 1 || arguments.count == 2 && arguments[1].isTruthValue
        else { return nil }
        let name = written.lowercased()
        let syntax = Syntax.call(SyntaxName("current_setting"), arguments)
        let collation = DerivedCollation.implicit(DerivedCollation.database)
        // This setting always exists, so the argument that permits a missing setting has no effect.
        if name == "request.jwt.claims" {
            return Typed(type: .text, collation: collation, term: .claims, syntax: syntax)
        }
        if name == "role" { return Typed(type: .text, collation: collation, term: .role, syntax: syntax) }
        guard arguments.count == 2, arguments[1] == .boolean(true), Checker.isNeverSet(name),
            !catalog.presetSettings.contains(name)
        else { return nil }
        return .constant(nil, .text, .cast(.null, TypeName("text")))
    }

    /// True for a setting that other gateways (such as PostgREST) make for a request and that the hub does not make.
    private static func isNeverSet(_ name: String) -> Bool {
        name.hasPrefix("request.jwt.claim.") || name == "request.jwt.claim"
            || ["request.headers", "request.method", "request.path", "request.cookies"].contains(name)
    }

    // MARK: Functions of extensions

    /// Checks a call of an extension's function in C, whose declared properties are trusted. Functions in other
    /// languages may read tables, so the hub does not decide them.
    private func foreign(
        _ name: SyntaxName, _ facts: FunctionFacts, _ parts: [Typed]
    ) throws(Undecided) -> Typed {
        guard facts.language == "c" || facts.language == "internal", facts.volatility == .immutable,
            !facts.isSecurityDefiner, !facts.returnsSet
        else { throw Undecided() }
        return try combined(
            parts, try result(facts, parts), canBeAsked: true, isBuiltIn: false,
            .call(name, parts.map(\.syntax))
        ) { _ in nil }
    }

    // MARK: SQL functions

    private mutating func inlined(
        _ facts: FunctionFacts, _ arguments: [Syntax], _ environment: Environment, _ isPositive: Bool
    ) throws(Undecided) -> Typed {
        // The body is parsed again at each call, which costs work.
        budget -= 50
        guard !facts.returnsSet, let body = Checker.body(facts), body.source == nil, body.condition == nil,
            body.outputs.count == 1
        else { throw Undecided() }
        let inside = try inside(facts, arguments, environment)
        assert(inside.depth > environment.depth, "a function within itself without an end")
        let value = try expression(body.outputs[0].value, inside, isPositive: isPositive)
        guard value.type.oid == facts.result.oid, !value.isSet else { throw Undecided() }
        return facts.isStrict ? try strict(value, arguments, environment, isPositive) : value
    }

    static func body(_ facts: FunctionFacts) -> Syntax.Select? {
        guard let text = facts.canonicalBody, let body = PolicyParser.body(text) else { return nil }
        guard facts.returnsSet, body.source == nil, body.condition == nil, body.outputs.count == 1,
            case .arrayOf(let select) = body.outputs[0].value
        else { return body }
        if case .array = facts.result.shape { return nil }
        return select
    }

    func inside(
        _ facts: FunctionFacts, _ arguments: [Syntax], _ environment: Environment
    ) throws(Undecided) -> Environment {
        guard environment.depth < Environment.maximumDepth, facts.arguments.count == arguments.count,
            !facts.arguments.contains(where: { $0.isPolymorphic })
        else { throw Undecided() }
        return Environment(
            level: environment.level,
            arguments: zip(arguments, facts.arguments).map {
                Argument(value: $0, environment: environment, type: $1)
            },
            argumentNames: facts.argumentNames,
            reader: facts.isSecurityDefiner ? .definer(facts.owner) : environment.reader,
            depth: environment.depth + 1)
    }

    /// Makes the result of a strict function NULL if an argument is NULL, as PostgreSQL does without running its body.
    private mutating func strict(
        _ value: Typed, _ arguments: [Syntax], _ environment: Environment, _ isPositive: Bool
    ) throws(Undecided) -> Typed {
        var nullable: [Typed] = []
        for argument in try values(arguments, environment) {
            if case .constant(.some, _)? = argument.term { continue }
            guard argument.type.shape != .other else { throw Undecided() }
            nullable.append(argument)
        }
        guard !nullable.isEmpty else { return value }
        let tests = nullable.map { Syntax.test($0.syntax, .isNull) }
        let syntax = Syntax.choice(
            operand: nil, tests.map { Syntax.Branch(condition: $0, value: .null) }, otherwise: value.syntax)
        let type = value.type
        return try combined(
            nullable + [value], type, canBeAsked: true, isBuiltIn: true, syntax, collation: value.collation
        ) { terms in
            precondition(terms.count == nullable.count + 1, "an argument was lost")
            // If NULL and FALSE mean the same in the end, AND gives the same result. The index finds rows of an AND
            // more easily.
            if isPositive, type.oid == TypeOID.bool {
                return .all(terms.dropLast().map { .not(.isNull($0)) } + [terms[terms.count - 1]])
            }
            return .choice(
                terms.dropLast().map { Term.Branch(when: .isNull($0), then: .constant(nil, type)) },
                otherwise: terms[terms.count - 1])
        }
    }
}

extension Syntax {
    /// True for TRUE and FALSE. If the argument was NULL, a strict function would return NULL.
    fileprivate var isTruthValue: Bool {
        if case .boolean = self { return true }
        return false
    }
}
