import Bytes
import Crypto
import Embedded
import Postgres
import System

/// Private PostgreSQL with the tables that a benchmark's hubs serve. Also starts the hubs, and makes clients' tokens
/// and paths.
final class ServingStage {
    static let role = "authenticated"

    let cluster: PrivateCluster
    let connection: Connection
    let place: Workplace
    let secret: String
    private var hubs = 0

    init(_ place: Workplace) throws {
        self.place = place
        var options = PrivateCluster.Options()
        options.settings = ["autovacuum=off", "checkpoint_timeout=1h", "max_wal_size=4GB"]
        cluster = try PrivateCluster(directory: place.path + "/postgres", options: options)
        try cluster.start()
        connection = try cluster.connect()
        try connection.execute("CREATE ROLE \(Self.role)")
        var generator = SystemRandomNumberGenerator()
        secret = (0..<4).map { _ in String(generator.next() as UInt64, radix: 36) }.joined()
    }

    func close() { cluster.stop() }

    /// Creates a table for a hub to serve. Its columns are the number and the time that clients check, an owner for
    /// filters, and some text.
    func makeTable(_ name: String) throws {
        try connection.execute(
            "CREATE TABLE \(name) (id bigint PRIMARY KEY, owner bigint, seq bigint, at bigint, title text);"
                + "GRANT SELECT ON \(name) TO \(Self.role); CREATE PUBLICATION \(name) FOR TABLE \(name)")
    }

    /// Inserts `count` rows in one transaction, numbered from `first`. The time in each row is that of the statement,
    /// which is earlier than the commit.
    func insert(into table: String, first: Int64, count: Int, owner: Int64 = 0) throws {
        try connection.query(
            """
            INSERT INTO \(table)
            SELECT n, $3::bigint, n, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
                   'Expense of a shared trip, split evenly between four of us'
            FROM generate_series($1::bigint, $1::bigint + $2::bigint - 1) AS n
            """, [String(first), String(count), String(owner)])
    }

    /// Starts a hub that serves one table from its own slot.
    func startHub(
        _ table: String, loops: Int, backend: String = "auto", _ more: [String] = []
    ) throws -> HubProcess {
        hubs += 1
        let data = dataOfLastHub
        try Directories.make(data)
        return try HubProcess(
            [
                "--publication", table, "--slot", "bench_\(hubs)", "--data-dir", data, "--listen", "127.0.0.1:0",
                "--loops", String(loops), "--io", backend, "--idle-timeout", "0", "--log-format", "text",
            ] + more, environment: ["TIDEWIRE_DATABASE_URL": cluster.url(), "TIDEWIRE_JWT_SECRET": secret],
            log: data + ".log")
    }

    private var dataOfLastHub: String { place.path + "/hub\(hubs)" }

    /// Directory of the event log of the hub that was started last.
    var logOfLastHub: String { dataOfLastHub + "/log" }

    /// Stops a hub and drops its slot. Otherwise the slot would retain WAL, and a process of the server would remain.
    func end(_ hub: HubProcess) {
        hub.stop()
        let sql = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active"
        for _ in 0..<100 {
            if (try? connection.query(sql)) != nil { return }
            Pause.milliseconds(20)
        }
    }

    /// Connects clients and subscribes them to a table. In the filter, `{n}` is the client's number.
    func connect(_ count: Int, to hub: HubProcess, table: String, filter: String? = nil) throws -> LoadFleet {
        let fleet = try LoadFleet(clients: count, errors: place.path + "/clients.log")
        try fleet.heartbeat(seconds: 0)
        try fleet.connect(port: hub.port, path: path)
        try join(fleet, table, filter)
        return fleet
    }

    func join(_ fleet: LoadFleet, _ table: String, _ filter: String?) throws {
        let filter = filter.map { #","filter":"\#($0)""# } ?? ""
        try fleet.join(
            topic: "realtime:bench",
            payload: #"{"config":{"postgres_changes":[{"event":"*","schema":"public","table":"\#(table)"\#(filter)}]}}"#
        )
    }

    var path: String { "/socket/websocket?vsn=2.0.0&apikey=" + token }

    var token: String {
        let claims = Array(#"{"role":"\#(Self.role)","exp":\#(Clock.unixMicroseconds() / 1_000_000 + 86_400)}"#.utf8)
        return JWT.sign(claims: claims.span, secret: Array(secret.utf8).span)
    }
}
