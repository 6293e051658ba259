import Diagnostics
import Postgres
import System
import TestSupport
import Testing

@testable import Server
@testable import Settings

extension GatewayPolicies {
    /// Tests that each client receives exactly the rows that policies show it.
    @Suite(.serialized) struct RowSecurityTests {
        private static let tables = """
            CREATE TABLE notes (id int PRIMARY KEY, owner uuid, kind text, body text);
            ALTER TABLE notes REPLICA IDENTITY FULL;
            ALTER TABLE notes ENABLE ROW LEVEL SECURITY;
            CREATE TABLE members (team int, person uuid, role text DEFAULT 'reader', PRIMARY KEY (team, person));
            ALTER TABLE members REPLICA IDENTITY FULL;
            CREATE TABLE fences (id int PRIMARY KEY);
            GRANT SELECT ON notes, members, fences TO READER;
            """

        private func stage(_ policies: String, _ settings: [(Setting, String)] = []) throws -> GatewayStage {
            try GatewayStage(
                Self.tables + policies, publication: "FOR TABLE notes, fences", followed: "members", settings)
        }

        /// Returns a client of the user that follows `notes` and `fences`.
        private func user(
            _ number: Int, _ stage: GatewayStage, _ notes: [String] = [binding("notes")], more: String = ""
        ) throws -> Caller {
            let caller = try stage.caller()
            try caller.subscribe(
                "realtime:a", notes + [binding("fences")], token: stage.token(of: number), more: more)
            return caller
        }

        /// Returns all messages about `notes` that the client has received so far.
        private func heard(_ caller: Caller, _ stage: GatewayStage) throws -> [Message] {
            fence += 1
            try stage.run("INSERT INTO fences VALUES (\(fence))")
            var heard: [Message] = []
            while true {
                let change = try caller.change()
                if change.data["table"] as? String == "fences" {
                    if change.id == fence { return heard }
                } else {
                    heard.append(change)
                }
            }
        }

        private static func insert(_ id: Int, _ owner: Int, _ kind: String = "x", _ body: String = "b") -> String {
            "INSERT INTO notes VALUES (\(id), '\(GatewayStage.user(owner))', '\(kind)', '\(body)');"
        }

        private static let owners = "CREATE POLICY own ON notes FOR SELECT USING (owner = auth.uid());"

        @Test func `each hears of its own rows, and of those only`() throws {
            let stage = try stage(Self.owners)
            let (one, two) = (try user(1, stage), try user(2, stage))
            try stage.run(Self.insert(1, 1) + Self.insert(2, 2) + Self.insert(3, 1))
            #expect(try heard(one, stage).map(\.id) == [1, 3])
            #expect(try heard(two, stage).map(\.id) == [2])
            try stage.run("DELETE FROM notes WHERE id < 3")
            let gone = try heard(one, stage)
            #expect(gone.map(\.type) == ["DELETE"] && gone[0].old["id"] as? Int == 1 && gone[0].old.count == 4)
            let others = try heard(two, stage)
            #expect(others.map { $0.old["id"] as? Int } == [2])
        }

