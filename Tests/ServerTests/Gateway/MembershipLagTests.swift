import Catalog
import Diagnostics
import Embedded
import Postgres
import System
import TestSupport
import Testing

@testable import Server

extension GatewayHistories {
    /// Tests that the hub uses the memberships of the row's own transaction, even if the hub lags and the catalog has
    /// changed since.
    @Suite(.serialized) struct MembershipLagTests {
        private static let tables = """
            CREATE TABLE notes (id int PRIMARY KEY, team int, body text);
            CREATE TABLE members (team int, person uuid, PRIMARY KEY (team, person));
            CREATE TABLE others (id int PRIMARY KEY, body text);
            CREATE TABLE fences (id int PRIMARY KEY);
            ALTER TABLE notes REPLICA IDENTITY FULL; ALTER TABLE members REPLICA IDENTITY FULL;
            ALTER TABLE notes ENABLE ROW LEVEL SECURITY; ALTER TABLE others ENABLE ROW LEVEL SECURITY;
            CREATE POLICY team ON notes FOR SELECT USING (
                team IN (SELECT m.team FROM members m WHERE m.person = auth.uid()));
            CREATE POLICY all_of_it ON others FOR SELECT USING (id > 0);
            CREATE FUNCTION unrelated() RETURNS int LANGUAGE sql AS 'SELECT 1';
            GRANT SELECT ON notes, members, others, fences TO READER;
            """

        private func stage(on cluster: PrivateCluster? = nil) throws -> GatewayStage {
            let stage = try GatewayStage(
                Self.tables + SQLFile.extras.map(\.text).joined(separator: "\n"),
                publication: "FOR TABLE notes, others, fences", followed: "members", on: cluster)
            // Until the hub follows the table, it asks PostgreSQL, which answers with the current members.
            let someone = try user(9, stage)
            #expect(eventually { stage.hub.follows("members") })
            var round = 0
            let isJudgedByMemberships = try eventually {
                round -= 1
                try stage.run(make(9) + "INSERT INTO notes VALUES (\(round), 1); INSERT INTO fences VALUES (\(round))")
                return try heard(someone, round) == [round]
            }
            #expect(isJudgedByMemberships)
            someone.hangUp()
            return stage
        }

        private func user(_ number: Int, _ stage: GatewayStage) throws -> Caller {
            let caller = try stage.caller()
            try caller.subscribe("realtime:a", [binding("notes"), binding("fences")], token: stage.token(of: number))
            return caller
        }

        /// Returns the notes that the caller has received so far.
        private func heard(_ caller: Caller, _ fence: Int) throws -> [Int] {
            var heard: [Int] = []
            while true {
                let change = try caller.change()
                guard change.data["table"] as? String == "fences" else {
                    heard.append(change.id ?? 0)
                    continue
                }
                if change.id == fence { return heard }
            }
        }

        private func make(_ user: Int, memberOf team: Int = 1) -> String {
            "DELETE FROM members; INSERT INTO members VALUES (\(team), '\(GatewayStage.user(user))');"
        }

        /// Waits until the hub has no reason to read the catalog again.
        private func awaitSettledCatalog() {
            let settled = Clock.monotonicNanoseconds() + 10 * Limits.catalogSettlingDelay.wholeNanoseconds
            #expect(eventually { Clock.monotonicNanoseconds() > settled })
        }

        /// Runs the body while the hub makes no progress: an entry in the log needs the catalog, and a lock keeps the
        /// hub from reading it.
        private func whileBehind(_ stage: GatewayStage, _ round: Int, _ body: () throws -> Void) throws {
            let holding = try stage.database.cluster.connect(database: stage.database.name)
            try holding.execute("BEGIN; LOCK TABLE pg_catalog.pg_publication_rel IN ACCESS EXCLUSIVE MODE")
            try stage.run("CREATE FUNCTION behind_\(round)() RETURNS int LANGUAGE sql AS 'SELECT 1'")
            try body()
            try holding.execute("COMMIT")
        }

