import Asking
import Diagnostics
import Policy
import Postgres
import System
import TestSupport
import Testing

@testable import Embedded
@testable import Judging

@Suite(.within(minutes: 10)) struct JudgeTests {
    private func question(_ sql: String, _ constants: [String] = []) -> Question {
        Question(sql: sql, slots: [0], constants: constants)
    }

    @Test func `answers are those of the same SQL`() throws {
        let database = try TestDatabase()
        let judge = try FilterEvaluator(database.target)
        defer { judge.stop() }
        let values: [String?] = ["1", "2", nil, "10", "not a number", "-5", "99999999999"]
        let questions = [
            question("(CAST($1 AS integer) > CAST($2 AS integer))", ["1"]),
            question("(NOT (CAST($1 AS integer) = ANY (CAST($2 AS integer[]))))", ["{2,10}"]),
            question("(CAST($1 AS text) ~~ CAST($2 AS text))", ["1%"]),
            question("(CAST($1 AS numeric) IS NULL)"),
            question("(1 / (CAST($1 AS integer) - 1) = 1)"),
            question("this is no SQL"),
            question("(CAST($1 AS no_such_type) IS NULL)"),
        ]
        let asked = questions.flatMap { question in values.map { JudgedQuestion(question, values: [$0]) } }
        let answers = try #require(ask(judge, asked))
        for (asked, answer) in zip(asked, answers) {
            // The expected answer is that of a single statement, without preparation.
            let expected: Bool?
            do throws(PostgresError) {
                let parameters = asked.values + asked.question.constants
                expected = try database.connection.query("SELECT " + asked.question.sql, parameters).first?.first == "t"
            } catch {
                expected = nil
            }
            #expect(answer == expected, "\(asked)")
        }
        #expect(answers.contains(true) && answers.contains(false) && answers.contains(nil))
    }

    @Test func `a filter's own questions are answered`() throws {
        let database = try TestDatabase()
        let judge = try FilterEvaluator(database.target)
        defer { judge.stop() }
        let filter = try #require(
            try Filter.parse("subject=match.^a+$", within: Filter.Bounds(bytes: 100, conditions: 10, depth: 1)))
        let column = ColumnFacts(
            name: "subject", type: TypeFacts(oid: 25, name: "text"), collation: .deterministic(name: nil))
        let check = try FilterCheck(
            filter, columns: [column],
            settings: FilterCheck.Settings(
                maximumListElements: 100, maximumKeys: 1000, maximumWork: 1 << 20, text: .plainUTF8))
        let predicate = try Predicate(check, canonical: ["^a+$"])
        let question = try #require(predicate.question)
        let texts: [String?] = ["aaa", "aab", nil, "", "a\0"]
        #expect(ask(judge, texts.map { JudgedQuestion(question, values: [$0]) }) == [true, false, false, false, nil])
    }

    @Test func `many more than fit a round trip are answered in order`() throws {
        let judge = try FilterEvaluator(try TestDatabase().target)
        defer { judge.stop() }
        let asked = (0..<3000).map { number in
            // This needs more statements than the evaluator keeps prepared.
            JudgedQuestion(
                question("(CAST($1 AS integer) % 2 = \(number % 2) AND \(number % 700) >= 0)"),
                values: ["\(number / 3)"])
        }
        let answers = ask(judge, asked)
        #expect(answers == (0..<3000).map { ($0 / 3) % 2 == $0 % 2 })
    }

    @Test func `large values are asked about, and too many of them are refused`() throws {
        let judge = try FilterEvaluator(try TestDatabase().target)
        defer { judge.stop() }
        let length = question("(length(CAST($1 AS text)) = 3000000)")
        let large = (0..<5).map { number in
            JudgedQuestion(length, values: [String(repeating: "x", count: 3_000_000 + number % 2)])
        }
        #expect(ask(judge, large) == [true, false, true, false, true])
        #expect(ask(judge, Array(repeating: large[0], count: 30)) == Array(repeating: nil, count: 30))
    }

    @Test func `a question that takes too long fails alone, and is not asked again at once`() throws {
        let database = try TestDatabase()
        let judge = try FilterEvaluator(database.target)
        defer { judge.stop() }
        let slow = JudgedQuestion(question("(pg_sleep(60) IS NULL OR CAST($1 AS integer) = 1)"), values: ["1"])
        let quick = JudgedQuestion(question("(CAST($1 AS integer) = 1)"), values: ["1"])
        #expect(ask(judge, [quick, slow, quick]) == [true, nil, true])
        #expect(ask(judge, [slow, quick]) == [nil, true])
        let statements = try database.value(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tidewire judge' AND state = 'active' "
                + "AND datname = current_database()")
        #expect(statements == "0")
    }

    @Test func `nothing can be written`() throws {
        let database = try TestDatabase()
        try database.run(
            """
            CREATE TABLE public.t (x int);
            CREATE FUNCTION public.f(int) RETURNS bool LANGUAGE sql AS 'INSERT INTO public.t VALUES ($1) RETURNING true';
            """)
        let judge = try FilterEvaluator(database.target)
        defer { judge.stop() }
        #expect(ask(judge, [JudgedQuestion(question("public.f(CAST($1 AS integer))"), values: ["1"])]) == [nil])
        #expect(try database.value("SELECT count(*) FROM public.t") == "0")
    }

    @Test func `a connection that is cut is made again, and what was asked is asked again`() throws {
        let database = try TestDatabase()
        let judge = try FilterEvaluator(database.target)
        defer { judge.stop() }
        let asked = JudgedQuestion(question("(CAST($1 AS integer) = 1)"), values: ["1"])
        for _ in 0..<3 {
            #expect(ask(judge, [asked]) == [true])
            try database.run(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tidewire judge' "
                    + "AND datname = current_database()")
        }
        #expect(ask(judge, [asked]) == [true])
    }

    @Test func `stopping answers those who wait`() throws {
        let judge = try FilterEvaluator(try TestDatabase().target)
        let asked = JudgedQuestion(question("(CAST($1 AS integer) = 1)"), values: ["1"])
        #expect(ask(judge, [asked]) == [true])
        judge.stop()
        #expect(ask(judge, [asked]) == [nil])
    }

    @Test func `too many at once are refused at once`() throws {
        let judge = try FilterEvaluator(try TestDatabase().target)
        defer { judge.stop() }
        let asked = JudgedQuestion(question("(CAST($1 AS integer) = 1)"), values: ["1"])
        let answers = ask(judge, Array(repeating: asked, count: 65_537))
        #expect(answers == Array(repeating: nil, count: 65_537))
    }

    @Test func `a question waits for a database that is away for a moment`() throws {
        let cluster = try TestCluster.fresh()
        defer { cluster.stop() }
        let judge = try FilterEvaluator(try TestDatabase(on: cluster).target)
        defer { judge.stop() }
        let asked = JudgedQuestion(question("(CAST($1 AS integer) = 1)"), values: ["1"])
        #expect(ask(judge, [asked]) == [true])
        cluster.stop()
        let answer = Awaited<[Bool?]>()
        judge.ask([asked]) { answer.set($0) }
        // The port stays the same unless another process has taken it.
        try cluster.start()
        #expect(answer.wait() == [true])
    }

    @Test func `nobody waits for a database longer than that`() {
        let job = JudgeJob(.questions([], Reply(in: .judging, unanswered: []) { _ in }), ProjectMetrics())
        let now = Clock.monotonicNanoseconds()
        #expect(job.mayWait(now))
        #expect(!job.mayWait(now + Limits.outagePatience.wholeNanoseconds))
        job.giveUp()
    }
}

func ask(_ judge: FilterEvaluator, _ questions: [JudgedQuestion]) -> [Bool?]? {
    let answer = Awaited<[Bool?]>()
    judge.ask(questions) { answer.set($0) }
    return answer.wait()
}