        @Test func `a row that changes hands is shown to whom it belongs, and its past to nobody else`() throws {
            let stage = try stage(Self.owners)
            let (one, two) = (try user(1, stage), try user(2, stage, more: #","tidewire":{"moves":true}"#))
            let moving = try stage.caller()
            try moving.subscribe(
                "realtime:m", [binding("notes")], token: stage.token(of: 1), more: #","tidewire":{"moves":true}"#)
            try stage.run(Self.insert(1, 1, "x", "a secret of the first"))
            try stage.run("UPDATE notes SET owner = '\(GatewayStage.user(2))', body = 'another' WHERE id = 1")
            #expect(try heard(one, stage).map(\.type) == ["INSERT"])
            let arrived = try heard(two, stage)
            #expect(arrived.map(\.type) == ["UPDATE"])
            #expect(arrived[0].data["old_record"] is [String: Any] && arrived[0].old.isEmpty)
            #expect(arrived[0].record["body"] as? String == "another")
            #expect(try moving.change().type == "INSERT")
            let left = try moving.change()
            #expect(left.type == "DELETE" && left.old["body"] as? String == "a secret of the first")
            #expect((left.data["tidewire"] as? [String: Any])?["moved"] as? String == "out")
            try stage.run("UPDATE notes SET body = 'still the second\u{2019}s'")
            let stayed = try heard(two, stage)
            #expect(stayed.map { $0.old.count } == [4])
            #expect(try heard(one, stage).isEmpty)
        }

        @Test func `a filter narrows what a policy allows, and never widens it`() throws {
            let stage = try stage(
                "CREATE POLICY open ON notes FOR SELECT USING (kind = 'open' OR owner = auth.uid());"
                    + "CREATE POLICY kept ON notes AS RESTRICTIVE FOR SELECT USING (body IS DISTINCT FROM 'hidden');")
            let one = try user(1, stage, [binding("notes", filter: "kind=in.(open,mine)")])
            let two = try user(2, stage)
            try stage.run(
                Self.insert(1, 3, "open") + Self.insert(2, 1, "mine") + Self.insert(3, 1, "other")
                    + Self.insert(4, 3, "mine") + Self.insert(5, 2, "open", "hidden"))
            #expect(try heard(one, stage).map(\.id) == [1, 2])
            #expect(try heard(two, stage).map(\.id) == [1])
        }

        /// Checks that a filter on NULL matches no row, whatever the policies are.
        @Test(
            arguments: ["kind=neq.a", "kind=not.eq.a", "kind=not.in.(a,c)", "and=(kind.neq.a,kind.neq.c)"])
        func `a filter that does not hold is not forgotten where PostgreSQL decides the policy`(filter: String) throws {
            let stage = try stage(
                """
                CREATE FUNCTION sees(body text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
                BEGIN RETURN body <> 'hidden'; END $$;
                CREATE POLICY asked ON notes FOR SELECT USING (sees(body));
                """)
            let one = try user(1, stage, [binding("notes", filter: filter)])
            try stage.run(
                "INSERT INTO notes VALUES (1, NULL, NULL, 'b'), (2, NULL, 'a', 'b'), (3, NULL, 'b', 'b'), "
                    + "(4, NULL, 'b', 'hidden'), (5, NULL, NULL, 'hidden')")
            #expect(try heard(one, stage).map(\.id) == [3])
        }

        @Test func `what only PostgreSQL can decide is asked of it, in order, and for each by itself`() throws {
            let stage = try stage(
                """
                CREATE FUNCTION sees(kind text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
                BEGIN
                    IF auth.jwt() ->> 'sub' = '\(GatewayStage.user(3))' THEN RAISE 'no business of yours'; END IF;
                    RETURN kind = auth.jwt() ->> 'sees';
                END $$;
                CREATE POLICY asked ON notes FOR SELECT USING (kind = 'open' OR sees(kind));
                """)
            let (one, three) = (try stage.caller(), try stage.caller())
            for (caller, number, sees) in [(one, 1, "one"), (three, 3, "one")] {
                try caller.subscribe(
                    "realtime:a", [binding("notes"), binding("fences")],
                    token: stage.token(of: number, #","sees":"\#(sees)""#))
            }
            let two = try user(2, stage)
            for start in stride(from: 1, to: 60, by: 3) {
                try stage.run(
                    Self.insert(start, 9, "open") + Self.insert(start + 1, 9, "one") + Self.insert(start + 2, 9, "no"))
            }
            #expect(try heard(one, stage).map(\.id) == (1..<61).filter { $0 % 3 != 0 })
            let open = Array(stride(from: 1, to: 60, by: 3))
            #expect(try heard(two, stage).map(\.id) == open)
            #expect(try heard(three, stage).map(\.id) == open)
            #expect(
                three.takeUnheard().contains { $0.isTrouble && $0.said?.contains("could not be evaluated") == true })
            #expect(one.takeUnheard().allSatisfy { !$0.isTrouble })
            try stage.run("UPDATE notes SET kind = 'one' WHERE id IN (1, 3)")
            let updates = try heard(one, stage)
            #expect(updates.map(\.id) == [1, 3] && updates.map { $0.old.count } == [4, 0])
        }

        /// Checks a row on which the policy fails: a client must not learn from a notice if its filter matches the row.
        @Test(arguments: ["kind=match.^TOP", "kind=match.^XX", "kind=eq.TOP 1", "kind=neq.TOP 1", "kind=like.TOP%"])
        func `a policy's failure does not tell what is in the row`(filter: String) throws {
            let stage = try stage(
                """
                CREATE FUNCTION breaks(kind text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
                BEGIN IF kind LIKE 'TOP%' THEN RAISE 'no business of yours'; END IF; RETURN true; END $$;
                CREATE POLICY asked ON notes FOR SELECT USING (breaks(kind));
                """)
            let (one, all) = (try user(1, stage, [binding("notes", filter: filter)]), try user(2, stage))
            try stage.run(Self.insert(1, 9, "TOP 1") + Self.insert(2, 9, "XX"))
            #expect(try heard(all, stage).map(\.id) == [2])
            #expect(
                try eventually {
                    _ = try heard(all, stage)
                    return all.takeUnheard().contains { $0.said?.contains("could not be evaluated") == true }
                })
            _ = try heard(one, stage)
            #expect(one.takeUnheard().allSatisfy { !$0.isTrouble })
        }

        /// Checks a policy that fails just after another table has changed: the hub asks PostgreSQL again, and must
        /// report no loss.
        @Test func `a policy's failure is told of no more if another table has changed`() throws {
            let stage = try stage(
                """
                CREATE FUNCTION breaks(kind text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
                BEGIN IF kind LIKE 'TOP%' THEN RAISE 'no business of yours'; END IF; RETURN true; END $$;
                CREATE POLICY asked ON notes FOR SELECT USING (breaks(kind));
                """)
            let one = try user(1, stage, [binding("notes", filter: "kind=neq.a"), binding("fences")])
            for round in 1...6 {
                try stage.run(
                    "ALTER TABLE fences ADD COLUMN more_\(round) int;" + Self.insert(round, 9, "TOP 1")
                        + Self.insert(10 + round, 9, "XX"))
                #expect(try heard(one, stage).map(\.id) == [10 + round])
            }
            try one.fence()
            #expect(one.takeUnheard().allSatisfy { !$0.isTrouble })
        }

        @Test func `a token whose claims break a policy sees nothing, and disturbs nobody`() throws {
            let stage = try stage(Self.owners)
            let broken = try stage.caller()
            try broken.subscribe(
                "realtime:a", [binding("notes"), binding("fences")],
                token: stage.token(of: 1, #","sub":"not a uuid""#))
            let one = try user(1, stage)
            try stage.run(Self.insert(1, 1) + Self.insert(2, 2))
            #expect(try heard(one, stage).map(\.id) == [1])
            #expect(try heard(broken, stage).isEmpty)
        }

        @Test func `another token is judged by its own claims from its first row on`() throws {
            let stage = try stage(Self.owners)
            let caller = try user(1, stage)
            for round in 0..<20 {
                let number = round % 3 + 1
                try caller.push("realtime:a", "access_token", #"{"access_token":"\#(stage.token(of: number))"}"#)
                try caller.fence()
                try stage.run((1...3).map { Self.insert(round * 3 + $0, $0) }.joined())
                #expect(try heard(caller, stage).map(\.id) == [round * 3 + number])
            }
        }

        @Test func `what waits for PostgreSQL's answer is not for who comes after`() throws {
            let stage = try stage(
                """
                CREATE FUNCTION slow(owner uuid) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
                BEGIN PERFORM pg_sleep(0.3); RETURN owner = auth.uid(); END $$;
                CREATE POLICY slow ON notes FOR SELECT USING (slow(owner));
                """)
            let caller = try user(1, stage)
            try stage.run(Self.insert(1, 1) + Self.insert(2, 2))
            let asked =
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
            #expect(try eventually { try stage.database.value(asked) != "0" })
            try caller.push("realtime:a", "access_token", #"{"access_token":"\#(stage.token(of: 2))"}"#)
            try caller.fence()
            // Messages before the second subscription belong to the first one.
            _ = caller.takeUnheard()
            let later = try heard(caller, stage)
            #expect(later.allSatisfy { $0.id != 1 })
            try stage.run(Self.insert(3, 1) + Self.insert(4, 2))
            let ids = try heard(caller, stage).map(\.id)
            #expect(ids == [4])
        }

        @Test func `who has no policy is told that there will be nothing`() throws {
            let stage = try stage("CREATE POLICY others ON notes FOR SELECT TO OUTSIDER USING (true);")
            let one = try user(1, stage)
            try stage.run(Self.insert(1, 1))
            #expect(try heard(one, stage).isEmpty)
            let said = one.takeUnheard().filter { $0.event == "system" }
            #expect(said.contains { $0.status == "ok" && $0.said?.contains("policy") == true }, "\(said)")
            #expect(said.allSatisfy { !$0.isTrouble })
        }

        @Test func `deletes that name the row only are told to its owner, or to everybody`() throws {
            for (visibility, expected) in [("strict", 1), ("reference", 2)] {
                let stage = try stage(
                    Self.owners + "ALTER TABLE notes REPLICA IDENTITY DEFAULT;",
                    [(Setting(\.deletesAreStrict), visibility)])
                let (one, two) = (try user(1, stage), try user(2, stage))
                try stage.run(Self.insert(1, 1) + Self.insert(2, 2))
                #expect(try heard(one, stage).map(\.id) == [1])
                #expect(try heard(two, stage).map(\.id) == [2])
                try stage.run("DELETE FROM notes")
                for caller in [one, two] {
                    let gone = try heard(caller, stage)
                    #expect(gone.count == expected && gone.allSatisfy { $0.old.count == 1 }, "\(visibility)")
                    let warned = caller.takeUnheard().contains { $0.said?.contains("REPLICA IDENTITY FULL") == true }
                    #expect(warned == (visibility == "strict"))
                }
            }
        }

        @Test func `policies that change are the ones that count`() throws {
            let stage = try stage(Self.owners)
            let one = try user(1, stage)
            try stage.run(Self.insert(1, 2))
            try stage.run("ALTER POLICY own ON notes USING (kind = 'open')")
            try stage.run(Self.insert(2, 2, "open") + Self.insert(3, 1))
            #expect(try heard(one, stage).map(\.id) == [2])
            try stage.run("ALTER TABLE notes DISABLE ROW LEVEL SECURITY")
            try stage.run(Self.insert(4, 2))
            #expect(try heard(one, stage).map(\.id) == [4])
            try stage.run("ALTER TABLE notes ENABLE ROW LEVEL SECURITY;" + Self.insert(5, 2))
            try stage.run("DROP POLICY own ON notes;" + Self.insert(6, 1, "open"))
            #expect(try heard(one, stage).isEmpty)
        }

        /// Checks a role that gains BYPASSRLS. PostgreSQL does not report that, so the hub finds it by polling, after a
        /// moment.
        @Test func `a table that shows something else than was decided is noticed`() throws {
            // Without this setting, the hub would close the channels as soon as it finds the attribute.
            let stage = try stage(Self.owners, [(Setting(\.bypassRoles), "READER")])
            let one = try user(1, stage)
            // Policies must not run as a login that can become a role with BYPASSRLS. The hub checks this at intervals.
            #expect(eventually { stage.hub.policyLoginIsFit })
            let before = (stage.metrics.shadowSamples.value, stage.metrics.shadowContradictions.value)
            var id = 0
            let isNoticed = try eventually {
                try stage.run("ALTER ROLE READER BYPASSRLS")
                for _ in 0..<20 {
                    id += 1
                    try stage.run(Self.insert(id, 2))
                }
                try stage.run("ALTER ROLE READER NOBYPASSRLS")
                _ = try heard(one, stage)
                return stage.metrics.shadowContradictions.value > before.1
            }
            #expect(isNoticed && stage.metrics.shadowSamples.value > before.0)
        }

        private static let membership = """
            ALTER TABLE notes ADD COLUMN team int;
            CREATE POLICY mates ON notes FOR SELECT USING (team IN (SELECT m.team FROM members m WHERE m.person = auth.uid()));
            """

        private static func note(_ id: Int, team: Int?) -> String {
            "INSERT INTO notes (id, team) VALUES (\(id), \(team.map { "\($0)" } ?? "NULL"));"
        }

        private static func join(_ team: Int, _ person: Int) -> String {
            "INSERT INTO members VALUES (\(team), '\(GatewayStage.user(person))');"
        }

        private static func leave(_ team: Int, _ person: Int) -> String {
            "DELETE FROM members WHERE team = \(team) AND person = '\(GatewayStage.user(person))';"
        }

        /// Waits until the hub follows the memberships in the stream and no longer asks for them.
        private func awaitFollowing(_ stage: GatewayStage) throws {
            #expect(eventually { stage.hub.follows("members") })
            try stage.awaitCatalog()
        }

        @Test func `who is a member hears from then on, and no longer than that`() throws {
            let stage = try stage(Self.membership + Self.join(1, 1) + Self.join(2, 2))
            let (one, two) = (try user(1, stage), try user(2, stage))
            try awaitFollowing(stage)
            try stage.run(Self.note(1, team: 1) + Self.note(2, team: 2) + Self.note(3, team: nil))
            #expect(try heard(one, stage).map(\.id) == [1])
            #expect(try heard(two, stage).map(\.id) == [2])
            try stage.run(Self.join(2, 1) + Self.note(4, team: 2))
            #expect(try heard(one, stage).map(\.id) == [4])
            try stage.run(Self.leave(2, 1) + Self.note(5, team: 2))
            #expect(try heard(one, stage).isEmpty)
            #expect(try heard(two, stage).map(\.id) == [4, 5])
            try stage.run("UPDATE members SET team = 3 WHERE team = 1;" + Self.note(6, team: 1) + Self.note(7, team: 3))
            #expect(try heard(one, stage).map(\.id) == [7])
            try stage.run("TRUNCATE members;" + Self.note(8, team: 3) + Self.note(9, team: 2))
            #expect(try heard(one, stage).isEmpty)
            #expect(try heard(two, stage).isEmpty)
        }

        @Test func `within a transaction membership is as it is when the transaction ends`() throws {
            let stage = try stage(Self.membership + Self.join(1, 1))
            let one = try user(1, stage)
            try awaitFollowing(stage)
            try stage.run("BEGIN;" + Self.note(1, team: 5) + Self.join(5, 1) + "COMMIT")
            try stage.run("BEGIN;" + Self.note(2, team: 1) + Self.leave(1, 1) + "COMMIT")
            try stage.run("BEGIN;" + Self.join(6, 1) + Self.leave(6, 1) + Self.note(3, team: 6) + "COMMIT")
            #expect(try heard(one, stage).map(\.id) == [1])
            // The transaction has several parts in the log, and the membership is in the last.
            try stage.run(
                "BEGIN;"
                    + "INSERT INTO notes (id, team, body) SELECT 10 + g, 7, repeat('x', 100) FROM generate_series(1, 20000) g;"
                    + Self.join(7, 1) + Self.leave(5, 1) + "COMMIT")
            let heard = try heard(one, stage)
            #expect(heard.map(\.id) == Array(11...20010))
        }

        @Test func `a membership that only some rows give, or that a function asks for, is followed as well`() throws {
            let stage = try stage(
                """
                ALTER TABLE notes ADD COLUMN team int;
                CREATE FUNCTION leads(wanted int) RETURNS boolean LANGUAGE sql STABLE SECURITY DEFINER
                    SET search_path = '' AS $$
                    SELECT EXISTS (SELECT FROM public.members m
                        WHERE m.team = wanted AND m.person = auth.uid() AND m.role = 'lead') $$;
                REVOKE SELECT ON members FROM READER;
                CREATE POLICY leads ON notes FOR SELECT USING (leads(team));
                """ + Self.join(1, 1) + Self.join(2, 1) + "UPDATE members SET role = 'lead' WHERE team = 2;")
            let one = try user(1, stage)
            try awaitFollowing(stage)
            try stage.run(Self.note(1, team: 1) + Self.note(2, team: 2))
            #expect(try heard(one, stage).map(\.id) == [2])
            try stage.run("UPDATE members SET role = 'lead' WHERE team = 1;" + Self.note(3, team: 1))
            try stage.run("UPDATE members SET role = 'none' WHERE team = 2;" + Self.note(4, team: 2))
            #expect(try heard(one, stage).map(\.id) == [3])
        }

        @Test func `memberships that change all the time decide as PostgreSQL does`() throws {
            let stage = try stage(Self.membership)
            let callers = try (1...4).map { try user($0, stage) }
            for (number, _) in callers.enumerated() { try stage.run(Self.join(0, number + 1)) }
            try awaitFollowing(stage)
            var random = SeededRandom(seed: 20_261_121)
            var members: Set<[Int]> = Set((1...4).map { [0, $0] })
            var expected: [[Int]] = [[], [], [], []]
            for id in 1...400 {
                let (team, person) = (Int.random(in: 0..<3, using: &random), Int.random(in: 1...4, using: &random))
                let isMember = members.contains([team, person])
                let change = isMember ? Self.leave(team, person) : Self.join(team, person)
                if isMember { members.remove([team, person]) } else { members.insert([team, person]) }
                let target = Int.random(in: 0..<3, using: &random)
                let note = Self.note(id, team: target)
                try stage.run(id % 3 == 0 ? "BEGIN;" + note + change + "COMMIT" : change + note)
                for number in 1...4 where members.contains([target, number]) { expected[number - 1].append(id) }
            }
            for (number, caller) in callers.enumerated() {
                #expect(try heard(caller, stage).map { $0.id ?? -1 } == expected[number])
            }
        }

        private let fenceBox = Fence()
        private var fence: Int {
            get { fenceBox.number }
            nonmutating set { fenceBox.number = newValue }
        }

        private final class Fence {
            var number = 0
        }
    }
}
