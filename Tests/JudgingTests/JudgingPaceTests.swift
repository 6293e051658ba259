import Diagnostics
import Policy
import Postgres
import System
import TestSupport
import Testing

@testable import Catalog
@testable import Judging

/// Measurements of the evaluator's speed. They are printed, and no test depends on them.
@Suite(.serialized, .within(minutes: 10)) struct JudgingPaceTests {
    @Test(arguments: ["jwt", "members"]) func `many pairs are decided`(kind: String) throws {
        let stage = try JudgingStage(
            """
            CREATE TABLE members (room int, member uuid);
            INSERT INTO members SELECT n % 500, ('00000000-0000-4000-8000-' || lpad(to_hex(n % 1000), 12, '0'))::uuid
                FROM generate_series(1, 25000) n;
            CREATE INDEX ON members (member);
            ANALYZE members;
            GRANT SELECT ON members TO READER;
            """)
        let judge = try stage.judge()
        let sql =
            kind == "jwt"
            ? "owner = (SELECT auth.uid())"
            : "room IN (SELECT m.room FROM public.members m WHERE m.member = auth.uid())"
        let policy = try stage.judged(sql, [("owner", "uuid"), ("room", "integer")])
        let subjects = (0..<1000).map { stage.subject(sub: $0) }
        for count in [1, 10, 100, 1000] {
            let rounds = max(3, 30 / count)
            var allowed = 0
            let began = Clock.monotonicNanoseconds()
            for round in 0..<rounds {
                let rows = (0..<count).map { [SampleUUID.text($0), "\(($0 + round) % 500)"] }
                let answers = judge.answers(policy, rows, subjects)
                allowed += answers.reduce(0) { $0 + $1.count { $0 == true } }
            }
            let seconds = Double(Clock.monotonicNanoseconds() - began) / 1e9
            print(kind, count, "rows:", Int(Double(rounds * count * 1000) / seconds), "pairs/s, allowed", allowed)
            #expect(allowed > 0)
        }
        let poisoned = (0..<1000).map { $0 % 10 == 0 ? stage.subject("broken \($0)") : stage.subject(sub: $0) }
        let some = (0..<100).map { [SampleUUID.text($0), "\($0)"] }
        var start = Clock.monotonicNanoseconds()
        _ = judge.answers(policy, some, poisoned)
        start = Clock.monotonicNanoseconds() - start
        print(kind, "100 rows, a tenth of the claims broken:", Int(100 * 1000 / (Double(start) / 1e9)), "pairs/s")
        // Questions arrive as from socket loops: one for each change, without waiting for another's answer.
        let results = (0..<2000).map { _ in Awaited<[PolicyAnswers]>() }
        let began = Clock.monotonicNanoseconds()
        for number in results.indices {
            let rows = [[SampleUUID.text(number % 1000), "\(number % 500)"]]
            judge.ask([PolicyQuestion(policy, rows: rows, subjects: subjects)], seeing: nil) {
                results[number].set($0)
            }
        }
        for result in results { #expect(result.wait()?.first?.unknownCount == 0) }
        let seconds = Double(Clock.monotonicNanoseconds() - began) / 1e9
        print(kind, "stream of single rows:", Int(2000 * 1000 / seconds), "pairs/s")
    }

    @Test func `a storm of joins and of memberships`() throws {
        let stage = try JudgingStage(
            """
            CREATE TABLE members (room int, member uuid);
            INSERT INTO members SELECT n % 500, ('00000000-0000-4000-8000-' || lpad(to_hex(n % 10000), 12, '0'))::uuid
                FROM generate_series(1, 50000) n;
            CREATE INDEX ON members (member);
            ANALYZE members;
            GRANT SELECT ON members TO READER;
            """)
        let judge = try stage.judge()
        let subjects = (0..<10_000).map { stage.subject(sub: $0) }
        let term = AskedTerm(sql: "auth.uid()", type: TypeFacts(oid: 2950, name: "uuid"), isBuiltIn: false)
        _ = judge.value([term], subjects[0])
        let terms = subjects.map { _ in Awaited<[AskedTerm: AskedAnswer]?>() }
        var began = Clock.monotonicNanoseconds()
        for (subject, result) in zip(subjects, terms) { judge.evaluate([term], as: subject) { result.set($0) } }
        for (number, result) in terms.enumerated() {
            #expect(result.wait() == [term: .value(Array(SampleUUID.text(number).utf8))])
        }
        print("10,000 terms:", Double(Clock.monotonicNanoseconds() - began) / 1e6, "ms")
        let membership = Membership(
            table: 0, keySlot: 0, condition: .undecided, reader: .caller,
            fillSQL: "SELECT m.room FROM public.members m WHERE m.member = auth.uid()")
        began = Clock.monotonicNanoseconds()
        let fills = judge.fills(subjects.map { (membership, $0) })
        print("10,000 fills:", Double(Clock.monotonicNanoseconds() - began) / 1e6, "ms")
        let counts = fills.map { fill in
            if case .filled(let filled) = fill { filled.keys.reduce(0) { $0 + $1.count } } else { -1 }
        }
        #expect(counts == Array(repeating: 5, count: 10_000))
    }
}
