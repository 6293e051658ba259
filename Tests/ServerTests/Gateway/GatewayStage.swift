import Bytes
import Crypto
import Diagnostics
import Embedded
import Foundation
import Postgres
import Synchronization
import System
import TestSupport
import Testing

@testable import Catalog
@testable import Gateway
@testable import Projects
@testable import Server
@testable import Settings

/// Hub in this process, with documented logins and its own database, and the clients that connect to it.
final class GatewayStage: @unchecked Sendable {
    // Only one thread uses the stage, except that another thread may call `stop`.
    let database: TestDatabase
    private(set) var hub: Hub
    private let configuration: Configuration
    /// Names of this stage's roles. They are unique, because roles belong to the whole cluster.
    let names: Names
    var reader: String { names.reader }
    var outsider: String { names.outsider }
    /// Logins that the hub uses.
    let logins: DocumentedLogins
    let dataDirectory = TemporaryDirectory.make("data")
    private var isStopped = false
    private var callers: [Caller] = []
    static let secret = "a secret of the tests, which is longer than thirty-two bytes"

    /// Creates a stage. In `sql` and in settings, `READER` stands for a role that may read, `OUTSIDER` for another
    /// role, and `HUB` for the hub's login. The `followed` tables are added to the hub's own publication by an
    /// operator, because the hub's login may not do that.
    init(
        _ sql: String, publication: String, followed: String? = nil, _ settings: [(Setting, String)] = [],
        on cluster: PrivateCluster? = nil, _ encoding: ServerEncoding = .utf8
    ) throws {
        let database = try TestDatabase(on: cluster, encoding)
        let (reader, outsider) = ("reader_" + database.name, "outsider_" + database.name)
        for role in [reader, outsider] {
            try database.run("CREATE ROLE \(role); GRANT USAGE ON SCHEMA public TO \(role)")
        }
        let logins = try database.documentedLogins(becoming: [reader, outsider])
        let names = Names(reader: reader, outsider: outsider, hub: logins.hubName)
        try database.applyAuth(to: [reader, outsider])
        try database.run(names.filled(sql))
        try database.run("CREATE PUBLICATION supabase_realtime \(publication)")
        if let followed {
            try database.applyPublications()
            try database.run("ALTER PUBLICATION tidewire_internal ADD TABLE \(followed)")
        }
        let usual: [(Setting, String)] = [
            (Setting(\.databaseURL), logins.hubURL), (Setting(\.policyDatabaseURL), logins.policyURL),
            (Setting(\.slot), database.slot), (Setting(\.dataDirectory), dataDirectory),
            (Setting(\.listen), "127.0.0.1:0"), (Setting(\.loops), "1"), (Setting(\.jwtSecret), Self.secret),
            // Callers send no heartbeats, and a test may take long on a slow machine.
            (Setting(\.connectErrorBackoff), "10ms"), (Setting(\.idleTimeout), "0"),
            (Setting(\.channelErrorBackoff), "10ms"), (Setting(\.segmentBytes), "1MB"),
        ]
        configuration = try Configuration.load(
            overrides: (usual + settings).map { .flag($0.0, names.filled($0.1)) }, surroundings: .only())
        hub = try Hub(configuration)
        self.database = database
        self.logins = logins
        self.names = names
        let port = hub.port
        #expect(try eventually { try GatewayStage.isReady(port) })
    }

    struct Names {
        let reader: String
        let outsider: String
        let hub: String

        func filled(_ sql: String) -> String {
            sql.replacing("READER", with: reader).replacing("OUTSIDER", with: outsider).replacing("HUB", with: hub)
        }
    }

    /// Metrics of the hub's sockets.
    var processMetrics: ProcessMetrics { hub.gateway.metrics }

    /// Metrics of the hub's project.
    var metrics: ProjectMetrics {
        guard let main = hub.director.main else { preconditionFailure("the stage's project does not run") }
        return main.project.metrics
    }

    func stop() {
        if !isStopped { hub.stop() }
        isStopped = true
    }

    /// Stops the hub, runs `meanwhile` while its data directory is unused, and starts another hub with the same
    /// directory. Callers must connect again.
    func restart(_ meanwhile: () throws -> Void) throws {
        for caller in callers { caller.hangUp() }
        callers = []
        hub.stop()
        try meanwhile()
        hub = try Hub(configuration)
        let port = hub.port
        #expect(try eventually { try GatewayStage.isReady(port) })
    }

    /// Drops the replication slot, because the cluster has few slots.
    deinit {
        // The hub would wait for clients that are still connected.
        for caller in callers { caller.hangUp() }
        stop()
        let drop =
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '\(database.slot)'"
        _ = eventually { (try? database.run(drop)) != nil }
    }

    private static func isReady(_ port: UInt16) throws -> Bool {
        let caller = try Caller(port: port)
        try caller.send("GET /ready HTTP/1.1\r\nHost: h\r\n\r\n")
        return try caller.answer().status.contains("200")
    }

