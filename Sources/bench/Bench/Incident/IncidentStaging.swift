import Calling
import Crypto
import Embedded
import History
import Postgres
import Replaying
import System

/// Targets into which the benchmark replays the first changes of an incident's log at full speed: a separate database,
/// and a hub.
final class IncidentStaging {
    private static let database = "staging"

    let changes: Int
    private let history: HistoryLog
    private let cluster: IncidentDatabase
    private let connection: Connection
    private let hub: HubProcess
    private let token: String
    private let request: ReplayRequest
    private let plan: ReplayPlan

    init(_ history: HistoryLog, _ cluster: IncidentDatabase, _ place: Workplace, changes: Int) throws {
        self.changes = changes
        self.history = history
        self.cluster = cluster
        try cluster.cluster.connect().execute("CREATE DATABASE \(Self.database)")
        connection = try cluster.cluster.connect(database: Self.database)
        try connection.execute("CREATE TABLE orders (id int8 PRIMARY KEY, owner uuid, state text, version int4)")
        request = ReplayRequest(HistoryQuery(from: .offset(0), to: .offset(UInt64(changes))))
        plan = try ReplayPlan(request, of: history)
        var generator = SystemRandomNumberGenerator()
        let secret = (0..<4).map { _ in String(generator.next() as UInt64, radix: 36) }.joined()
        let expiry = Clock.unixMicroseconds() / 1_000_000 + 86_400
        let claims = Array(#"{"role":"reader","exp":\#(expiry)}"#.utf8)
        token = JWT.sign(claims: claims.span, secret: Array(secret.utf8).span)
        let data = try place.directory("hub").path
        hub = try HubProcess(
            [
                "--slot", "bench_replay", "--data-dir", data, "--listen", "127.0.0.1:0", "--log-format", "text",
            ] + TalkLane.unlimited,
            environment: ["TIDEWIRE_DATABASE_URL": cluster.cluster.url(), "TIDEWIRE_JWT_SECRET": secret],
            log: data + ".log")
    }

    func close() { hub.stop() }

    func intoDatabase() throws {
        try connection.execute("TRUNCATE orders")
        let target = DatabaseTarget(connection, request)
        try target.withoutTriggers()
        guard try target.obstacles(plan).isEmpty else { throw BenchFailure("void (incident, replay): obstacles") }
        try play(to: target)
        let rows = try connection.query("SELECT sum(version + 1) FROM orders").first?.first ?? nil
        guard rows == String(changes) else {
            throw BenchFailure("void (incident, replay): \(rows ?? "no") changes are there of \(changes)")
        }
    }

    func intoHub() throws {
        guard let address = HubAddress("http://127.0.0.1:\(hub.port)") else { throw BenchFailure("no address") }
        try play(to: HubTarget(HubTarget.Settings(address, token: token), request))
    }

    private func play(to target: any ReplayTarget) throws {
        var settings = Player.Settings()
        settings.speed = .maximum
        var player = try Player(request, plan, of: history, to: target, settings, Player.Surroundings())
        try player.play()
        guard player.report.end == .whole, player.report.changes == UInt64(changes) else {
            throw BenchFailure("void (incident, replay): \(player.report.changes) of \(changes) changes")
        }
    }
}
