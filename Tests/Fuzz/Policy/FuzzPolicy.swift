import Bytes
import FuzzSupport
import Policy

@_cdecl("LLVMFuzzerInitialize")
public func initialize(_ count: UnsafeMutablePointer<CInt>, _ arguments: UnsafeRawPointer) -> CInt {
    writeSeeds(seeds.map { Array($0.utf8) })
    return 0
}

/// Fuzz target of the policy parser. Input: a policy's text, a zero byte, and the bodies of the functions
/// `f.value(uuid)`, `f.test(uuid)` and `f.set()`.
@_cdecl("LLVMFuzzerTestOneInput")
public func test(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let texts = input(start, count).split(separator: 0, omittingEmptySubsequences: false).map {
        String(decoding: $0, as: UTF8.self)
    }
    let text = texts.first ?? ""
    let names = PolicyCompiler.names(in: text)
    let policy = PolicyCompiler(catalog(bodies: Array(texts.dropFirst()))).compile(text, on: table)
    precondition(policy.rendering == nil || names != nil, "compiled, but without names")
    if let rendering = policy.rendering { readAgain(rendering) }
    precondition(policy.rendering != nil || policy.term == .undecided, "out of nothing")
    return 0
}

/// Checks a rendered text: when it is parsed again, its rendering must be the same.
private func readAgain(_ rendering: String) {
    guard let tree = PolicyParser.expression(rendering) else {
        // The rendering may add parentheses, so that the text is nested too deeply.
        precondition(rendering.utf8.filter { $0 == UInt8(ascii: "(") }.count > 30, "unreadable: \(rendering)")
        return
    }
    precondition(Renderer.text(tree) == rendering, "read as something else: \(rendering)")
}

private let uuid = TypeFacts(oid: 2950, name: "uuid")
private let text = TypeFacts(oid: 25, name: "text")
private let boolean = TypeFacts(oid: 16, name: "boolean")
private let jsonb = TypeFacts(oid: 3802, name: "jsonb")

private let columns = [
    ColumnFacts(name: "id", type: uuid), ColumnFacts(name: "team", type: uuid),
    ColumnFacts(name: "kind", type: text, collation: .deterministic(name: nil)),
    ColumnFacts(name: "open", type: boolean), ColumnFacts(name: "meta", type: jsonb),
]

private let table = RelationFacts(
    oid: 20_000, name: QualifiedName("public", "t"), columns: columns, carried: [0, 1, 2, 3, 4], canBeFollowed: true)

private func catalog(bodies: [String]) -> PolicyCatalog {
    var catalog = PolicyCatalog()
    catalog.text = TextRules(.utf8, foldsASCIIPlainly: false)
    for type in [uuid, text, boolean, jsonb] { catalog.types[type.name] = type }
    catalog.relations[table.name] = table
    catalog.relations[QualifiedName("public", "m")] = RelationFacts(
        oid: 20_001, name: QualifiedName("public", "m"), columns: columns, carried: [0, 1, 2], canBeFollowed: true)
    for (name, result, isSet) in [("value", uuid, false), ("test", boolean, false), ("set", uuid, true)] {
        let index = catalog.functions.count
        catalog.functions[QualifiedName("f", name)] = [
            FunctionFacts(
                oid: 20_010, arguments: isSet ? [] : [uuid], result: result, returnsSet: isSet,
                isStrict: name == "test", volatility: .stable, language: "sql", isSecurityDefiner: isSet, owner: 10,
                canonicalBody: index < bodies.count ? bodies[index] : nil, argumentNames: ["given"])
        ]
    }
    catalog.functions[QualifiedName("pg_catalog", "current_setting")] = [
        FunctionFacts(
            oid: 2077, arguments: [text], result: text, returnsSet: false, isStrict: true, volatility: .stable,
            language: "internal", isSecurityDefiner: false, owner: 10, canonicalBody: nil)
    ]
    for type in [uuid, text, boolean, jsonb] {
        catalog.operators[QualifiedName("pg_catalog", "="), default: []].append(
            OperatorFacts(oid: 100, left: type, right: type, result: boolean, volatility: .immutable))
    }
    catalog.operators[QualifiedName("pg_catalog", "->>")] = [
        OperatorFacts(oid: 3477, left: jsonb, right: text, result: text, volatility: .immutable)
    ]
    return catalog
}

private let claims = "((NULLIF(current_setting('request.jwt.claims'::text, true), ''::text))::jsonb ->> 'sub'::text)"

private let seeds = [
    "((\(claims))::uuid = id)", "(f.value(id) = team)\0 SELECT ($1 = f.value($1))",
    "((team IN ( SELECT f.set() AS set)) OR f.test(team))\0SELECT $1\0"
        + " SELECT (EXISTS ( SELECT 1 FROM public.m x WHERE ((x.team = argument.\"$1\") AND (x.id = (\(claims))::uuid))))\0"
        + " SELECT m.team FROM public.m WHERE (m.kind = 'a'::text)",
    "((NOT (EXISTS ( SELECT 1\n   FROM public.m\n  WHERE (m.team = t.team)))) AND (open IS NOT TRUE))",
    "CASE WHEN open THEN true WHEN (kind = ANY (ARRAY['a'::text, NULL::text])) THEN (team IS NULL) ELSE false END",
    "(COALESCE(open, false) AND (kind IS DISTINCT FROM 'x''y'::text) AND (EXTRACT(dow FROM x) = (1)::numeric))",
    "((kind COLLATE \"C\") OPERATOR(pg_catalog.=) (\"Odd \"\"name\")::character varying(10)[])",
    "(team = ANY (ARRAY( SELECT s.v FROM f.set() s(v))))", "((meta)::jsonb[1] = CURRENT_USER)",
    "((id, team) IN ( SELECT a, b FROM c))", "(x = ( SELECT f.value(\"given\") AS y))\0SELECT argument.given",
]
