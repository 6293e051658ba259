import Policy
import TestSupport
import Testing

private let bounds = Filter.Bounds(bytes: 10_000, conditions: 2000, depth: 8)
private let columns = [
    ColumnFacts(name: "id", type: TypeFacts(oid: 23, name: "integer")),
    ColumnFacts(name: "name", type: TypeFacts(oid: 25, name: "text"), collation: .deterministic(name: nil)),
    ColumnFacts(name: "done", type: TypeFacts(oid: 16, name: "boolean")),
    ColumnFacts(name: "price", type: TypeFacts(oid: 1700, name: "numeric")),
    ColumnFacts(
        name: "label", type: TypeFacts(oid: 1043, name: "character varying"), collation: .deterministic(name: nil)),
    ColumnFacts(name: "secret", type: TypeFacts(oid: 25, name: "text"), collation: .deterministic(name: nil)),
]
private let settings = {
    var settings = FilterCheck.Settings.forTests
    settings.hiddenSlots = [5]
    return settings
}()

private func check(_ text: String) throws -> FilterCheck {
    let filter = try #require(try Filter.parse(text, within: bounds))
    return try FilterCheck(filter, columns: columns, settings: settings)
}

private func predicate(_ text: String) throws -> Predicate {
    let check = try check(text)
    try #require(check.literals.isEmpty)
    return try Predicate(check, canonical: [])
}

private func row(
    id: TestValue = .text("7"), name: TestValue = .text("x"), done: TestValue = .text("t"),
    price: TestValue = .text("1.50"), label: TestValue = .text("l")
) -> [TestValue] {
    [id, name, done, price, label, .text("s")]
}

@Suite(.within(minutes: 5)) struct CheckTests {
    static let refused: [(String, String)] = [
        ("nope=eq.1", "invalid column for filter nope"), ("secret=eq.1", "invalid column for filter secret"),
        ("id=is.maybe", "invalid value for is filter: must be null, true, false, or unknown"),
        ("id=is.NULL", "invalid value for is filter: must be null, true, false, or unknown"),
        ("name=is.true", "is true filter requires a boolean column, got text"),
        ("id=is.unknown", "is unknown filter requires a boolean column, got integer"),
        ("id=like.1%", "operator like requires a text-compatible column type, got integer"),
        ("id=match.1", "operator match requires a text-compatible column type, got integer"),
        ("id=imatch.1", "operator imatch requires a text-compatible column type, got integer"),
    ]

    @Test(arguments: refused) func `a filter that does not fit the table is refused`(text: String, message: String) {
        let refusal = #expect(throws: FilterRefusal.self) { try check(text) }
        #expect(refusal == FilterRefusal(sqlState: "P0001", condition: "raise_exception", message: message))
    }

    @Test func `values that are none are refused with PostgreSQL's code and name`() {
        let syntax = #expect(throws: FilterRefusal.self) { try check("id=eq.hey") }
        #expect(
            syntax
                == FilterRefusal(
                    sqlState: "22P02", condition: "invalid_text_representation",
                    message: "invalid input syntax for type integer: \"hey\""))
        let range = #expect(throws: FilterRefusal.self) { try check("id=in.(1,2147483648)") }
        #expect(
            range
                == FilterRefusal(
                    sqlState: "22003", condition: "numeric_value_out_of_range",
                    message: "value \"2147483648\" is out of range for type integer"))
        let escape = #expect(throws: FilterRefusal.self) { try check("name=like.a\\") }
        #expect(escape?.message == "LIKE pattern must not end with escape character")
    }

    @Test func `lists have a bound, however they are read`() throws {
        let hundred = (1...100).map(String.init).joined(separator: ",")
        #expect(throws: Never.self) { try check("id=in.(\(hundred))") }
        let refusal = #expect(throws: FilterRefusal.self) { try check("id=in.(\(hundred),101)") }
        #expect(refusal?.message == "too many values for `in` filter. Maximum 100")
        // PostgreSQL interprets an escape outside of quotes.
        let asked = try check("name=in.(a\\,\(hundred))")
        #expect(asked.literals.map(\.typeName) == ["text[]"])
        #expect(throws: FilterRefusal.self) { try Predicate(asked, canonical: ["{a,\(hundred)}"]) }
        #expect(throws: FilterRefusal.self) { try Predicate(asked, canonical: ["{{a},{\(hundred)}}"]) }
    }

    @Test func `varchar takes patterns`() throws {
        #expect(throws: Never.self) { try predicate("label=like.a%") }
        #expect(try check("label=match.^a").literals.map(\.text) == ["^a"])
    }

    @Test func `only what is not simple is left to PostgreSQL`() throws {
        #expect(try check("id=eq.7,name=eq.x,done=eq.yes,price=gt.1.50,id=in.(1, 2 ,NULL)").literals.isEmpty)
        let literals = try check("price=gt.1e5,name=eq.x,price=in.(NaN)").literals
        #expect(literals.map(\.typeName) == ["numeric", "numeric[]"])
        #expect(literals.map(\.text) == ["1e5", "{NaN}"])
        #expect(literals.map(\.isArray) == [false, true])
    }
}

