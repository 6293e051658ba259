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

/// A hub in this process with the logins that it is documented to have, on a database of its own, and those who call it.
final class GatewayStage: @unchecked Sendable {
    // Each is used by one thread, but for `stop`, which is called by one.
    let database: TestDatabase
    private(set) var hub: Hub
    private let configuration: Configuration
    /// Roles are the whole cluster's.
    let names: Names
    var reader: String { names.reader }
    var outsider: String { names.outsider }
    /// As the hub has them.
    let logins: DocumentedLogins
    let dataDirectory = TemporaryDirectory.make("data")
    private var isStopped = false
    private var callers: [Caller] = []
    static let secret = "a secret of the tests, which is longer than thirty-two bytes"

    /// `READER` and `OUTSIDER` in the text and in settings are two roles, of which the first is meant to read; `HUB` is the hub's login.
    /// `followed` are tables that an operator put into the hub's own publication, which its login may not make.
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
            // Callers send no heartbeats, and a test takes as long as the machine lets it.
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

    /// What the hub counts of its sockets.
    var processMetrics: ProcessMetrics { hub.gateway.metrics }

    /// What the hub counts of its project.
    var metrics: ProjectMetrics {
        guard let main = hub.director.main else { preconditionFailure("the stage's project does not run") }
        return main.project.metrics
    }

    func stop() {
        if !isStopped { hub.stop() }
        isStopped = true
    }

    /// The hub stops, something is done to what it leaves, and another one goes on with that. Who called it has to call again.
    func restart(_ meanwhile: () throws -> Void) throws {
        for caller in callers { caller.hangUp() }
        callers = []
        hub.stop()
        try meanwhile()
        hub = try Hub(configuration)
        let port = hub.port
        #expect(try eventually { try GatewayStage.isReady(port) })
    }

    /// Slots are few, and the whole cluster's.
    deinit {
        // A hub waits a while for those who are there.
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

    /// The loop knows what the catalog says now: it has been asked again, and the loop has taken a turn since.
    func awaitCatalog() throws {
        let isRead = Awaited<Bool>()
        hub.director.main?.project.catalog.refresh(seeing: nil) { isRead.set($0 != nil) }
        #expect(isRead.wait() == true)
        // Where the publication of what policies read is another now, the stream may begin anew meanwhile.
        let port = hub.port
        #expect(try eventually { try GatewayStage.isReady(port) })
    }

    /// All judge by what the hub has read of the catalog, and the log has it, or is about to.
    var catalogIsNoted: Bool { (hub.director.main?.project.catalog as? CatalogService)?.isNoted ?? false }

    /// Everything that was committed before is in the log.
    func awaitLog() throws {
        let end = try database.value("SELECT pg_current_wal_flush_lsn()") ?? ""
        let isConfirmed =
            "SELECT confirmed_flush_lsn >= '\(end)' FROM pg_replication_slots WHERE slot_name = '\(database.slot)'"
        #expect(try eventually { try database.value(isConfirmed) == "t" })
    }

    /// A token of the role, for an hour.
    func token(_ role: String? = nil, mark: String = "", lasting seconds: Int = 3600) -> String {
        let expiry = Int(Date().timeIntervalSince1970) + seconds
        let claims = #"{"role":"\#(role ?? reader)","exp":\#(expiry),"mark":"\#(mark)"}"#
        return JWT.sign(claims: Array(claims.utf8).span, secret: Array(Self.secret.utf8).span)
    }

    /// The token of a user.
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

    /// Somebody with an open WebSocket.
    func caller(receiveBuffer: Int32? = nil) throws -> Caller {
        let caller = try Caller(port: hub.port, receiveBuffer: receiveBuffer)
        callers.append(caller)
        try caller.send(Caller.upgrade(token()))
        let head = try caller.read(through: "\r\n\r\n")
        try #require(head.hasPrefix("HTTP/1.1 101"), "\(head)")
        return caller
    }

    /// The database lets nobody in, and what the hub has of these connections ends.
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

/// A binding as a client writes it.
func binding(_ table: String, _ event: String = "*", filter: String? = nil, select: [String]? = nil) -> String {
    let filter = filter.map { #","filter":"\#($0)""# } ?? ""
    let select = select.map { #","select":["\#($0.joined(separator: #"",""#))"]"# } ?? ""
    return #"{"event":"\#(event)","schema":"public","table":"\#(table)"\#(filter)\#(select)}"#
}

/// Tells other threads that it is enough.
final class Bell: Sendable {
    private let isRung = Atomic<Bool>(false)

    var rang: Bool { isRung.load(ordering: .acquiring) }
    func ring() { isRung.store(true, ordering: .releasing) }
}

/// They share two cores and a PostgreSQL: of each of these groups one at a time.
@Suite(.serialized, .inChain(minutes: 10)) enum Gateways {}
@Suite(.serialized, .inChain(minutes: 10)) enum GatewayPolicies {}
@Suite(.serialized, .inChain(minutes: 10)) enum GatewayHistories {}
@Suite(.serialized, .inChain(minutes: 10)) enum GatewayTraffic {}
@Suite(.serialized, .inChain(minutes: 10)) enum GatewayRows {}