    @discardableResult
    func run(_ sql: String) throws -> Rows {
        try database.run(names.filled(sql))
    }

    /// Waits until the hub has read the catalog again and is ready.
    func awaitCatalog() throws {
        let isRead = Awaited<Bool>()
        hub.director.main?.project.catalog.refresh(seeing: nil) { isRead.set($0 != nil) }
        #expect(isRead.wait() == true)
        // The stream may restart now, if the publication of tables that policies read has changed.
        let port = hub.port
        #expect(try eventually { try GatewayStage.isReady(port) })
    }

    /// True if all loops use the hub's newest catalog, and its record is in the log or on its way there. False if the
    /// hub could not read a policy because of a lock, because it then reads the catalog again.
    var catalogIsNoted: Bool {
        guard let catalog = hub.director.main?.project.catalog as? CatalogService else { return false }
        return catalog.isNoted && catalog.snapshot?.policies.isUnfinished == false
    }

    /// Waits until the log has everything that was committed before the call.
    func awaitLog() throws {
        let end = try database.value("SELECT pg_current_wal_flush_lsn()") ?? ""
        let isConfirmed =
            "SELECT confirmed_flush_lsn >= '\(end)' FROM pg_replication_slots WHERE slot_name = '\(database.slot)'"
        #expect(try eventually { try database.value(isConfirmed) == "t" })
    }

    /// Returns a token of the role that is valid for an hour by default.
    func token(_ role: String? = nil, mark: String = "", lasting seconds: Int = 3600) -> String {
        let expiry = Int(Date().timeIntervalSince1970) + seconds
        let claims = #"{"role":"\#(role ?? reader)","exp":\#(expiry),"mark":"\#(mark)"}"#
        return JWT.sign(claims: Array(claims.utf8).span, secret: Array(Self.secret.utf8).span)
    }

    /// Returns the token of a user.
    func token(of user: Int, _ more: String = "", role: String? = nil) -> String {
        let expiry = Int(Date().timeIntervalSince1970) + 3600
        let claims = #"{"role":"\#(role ?? reader)","exp":\#(expiry),"sub":"\#(Self.user(user))"\#(more)}"#
        return JWT.sign(claims: Array(claims.utf8).span, secret: Array(Self.secret.utf8).span)
    }

    func token(claims: String) -> String {
        JWT.sign(claims: Array(claims.utf8).span, secret: Array(Self.secret.utf8).span)
    }

    static func user(_ number: Int) -> String {
        "00000000-0000-4000-8000-" + String(repeating: "0", count: 12 - String(number).count) + String(number)
    }

    /// Returns a caller with an open WebSocket.
    func caller(receiveBuffer: Int32? = nil) throws -> Caller {
        let caller = try Caller(port: hub.port, receiveBuffer: receiveBuffer)
        callers.append(caller)
        try caller.send(Caller.upgrade(token()))
        let head = try caller.read(through: "\r\n\r\n")
        try #require(head.hasPrefix("HTTP/1.1 101"), "\(head)")
        return caller
    }

    /// Runs `body` while the database refuses new connections. First ends the hub's connections that have this
    /// application name.
    func away(_ application: String, of other: TestDatabase? = nil, _ body: () throws -> Void) throws {
        let database = other ?? database
        let outside = try database.cluster.connect()
        try outside.execute("ALTER DATABASE \(database.name) ALLOW_CONNECTIONS false")
        try outside.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '\(application)' AND datname = '\(database.name)'"
        )
        defer { _ = try? outside.execute("ALTER DATABASE \(database.name) ALLOW_CONNECTIONS true") }
        _ = eventually {
            (try? outside.execute(
                "SELECT 1 FROM pg_stat_activity WHERE application_name = '\(application)' AND datname = '\(database.name)'"
            ))?.isEmpty == true
        }
        try body()
    }
}

/// Returns a binding in the JSON that clients send.
func binding(_ table: String, _ event: String = "*", filter: String? = nil, select: [String]? = nil) -> String {
    let filter = filter.map { #","filter":"\#($0)""# } ?? ""
    let select = select.map { #","select":["\#($0.joined(separator: #"",""#))"]"# } ?? ""
    return #"{"event":"\#(event)","schema":"public","table":"\#(table)"\#(filter)\#(select)}"#
}

/// Signal that tells other threads to stop.
final class Bell: Sendable {
    private let isRung = Atomic<Bool>(false)

    var rang: Bool { isRung.load(ordering: .acquiring) }
    func ring() { isRung.store(true, ordering: .releasing) }
}

/// Groups of tests. In each group one test runs at a time, because all tests share two cores and one PostgreSQL.
@Suite(.serialized, .inChain(minutes: 10)) enum Gateways {}
@Suite(.serialized, .inChain(minutes: 10)) enum GatewayPolicies {}
@Suite(.serialized, .inChain(minutes: 10)) enum GatewayHistories {}
@Suite(.serialized, .inChain(minutes: 10)) enum GatewayTraffic {}
@Suite(.serialized, .inChain(minutes: 10)) enum GatewayRows {}