        private static let changes = [
            "SELECT 1", "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "CREATE OR REPLACE FUNCTION unrelated() RETURNS int LANGUAGE sql AS 'SELECT 2'",
            "REVOKE EXECUTE ON FUNCTION unrelated() FROM PUBLIC", "ALTER POLICY all_of_it ON others USING (id > 1)",
            "CREATE POLICY more ON others USING (id = 7)", "ALTER TABLE others ADD COLUMN extra int",
            "ALTER TABLE others DROP COLUMN body", "ALTER TABLE others REPLICA IDENTITY FULL",
            "CREATE TABLE another (id int)", "GRANT SELECT ON others TO OUTSIDER", "CREATE SCHEMA elsewhere",
            "CREATE TYPE mood AS ENUM ('a')", "ALTER TABLE notes ADD COLUMN extra int",
            "ALTER TABLE members ADD COLUMN extra text", "ALTER TABLE members DROP COLUMN extra",
            "CREATE INDEX ON members (person)", "VACUUM FULL members", "ALTER TABLE members ALTER team SET NOT NULL",
            "ALTER POLICY team ON notes USING (team > 0 AND team IN (SELECT m.team FROM members m WHERE m.person = auth.uid()))",
            "GRANT SELECT ON members TO OUTSIDER", "ALTER TABLE members RENAME CONSTRAINT members_pkey TO other",
        ]

        @Test func `who was a member then hears of the row, and who became one later does not`() throws {
            let stage = try stage()
            let (one, two) = (try user(1, stage), try user(2, stage))
            for (round, change) in Self.changes.enumerated() {
                try stage.run(make(1))
                try whileBehind(stage, round) {
                    try stage.run("INSERT INTO notes VALUES (\(3 * round + 1), 1)")
                    try stage.run(make(2))
                    try stage.run("INSERT INTO notes VALUES (\(3 * round + 2), 1)")
                    try stage.run(change)
                    try stage.run("INSERT INTO notes VALUES (\(3 * round + 3), 1)")
                }
                try stage.run("INSERT INTO fences VALUES (\(round))")
                #expect(try heard(one, round) == [3 * round + 1], "\(change)")
                #expect(try heard(two, round) == [3 * round + 2, 3 * round + 3], "\(change)")
            }
            #expect((one.takeUnheard() + two.takeUnheard()).allSatisfy { !$0.isTrouble })
        }

        @Test func `the loss of any of the hub's own connections changes nothing of that`() throws {
            let stage = try stage()
            let (one, two) = (try user(1, stage), try user(2, stage))
            for (round, connection) in ["bindings", "catalog", "policies", "memberships", "judge"].enumerated() {
                try stage.run(make(1))
                try whileBehind(stage, round) {
                    try stage.run("INSERT INTO notes VALUES (\(2 * round + 1), 1)")
                    try stage.run(make(2))
                    try stage.run(
                        """
                        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                        WHERE application_name = 'tidewire \(connection)' AND datname = current_database()
                        """)
                    try stage.run("INSERT INTO notes VALUES (\(2 * round + 2), 1)")
                }
                try stage.run("INSERT INTO fences VALUES (\(round))")
                #expect(try heard(one, round) == [2 * round + 1], "\(connection)")
                #expect(try heard(two, round) == [2 * round + 2], "\(connection)")
            }
        }

        /// Checks a policy with a function that reads a locked table. The hub cannot read the function itself. Later,
        /// PostgreSQL would answer with the members of that time.
        @Test func `rows whose policies cannot be read for a lock wait for it`() throws {
            let stage = try stage()
            try stage.run(
                """
                CREATE FUNCTION in_team(wanted int) RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER SET search_path = '' AS
                    'SELECT EXISTS (SELECT FROM public.members m WHERE m.team = wanted AND m.person = auth.uid())';
                ALTER POLICY team ON notes USING (in_team(team));
                GRANT SELECT ON members TO HUB;
                """)
            let (one, two) = (try user(1, stage), try user(2, stage))
            for round in 0..<3 {
                try stage.run(make(1))
                let holding = try stage.database.cluster.connect(database: stage.database.name)
                try holding.execute("BEGIN; LOCK TABLE members IN ACCESS EXCLUSIVE MODE")
                try stage.run("CREATE FUNCTION beside_\(round)() RETURNS int LANGUAGE sql AS 'SELECT 1'")
                #expect(eventually { stage.hub.hasUnsettledPolicies })
                try stage.run("INSERT INTO notes VALUES (\(2 * round + 1), 1)")
                try holding.execute(make(2) + "COMMIT")
                try stage.run("INSERT INTO notes VALUES (\(2 * round + 2), 1); INSERT INTO fences VALUES (\(round))")
                let (ofOne, ofTwo) = (try heard(one, round), try heard(two, round))
                #expect(ofOne == [2 * round + 1])
                #expect(ofTwo == [2 * round + 2])
            }
            #expect((one.takeUnheard() + two.takeUnheard()).allSatisfy { !$0.isTrouble })
        }

