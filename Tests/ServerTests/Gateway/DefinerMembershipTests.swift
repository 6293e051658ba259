import Embedded
import Postgres
import System
import TestSupport
import Testing

@testable import Server

extension GatewayPolicies {
    /// Tests of memberships that SECURITY DEFINER functions read with their owner's rights. Each client must receive
    /// the rows that PostgreSQL shows it, even if the hub's documented login cannot read the memberships.
    @Suite(.serialized) struct DefinerMembershipTests {
        /// Owner of the function.
        enum Owner: String, CaseIterable, Sendable {
            case superuser, tableOwner, granted, refused
        }

        /// Row level security of the membership's table.
        enum Security: String, CaseIterable {
            case none, forClients, forEverybody, forced
        }

        /// Rights of the hub's login on that table.
        enum Right: String, CaseIterable {
            case nothing, table, columns, otherColumns, noSchema, tableAndPolicy
        }

        struct Setup: CustomStringConvertible {
            var number: Int
            var owner: Owner
            var security: Security
            var right: Right
            /// True if the policy's function calls another one.
            var isNested: Bool { number % 3 == 0 }

            var description: String { "\(owner) \(security) \(right)\(isNested ? " nested" : "")" }

            static let all: [Setup] = {
                var all: [Setup] = []
                for owner in Owner.allCases {
                    for security in Security.allCases {
                        for right in Right.allCases {
                            all.append(Setup(number: all.count, owner: owner, security: security, right: right))
                        }
                    }
                }
                return all
            }()

            var notes: String { "notes_\(number)" }
            var schema: String { "rooms_\(number)" }
            var members: String { "\(schema).members" }

            /// SQL that creates the tables, the functions with their owners, and the rights.
            var sql: String {
                let boss = "boss_READER"
                let function =
                    "LANGUAGE sql STABLE SECURITY DEFINER SET search_path = '' AS $$ SELECT EXISTS (SELECT FROM \(members) m WHERE m.team = wanted AND m.person = auth.uid()) $$;"
                let outer =
                    "LANGUAGE sql STABLE SECURITY DEFINER SET search_path = '' AS $$ SELECT public.inner_\(number)(wanted) $$;"
                return """
                    CREATE SCHEMA \(schema); GRANT USAGE ON SCHEMA \(schema) TO \(boss), plain_READER;
                    CREATE TABLE \(members) (team int, person uuid, remark text, PRIMARY KEY (team, person));
                    ALTER TABLE \(members) REPLICA IDENTITY FULL;
                    ALTER TABLE \(members) OWNER TO \(boss);
                    CREATE TABLE \(notes) (id int PRIMARY KEY, team int);
                    ALTER TABLE \(notes) ENABLE ROW LEVEL SECURITY; GRANT SELECT ON \(notes) TO READER;
                    CREATE FUNCTION public.inner_\(number)(wanted int) RETURNS boolean \(function)
                    CREATE FUNCTION public.is_member_\(number)(wanted int) RETURNS boolean \(isNested ? outer : function)
                    \(ownership) \(rowSecurity) \(rights)
                    CREATE POLICY mates ON \(notes) FOR SELECT USING (public.is_member_\(number)(team));
                    INSERT INTO \(members) VALUES (1, '\(GatewayStage.user(1))'), (2, '\(GatewayStage.user(2))');

                    """
            }

            private var ownership: String {
                let name: String
                switch owner {
                case .superuser: return ""
                case .tableOwner: name = "boss_READER"
                case .granted, .refused: name = "plain_READER"
                }
                let owners =
                    "ALTER FUNCTION public.is_member_\(number) OWNER TO \(name);"
                    + "ALTER FUNCTION public.inner_\(number) OWNER TO \(name);"
                return owner == .granted ? owners + "GRANT SELECT ON \(members) TO \(name);" : owners
            }

            private var rowSecurity: String {
                let enabled = "ALTER TABLE \(members) ENABLE ROW LEVEL SECURITY;"
                let own = "CREATE POLICY own ON \(members) FOR SELECT"
                switch security {
                case .none: return ""
                case .forClients: return enabled + own + " TO READER USING (person = auth.uid());"
                case .forEverybody: return enabled + own + " USING (person = auth.uid() AND team < 5);"
                case .forced:
                    return enabled + own + " USING (person = auth.uid() AND team < 5);"
                        + "ALTER TABLE \(members) FORCE ROW LEVEL SECURITY;"
                }
            }

            private var rights: String {
                let usage = "GRANT USAGE ON SCHEMA \(schema) TO HUB;"
                switch right {
                case .nothing: return usage
                case .table: return usage + "GRANT SELECT ON \(members) TO HUB;"
                case .columns: return usage + "GRANT SELECT (team, person) ON \(members) TO HUB;"
                case .otherColumns: return usage + "GRANT SELECT (team, remark) ON \(members) TO HUB;"
                case .noSchema: return "GRANT SELECT ON \(members) TO HUB;"
                case .tableAndPolicy:
                    return usage + "GRANT SELECT ON \(members) TO HUB;"
                        + "CREATE POLICY hub ON \(members) FOR SELECT TO HUB USING (true);"
                }
            }

