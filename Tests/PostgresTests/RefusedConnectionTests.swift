import TestSupport
import Testing

@testable import Postgres

/// Tests of the facts that are read from a refused connection.
@Suite(.within(minutes: 5)) struct RefusedConnectionTests {
    private static let place = #"connection to server at "127.0.0.1", port 5432 failed: "#

    @Test(
        arguments: [
            (
                place
                    + "FATAL:  28P01: password authentication failed for user \"x\"\nLOCATION:  auth_failed, auth.c:326\n",
                "28P01",
                place + "FATAL:  password authentication failed for user \"x\""
            ),
            (
                place
                    + "SCHWERWIEGEND:  3D000: Datenbank »nowhere« existiert nicht\nLOCATION:  InitPostgres, postinit.c:986\n",
                "3D000", place + "SCHWERWIEGEND:  Datenbank »nowhere« existiert nicht"
            ),
            // libpq has tried with TLS and without. The second attempt counts.
            (
                place + "FATAL:  28000: no entry, SSL on\nLOCATION:  a, b.c:1\n" + place
                    + "FATAL:  53300: sorry\nLOCATION:  a, b.c:1\n",
                "53300", place + "FATAL:  no entry, SSL on; " + place + "FATAL:  sorry"
            ),
            (
                place + "Connection refused\n\tIs the server running on that host and accepting TCP/IP connections?\n",
                nil,
                place + "Connection refused; Is the server running on that host and accepting TCP/IP connections?"
            ),
            ("", nil, ""), ("FATAL:  28P0", nil, "FATAL:  28P0"), (":  28P01: ", "28P01", ":  "),
            // A later part of the server's text may look like a code.
            ("FATAL:  57P03: starting:  28P01: x\n", "57P03", "FATAL:  starting:  28P01: x"),
            ("FATAL:  28p01: in small letters it is none\n", nil, "FATAL:  28p01: in small letters it is none"),
        ] as [(String, String?, String)])
    func `the server's code is taken out of what libpq says`(text: String, state: String?, message: String) {
        let error = PostgresError.refusedConnection(text)
        #expect(error.sqlState == state && error.message == message)
        #expect(error.isConnectionLost && error.operation == "connect")
    }

    private func refusal(_ text: String) -> PostgresError? {
        do throws(PostgresError) {
            _ = try Connection(ConnectionTarget(text))
            return nil
        } catch {
            return error
        }
    }

    @Test func `a server refuses with its code, and one that is not there has none`() throws {
        let database = try TestDatabase()
        let role = "refused_\(UInt32.random(in: 0 ... .max))"
        try database.run("CREATE ROLE \(role) LOGIN PASSWORD 'right'")
        let given = Dictionary(try database.target.parameters()) { $1 }
        let port = try #require(given["port"])
        let place = "host=127.0.0.1 port=\(port) user=\(role)"
        let wrong = refusal("\(place) password=wrong dbname=\(database.name)")
        #expect(wrong?.sqlState == SQLState.invalidPassword && wrong?.message.contains("28P01") == false)
        #expect(wrong?.message.contains("LOCATION") == false && wrong?.lacksPassword == false)
        #expect(refusal("\(place) password=right dbname=nowhere")?.sqlState == SQLState.invalidCatalogName)
        let none = refusal("\(place) dbname=\(database.name)")
        #expect(none?.lacksPassword == true && none?.sqlState == nil)
        #expect(refusal("host=127.0.0.1 port=1 user=x")?.sqlState == nil)
        try database.run("ALTER ROLE \(role) NOLOGIN")
        let barred = refusal("\(place) password=right dbname=\(database.name)")
        #expect(barred?.sqlState == SQLState.invalidAuthorization)
    }

    @Test func `later errors are as terse as before`() throws {
        let connection = try TestDatabase().connection
        do throws(PostgresError) {
            _ = try connection.execute("SELECT nothing")
            Issue.record("there is no such column")
        } catch {
            #expect(
                error.sqlState == "42703" && !error.message.contains("42703") && !error.message.contains("LOCATION"))
        }
    }

    @Test func `what a notice is can be told without its text`() throws {
        let connection = try TestDatabase().connection
        var notices: [PostgresNotice] = []
        _ = try connection.withNotices(&notices) { () throws(PostgresError) in
            try connection.execute("DO $$ BEGIN RAISE WARNING 'of a row' USING ERRCODE = '01ABC'; END $$")
        }
        #expect(notices.map(\.severity) == ["WARNING"] && notices.map(\.sqlState) == ["01ABC"])
    }
}
