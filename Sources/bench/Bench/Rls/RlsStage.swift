import Crypto
import Embedded
import Gateway
import Postgres
import Server
import Settings
import System

/// Private PostgreSQL of the benchmark `rls`: a table for each policy, users, and the functions by which PostgreSQL
/// itself decides the policies as the peer (the baseline).
final class RlsStage {
    static let role = "authenticated"
    static let members = "rls_members"
    static let membershipsOfUser = 25
    private static let fewestUsers = 1000
    private static let userPrefix = "00000000-0000-4000-8000-"
    private static let subscriptions = "bench_subscriptions"

    let cluster: PrivateCluster
    let connection: Connection
    private let writer: Connection
    private let peer: Connection
    private let place: Workplace
    private let hubURL: String
    private let policyURL: String
    let secret: String
    private var hubs = 0
    private var users = 0
    private var next: [String: Int64] = [:]

    init(_ place: Workplace) throws {
        self.place = place
        var options = PrivateCluster.Options()
        options.settings = [
            "shared_buffers=512MB", "autovacuum=off", "checkpoint_timeout=1h", "max_wal_size=16GB", "jit=off",
        ]
        cluster = try PrivateCluster(directory: place.path + "/postgres", options: options)
        try cluster.start()
        connection = try cluster.connect()
        for file in SQLFile.foundation { try file.apply(connection) }
        var generator = SystemRandomNumberGenerator()
        secret = (0..<4).map { _ in String(generator.next() as UInt64, radix: 36) }.joined()
        for role in ["tidewire", "tidewire_policies"] {
            try connection.execute("ALTER ROLE \(role) PASSWORD '\(secret)'")
        }
        hubURL = cluster.url(user: "tidewire", password: secret)
        policyURL = cluster.url(user: "tidewire_policies", password: secret)
        writer = try cluster.connect()
        // The hubs read the measured rows from their logs, so the speed of the commits does not matter.
        try writer.execute("SET synchronous_commit = off")
        peer = try cluster.connect()
        // With generic plans, PostgreSQL does not plan each check anew.
        try peer.execute("SET plan_cache_mode = force_generic_plan")
        try makeTables()
    }

    func close() { cluster.stop() }

    private func makeTables() throws {
        try connection.execute(
            """
            CREATE FUNCTION bench_user(number bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS
                $$ SELECT ('\(Self.userPrefix)' || lpad(number::text, 12, '0'))::uuid $$;
            CREATE FUNCTION bench_is_mine(owner uuid) RETURNS boolean LANGUAGE plpgsql STABLE AS
                $$ BEGIN RETURN owner = auth.uid(); END $$;
            CREATE FUNCTION bench_are_same(owner uuid, subject uuid) RETURNS boolean LANGUAGE plpgsql STABLE AS
                $$ BEGIN RETURN owner = subject; END $$;
            CREATE TABLE \(Self.members) (user_id uuid, operation_id integer, PRIMARY KEY (user_id, operation_id));
            ALTER TABLE \(Self.members) REPLICA IDENTITY FULL;
            GRANT SELECT ON \(Self.members) TO \(Self.role);
            ALTER PUBLICATION tidewire_internal ADD TABLE \(Self.members);
            CREATE TABLE \(Self.subscriptions) (number bigint PRIMARY KEY, user_id uuid, claims text);
            """)
        for policy in RlsPolicy.allCases {
            try makeTable(policy)
            try makePeer(policy)
        }
    }

    private func makeTable(_ policy: RlsPolicy) throws {
        let table = policy.table
        guard next[table] == nil else { return }
        next[table] = 0
        try connection.execute(
            """
            CREATE TABLE \(table) (
                seq bigint PRIMARY KEY, owner_id uuid NOT NULL, operation_id integer NOT NULL, body text, at timestamptz);
            ALTER TABLE \(table) REPLICA IDENTITY FULL;
            GRANT SELECT ON \(table) TO \(Self.role);
            CREATE PUBLICATION \(table) FOR TABLE \(table);
            CREATE PROCEDURE bench_write_\(table)(first bigint, count bigint, subscribers bigint) LANGUAGE plpgsql AS $$
            BEGIN
                FOR number IN first..first + count - 1 LOOP
                    INSERT INTO \(table) VALUES (
                        number, bench_user(number % subscribers),
                        number % subscribers * \(Self.membershipsOfUser) + number / subscribers % \(Self.membershipsOfUser),
                        'Expense of a shared trip, split evenly between four of us', clock_timestamp());
                    COMMIT;
                END LOOP;
            END $$;
            """)
        guard let condition = policy.condition else { return }
        try connection.execute(
            "ALTER TABLE \(table) ENABLE ROW LEVEL SECURITY;"
                + "CREATE POLICY bench ON \(table) FOR SELECT TO \(Self.role) USING (\(condition))")
    }

