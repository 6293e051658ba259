import Postgres
import TestSupport
import Testing

@testable import Policy

/// Tests of times in filters that are relative to the commit of a change: `created_at=gt.now-10min`.
@Suite(.within(minutes: 5)) struct RelativeTimeTests {
    private static let columns = [
        ColumnFacts(name: "z", type: TypeFacts(oid: 1184, name: "timestamp with time zone")),
        ColumnFacts(name: "t", type: TypeFacts(oid: 1114, name: "timestamp without time zone")),
        ColumnFacts(name: "d", type: TypeFacts(oid: 1082, name: "date")),
        ColumnFacts(name: "s", type: TypeFacts(oid: 25, name: "text"), collation: .deterministic(name: nil)),
    ]

    private static func check(_ text: String) throws -> FilterCheck {
        let filter = try #require(try Filter.parse(text, within: .init(bytes: 1000, conditions: 20, depth: 5)))
        return try FilterCheck(filter, columns: columns, settings: .forTests)
    }

    private static func predicate(_ text: String) throws -> Predicate {
        let check = try check(text)
        return try Predicate(check, canonical: check.literals.map(\.text))
    }

    /// 2026-03-01 12:00 UTC, in microseconds since 2000.
    private static let noon: Int64 = 825_681_600_000_000

    @Test func `a row ages by the time of the commit`() throws {
        let predicate = try Self.predicate("z=gt.now-10min")
        #expect(predicate.readsClock && predicate.question == nil && predicate.access == .scan)
        func verdict(_ text: String, after minutes: Int64) -> Verdict {
            predicate.verdict(
                [.text(text), .null, .null, .null], moment: 0, committed: Self.noon + minutes * 60_000_000)
        }
        #expect(verdict("2026-03-01 11:55:00+00", after: 0) == .yes)
        #expect(verdict("2026-03-01 11:55:00+00", after: 4) == .yes)
        #expect(verdict("2026-03-01 11:55:00+00", after: 5) == .no)
        #expect(verdict("2026-03-01 14:55:00+03", after: 4) == .yes)
        #expect(verdict("infinity", after: 5) == .yes && verdict("-infinity", after: 0) == .no)
        #expect(predicate.verdict([.null, .null, .null, .null], committed: Self.noon) == .unknown)
        // A commit whose time is not known decides nothing.
        #expect(predicate.verdict([.text("2026-03-01 11:55:00+00"), .null, .null, .null]) == .ask)
    }

    static let refused = [
        ("z=gt.now-10m", "invalid relative time now-10m: write now, now-10min or now+2h, with the unit s, min, h or d"),
        ("z=lt.now-", "invalid relative time now-: write now, now-10min or now+2h, with the unit s, min, h or d"),
        (
            "d=gte.now+1.5h",
            "invalid relative time now+1.5h: write now, now-10min or now+2h, with the unit s, min, h or d"
        ),
        ("t=lte.now-999999999d", "relative time now-999999999d is out of range: it may be ten thousand years away"),
        (
            "z=gt.now-1h,s=match.a",
            "a filter with `changed`, `old.` or `now` has no conditions that only PostgreSQL can decide, such as match on column s of type text"
        ),
    ]

    @Test(arguments: refused) func `what is no relative time is refused in words`(text: String, message: String) {
        let refusal = #expect(throws: FilterRefusal.self) { try Self.predicate(text) }
        #expect(refusal?.message == message)
    }

    @Test func `other operators and types leave the word to PostgreSQL`() throws {
        for text in ["z=eq.now", "z=neq.now-1h", "z=gt.nowhere"] {
            let check = try Self.check(text)
            #expect(!check.readsClock && check.literals.count == 1, "\(text)")
        }
        #expect(try !Self.check("s=gt.now-1h").readsClock)
    }

    /// Compares the verdicts with PostgreSQL's, for commits at random times.
    @Test(arguments: seeds(2)) func `times relative to a commit are PostgreSQL's`(seed: Seed) throws {
        let database = try TestDatabase()
        var random = SeededRandom(seed: seed)
        try database.run("SET timezone = 'UTC'")
        var matches = 0
        for _ in 0..<150 {
            let unit = random.pick([("s", "seconds"), ("min", "minutes"), ("h", "hours"), ("d", "days")])
            let count = Int.random(in: 0...random.pick([3, 90, 400]), using: &random)
            let sign = random.pick(["-", "+"])
            let comparison = random.pick([("gt", ">"), ("gte", ">="), ("lt", "<"), ("lte", "<=")])
            let slot = Int.random(in: 0..<3, using: &random)
            let (name, type) = [("z", "timestamptz"), ("t", "timestamp"), ("d", "date")][slot]
            let predicate = try Self.predicate("\(name)=\(comparison.0).now\(sign)\(count)\(unit.0)")
            let committed = Self.noon + Int64.random(in: -100_000_000_000...100_000_000_000, using: &random)
            let start = "timestamptz '2000-01-01 00:00:00+00' + interval '\(committed) microseconds'"
            let near = "\(start) \(sign) interval '\(count) \(unit.1)'"
            let distance = random.pick(["0", "1 microsecond", "-1 microsecond", "1 day", "-1 day", "3 hours"])
            let value = random.pick([
                "(\(near) + interval '\(distance)')::\(type)", "'infinity'::\(type)", "'-infinity'::\(type)",
            ])
            let row = try database.connection.query(
                "SELECT (v)::text, (v)::timestamptz \(comparison.1) (\(near)) FROM (SELECT \(value) AS v) AS r", []
            ).first
            let text = try #require(row?[0])
            var values: [TestValue] = [.null, .null, .null, .null]
            values[slot] = .text(text)
            let verdict = predicate.verdict(values, committed: committed)
            #expect((verdict == .yes) == (row?[1] == "t") && verdict != .ask, "\(name) \(text) \(near)")
            if verdict == .yes { matches += 1 }
        }
        #expect(matches > 20, "a test of nothing")
    }
}