        /// Checks a channel whose client has the reply to its join but whose bindings are not in place. The log waits
        /// for this channel, and other channels wait with it, but only for a limited time.
        @Test func `a join whose memberships cannot be read holds up the others for a while only, and is told`() throws
        {
            // The test uses its own cluster: roles of other tests make the hub read the catalog, and the reading would
            // wait for the lock.
            let cluster = try TestCluster.fresh()
            defer { cluster.stop() }
            let stage = try stage(on: cluster)
            let other = try stage.caller()
            try other.subscribe("realtime:a", [binding("fences")], token: stage.token(of: 3))
            try stage.run(make(1))
            // The hub has already read the stage's own definitions.
            try stage.run("INSERT INTO fences VALUES (0)")
            #expect(try other.change().id == 0)
            awaitSettledCatalog()
            let holding = try stage.database.cluster.connect(database: stage.database.name)
            try holding.execute("BEGIN; LOCK TABLE members IN ACCESS EXCLUSIVE MODE")
            let late = try stage.caller()
            try late.join("realtime:a", [binding("notes"), binding("fences")], token: stage.token(of: 1))
            try stage.run("INSERT INTO fences VALUES (1)")
            #expect(try other.change().id == 1)
            // The channel missed the changes before its bindings were in place. So its client receives a notice at the
            // end of the wait.
            _ = try late.first { $0.isTrouble }
            try holding.execute("COMMIT")
            _ = try late.first { $0.isSubscription }
            _ = try late.first { $0.isTrouble }
            try stage.run("INSERT INTO notes VALUES (1, 1); INSERT INTO fences VALUES (2)")
            #expect(try heard(late, 2) == [1])
        }

        /// Checks that a client whose role may not read the memberships sees rows as soon as the role gets that right.
        @Test func `a right to read memberships counts from its grant on`() throws {
            let stage = try stage()
            try stage.run("REVOKE SELECT ON members FROM READER;" + make(1))
            try stage.awaitCatalog()
            let one = try user(1, stage)
            try stage.run("INSERT INTO notes VALUES (1, 1); INSERT INTO fences VALUES (1)")
            #expect(try heard(one, 1).isEmpty)
            try stage.run("GRANT SELECT ON members TO READER")
            try stage.run("INSERT INTO notes VALUES (2, 1); INSERT INTO fences VALUES (2)")
            #expect(try heard(one, 2) == [2])
        }

        /// Checks that the hub follows memberships as soon as a grant lets it read them.
        @Test func `memberships that the hub may read later are followed from then on`() throws {
            let stage = try stage()
            try stage.run(
                """
                CREATE FUNCTION in_team(wanted int) RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER SET search_path = '' AS
                    'SELECT EXISTS (SELECT FROM public.members m WHERE m.team = wanted AND m.person = auth.uid())';
                ALTER POLICY team ON notes USING (in_team(team));
                REVOKE SELECT ON members FROM HUB;
                """ + make(1))
            try stage.awaitCatalog()
            let one = try user(1, stage)
            try stage.run("INSERT INTO notes VALUES (1, 1); INSERT INTO fences VALUES (1)")
            #expect(try heard(one, 1) == [1])
            try stage.run("GRANT SELECT ON members TO HUB")
            try stage.awaitCatalog()
            try whileBehind(stage, 2) {
                try stage.run("INSERT INTO notes VALUES (2, 1)")
                try stage.run(make(2))
            }
            try stage.run("INSERT INTO fences VALUES (2)")
            #expect(try heard(one, 2) == [2])
        }