    /// Creates the function by which PostgreSQL, the peer, decides about one change for all subscribers. A function
    /// inside the server is the fastest way to ask for each subscriber.
    private func makePeer(_ policy: RlsPolicy) throws {
        try connection.execute(
            """
            CREATE FUNCTION \(policy.peerFunction)(change bigint, subscribers bigint) RETURNS bigint LANGUAGE plpgsql AS $$
            DECLARE
                one record;
                owner uuid;
                settings text;
                found boolean;
                seen bigint := 0;
            BEGIN
                owner := bench_user(change % subscribers);
                FOR one IN SELECT user_id, claims FROM \(Self.subscriptions) WHERE number < subscribers LOOP
                    \(policy.check)
                    IF found THEN seen := seen + 1; END IF;
                END LOOP;
                settings := set_config('role', 'none', true);
                RETURN seen;
            END $$
            """)
    }

    // MARK: Users

    private static func digits(_ number: Int) -> String {
        let digits = String(number)
        return String(repeating: "0", count: 12 - digits.count) + digits
    }

    /// Returns the claims of a user. Several claims differ between users.
    static func claims(numbered digits: String) -> String {
        #"{"role":"\#(role)","sub":"\#(userPrefix)\#(digits)","email":"user\#(digits)@example.com","exp":4102444800}"#
    }

    static func joinPayload(_ policy: RlsPolicy, numbered digits: String, token: String) -> String {
        let filter = policy.hasFilter ? #","filter":"owner_id=eq.\#(userPrefix)\#(digits)""# : ""
        return
            #"{"config":{"postgres_changes":[{"event":"*","schema":"public","table":"\#(policy.table)"\#(filter)}]},"#
            + #""access_token":"\#(token)"}"#
    }