@Suite(.within(minutes: 5)) struct PredicateTests {
    private func keys(_ values: [(Int, KeyForm, String)]) -> Access {
        .anyOf(values.map { EqualityKey(slot: $0.0, form: $0.1, bytes: Array($0.2.utf8)) })
    }

    @Test func `an equality is found by its key and decides alone`() throws {
        let predicate = try predicate("id=eq.07")
        #expect(predicate.access == keys([(0, .asIs, "7")]))
        #expect(predicate.isDecidedByAccess)
        #expect(predicate.question == nil)
        #expect(predicate.slots == [0])
    }

    @Test func `equal filters are equal predicates`() throws {
        #expect(try predicate("id=eq.07") == predicate("id=eq. 7"))
        #expect(try predicate("price=eq.1.50") == predicate("price=eq.+1.5"))
        #expect(try predicate("id=eq.7") != predicate("id=eq.8"))
        #expect(try predicate("id=eq.7") != predicate("id=not.eq.7"))
    }

    @Test func `a list is found by each of its values`() throws {
        let list = try predicate("id=in.(3,1,NULL,3)")
        #expect(list.access == keys([(0, .asIs, "1"), (0, .asIs, "3")]))
        #expect(list.isDecidedByAccess)
        #expect(try predicate("id=in.()").access == .never)
        #expect(try predicate("id=in.(null)").access == .never)
        #expect(try predicate("id=not.in.(1)").access == .scan)
    }

    @Test func `a conjunction is found by the fewest keys and looked at again`() throws {
        let both = try predicate("id=in.(1,2),name=eq.x,price=gt.1")
        #expect(both.access == keys([(1, .asIs, "x")]))
        #expect(!both.isDecidedByAccess)
        #expect(both.slots == [0, 1, 3])
        #expect(try predicate("id=gt.1,id=in.()").access == .never)
    }

    @Test func `alternatives are found by the keys of all, or scanned`() throws {
        let either = try predicate("or=(id.eq.1,id.eq.2)")
        #expect(either.access == keys([(0, .asIs, "1"), (0, .asIs, "2")]))
        #expect(either.isDecidedByAccess)
        let mixed = try predicate("or=(id.eq.1,and(name.eq.x,done.is.true))")
        #expect(mixed.access == keys([(0, .asIs, "1"), (1, .asIs, "x")]))
        #expect(!mixed.isDecidedByAccess)
        // The predicate may also have to read another column.
        #expect(!(try predicate("or=(id.eq.1,name.eq.x)").isDecidedByAccess))
        #expect(try predicate("or=(id.eq.1,id.gt.5)").access == .scan)
        #expect(try predicate("not.or=(id.eq.1)").access == .scan)
    }

    @Test func `an order is found by its range, and looked at again`() throws {
        func range(_ low: Int64?, _ high: Int64?) -> Access {
            var range = ValueRange(slot: 0, form: .integer)
            if let low { range.low = UInt64(bitPattern: low) ^ 1 << 63 }
            if let high { range.high = UInt64(bitPattern: high) ^ 1 << 63 }
            return .within(range)
        }
        #expect(try predicate("id=gt.1,id=lt.9").access == range(1, 9))
        #expect(try !predicate("id=gt.1").isDecidedByAccess)
        #expect(try predicate("id=not.lt.-4").access == range(-4, nil))
        #expect(try predicate("or=(id.lt.3,and(id.gt.5,id.lte.9))").access == range(nil, 9))
        #expect(try predicate("or=(id.lt.3,price.lt.3)").access == .scan)
        #expect(try predicate("id=gt.1,name=eq.x").access == keys([(1, .asIs, "x")]))
        // A range with both bounds is assumed to be narrower.
        #expect(try predicate("price=lt.3,id=gt.1,id=lt.9").access == range(1, 9))
    }

    @Test func `a pattern is found by what it begins with`() throws {
        func prefix(_ text: String) -> Access {
            .anyOf([EqualityKey(slot: 1, form: .asIs, bytes: Array(text.utf8), part: .prefix)])
        }
        #expect(try predicate("name=like.abc%").access == prefix("abc"))
        #expect(try predicate("name=like.abc%").isDecidedByAccess)
        #expect(try predicate("name=like.a\\%c_d%").access == prefix("a%c"))
        #expect(try !predicate("name=like.a\\%c_d%").isDecidedByAccess)
        // A long prefix is looked up by its first 48 bytes. The whole pattern is compared afterwards.
        let long = String(repeating: "x", count: 50)
        #expect(try predicate("name=like.\(long)%").access == prefix(String(repeating: "x", count: 48)))
        #expect(try !predicate("name=like.\(long)%").isDecidedByAccess)
        #expect(try predicate("name=like.%abc").access == .scan)
        #expect(try predicate("name=ilike.abc%").access == .scan)
        #expect(try predicate("name=not.like.abc%").access == .scan)
    }

    @Test(arguments: [
        (OrderForm.integer, ["-9223372036854775808", "-10", "-9", "0", "1", "9", "10", "9223372036854775807"]),
        (
            .numeric,
            [
                "-Infinity", "-12345678901234567890", "-99.5", "-10", "-9.999", "-0.001", "0", "0.0009", "0.001", "0.5",
                "1", "1.0001", "9.9", "10", "99.99", "100", "12345678901234567890", "Infinity", "NaN",
            ]
        ),
        (
            .float8,
            ["-Infinity", "-1e+300", "-1.5", "-1e-300", "-0", "0", "1e-300", "1.5", "1e+300", "Infinity", "NaN"]
        ),
        (.float4, ["-Infinity", "-1.5", "0", "1e-30", "0.1", "Infinity", "NaN"]),
        (.date, ["-infinity", "0044-03-15 BC", "1999-12-31", "2000-01-01", "12026-01-01", "infinity"]),
        (
            .timestamp,
            ["-infinity", "1999-12-31 23:59:59.5", "2000-01-01 00:00:00", "2000-01-01 00:00:00.1", "infinity"]
        ),
        (.bytes, ["", "a", "a b", "ab", "abcdefgh", "abcdefghi", "b", "ä"]),
        (.blankPadded, ["", "a  ", "ab ", "b"]),
    ]) func `numbers of values stand in the order of the values`(form: OrderForm, texts: [String]) {
        let numbers = texts.map { form.number(Array($0.utf8).span.bytes) }
        #expect(!numbers.contains(nil))
        for (number, next) in zip(numbers, numbers.dropFirst()) { #expect(number ?? 0 <= next ?? 0) }
        if form != .bytes { #expect(form == .blankPadded || form.number(Array("x".utf8).span.bytes) == nil) }
        #expect(Set(numbers).count > texts.count / 2)
    }

    /// Checks texts that cannot be compared, so that they may be in any range: PostgreSQL must decide.
    @Test(arguments: ["", "x", "24444444444444x45%", "1234567890123456 ", "-", "1e5x", "0044-03-15 XY"])
    func `what is no value stands nowhere`(text: String) {
        for form in [OrderForm.integer, .numeric, .float4, .float8, .date, .timestamp] {
            #expect(form.number(Array(text.utf8).span.bytes) == nil, "\(form)")
        }
    }

    @Test func `with more keys than allowed a predicate is scanned`() throws {
        let filter = try #require(try Filter.parse("or=(id.in.(1,2),id.in.(2,3,4))", within: bounds))
        func access(maximumKeys: Int) throws -> Access {
            var settings = settings
            settings.maximumKeys = maximumKeys
            return try Predicate(FilterCheck(filter, columns: columns, settings: settings), canonical: []).access
        }
        #expect(try access(maximumKeys: 3) == .scan)
        #expect(try access(maximumKeys: 4) == keys((1...4).map { (0, .asIs, String($0)) }))
    }

    @Test func `a search that would take long is asked for`() throws {
        let filter = try #require(try Filter.parse("name=like.%aab", within: bounds))
        var settings = settings
        settings.maximumWork = 40
        let predicate = try Predicate(FilterCheck(filter, columns: columns, settings: settings), canonical: [])
        #expect(predicate.verdict(row(name: .text("aaaaaaaab"))) == .yes)
        #expect(predicate.verdict(row(name: .text("aaaaaaaaab"))) == .yes)
        #expect(predicate.verdict(row(name: .text("aaaaaaaaaab"))) == .ask)
        #expect(predicate.question != nil)
    }

    @Test func `always and never need no look`() {
        #expect(Predicate.always.access == .always && Predicate.always.verdict([]) == .yes)
        #expect(Predicate.never.access == .never && Predicate.never.verdict([]) == .no)
        #expect(Predicate.always.isDecidedByAccess)
    }

    /// Checks a condition on a missing column. It is neither true nor false, because the value is unknown.
    @Test func `what rests on an absent column is asked about, also negated`() throws {
        for text in [
            "id=eq.7", "id=not.eq.7", "id=is.null", "id=not.is.null", "id=isdistinct.1", "or=(name.eq.z,id.eq.7)",
            "not.or=(id.eq.1)",
        ] {
            #expect(try predicate(text).verdict(row(id: .absent)) == .ask, "\(text)")
        }
        #expect(try predicate("or=(name.eq.x,id.eq.7)").verdict(row(id: .absent)) == .yes)
        #expect(try predicate("and=(name.eq.z,id.eq.7)").verdict(row(id: .absent)) == .no)
        #expect(try predicate("name=eq.x").verdict(row(id: .absent)) == .yes)
        #expect(try predicate("id=eq.7").verdict([]) == .ask)
    }

    @Test func `NULL is unknown, and is and isdistinct know it`() throws {
        let null = row(id: .null, done: .null)
        for text in ["id=eq.7", "id=not.eq.7", "id=neq.7", "id=in.(7)", "id=not.in.(7)", "id=gt.7", "id=in.(7,NULL)"] {
            #expect(try predicate(text).verdict(null) == .unknown, "\(text)")
        }
        for text in ["id=is.null", "done=is.unknown", "id=isdistinct.7", "done=not.is.true", "id=not.in.()"] {
            #expect(try predicate(text).verdict(null) == .yes, "\(text)")
        }
        #expect(try predicate("id=not.isdistinct.7").verdict(null) == .no)
        #expect(try predicate("id=in.(8,NULL)").verdict(row()) == .unknown)
        #expect(try predicate("id=in.(7,NULL)").verdict(row()) == .yes)
    }

    /// Truth table with these conditions: done.is.true is yes, done.is.false is no, id.gt.0 is unknown (NULL), and
    /// name.gt.a must be asked, because the hub does not know its order.
    static let table: [(String, Verdict)] = [
        ("and=(done.is.true,done.is.true)", .yes), ("and=(done.is.true,done.is.false)", .no),
        ("and=(done.is.true,id.gt.0)", .unknown),
        ("and=(done.is.true,name.gt.a)", .ask), ("and=(done.is.false,id.gt.0)", .no),
        ("and=(name.gt.a,done.is.false)", .no),
        ("and=(id.gt.0,name.gt.a)", .notYes), ("and=(name.gt.a,id.gt.0)", .notYes),
        ("or=(done.is.false,id.gt.0)", .unknown), ("not.and=(id.gt.0,name.gt.a)", .ask),
        ("or=(id.gt.0,done.is.true)", .yes), ("or=(name.gt.a,done.is.true)", .yes),
        ("or=(name.gt.a,done.is.false)", .ask),
        ("or=(id.gt.0,name.gt.a)", .ask), ("or=(done.is.false,done.is.false)", .no), ("not.and=(id.gt.0)", .unknown),
        ("not.and=(name.gt.a)", .ask), ("not.or=(done.is.true)", .no), ("not.or=(done.is.false)", .yes),
        ("name=not.gt.a", .ask),
    ]

    @Test(arguments: table) func `logic has four values`(text: String, verdict: Verdict) throws {
        #expect(try predicate(text).verdict(row(id: .null)) == verdict)
    }

    @Test func `a question names types, collations and parameters, and no table`() throws {
        let question = try #require(try predicate("name=gt.it's,or=(id.in.(1,NULL),done.not.is.true)").question)
        let ids = "(CAST($1 AS integer) = ANY (CAST($5 AS integer[])))"
        #expect(
            question.sql
                == "((CAST($2 AS text) > CAST($4 AS text)) AND (\(ids) OR (NOT (CAST($3 AS boolean) IS TRUE))))")
        #expect(question.slots == [0, 1, 2])
        #expect(question.constants == ["it's", "{\"1\",NULL}"])
    }

    @Test func `texts that no value has are asked for, and never crash`() throws {
        let odd = ["", "-", "x", "99999999999999999999", "1.2.3", "{", "[", "\u{0}"]
        for text in ["id=gt.5", "price=lt.2", "id=eq.1"] {
            let predicate = try predicate(text)
            for value in odd {
                let verdict = predicate.verdict(row(id: .text(value), price: .text(value)))
                #expect(verdict != .ask || predicate.question != nil)
            }
        }
    }
}

@Suite(.within(minutes: 5)) struct KeyFormTests {
    private func key(_ form: KeyForm, _ canonical: String) -> EqualityKey {
        EqualityKey(slot: 0, form: form, bytes: Array(canonical.utf8))
    }

    @Test func `a form finds every way in which a value is written`() {
        #expect(["1.5", "1.50", "1.5000"].allSatisfy(key(.numeric, "1.5").holds))
        #expect(["100", "100.00"].allSatisfy(key(.numeric, "100").holds))
        #expect(["0", "0.00"].allSatisfy(key(.numeric, "0").holds))
        #expect(["0", "-0"].allSatisfy(key(.float, "0").holds))
        #expect(["a", "a  "].allSatisfy(key(.bpchar, "a").holds))
        #expect(["", "   "].allSatisfy(key(.bpchar, "").holds))
    }

    @Test func `a form tells values apart`() {
        #expect(!key(.numeric, "100").holds("1"))
        #expect(!key(.numeric, "1.5").holds("-1.5"))
        #expect(!key(.float, "10").holds("1"))
        #expect(!key(.asIs, "a").holds("a "))
        #expect(!key(.bpchar, " a").holds("a"))
    }
}
