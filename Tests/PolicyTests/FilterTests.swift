import Policy
import TestSupport
import Testing

private let bounds = Filter.Bounds(bytes: 1000, conditions: 20, depth: 4)

private func one(
    _ column: String, _ comparison: FilterOperator, _ value: String, not isNegated: Bool = false
) -> Filter {
    .condition(FilterCondition(column, comparison, value, isNegated: isNegated))
}

private func changed(_ column: String, not isNegated: Bool = false) -> Filter {
    .condition(FilterCondition("changed", .in, column, isNegated: isNegated, isBare: true))
}

@Suite(.within(minutes: 5)) struct FilterTests {
    static let accepted: [(String, Filter?)] = [
        ("", nil), ("  \t ", nil), ("id=eq.7", one("id", .eq, "7")), ("name=eq.a.b=c", one("name", .eq, "a.b=c")),
        ("id=gt.1, id=lt.9", .all([one("id", .gt, "1"), one("id", .lt, "9")])),
        ("status=in.(new,open)", one("status", .in, "{new,open}")), ("a=in.()", one("a", .in, "{}")),
        ("a=in.(\"a,b\",c)", one("a", .in, "{\"a,b\",c}")), ("a=not.in.(1)", one("a", .in, "{1}", not: true)),
        ("title=not.like.%x%", one("title", .like, "%x%", not: true)),
        ("note=eq.\"a, b\"", one("note", .eq, "a, b")),
        ("note=eq.\"say \\\"hi\\\"\"", one("note", .eq, "say \"hi\"")),
        ("note=eq.\"x\"y", one("note", .eq, "\"x\"y")), ("note=eq.\"x", one("note", .eq, "\"x")),
        ("note=eq.\"a\\\\b\"", one("note", .eq, "a\\b")), ("note=eq.a\\b", one("note", .eq, "a\\b")),
        ("deleted_at=is.null", one("deleted_at", .is, "null")), ("a=eq.f(1,2)", one("a", .eq, "f(1,2)")),
        ("a=eq.", one("a", .eq, "")), ("=eq.1", one("", .eq, "1")),
        ("a=eq.x)y,b=eq.2", .all([one("a", .eq, "x)y"), one("b", .eq, "2")])),
        ("a=not.eq.not.eq", one("a", .eq, "not.eq", not: true)),
        ("a=eq.x\"y,b=eq.\"z", .all([one("a", .eq, "x\"y"), one("b", .eq, "\"z")])),
        ("or=eq.1", one("or", .eq, "1")), ("a=eq.日本", one("a", .eq, "日本")),
        ("a=isdistinct.null", one("a", .isdistinct, "null")),
        ("changed=status", changed("status")), ("changed=not.status", changed("status", not: true)),
        ("changed=\"a.b\"", changed("a.b")), ("changed=in.(a,\"b c\")", one("changed", .in, "{a,\"b c\"}")),
        ("changed=eq.1", one("changed", .eq, "1")),
        ("old.status=not.eq.open", one("old.status", .eq, "open", not: true)),
        ("old=eq.1", one("old", .eq, "1")),
        ("old.tags=cs.{a,b},b=eq.2", .all([one("old.tags", .cs, "{a,b}"), one("b", .eq, "2")])),
    ]

    @Test(arguments: accepted) func `trap 13: filters are read as the reference reads them`(
        text: String, filter: Filter?
    ) throws {
        #expect(try Filter.parse(text, within: bounds) == filter)
    }

    static let groups: [(String, Filter)] = [
        ("or=(a.eq.1,b.eq.2)", .any([one("a", .eq, "1"), one("b", .eq, "2")])),
        (
            "or=(a.eq.1,and(b.gt.2,c.is.null))",
            .any([one("a", .eq, "1"), .all([one("b", .gt, "2"), one("c", .is, "null")])])
        ),
        ("not.or=(a.eq.1)", .not(.any([one("a", .eq, "1")]))),
        (
            "not.and=(a.not.eq.1, not.or( b.in.(1,2) ,c.eq.x))",
            .not(.all([one("a", .eq, "1", not: true), .not(.any([one("b", .in, "{1,2}"), one("c", .eq, "x")]))]))
        ),
        (
            "id=eq.1, or=(a.eq.1,b.eq.2) ,c=eq.3",
            .all([one("id", .eq, "1"), .any([one("a", .eq, "1"), one("b", .eq, "2")]), one("c", .eq, "3")])
        ),
        ("or=(a.eq.\"x,)y\",b.eq.2)", .any([one("a", .eq, "x,)y"), one("b", .eq, "2")])),
        ("or=(\"a.b\".eq.1)", .any([one("a.b", .eq, "1")])),
        ("or=(a.eq.f(1,2),b.eq.2)", .any([one("a", .eq, "f(1,2)"), one("b", .eq, "2")])),
        (
            "or=(tags.cs.{a,b},r.ov.[1,5),b.eq.2)",
            .any([one("tags", .cs, "{a,b}"), one("r", .ov, "[1,5)"), one("b", .eq, "2")])
        ),
        ("tags=cs.{a,\"}b\"},id=eq.1", .all([one("tags", .cs, "{a,\"}b\"}"), one("id", .eq, "1")])),
        ("r=not.sl.(1,10],id=eq.1", .all([one("r", .sl, "(1,10]", not: true), one("id", .eq, "1")])),
        (
            "doc=cs.{\"a\":[1,{\"b\":\"]\"}]},id=eq.1",
            .all([one("doc", .cs, "{\"a\":[1,{\"b\":\"]\"}]}"), one("id", .eq, "1")])
        ),
        ("tags=cs.\"{a,b}\"", one("tags", .cs, "{a,b}")),
        ("or=(or.eq.1,and.eq.2)", .any([one("or", .eq, "1"), one("and", .eq, "2")])),
        (
            "or=(changed.status,changed.in.(a,b),old.status.eq.open)",
            .any([changed("status"), one("changed", .in, "{a,b}"), one("old.status", .eq, "open")])
        ),
        (
            "not.and=(old.a.not.is.null,changed.not.b)",
            .not(.all([one("old.a", .is, "null", not: true), changed("b", not: true)]))
        ),
        // A column whose name is `old` keeps its conditions.
        ("or=(old.eq.1,old.not.eq.2.3)", .any([one("old", .eq, "1"), one("old", .eq, "2.3", not: true)])),
        (
            "or=(\"old.eq\".eq.1,old.tags.cs.{a,b},old.cs.{a,b})",
            .any([one("old.eq", .eq, "1"), one("old.tags", .cs, "{a,b}"), one("old", .cs, "{a,b}")])
        ),
    ]

    @Test(arguments: groups) func `groups nest as in PostgREST`(text: String, filter: Filter) throws {
        #expect(try Filter.parse(text, within: bounds) == filter)
    }

    static let refused: [(String, String)] = [
        ("subject=foo.hey", "[\"foo\", \"hey\"]"), ("undefined", "[\"undefined\"]"), ("subject=eq", "[\"eq\"]"),
        ("subject=not.eq", "[\"eq\"]"), ("subject=EQ.1", "[\"EQ\", \"1\"]"), ("a=not.foo.1.2", "[\"foo\", \"1.2\"]"),
        ("subject=in.a,b", "`in` filter value must be wrapped by parentheses"),
        ("subject=in.(a", "`in` filter value must be wrapped by parentheses"),
        ("a=eq.1,,b=eq.2", "filter must not contain empty segments (check for extra commas)"),
        ("a=eq.1,", "filter must not contain empty segments (check for extra commas)"),
        (",", "filter must not contain empty segments (check for extra commas)"),
        ("a\"b\\#{x}\n", "[\"a\\\"b\\\\\\#{x}\"]"), ("a\tb", "[\"a\\tb\"]"), ("é\u{1}", "[<<195, 169, 1>>]"),
        ("or=(a.eq.1", "`or` filter has no closing parenthesis"),
        ("or=()", "filter must not contain empty segments (check for extra commas)"),
        ("or=(a.eq.1)x", "unexpected text after `or` filter"), ("or=(a)", "[\"a\"]"),
        ("or=(a.foo.1)", "[\"foo\", \"1\"]"),
        ("or=(a=eq.1)", "[\"1\"]"), ("and=(or(a.eq.1)x)", "unexpected text in `and` filter"),
        ("a=eq.\0", "filter contains a NUL character"),
        ("or=(\"a)", "[\"\\\"a)\"]"), ("changed=", "[\"\"]"), ("changed=a.b", "[\"a\", \"b\"]"),
        ("status=open", "[\"open\"]"),
        ("or=(old.a)", "[\"a\"]"), ("or=(old.a.foo.1)", "[\"foo\", \"1\"]"),
    ]

    @Test(arguments: refused) func `trap 13: what is no filter is refused in the reference's words`(
        text: String, detail: String
    ) {
        let error = #expect(throws: FilterError.self) { try Filter.parse(text, within: bounds) }
        #expect(error?.detail == detail)
        #expect(error?.message == "Error parsing `filter` params: " + detail)
    }

    @Test func `length, conditions and depth have bounds`() throws {
        func detail(_ text: String) -> String? {
            do throws(FilterError) {
                _ = try Filter.parse(text, within: bounds)
                return nil
            } catch {
                return error.detail
            }
        }
        let twenty = Array(repeating: "a=eq.1", count: 20).joined(separator: ",")
        #expect(detail(twenty) == nil)
        #expect(detail(twenty + ",a=eq.1") == "filter has more than 20 conditions")
        #expect(detail("a=eq." + String(repeating: "x", count: 995)) == nil)
        #expect(detail("a=eq." + String(repeating: "x", count: 996)) == "filter is longer than 1000 bytes")
        #expect(detail("or=(or(or(or(a.eq.1))))") == nil)
        #expect(detail("or=(or(or(or(or(a.eq.1)))))") == "filter is nested deeper than 4 groups")
    }

    @Test(arguments: seeds(50)) func `any text is a filter or an error`(seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let pieces = [
            "or=(", "and(", "not.", "a", ".", "eq", "in", "cs", "(", ")", "{", "]", ",", "\"", "\\", "=", " ", "é",
            "a.eq.1", "changed", "old.",
        ]
        for _ in 0..<200 {
            let text = (0..<Int.random(in: 0..<20, using: &random)).map { _ in random.pick(pieces) }.joined()
            guard let filter = try? Filter.parse(text, within: bounds) else { continue }
            #expect(!filter.conditions.isEmpty && filter.conditions.count <= 20)
            for condition in filter.conditions where condition.isBare {
                let written = "changed=\(condition.isNegated ? "not." : "")\(condition.value)"
                guard condition.written == written else { continue }
                #expect(try Filter.parse(written, within: bounds) == .condition(condition))
            }
        }
    }
}