    /// Returns the token of the client with this number, and the message by which it joins.
    func introduction(_ number: Int, _ policy: RlsPolicy) -> (token: String, join: String) {
        let digits = Self.digits(number)
        let claims = Array(Self.claims(numbered: digits).utf8)
        let token = JWT.sign(claims: claims.span, secret: Array(secret.utf8).span)
        let payload = Self.joinPayload(policy, numbered: digits, token: token)
        return (token, #"["1","1","realtime:bench","phx_join",\#(payload)]"#)
    }

    var clientErrors: String { place.path + "/clients.log" }

    /// Creates users and their memberships until there are `wanted`. Also creates the subscriptions that the peer,
    /// PostgreSQL, reads.
    func makeUsers(_ wanted: Int) throws {
        // With a smaller table, PostgreSQL would read it completely instead of using the index, and evaluate the claims
        // for each row.
        let count = max(wanted, Self.fewestUsers)
        guard count > users else { return }
        try connection.query(
            """
            INSERT INTO \(Self.members)
            SELECT bench_user(number), number * \(Self.membershipsOfUser) + place
            FROM generate_series($1::bigint, $2::bigint) AS number,
                 generate_series(0, \(Self.membershipsOfUser - 1)) AS place
            """, [String(users), String(count - 1)])
        try connection.query(
            """
            INSERT INTO \(Self.subscriptions)
            SELECT number, bench_user(number), format(
                '\(Self.claims(numbered: "%1$s"))', lpad(number::text, 12, '0'))
            FROM generate_series($1::bigint, $2::bigint) AS number
            """, [String(users), String(count - 1)])
        users = count
        // This gives PostgreSQL, the peer, the best plans: index-only scans over full tables. Index-only scans need
        // commits that have been flushed.
        try connection.execute("VACUUM (ANALYZE) \(Self.members)")
        try connection.execute("VACUUM (ANALYZE) \(Self.subscriptions)")
        try connection.execute("CHECKPOINT")
    }

    // MARK: Rows

    /// Commits `count` rows for the subscribers in turn, each in its own transaction. Returns the numbers of the rows.
    func write(_ policy: RlsPolicy, _ count: Int, subscribers: Int) throws -> Range<Int64> {
        let behind = next[policy.table] ?? 0
        let divisor = Int64(subscribers)
        let first = (behind + divisor - 1) / divisor * divisor
        try writer.execute("CALL bench_write_\(policy.table)(\(first), \(count), \(subscribers))")
        next[policy.table] = first + Int64(count)
        return first..<first + Int64(count)
    }

    /// Waits until the hub decides the policy itself. Before its catalog is complete, it asks PostgreSQL for each row.
    func awaitPolicy(_ policy: RlsPolicy, _ hub: RlsHub) throws {
        guard policy.condition != nil, !policy.isFallback else { return }
        for _ in 0..<30_000 {
            if hub.decides(policy) { return }
            Pause.milliseconds(2)
        }
        throw BenchFailure("the hub does not decide the policy by itself")
    }

    /// Waits until all committed rows are durable in the hub's log.
    func awaitLog(_ hub: RlsHub) throws {
        // Commits that did not wait for the disk may be missing in the WAL's files, and PostgreSQL streams only what is
        // in the files. This message flushes them.
        try connection.query("SELECT pg_logical_emit_message(true, 'bench', '')")
        let end = try connection.query("SELECT pg_current_wal_lsn()").first?[0] ?? "0/0"
        for _ in 0..<60_000 {
            let answer = try connection.query(
                "SELECT confirmed_flush_lsn >= $1::pg_lsn FROM pg_replication_slots WHERE slot_name = $2",
                [end, hub.slot])
            if answer.first?[0] == "t" { return }
            Pause.milliseconds(2)
        }
        throw BenchFailure("the hub does not follow the database")
    }

    // MARK: The peer

    /// Returns the changes per second that PostgreSQL alone, the peer, can decide. Throws if it finds a wrong number of
    /// visible rows.
    func measurePeer(_ policy: RlsPolicy, _ changes: Range<Int64>, subscribers: Int) throws -> Double {
        let began = Clock.monotonicNanoseconds()
        let answer = try peer.query(
            "SELECT sum(\(policy.peerFunction)(change, $3::bigint)) FROM generate_series($1::bigint, $2::bigint) AS change",
            [String(changes.lowerBound), String(changes.upperBound - 1), String(subscribers)])
        let seconds = Double(Clock.monotonicNanoseconds() - began) / 1e9
        let expected = policy.isForAll ? changes.count * subscribers : changes.count
        guard answer.first?[0] == String(expected) else {
            throw BenchFailure(
                "void (rls, \(policy.rawValue)): the peer found \(answer.first?[0] ?? "nothing") of \(expected)")
        }
        return Double(changes.count) / seconds
    }

    // MARK: Hubs

    func startHub(_ policy: RlsPolicy, backend: String = "auto") throws -> RlsHub {
        hubs += 1
        let data = place.path + "/hub\(hubs)"
        try Directories.make(data)
        return try RlsHub(
            slot: "bench_rls_\(hubs)",
            settings: [
                (Setting(\.databaseURL), hubURL), (Setting(\.policyDatabaseURL), policyURL),
                (Setting(\.publication), policy.table),
                (Setting(\.slot), "bench_rls_\(hubs)"), (Setting(\.dataDirectory), data),
                (Setting(\.listen), "127.0.0.1:0"), (Setting(\.loops), "1"),
                (Setting(\.backend), backend), (Setting(\.jwtSecret), secret), (Setting(\.idleTimeout), "0"),
                (Setting(\.maximumConnections), "200000"),
                (Setting(\.maximumConcurrentUsers), "200000"), (Setting(\.joinsPerSecond), "0"),
            ])
    }

    /// Stops the hub and drops its slot. Otherwise the slot would retain WAL.
    func end(_ hub: RlsHub) {
        hub.stop()
        for _ in 0..<100 {
            if (try? connection.query("SELECT pg_drop_replication_slot($1)", [hub.slot])) != nil { return }
            Pause.milliseconds(20)
        }
    }
}

/// Hub of the benchmark `rls`, in this process. The benchmark can hold it while its log fills.
final class RlsHub: Sendable {
    let slot: String
    let inProcessClients = InProcessClients()
    private let hub: Hub

    init(slot: String, settings: [(Setting, String)]) throws {
        self.slot = slot
        let configuration = try Configuration.load(
            overrides: settings.map { SettingOverride($0.0, $0.1, from: .command("tidewire bench")) },
            surroundings: .ofThisProcess.withoutSettings)
        hub = try Hub(configuration, inProcessClients: inProcessClients)
    }

    var port: UInt16 { hub.port }

    func stop() { hub.stop() }

    /// True if the hub decides the policy without asking PostgreSQL.
    func decides(_ policy: RlsPolicy) -> Bool { hub.decides(policy.table, with: policy.members) }

    /// Makes the hub stop reading its log. Commits are still written to the log.
    func hold() { inProcessClients.order { $0.isHolding = true } }

    /// Makes the hub read its log again after `hold`. The loop's thread calls `also` first.
    func goOn(_ also: @escaping @Sendable () -> Void = {}) {
        inProcessClients.order { loop in
            also()
            loop.isHolding = false
        }
    }
}
