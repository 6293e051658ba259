import Policy
import TestSupport
import Testing

/// Tests of the compiler's results for texts, with a hand-made catalog.
@Suite(.within(minutes: 5)) struct CheckerTests {
    private static let uuid = TypeFacts(oid: 2950, name: "uuid")
    private static let text = TypeFacts(oid: 25, name: "text")
    private static let boolean = TypeFacts(oid: 16, name: "boolean")
    private static let integer = TypeFacts(oid: 23, name: "integer")
    private static let jsonb = TypeFacts(oid: 3802, name: "jsonb")
    private static let claim =
        "((NULLIF(current_setting('request.jwt.claims'::text, true), ''::text))::jsonb ->> 'sub'::text)"

    private static let table = RelationFacts(
        oid: 20_000, name: QualifiedName("public", "t"),
        columns: [
            ColumnFacts(name: "id", type: uuid), ColumnFacts(name: "open", type: boolean),
            ColumnFacts(name: "kind", type: text, collation: .deterministic(name: nil)),
            ColumnFacts(name: "other", type: text, collation: .nondeterministic(name: "\"x\"")),
            ColumnFacts(name: "named", type: text, collation: .deterministic(name: "\"y\"")),
        ], carried: [0, 1, 2, 3, 4], canBeFollowed: true)

    private static func function(
        _ arguments: [TypeFacts], _ result: TypeFacts, _ body: String?, language: String = "sql",
        volatility: FunctionFacts.Volatility = .stable, isStrict: Bool = false, isDefiner: Bool = false,
        isSet: Bool = false
    ) -> FunctionFacts {
        FunctionFacts(
            oid: 20_100, arguments: arguments, result: result, returnsSet: isSet, isStrict: isStrict,
            volatility: volatility, language: language, isSecurityDefiner: isDefiner, owner: 77, canonicalBody: body)
    }

    private static var catalog: PolicyCatalog {
        var catalog = PolicyCatalog()
        catalog.text = TextRules(.utf8, foldsASCIIPlainly: false)
        for type in [uuid, text, boolean, integer, jsonb] { catalog.types[type.name] = type }
        catalog.types["public.dom"] = text
        catalog.relations[QualifiedName("public", "m")] = RelationFacts(
            oid: 20_001, name: QualifiedName("public", "m"),
            columns: [
                ColumnFacts(name: "team", type: uuid), ColumnFacts(name: "person", type: uuid),
                ColumnFacts(name: "role", type: text, collation: .deterministic(name: nil)),
            ], carried: [0, 1], canBeFollowed: true)
        catalog.functions[QualifiedName("pg_catalog", "current_setting")] = [
            FunctionFacts(
                oid: 3294, arguments: [text, boolean], result: text, returnsSet: false, isStrict: true,
                volatility: .stable, language: "internal", isSecurityDefiner: false, owner: 10, canonicalBody: nil)
        ]
        catalog.functions[QualifiedName("auth", "uid")] = [
            function(
                [], uuid,
                " SELECT (COALESCE(NULLIF(current_setting('request.jwt.claim.sub'::text, true), ''::text), \(claim)))::uuid;"
            )
        ]
        catalog.functions[QualifiedName("f", "opaque")] = [function([uuid], boolean, nil, language: "plpgsql")]
        catalog.functions[QualifiedName("f", "clock")] = [function([], boolean, "SELECT true", volatility: .volatile)]
        catalog.functions[QualifiedName("f", "endless")] = [function([], boolean, "SELECT f.endless()")]
        catalog.functions[QualifiedName("f", "odd")] = [function([], uuid, "SELECT 'x'::text")]
        catalog.functions[QualifiedName("f", "whoami")] = [
            function([], boolean, "SELECT (CURRENT_USER = 'x'::name)", isDefiner: true)
        ]
        catalog.functions[QualifiedName("f", "member")] = [
            function(
                [uuid], boolean,
                " SELECT (EXISTS ( SELECT 1 FROM public.m WHERE ((m.team = $1) AND (m.person = auth.uid()))));",
                isDefiner: true)
        ]
        for type in [uuid, text, boolean, integer] {
            catalog.operators[QualifiedName("pg_catalog", "="), default: []].append(
                OperatorFacts(oid: 100, left: type, right: type, result: boolean, volatility: .immutable))
        }
        catalog.operators[QualifiedName("public", "=")] = [
            OperatorFacts(oid: 20_500, left: text, right: text, result: boolean, volatility: .immutable)
        ]
        catalog.operators[QualifiedName("pg_catalog", "->>")] = [
            OperatorFacts(oid: 3477, left: jsonb, right: text, result: text, volatility: .immutable)
        ]
        return catalog
    }

    private func compile(_ text: String) -> CompiledPolicy {
        PolicyCompiler(Self.catalog).compile(text, on: Self.table)
    }

    private func membership(_ text: String) -> Membership? {
        if case .member(let membership, _) = compile(text).term { return membership }
        return nil
    }

    @Test func `the caller's id is a value of claims, whatever the function is called`() {
        guard case .apply(_, let sides) = compile("(auth.uid() = id)").term,
            case .ofClaims(let term, let asked) = sides[0]
        else {
            Issue.record("not a comparison with claims")
            return
        }
        #expect(term != nil && asked.isBuiltIn && asked.type == Self.uuid)
        #expect(asked.sql.contains("NULLIF(NULL::text") || asked.sql.contains("NULLIF((NULL)::text"))
        #expect(asked.sql.contains("\"pg_catalog\".\"current_setting\"('request.jwt.claims'::text, true)"))
        #expect(!asked.sql.contains("auth"))
        #expect(compile("(( SELECT auth.uid() AS uid) = id)").term == compile("(auth.uid() = id)").term)
    }

    @Test func `a setting that the database presets is asked for`() {
        var catalog = Self.catalog
        catalog.presetSettings = ["request.jwt.claim.sub"]
        let policy = PolicyCompiler(catalog).compile("(auth.uid() = id)", on: Self.table)
        #expect(policy.classification == .claims)
    }

    @Test func `what is not understood is undecided in the smallest place`() {
        #expect(compile("(open OR f.opaque(id))").term == .any([.column(1, Self.boolean), .undecided]))
        #expect(
            compile("(open AND (NOT (kind ~ 'a'::text)))").term == .all([.column(1, Self.boolean), .not(.undecided)]))
        #expect(compile("((f.opaque(id) IS TRUE) OR open)").term == .any([.undecided, .column(1, Self.boolean)]))
        #expect(compile("(f.opaque(id) = open)").term == .undecided)
    }

    static let undecided = [
        "f.clock()", "f.endless()", "(f.odd() = id)", "f.whoami()", "(CURRENT_USER = SESSION_USER)", "(nothing = 1)",
        "(kind = 'x'::public.dom)", "(kind OPERATOR(public.=) 'x'::text)", "(other = 'x'::text)", "(named = other)",
        "(kind = ('x'::text COLLATE unknown))", "kind", "(id = 'x'::text)", "f.opaque(id, id)", "(ctid = kind)",
        "(id IN ( SELECT m.team FROM public.m WHERE (m.role = 'x'::text)))", "(id IN ( SELECT x.y FROM public.x))",
        "(EXISTS ( SELECT 1 FROM public.m WHERE f.opaque(m.team)))", "(id IN ( SELECT t.id FROM public.m))",
        "(EXISTS ( SELECT count(*) FROM public.m))", "(1 = 99999999999)", "NULL", "(id = NULL)", "(open)[1]",
    ]

    @Test(arguments: undecided) func `is left to PostgreSQL`(text: String) {
        #expect(compile(text).classification == .fallback, "\(compile(text).term)")
    }

    @Test func `a membership says whose rights count, and how to fill it`() throws {
        let direct = try #require(
            membership("(id IN ( SELECT m.team\n   FROM public.m\n  WHERE (m.person = auth.uid())))"))
        #expect(direct.table == 20_001 && direct.keySlot == 0 && direct.reader == .caller)
        #expect(
            direct.fillSQL.hasPrefix(
                #"SELECT ("m"."team")::text FROM "public"."m" "m" WHERE ("m"."person" OPERATOR("pg_catalog".=) "#))
        #expect(!direct.fillSQL.contains("auth"))
        let helped = try #require(membership("f.member(id)"))
        #expect(helped.reader == .definer(77) && helped.condition == direct.condition)
        let turned = try #require(
            membership("(EXISTS ( SELECT 1 FROM public.m x WHERE ((x.person = auth.uid()) AND (t.id = x.team))))"))
        #expect(turned.condition == direct.condition && turned.keySlot == 0)
        let any = try #require(membership("(EXISTS ( SELECT 1 FROM public.m WHERE (m.person = auth.uid())))"))
        #expect(any.keySlot == nil && any.condition == direct.condition)
    }

    @Test func `EXISTS is never NULL where that matters`() {
        let exists = "(EXISTS ( SELECT 1 FROM public.m WHERE (m.team = t.id)))"
        guard case .member = compile(exists).term, case .not(.isTrue(.member)) = compile("(NOT \(exists))").term else {
            Issue.record("\(compile(exists).term)")
            return
        }
    }

    @Test func `calls within calls do not make much out of little`() {
        var catalog = Self.catalog
        for level in 0..<12 {
            let body = "SELECT (f.g\(level + 1)($1) AND f.g\(level + 1)($1) AND f.g\(level + 1)($1))"
            catalog.functions[QualifiedName("f", "g\(level)")] = [Self.function([Self.uuid], Self.boolean, body)]
        }
        let policy = PolicyCompiler(catalog).compile("f.g0(id)", on: Self.table)
        #expect(policy.classification == .fallback)
    }
}
