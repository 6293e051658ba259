import Crypto
import Embedded
import Postgres
import System

/// Private PostgreSQL of the benchmark `joins`: Supabase's schemas, users who are members of rooms, and a policy that
/// checks their membership.
final class JoinsStage {
    static let rooms = 1000
    private static let role = "authenticated"
    private static let userPrefix = "00000000-0000-4000-8000-"

    let cluster: PrivateCluster
    private let connection: Connection
    private let place: Workplace
    private let hubURL: String
    private let policyURL: String
    let secret: String

    init(_ place: Workplace, users: Int) throws {
        self.place = place
        var options = PrivateCluster.Options()
        options.settings = ["autovacuum=off", "checkpoint_timeout=1h", "max_wal_size=4GB", "jit=off"]
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
        try makeMembers(users)
    }

    func close() { cluster.stop() }

    /// Creates the members, and a policy for private channels as developers usually write it.
    private func makeMembers(_ users: Int) throws {
        try connection.execute(
            """
            CREATE TABLE public.members (user_id uuid, room text, PRIMARY KEY (user_id, room));
            GRANT SELECT ON public.members TO \(Self.role);
            CREATE POLICY "members read" ON realtime.messages FOR SELECT TO \(Self.role)
                USING (realtime.messages.extension IN ('broadcast', 'presence')
                    AND EXISTS (SELECT 1 FROM public.members m
                        WHERE m.user_id = auth.uid() AND m.room = realtime.topic()));
            CREATE PUBLICATION joins FOR TABLE public.members;
            """)
        try connection.query(
            """
            INSERT INTO public.members
            SELECT ('\(Self.userPrefix)' || lpad(number::text, 12, '0'))::uuid, 'room:' || number % \(Self.rooms)
            FROM generate_series(0, $1::bigint - 1) AS number
            """, [String(users)])
        try connection.execute("VACUUM (ANALYZE) public.members")
    }

    // MARK: Users

    static func topic(numbered number: String) -> String { "realtime:room:\(number)" }

    /// Returns the claims of a user. They differ in each round, so that the hub has not seen the token before.
    static func claims(round: Int, numbered digits: String) -> String {
        #"{"role":"\#(role)","sub":"\#(userPrefix)\#(digits)","email":"user\#(digits)@example.com","round":\#(round),"#
            + #""exp":4102444800}"#
    }

    /// Path at which all clients connect, with their common API key.
    var path: String {
        let claims = Array(#"{"role":"anon","exp":4102444800}"#.utf8)
        return "/socket/websocket?vsn=2.0.0&apikey=" + JWT.sign(claims: claims.span, secret: Array(secret.utf8).span)
    }

    var clientErrors: String { place.path + "/clients.log" }

    // MARK: The hub

    func startHub() throws -> HubProcess {
        let data = place.path + "/hub"
        try Directories.make(data)
        return try HubProcess(
            [
                "--publication", "joins", "--slot", "bench_joins", "--data-dir", data, "--listen", "127.0.0.1:0",
                "--idle-timeout", "0", "--log-format", "text",
            ] + TalkLane.unlimited,
            environment: [
                "TIDEWIRE_DATABASE_URL": hubURL, "TIDEWIRE_POLICY_DATABASE_URL": policyURL,
                "TIDEWIRE_JWT_SECRET": secret,
            ], log: data + ".log")
    }

    // MARK: The peer

    /// Returns the joins per second of the peer: PostgreSQL alone, used in the same way as by Supabase Realtime. One
    /// session runs a transaction for each join, which inserts a row, sets the claims, and checks whether the row is
    /// visible. The statements are prepared, as they are by Supabase Realtime.
    func measurePeer(_ joins: Int) throws -> Double {
        let session = try cluster.connect()
        var prepared: Set<String> = []
        for number in 0..<20 { try ask(session, number, &prepared) }
        let began = Clock.monotonicNanoseconds()
        for number in 0..<joins { try ask(session, number, &prepared) }
        return Double(joins) * 1e9 / Double(Clock.monotonicNanoseconds() - began)
    }

    private func ask(_ session: Connection, _ number: Int, _ prepared: inout Set<String>) throws {
        func run(_ name: String, _ sql: String, _ parameters: [String?] = []) throws -> Rows {
            let answers = try session.pipeline(
                [PipelinedStatement(sql, parameters, preparedAs: name)], prepared: &prepared,
                timeoutMilliseconds: 10_000)
            guard let answer = answers.first else { throw BenchFailure("the peer got no answer") }
            return try answer.get()
        }
        let digits = String(repeating: "0", count: 12 - String(number).count) + String(number)
        let topic = "room:\(number % Self.rooms)"
        _ = try run("begin", "BEGIN")
        let id = try run(
            "insert",
            """
            INSERT INTO realtime.messages (id, topic, extension, inserted_at, updated_at)
            VALUES (gen_random_uuid(), $1, 'broadcast', timezone('utc', now()), timezone('utc', now())) RETURNING id
            """, [topic]
        ).first?[0]
        _ = try run(
            "settings",
            """
            SELECT set_config('role', $1, true), set_config('realtime.topic', $2, true),
                set_config('request.jwt.claims', $3, true), set_config('request.jwt.claim.sub', $4, true),
                set_config('request.jwt.claim.role', $1, true), set_config('request.headers', '{}', true)
            """, [Self.role, topic, Self.claims(round: 0, numbered: digits), Self.userPrefix + digits])
        let seen = try run("look", "SELECT id FROM realtime.messages WHERE id = $1::uuid", [id])
        guard seen.first?[0] == id else { throw BenchFailure("void (joins): the peer refuses a member") }
        _ = try run("rollback", "ROLLBACK")
    }
}