            /// True if the hub's login can read the rows that the function's owner reads.
            var isFollowed: Bool {
                guard owner != .refused, security != .forced || owner == .superuser else { return false }
                switch right {
                case .nothing, .otherColumns, .noSchema: return false
                case .table, .columns: return security == .none
                // With a policy for every role, the hub would see the rows of its own login.
                case .tableAndPolicy: return security == .none || security == .forClients
                }
            }
        }

        private static let fences = "CREATE TABLE fences (id int PRIMARY KEY); GRANT SELECT ON fences TO READER;"

        private func stage(_ setups: [Setup]) throws -> GatewayStage {
            let roles =
                "CREATE ROLE boss_READER; CREATE ROLE plain_READER;"
                + "GRANT USAGE ON SCHEMA auth TO boss_READER, plain_READER, HUB;"
            let published = setups.map(\.notes).joined(separator: ", ")
            let stage = try GatewayStage(
                roles + Self.fences + setups.map(\.sql).joined(), publication: "FOR TABLE fences, \(published)",
                followed: setups.map(\.members).joined(separator: ", "))
            return stage
        }

        /// Returns the rows that the caller received before the row `fence`, in all of its channels, by table.
        private func heard(_ caller: Caller, _ fence: Int, _ channels: Int) throws -> [String: Set<Int>] {
            var heard: [String: Set<Int>] = [:]
            var fences = 0
            while true {
                let change = try caller.change()
                let table = change.data["table"] as? String ?? ""
                guard table == "fences" else {
                    heard[table, default: []].insert(change.id ?? -1)
                    continue
                }
                if change.id == fence { fences += 1 }
                if fences == channels { return heard }
            }
        }

        /// Returns the rows from `first` on that PostgreSQL shows the user; nil if PostgreSQL raises an error.
        private func shown(_ setup: Setup, to user: Int, from first: Int, _ stage: GatewayStage) throws -> Set<Int> {
            let connection = try stage.database.cluster.connect(database: stage.database.name)
            _ = try connection.query(
                "SELECT set_config('request.jwt.claims', $1, false)", [#"{"sub":"\#(GatewayStage.user(user))"}"#])
            try connection.execute("SET ROLE \(stage.reader)")
            let rows = try? connection.query("SELECT id FROM \(setup.notes) WHERE id >= $1", [String(first)])
            return Set((rows?.values ?? []).compactMap { $0[0].flatMap { Int($0) } })
        }

        private func compare(_ setups: [Setup], _ stage: GatewayStage, _ steps: [@Sendable (Setup) -> String]) throws {
            let users = [1, 2, 3]
            let parts = setups.chunked(16)
            let callers = try users.map { user in
                let caller = try stage.caller()
                for (place, part) in parts.enumerated() {
                    try caller.subscribe(
                        "realtime:\(place)", part.map { binding($0.notes) } + [binding("fences")],
                        token: stage.token(of: user))
                }
                return caller
            }
            #expect(eventually { stage.hub.follows("members") })
            try stage.awaitCatalog()
            for (number, step) in steps.enumerated() {
                let first = (number + 1) * 100
                for setup in setups {
                    try stage.run(step(setup))
                    try stage.run(
                        "INSERT INTO \(setup.notes) SELECT \(first) + t, t FROM generate_series(1, 6) t")
                }
                try stage.run("INSERT INTO fences VALUES (\(number))")
                for (user, caller) in zip(users, callers) {
                    let heard = try heard(caller, number, parts.count)
                    for setup in setups {
                        let shown = try shown(setup, to: user, from: first, stage)
                        #expect(
                            (heard[setup.notes] ?? []).sorted() == shown.sorted(),
                            "user \(user), step \(number): \(setup)")
                    }
                }
            }
        }

        private static let steps: [@Sendable (Setup) -> String] = [
            { _ in "SELECT 1" },
            { "INSERT INTO \($0.members) VALUES (3, '\(GatewayStage.user(1))'), (6, '\(GatewayStage.user(2))')" },
            { "DELETE FROM \($0.members) WHERE team = 1" },
        ]

        @Test(arguments: Owner.allCases)
        func `whatever the hub's login may read, each hears of what PostgreSQL shows it`(owner: Owner) throws {
            let setups = Setup.all.filter { $0.owner == owner }
            let stage = try stage(setups)
            try compare(setups, stage, Self.steps)
        }

        @Test func `a login that no policies bind follows what it may read`() throws {
            let setups = Setup.all.filter { $0.right == .table && $0.owner != .refused }
            let stage = try stage(setups)
            try stage.run("ALTER ROLE HUB BYPASSRLS")
            try compare(setups, stage, Self.steps)
        }
    }
}

extension Array {
    fileprivate func chunked(_ count: Int) -> [[Element]] {
        stride(from: 0, to: self.count, by: count).map { Array(self[$0..<Swift.min($0 + count, self.count)]) }
    }
}
