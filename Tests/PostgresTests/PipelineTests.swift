import Postgres
import System
import TestSupport
import Testing

@Suite(.within(minutes: 10)) struct PipelineTests {
    private func asked(
        _ connection: Connection, _ statements: [PipelinedStatement], _ prepared: inout Set<String>
    ) throws -> [String] {
        try connection.pipeline(statements, prepared: &prepared, timeoutMilliseconds: 20_000).map { answer in
            switch answer {
            case .success(let rows): (rows.first?.first ?? nil) ?? "none"
            case .failure(let error): error.sqlState ?? "no state"
            }
        }
    }

    @Test func `a statement that fails leaves the others be`() throws {
        let connection = try TestDatabase().connection
        var prepared: Set<String> = []
        let answers = try asked(
            connection,
            [
                PipelinedStatement("SELECT $1::int + 1", ["1"]), PipelinedStatement("SELECT 1 / $1::int", ["0"]),
                PipelinedStatement("nonsense"), PipelinedStatement("SELECT $1::text", ["a\0b"]),
                PipelinedStatement("SELECT $1::text", [nil]), PipelinedStatement("SELECT 'last'"),
            ], &prepared)
        #expect(answers == ["2", "22012", "42601", "22021", "none", "last"])
        #expect(try connection.query("SELECT 'still usable'").first == ["still usable"])
    }

    @Test func `a prepared statement is prepared once, and one that cannot be is tried again`() throws {
        let connection = try TestDatabase().connection
        var prepared: Set<String> = []
        let good = PipelinedStatement("SELECT $1::int * 2", ["4"], preparedAs: "good")
        let bad = PipelinedStatement("SELECT * FROM no_such_table", preparedAs: "bad")
        #expect(try asked(connection, [good, bad, good], &prepared) == ["8", "42P01", "8"])
        #expect(prepared == ["good"])
        #expect(try asked(connection, [bad, good], &prepared) == ["42P01", "8"])
        let known = try connection.query("SELECT count(*) FROM pg_prepared_statements")
        #expect(known.first == ["1"])
    }

    @Test func `more than any buffer holds goes both ways`() throws {
        let connection = try TestDatabase().connection
        var prepared: Set<String> = []
        let large = String(repeating: "x", count: 100_000)
        let statements = (0..<300).map { PipelinedStatement("SELECT $1::text || \($0)", [large]) }
        let answers = try asked(connection, statements, &prepared)
        #expect(answers.map(\.utf8.count) == (0..<300).map { large.utf8.count + String($0).utf8.count })
    }

    @Test func `a server that says nothing is given up`() throws {
        let connection = try TestDatabase().connection
        var prepared: Set<String> = []
        #expect(throws: PostgresError.self) {
            try connection.pipeline(
                [PipelinedStatement("SELECT pg_sleep(600)")], prepared: &prepared, timeoutMilliseconds: 50)
        }
    }

    @Test func `the interrupt ends the wait`() throws {
        let connection = try TestDatabase().connection
        let interrupt = try Wake()
        interrupt.ring()
        var prepared: Set<String> = []
        #expect(throws: PostgresError.self) {
            try connection.pipeline(
                [PipelinedStatement("SELECT pg_sleep(600)")], prepared: &prepared, timeoutMilliseconds: 600_000,
                interrupt: interrupt)
        }
    }
}
