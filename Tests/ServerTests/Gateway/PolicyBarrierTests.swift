import TestSupport
import Testing

@testable import Server

extension GatewayPolicies {
    /// Tests that the hub evaluates each row by policies that are at least as new as the row.
    @Suite struct PolicyBarrierTests {
        @Test func `a row is judged by the policy that was made just before it`() throws {
            let stage = try GatewayStage(
                """
                CREATE TABLE notes (id int PRIMARY KEY, body text); GRANT SELECT ON notes TO READER;
                ALTER TABLE notes ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON notes USING (id = 1);
                """, publication: "FOR TABLE notes")
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("notes")])
            for step in 1...12 {
                // This policy alone decides which row is hidden and which is shown.
                try stage.run("ALTER POLICY p ON notes USING (id = \(step * 10))")
                try stage.run("INSERT INTO notes VALUES (\(step * 10 + 1), 'hidden'), (\(step * 10), 'seen')")
                #expect(try caller.change().id == step * 10)
            }
        }
    }
}
