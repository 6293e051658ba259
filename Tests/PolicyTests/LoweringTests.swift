import Bytes
import TestSupport
import Testing

@testable import Policy

/// Tests that filters and policies become the same predicates in every process, with their parts in the same order.
@Suite(.within(minutes: 5)) struct LoweringTests {
    private static let me = "8b2e8ba0-0000-4000-8000-000000000001"
    private static let columns = [
        ColumnFacts(name: "flag", type: .boolean), ColumnFacts(name: "owner", type: Policies.uuid),
        ColumnFacts(name: "title", type: .text, collation: .deterministic(name: nil)),
        ColumnFacts(name: "moods", type: TypeFacts(oid: 90_001, name: "mood[]", shape: .array(of: mood))),
    ]
    private static let mood = TypeFacts(oid: 90_000, name: "mood", shape: .enumeration(labels: ["sad", "ok", "fine"]))

    private static func filter(_ text: String) throws -> Predicate {
        let parsed = try #require(try Filter.parse(text, within: .init(bytes: 1000, conditions: 20, depth: 5)))
        let check = try FilterCheck(parsed, columns: columns, settings: .forTests)
        return try Predicate(check, canonical: check.literals.map(\.text))
    }

    @Test(arguments: [
        ("title=eq.a,owner=eq.\(me)", "owner=eq.\(me),title=eq.a"),
        ("or=(title.eq.a,title.eq.b,flag.is.true)", "or=(flag.is.true,or(title.eq.b,title.eq.a,title.eq.b))"),
        ("and=(flag.is.true,and(title.neq.a,flag.not.is.null))", "title=not.eq.a,flag=not.is.null,flag=is.true"),
        ("not.and=(title.eq.a)", "title=neq.a"), ("title=not.in.(a,b)", "not.and=(title.in.(b,a,a))"),
    ]) func `what says the same is the same, in whatever order it was written`(one: String, other: String) throws {
        #expect(try Self.filter(one) == Self.filter(other))
    }

    @Test func `a filter and a policy that say the same are one program`() throws {
        let filter = try Self.filter("owner=eq.\(Self.me)")
        let claims = #"{"sub": "\#(Self.me)"}"#
        let policy = try Policies.predicate(
            Policies.equal(Policies.column(1, Policies.uuid), Policies.uid), claims: claims)
        #expect(filter.program == policy.program && filter.tests == policy.tests)
        #expect(filter.constants == policy.constants && filter.pool == policy.pool)
        #expect(filter.access == policy.access && filter.slots == policy.slots)
    }

    @Test func `a part that no row can change goes, and is still in what PostgreSQL is asked`() throws {
        #expect(try Self.filter("title=not.in.()") == .always)
        #expect(try Self.filter("title=in.()") == .never)
        let unknown = try Self.filter("title=in.(NULL)")
        #expect(unknown.access == .never && unknown.verdict([.null, .null, .text("a")]) == .unknown)
        let either = try Self.filter("or=(owner.in.(),title.eq.a)")
        #expect(either == (try Self.filter("title=eq.a")) && either.isDecidedByAccess)
        let asked = try Self.filter("or=(owner.in.(),title.gt.a)")
        #expect(asked.slots == [1, 2] && asked.question?.slots == [1, 2])
        #expect(asked.verdict([.null, .null, .text("b")]) == .ask)
    }

    @Test func `nothing is asked about what holds for no row`() throws {
        #expect(Predicate.never.filterVerdict([]) == .no)
        #expect(try Self.filter("title=in.(),title=gt.a") == .never)
    }

    /// Checks the order of parts. Swift uses new hash seeds in each process, so an order that depends on hashes would
    /// fail.
    @Test func `parts stand in the same order in every process`() throws {
        let written = (0..<8).map { "title.eq.\($0)" }.joined(separator: ",")
        let predicate = try Self.filter("not.or=(\(written))")
        #expect(String(decoding: predicate.pool, as: UTF8.self) == "75063142")
        let terms = (1...6).map { shift in
            Term.apply(
                Function(.boolean, .startsWith),
                [.column(2, .text), .apply(Function(.text, .concatenate), [.column(2, .text), Self.text("\(shift)")])])
        }
        let policy = try Policies.predicate(.any(terms), claims: "{}")
        let other = try Policies.predicate(.any(terms.reversed()), claims: "{}")
        #expect(policy == other)
        #expect(policy.terms.map { terms.firstIndex(of: $0) } == [5, 4, 2, 3, 0, 1])
    }

    private static func text(_ text: String) -> Term { .constant(Array(text.utf8), .text) }

    @Test(arguments: seeds(3)) func `equal predicates have equal hashes, and others hardly ever`(seed: Seed) throws {
        var random = SeededRandom(seed: seed.number)
        var known: [UInt64: Predicate] = [:]
        for _ in 0..<500 {
            let parts = (0..<Int.random(in: 1...4, using: &random)).map { _ in
                random.pick(["title", "owner"]) + random.pick([".eq.", ".neq.", ".isdistinct."])
                    + random.pick([Self.me, "8b2e8ba0-0000-4000-8000-000000000002"])
            }
            let predicate = try Self.filter(
                random.pick(["and=(", "or=(", "not.or=("]) + parts.joined(separator: ",") + ")")
            var hash = KeyHash(seed: seed.number)
            predicate.combine(into: &hash)
            if let other = known[hash.value] { #expect(other == predicate) }
            known[hash.value] = predicate
        }
        #expect(known.count > 50)
    }

    @Test func `an array of labels has their order, in filters and in policies`() throws {
        let filter = try Self.filter("moods=lt.{ok}")
        let less = try #require(
            Function.infix("<", Self.columns[3].type, Self.columns[3].type, .none, text: .plainUTF8))
        let policy = try Policies.predicate(
            .apply(less, [.column(3, Self.columns[3].type), .constant(Array("{ok}".utf8), Self.columns[3].type)]),
            claims: "{}", asker: 4)
        #expect(policy.asker == 4)
        for (text, verdict) in [
            ("{sad}", Verdict.yes), ("{sad,fine}", .yes), ("{ok}", .no), ("{fine}", .no), ("{new}", .ask),
        ] {
            #expect(filter.verdict([.null, .null, .null, .text(text)]) == verdict, "\(text)")
            #expect(policy.verdict([.null, .null, .null, .text(text)]) == verdict, "\(text)")
        }
    }

    /// Checks that PostgreSQL 12 and later compare values of type `name` by the column's collation. The default is C,
    /// which compares bytes.
    @Test func `names are compared by their collation`() {
        let name = TypeFacts.nameType
        func infix(_ symbol: String, _ collation: Collation) -> Function? {
            Function.infix(symbol, name, name, collation, text: .plainUTF8)
        }
        #expect(infix("<", .bytewise) != nil && infix("=", .bytewise) != nil)
        #expect(infix("<", .deterministic(name: "\"en-x-icu\"")) == nil)
        #expect(infix("=", .deterministic(name: "\"en-x-icu\"")) != nil)
        #expect(infix("=", .nondeterministic(name: "nocase")) == nil)
    }
}
