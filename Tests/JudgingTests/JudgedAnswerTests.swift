import Asking
import Change
import Diagnostics
import Policy
import Synchronization
import TestSupport
import Testing

@testable import Catalog
@testable import Judging
@testable import Postgres

/// Tests of the reading of PostgreSQL's answers: an unexpected answer must never count as yes.
@Suite(.serialized, .within(minutes: 2)) struct JudgedAnswerTests {
    private final class Heard: Sendable {
        private let answers = Mutex<PolicyAnswers?>(nil)
        var all: PolicyAnswers? { answers.withLock { $0 } }
        func hear(_ given: PolicyAnswers) { answers.withLock { $0 = given } }
    }

    private let policy = JudgedPolicy(
        role: "r",
        row: JudgedRow(relation: "t", schema: "s", columns: [JudgedRow.Column(slot: 0, name: "a", type: "text")]),
        table: 1, sql: "true", version: 1)

    private func broken() -> UInt64 { Impossible.states[.judging].value }

    /// Returns the answers for three rows, for each subject, if the statement about all subjects returned `found`.
    private func judged(_ found: [[String?]]) throws -> [[Bool?]] {
        let answers = try given(found)
        return (0..<2).map { subject in (0..<3).map { answers[$0, subject] } }
    }

    private func given(_ found: [[String?]]) throws -> PolicyAnswers {
        let heard = Heard()
        let subjects = ["x", "y"].map { PolicySubject(role: "r", claims: $0, identity: 0) }
        let question = PolicyQuestion(policy, rows: [["1"], ["2"], ["3"]], subjects: subjects)
        let reply = Reply(in: .judging, unanswered: PolicyAnswers(question)) { heard.hear($0) }
        let job = JudgingJob(key: .policy(policy.identity), work: .rows(question, reply), ProjectMetrics())
        var table = try #require(PolicyTable.tables(of: [job]).first)
        table.take(found, rows: 0..<3, claims: 0..<2)
        table.finish(by: nil)
        return try #require(heard.all)
    }

    /// Checks a policy that reads only some columns: the hub asks about each combination of their values once, and each
    /// row gets the right answer.
    @Test(arguments: [
        (needed: [true, false], asked: 2), ([false, true], 3), ([true, true], 3), ([false, false], 1),
    ])
    func `rows that are the same to a policy are asked about once`(needed: [Bool], asked: Int) throws {
        let columns = needed.enumerated().map { JudgedRow.Column(slot: $0, name: "c\($0)", type: "text", isNeeded: $1) }
        let policy = JudgedPolicy(
            role: "r", row: JudgedRow(relation: "t", schema: "s", columns: columns), table: 1, sql: "true", version: 1)
        let rows: [[String?]] = [["a", "1"], ["b", "2"], ["a", "3"]]
        let heard = Heard()
        let question = PolicyQuestion(
            policy, rows: rows, subjects: [PolicySubject(role: "r", claims: "x", identity: 0)])
        let reply = Reply(in: .judging, unanswered: PolicyAnswers(question)) { heard.hear($0) }
        let job = JudgingJob(key: .policy(policy.identity), work: .rows(question, reply), ProjectMetrics())
        var table = try #require(PolicyTable.tables(of: [job]).first)
        #expect(table.rows == Array(rows[..<asked]))
        table.take([["1", nil, nil, "1"]], rows: 0..<asked, claims: 0..<1)
        table.finish(by: nil)
        let answers = try #require(heard.all)
        let isTheFirst = rows.map { row in zip(needed, zip(row, rows[0])).allSatisfy { !$0 || $1.0 == $1.1 } }
        #expect(rows.indices.map { answers[$0, 0] } == isTheFirst)
    }

    /// Checks that a failure counts only if the policy, its table and all definitions are still as the session knew
    /// them.
    @Test(arguments: [true, false], [true, false])
    func `a failure counts only under the same definitions`(isCurrent: Bool, isOfTheTable: Bool) {
        let definitions = DefinitionsVersion()
        let question = PolicyQuestion(
            policy, rows: [["1"]], subjects: [PolicySubject(role: "r", claims: "x", identity: 0)])
        var answers = PolicyAnswers(question, by: definitions.current)
        answers.fail(0, 0)
        if !isCurrent { definitions.advance() }
        #expect(answers.areOutdated == !isCurrent)
        let name = isOfTheTable ? "a" : "b"
        let column = CatalogColumn(
            facts: ColumnFacts(name: name, type: TypeFacts(oid: 25, name: "text")), number: 1, typeOID: 25,
            typeName: "text", declaredType: "text", rendering: .scalar(oid: 25))
        let table = CatalogTable(
            oid: 1, schema: "s", name: "t", columns: [column], primaryKey: [], identity: .full, hasRowSecurity: true,
            forcesRowSecurity: false, hasPolicies: true, operations: .all)
        let snapshot = CatalogSnapshot(
            version: 1, publication: "p", tables: [table], text: .plainUTF8,
            policies: PolicyBook(policies: [:], tables: [], version: 1))
        answers.forgetFailures(of: policy, unlessSameIn: snapshot)
        #expect(answers.hasFailures == (isCurrent && isOfTheTable) && answers[0, 0] == nil)
    }

    @Test func `who has no row may read nothing, and what is left out is no`() throws {
        #expect(try judged([["2", nil, nil, "01"]]) == [[false, false, false], [false, true, false]])
    }

    @Test func `one row's failure is that row's`() throws {
        let answers = try judged([
            ["1", nil, "22P02", nil], ["1", "1", nil, "1"], ["1", "2", "22P02", nil], ["2", "0", "22P02", nil],
        ])
        #expect(answers == [[true, nil, false], [nil, nil, nil]])
    }

    @Test func `errors that pass, and rows that cannot be made, are no failures of the policy`() throws {
        func failures(_ state: String) throws -> [Bool] {
            try [["1", nil, state, nil], ["1", "1", state, nil]].map { try given([$0]).hasFailed(0, 0) }
        }
        for state in ["22P02", "P0001", "42501"] { #expect(try failures(state) == [false, true]) }
        for state in ["55P03", "53200", ClaimsScript.unmade] { #expect(try failures(state) == [false, false]) }
    }

    @Test func `an answer about somebody else is nobody's`() throws {
        for row in [["3", nil, nil, "111"], ["0", nil, nil, "111"], ["x", nil, nil, "111"]] {
            let before = broken()
            #expect(try judged([["1", nil, nil, "111"], row]) == [[nil, nil, nil], [nil, nil, nil]])
            #expect(broken() == before + 1)
        }
    }

    @Test func `an answer about more rows than were asked about is none`() throws {
        let before = broken()
        #expect(
            try judged([["1", nil, nil, "1111"], ["2", nil, nil, "1"]]) == [[nil, nil, nil], [true, false, false]])
        #expect(broken() == before + 1)
    }

    @Test func `a loop's answer has its form, and is about those in the statement`() throws {
        let loop = ClaimsScript(filling: "SELECT 1", as: nil, limit: 1)
        let snapshot = try #require(VisibleTransactions("1:1:"))
        func check(_ row: [String?]) throws(PostgresError) {
            try ScriptOutcome.Answers(rows: [row], snapshot: snapshot, position: .zero).check(claims: 2, loop)
        }
        try check(["2", nil, nil, "key", "1"])
        for row in [
            ["3", nil, nil, "key", "1"], ["0", nil, nil, "key", "1"], [nil, nil, nil, "key", "1"], ["1", nil, nil],
        ] {
            #expect(throws: PostgresError.self) { try check(row) }
        }
    }

    @Test func `only a count says that a row can be seen`() {
        func seen(_ values: [[String?]]) -> Bool? {
            RowVisibilityQuestion.isVisible(.success(Rows(columns: ["count"], values: values)))
        }
        #expect(seen([["1"]]) == true && seen([["0"]]) == false)
        #expect(seen([]) == nil && seen([[nil]]) == nil && seen([["x"]]) == nil && seen([[]]) == nil)
        #expect(RowVisibilityQuestion.isVisible(.failure(PostgresError(operation: "look", message: "no"))) == nil)
    }
}