        /// Returns a client that joined while the members' table had another name. The hub cannot read the catalog
        /// during that time. So only the question about the client's memberships fails because of the name.
        private func joined(_ number: Int, whileRenamedIn stage: GatewayStage) throws -> Caller {
            let renaming = try stage.database.cluster.connect(database: stage.database.name)
            let holding = try stage.database.cluster.connect(database: stage.database.name)
            try renaming.execute("BEGIN; ALTER TABLE members RENAME TO crew")
            let late = try stage.caller()
            try late.join("realtime:a", [binding("notes"), binding("fences")], token: stage.token(of: number))
            let waits = """
                SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()
                    AND application_name IN ('tidewire memberships', 'tidewire policies')
                """
            #expect(try eventually { try stage.database.value(waits) != "0" })
            let asked = stage.metrics.membershipFills.value
            try holding.execute("BEGIN; LOCK TABLE pg_catalog.pg_publication_rel IN ACCESS EXCLUSIVE MODE")
            try renaming.execute("COMMIT")
            #expect(eventually { stage.metrics.membershipFills.value > asked })
            try renaming.execute("ALTER TABLE crew RENAME TO members")
            try holding.execute("COMMIT")
            _ = try late.first { $0.isSubscription }
            return late
        }

        /// Checks that a table name which lasted a moment does not decide about a client's rows for as long as the
        /// client is connected.
        @Test(arguments: [true, false])
        func `memberships whose table had another name for a moment are followed`(isOfDefiner: Bool) throws {
            // The test uses its own cluster, because roles of other tests make the hub read the catalog.
            let cluster = try TestCluster.fresh()
            defer { cluster.stop() }
            let stage = try stage(on: cluster)
            if isOfDefiner {
                try stage.run(
                    """
                    CREATE FUNCTION in_team(wanted int) RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER
                        SET search_path = '' AS
                        'SELECT EXISTS (SELECT FROM public.members m WHERE m.team = wanted AND m.person = auth.uid())';
                    ALTER POLICY team ON notes USING (in_team(team));
                    GRANT SELECT ON members TO HUB;
                    """)
            }
            try stage.run(make(1))
            try stage.awaitCatalog()
            awaitSettledCatalog()
            let one = try joined(1, whileRenamedIn: stage)
            try stage.awaitCatalog()
            for round in 1...3 {
                try stage.run(make(1) + "INSERT INTO fences VALUES (\(2 * round))")
                _ = try heard(one, 2 * round)
                try whileBehind(stage, round) {
                    try stage.run("INSERT INTO notes VALUES (\(round), 1)")
                    try stage.run(make(2))
                }
                try stage.run("INSERT INTO fences VALUES (\(2 * round + 1))")
                #expect(try heard(one, 2 * round + 1) == [round])
            }
        }

        /// Checks that a client that joins late misses nothing. When the rows were written, it was no member, or it had
        /// not joined.
        @Test func `who joins while the hub is behind hears nothing of before it was a member`() throws {
            let stage = try stage()
            try stage.run(make(1))
            let one = try user(1, stage)
            let late = try stage.caller()
            try whileBehind(stage, 0) {
                try stage.run("INSERT INTO notes VALUES (1, 1)")
                try stage.run(make(2))
                try late.join("realtime:a", [binding("notes"), binding("fences")], token: stage.token(of: 2))
            }
            _ = try late.first { $0.isSubscription }
            try stage.run("INSERT INTO notes VALUES (2, 1); INSERT INTO fences VALUES (1)")
            let ofOne = try heard(one, 1)
            #expect(ofOne == [1] || ofOne.isEmpty && one.takeUnheard().contains { $0.isTrouble })
            #expect(try heard(late, 1) == [2])
        }

        /// Checks rows for which the members at their commit cannot be determined. The hub tells clients about them,
        /// and no client receives rows that it must not see.
        @Test func `where memberships mean something else now, rows from before are told to be missing`() throws {
            let stage = try stage()
            let (one, two) = (try user(1, stage), try user(2, stage))
            try stage.run(make(1, memberOf: 1))
            try stage.run("INSERT INTO fences VALUES (0)")
            _ = (try heard(one, 0), try heard(two, 0))
            try whileBehind(stage, 0) {
                try stage.run(
                    "ALTER POLICY team ON notes USING (team IN (SELECT m.team FROM members m WHERE m.person = auth.uid() AND m.team <> 5))"
                )
                try stage.run("INSERT INTO notes VALUES (1, 1)")
                try stage.run(make(2))
            }
            try stage.run("INSERT INTO notes VALUES (2, 1); INSERT INTO fences VALUES (1)")
            let (ofOne, ofTwo) = (try heard(one, 1), try heard(two, 1))
            #expect(ofTwo == [2])
            #expect(ofOne == [1] || ofOne.isEmpty && one.takeUnheard().contains { $0.isTrouble })
        }
    }
}
