import TestSupport
import Testing

@testable import Policy

/// Tests of filters that read the row before a change: `old.column=…` and `changed=column`.
@Suite(.within(minutes: 5)) struct EventFilterTests {
    private static let columns = [
        ColumnFacts(name: "n", type: TypeFacts(oid: 23, name: "integer")),
        ColumnFacts(name: "t", type: TypeFacts(oid: 25, name: "text"), collation: .deterministic(name: nil)),
        ColumnFacts(name: "m", type: TypeFacts(oid: 1700, name: "numeric")),
        ColumnFacts(name: "owner", type: TypeFacts(oid: 25, name: "text"), collation: .deterministic(name: nil)),
    ]

    private static func check(_ text: String, _ columns: [ColumnFacts] = columns) throws -> FilterCheck {
        let filter = try #require(try Filter.parse(text, within: .init(bytes: 1000, conditions: 20, depth: 5)))
        return try FilterCheck(filter, columns: columns, settings: .forTests)
    }

    private static func predicate(_ text: String, _ columns: [ColumnFacts] = columns) throws -> Predicate {
        let check = try check(text, columns)
        return try Predicate(check, canonical: check.literals.map(\.text))
    }

    /// Policy by which a subscriber sees the rows that a filter's text describes.
    private static func policy(_ text: String) throws -> Predicate {
        let check = try check(text)
        let node = try FilterLowering.node(check, check.literals.map(\.text))
        return Predicate(node, asker: nil, settings: .forTests)
    }

    private static func row(_ texts: [String?]) -> [TestValue] {
        texts.map { text in
            guard let text else { return .null }
            return text == "?" ? .absent : .text(text)
        }
    }

    /// Each case has a filter, the row before, the row after, and the verdict on the update.
    static let updates: [(String, [String?], [String?], Verdict)] = [
        ("changed=n", ["1", "a", "1", "me"], ["2", "a", "1", "me"], .yes),
        ("changed=n", ["1", "a", "1", "me"], ["1", "b", "1", "me"], .no),
        ("changed=in.(n,t)", ["1", "a", "1", "me"], ["1", "b", "1", "me"], .yes),
        ("changed=not.in.(n,t)", ["1", "a", "1", "me"], ["1", "b", "1", "me"], .no),
        ("changed=not.in.(n,t)", ["1", "a", "1", "me"], ["1", "a", "2", "me"], .yes),
        ("changed=n", [nil, "a", "1", "me"], ["1", "a", "1", "me"], .yes),
        ("changed=n", [nil, "a", "1", "me"], [nil, "a", "1", "me"], .no),
        // Equal numbers with different texts.
        ("changed=m", ["1", "a", "1.50", "me"], ["1", "a", "1.5", "me"], .no),
        // What is not known is not unchanged.
        ("changed=t", ["1", "?", "1", "me"], ["1", "a", "1", "me"], .ask),
        ("changed=t", ["1", "a", "1", "me"], ["1", "?", "1", "me"], .ask),
        ("changed=not.t", ["1", "?", "1", "me"], ["1", "a", "1", "me"], .ask),
        ("old.t=eq.a", ["1", "a", "1", "me"], ["1", "b", "1", "me"], .yes),
        ("old.t=eq.a", ["1", "b", "1", "me"], ["1", "a", "1", "me"], .no),
        ("old.t=eq.a", ["1", nil, "1", "me"], ["1", "a", "1", "me"], .unknown),
        ("old.t=is.null", ["1", nil, "1", "me"], ["1", "a", "1", "me"], .yes),
        ("old.t=eq.a", ["1", "?", "1", "me"], ["1", "a", "1", "me"], .ask),
        ("old.n=gt.3,n=lte.3", ["4", "a", "1", "me"], ["3", "a", "1", "me"], .yes),
        ("or=(old.t.eq.a,t.eq.a)", ["1", "?", "1", "me"], ["1", "a", "1", "me"], .yes),
    ]

    @Test(arguments: updates) func `an update is held against both rows`(
        text: String, old: [String?], new: [String?], wanted: Verdict
    ) throws {
        let predicate = try Self.predicate(text)
        #expect(predicate.verdict(Self.row(new), before: Self.row(old), .known) == wanted)
        #expect(predicate.readsOldRow && predicate.question == nil && !predicate.isDecidedByAccess)
    }

    @Test func `an insert has no old row, and a delete's row is its old row`() throws {
        let row = Self.row(["1", "a", "1", "me"])
        let none = Self.row(["?", "?", "?", "?"])
        for (text, ofInsert, ofDelete) in [
            ("old.t=eq.a", Verdict.unknown, Verdict.yes), ("old.t=not.eq.a", .unknown, .no),
            ("old.t=is.null", .unknown, .no), ("old.t=not.is.null", .unknown, .yes), ("old.t=in.()", .unknown, .no),
            ("changed=t", .yes, .yes), ("changed=not.t", .no, .no), ("or=(old.t.eq.b,t.eq.a)", .yes, .yes),
        ] {
            let predicate = try Self.predicate(text)
            #expect(predicate.verdict(row, before: none, .none) == ofInsert, "\(text)")
            #expect(predicate.verdict(row, before: row, .deleted) == ofDelete, "\(text)")
        }
    }

    @Test func `names of columns come first`() throws {
        let columns =
            Self.columns
            + ["changed", "old.t", "old"].map { name in
                ColumnFacts(name: name, type: TypeFacts(oid: 25, name: "text"), collation: .deterministic(name: nil))
            }
        for text in ["changed=in.(n,t)", "changed=eq.n", "old.t=eq.a", "or=(old.eq.a,old.not.eq.b)"] {
            #expect(try !Self.predicate(text, columns).readsOldRow, "\(text)")
        }
        for text in ["changed=n", "old.n=eq.1", "or=(changed.n,old.n.eq.1)", "old.changed=eq.a"] {
            #expect(try Self.predicate(text, columns).readsOldRow, "\(text)")
        }
    }

    static let refused = [
        ("changed=x", "invalid column for filter x"), ("changed=in.(n,x)", "invalid column for filter x"),
        ("changed=eq.n", "invalid column for filter changed"), ("old.x=eq.1", "invalid column for filter old.x"),
        ("old.=eq.1", "invalid column for filter old."),
        (
            "changed=in.()",
            "`changed` filter needs names of columns, such as `changed=status` or `changed=in.(a,b)`"
        ),
        (
            "old.t=match.a",
            "a filter with `changed`, `old.` or `now` has no conditions that only PostgreSQL can decide, such as match on column t of type text"
        ),
        (
            "changed=n,t=gt.a",
            "a filter with `changed`, `old.` or `now` has no conditions that only PostgreSQL can decide, such as gt on column t of type text"
        ),
    ]

    @Test(arguments: refused) func `what cannot be decided is refused in words`(text: String, message: String) {
        let refusal = #expect(throws: FilterRefusal.self) { try Self.predicate(text) }
        #expect(refusal?.message == message)
    }

    @Test func `a column that the role may not read is none, before a change too`() throws {
        var settings = FilterCheck.Settings.forTests
        settings.hiddenSlots = [1]
        for (text, name) in [("old.t=eq.a", "old.t"), ("changed=t", "t"), ("changed=in.(n,t)", "t")] {
            let filter = try #require(try Filter.parse(text, within: .init(bytes: 1000, conditions: 20, depth: 5)))
            let refusal = #expect(throws: FilterRefusal.self) {
                try FilterCheck(filter, columns: Self.columns, settings: settings)
            }
            #expect(refusal?.message == "invalid column for filter \(name)")
        }
    }

    // MARK: Policies

    @Test func `an old row that the subscriber may not see is none`() throws {
        let policy = try Self.policy("owner=eq.me")
        let new = Self.row(["2", "b", "1", "me"])
        for (text, ofSeen, ofHidden) in [
            ("old.t=eq.a", Verdict.yes, Verdict.unknown), ("old.t=neq.a", .no, .unknown),
            ("old.t=not.eq.a", .no, .unknown), ("old.t=is.null", .no, .unknown), ("changed=t", .yes, .yes),
            ("changed=m", .no, .yes), ("changed=not.m", .yes, .no), ("or=(old.t.eq.a,n.eq.2)", .yes, .yes),
        ] {
            let predicate = Predicate.both(try Self.predicate(text), policy)
            #expect(predicate.verdict(new, before: Self.row(["1", "a", "1", "me"]), .known) == ofSeen, "\(text)")
            #expect(predicate.verdict(new, before: Self.row(["1", "a", "1", "you"]), .known) == ofHidden, "\(text)")
            // A subscriber that may not see the new row gets nothing, whatever the row was.
            let other = Self.row(["2", "b", "1", "you"])
            #expect(predicate.verdict(other, before: Self.row(["1", "a", "1", "me"]), .known) != .yes, "\(text)")
        }
    }

    @Test(arguments: seeds(20)) func `no filter tells what a hidden old row was`(seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let policies = [try Self.policy("owner=eq.me"), Predicate(.constant(.ask), asker: 1, settings: .forTests)]
        func value(_ column: Int) -> String? {
            switch column {
            case 1: random.pick(["a", "b", nil])
            case 3: random.pick(["you", "he", nil])
            default: random.pick(["1", "2", nil])
            }
        }
        var told = 0
        for _ in 0..<300 {
            let filter = try Self.predicate(Self.text(&random))
            let new = Self.row((0..<3).map(value) + ["me"])
            for (place, policy) in policies.enumerated() {
                let predicate = Predicate.both(filter, policy)
                let verdicts = Set(
                    (0..<6).map { _ in
                        let old = Self.row((0..<4).map { value($0) ?? (place == 0 ? nil : "?") })
                        let verdict = predicate.verdict(new, before: old, .known)
                        if verdict == .yes { told += 1 }
                        return "\(verdict) \(predicate.filterVerdict(new, before: old, .known))"
                    })
                #expect(verdicts.count == 1, "\(filter): \(verdicts)")
            }
        }
        #expect(told > 50, "a test of nothing")
    }

    /// Returns a random filter over the columns, the old row and changes.
    private static func text(_ random: inout SeededRandom) -> String {
        let conditions = (0..<Int.random(in: 1...4, using: &random)).map { _ in
            random.pick([
                "old.t.eq.a", "old.t.not.eq.a", "old.t.is.null", "old.n.gt.1", "old.n.not.in.(1,2)", "old.owner.eq.you",
                "changed.t", "changed.not.t", "changed.in.(n,m)", "changed.owner", "n.eq.1", "t.eq.a",
                "not.and(old.t.eq.a,changed.n)", "or(old.owner.not.eq.me,t.is.null)",
            ])
        }
        return random.pick(["or", "and", "not.or", "not.and"]) + "=(" + conditions.joined(separator: ",") + ")"
    }
}
