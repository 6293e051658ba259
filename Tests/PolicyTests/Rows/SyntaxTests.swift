import Policy
import TestSupport
import Testing

/// Tests of the parser, on texts that PostgreSQL writes and on texts that it never writes.
@Suite(.within(minutes: 5)) struct SyntaxTests {
    static let understood: [(String, String)] = [
        ("(auth.uid() = user_id)", #"("auth"."uid"() = "user_id")"#),
        ("((a = 1) AND (b IS NOT NULL) AND (NOT c))", #"(("a" = 1) AND ("b" IS NOT NULL) AND (NOT "c"))"#),
        ("('a''b'::text COLLATE \"C\")", #"('a''b'::text COLLATE "C")"#),
        ("(x)::character varying(10)[]", #"("x")::character varying(10)[]"#),
        ("(x)::timestamp(3) without time zone", #"("x")::timestamp(3) without time zone"#),
        (
            "(x OPERATOR(extensions.<@) 'a.b'::extensions.ltree)",
            #"("x" OPERATOR("extensions".<@) 'a.b'::extensions.ltree)"#
        ),
        ("(x = ANY (ARRAY['a'::text, NULL::text]))", #"("x" = ANY (ARRAY['a'::text, (NULL)::text]))"#),
        ("CASE x WHEN 1 THEN true ELSE NULL::boolean END", #"(CASE "x" WHEN 1 THEN true ELSE (NULL)::boolean END)"#),
        ("(x IS NOT DISTINCT FROM y)", #"(NOT ("x" IS DISTINCT FROM "y"))"#),
        ("(EXTRACT(dow FROM x) = (1)::numeric)", #"(EXTRACT(dow FROM x) = (1)::numeric)"#),
        ("(EXISTS ( SELECT 1 FROM a, b))", "EXISTS ( SELECT 1 FROM a, b)"),
        (
            "(EXISTS ( SELECT 1\n   FROM public.m b\n  WHERE (b.x = t.y)))",
            #"EXISTS (SELECT 1 FROM "public"."m" "b" WHERE ("b"."x" = "t"."y"))"#
        ),
        ("((a)[1] = '{}'::jsonb)", #"(("a")[1] = '{}'::jsonb)"#),
        ("(count(*) = 1)", "(count(*) = 1)"),
    ]

    @Test(arguments: understood) func `reads what PostgreSQL writes`(text: String, rendered: String) throws {
        #expect(Renderer.text(try #require(PolicyParser.expression(text))) == rendered)
    }

    static let refused = [
        "", "(", ")", "a b", "a = b = c", "a LIKE b", "'open", "\"\"", "a ->", "AND", "x IS", "$0", "1a", "a.b.c.d",
        "NOT", "a -- comment", "f(x) OVER (w)", "a BETWEEN 1 AND 2", "ARRAY[1", "(a)) = (b", "Upper = 1", "''x",
        "B'1'", "SELECT(a) = b", "a; b", "CASE END", "x::", "(x).y", "é = \u{0}",
    ]

    @Test(arguments: refused) func `refuses what PostgreSQL does not write`(text: String) {
        #expect(PolicyParser.expression(text) == nil)
    }

    @Test func `nesting has a limit, and nobody falls over it`() {
        let deep = String(repeating: "(NOT ", count: 50_000) + "a" + String(repeating: ")", count: 50_000)
        #expect(PolicyParser.expression(deep) == nil)
        #expect(PolicyParser.expression(String(repeating: "(", count: 15_000)) == nil)
        let wide = Array(repeating: "(a = 1)", count: 2000).joined(separator: " OR ")
        #expect(PolicyParser.expression(wide) != nil)
        #expect(PolicyParser.expression(wide + " OR " + wide + " OR " + wide) == nil)
    }

    @Test func `what is not understood stays within its parentheses`() throws {
        let text = "((a = 1) OR (b IN ( SELECT c FROM x LIMIT 1)))"
        guard case .any(let parts)? = PolicyParser.expression(text) else {
            Issue.record("not an OR")
            return
        }
        #expect(parts[1] == .opaque("(b IN ( SELECT c FROM x LIMIT 1))"))
    }

    @Test func `names are collected from all that is understood`() throws {
        let names = try #require(
            PolicyCompiler.names(
                in: "((lower(a) = 'x'::public.dom) AND (b IN ( SELECT m.x FROM s.m WHERE (m.y OPERATOR(e.<) s.f()))))"))
        #expect(names.functions == [QualifiedName("pg_catalog", "lower"), QualifiedName("s", "f")])
        #expect(names.operators == [QualifiedName("pg_catalog", "="), QualifiedName("e", "<")])
        #expect(names.relations == [QualifiedName("s", "m")])
        #expect(names.types == ["public.dom", "public.dom[]"])
    }

    @Test func `a body is read in each of its forms`() throws {
        let plain = try #require(PolicyParser.body(" SELECT ($1 = 1);"))
        #expect(plain.source == nil)
        let carried = try #require(
            PolicyParser.body(
                " SELECT ( SELECT (argument.\"$1\" = 1)) AS x\n   FROM ( SELECT NULL::integer AS \"$1\") argument;"))
        #expect(carried.source == nil)
        let temporary = try #require(PolicyParser.body("SELECT argument.a FROM pg_temp_3.argument;"))
        #expect(temporary.source == nil)
        #expect(PolicyParser.body("SELECT 1 FROM ( SELECT 1) other") == nil)
        #expect(PolicyParser.body("SELECT 1 FROM public.argument")?.source != nil)
        let inner = try #require(PolicyParser.expression("(a IN ( SELECT 1 FROM pg_temp_3.argument))"))
        guard case .among(_, let select) = inner else {
            Issue.record("\(inner)")
            return
        }
        #expect(select.source != nil)
    }
}
