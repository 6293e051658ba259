import Auth
import Diagnostics
import EventLog
import Net
import Policy
import Postgres
import Replication
import Synchronization
import System

/// The clients' side of the hub: sockets, the catalog, and what asks PostgreSQL about single rows.
public final class Gateway: Sendable {
    private let shared: GatewayShared
    private let mailboxes: [Mailbox]
    private let sockets: SocketServer

    /// Listens when it returns. `policies` is the login under which PostgreSQL is asked what policies say; nil is the hub's
    /// own.
    public init(
        _ settings: GatewaySettings, database: ConnectionTarget, policies: ConnectionTarget? = nil, publication: String,
        verifier: TokenVerifier, coverage: StreamCoverage = StreamCoverage(),
        logEnd: @escaping @Sendable () -> EventLogEnd?,
        condition: @escaping @Sendable (_ isCatalogKnown: Bool) -> Condition, rehearsal: Rehearsal? = nil
    ) throws {
        var catalogSettings = CatalogService.Settings(target: database, publication: publication)
        catalogSettings.coverage = coverage
        let catalog = try CatalogService(catalogSettings)
        let judge = try Judge(database)
        let policyJudge = try PolicyJudge(PolicyJudge.Settings(database: database, policies: policies))
        let shared = GatewayShared(
            settings, catalog, judge, policyJudge, verifier, logEnd: logEnd,
            condition: { condition(catalog.isCurrent) })
        let mailboxes = (0..<settings.sockets.loopCount).map { _ in Mailbox() }
        self.shared = shared
        self.mailboxes = mailboxes
        catalog.listen { _ in for mailbox in mailboxes { mailbox.post(.catalogMoved) } }
        do {
            sockets = try SocketServer(settings.sockets) { index in
                let clients = ClientLoop(shared, mailboxes[index])
                return rehearsal.map { RehearsalLoop($0, clients) } ?? clients
            }
        } catch {
            catalog.stop()
            judge.stop()
            policyJudge.stop()
            throw error
        }
        let addresses = sockets.addresses.map(\.description).joined(separator: ", ")
        Log.shared.info("listening", [.address(addresses), .count(settings.sockets.loopCount)])
    }

    public var port: UInt16 { sockets.port }
    public var addresses: [SocketAddress] { sockets.addresses }

    var followsMemberships: Bool { shared.catalog.snapshot?.followable.isEmpty == false }

    func policyClasses(of name: String) -> [CompiledPolicy.Classification: Int] {
        guard let snapshot = shared.catalog.snapshot else { return [:] }
        let tables = snapshot.policies.policies.filter { snapshot.related($0.key)?.name == name }
        return Dictionary(
            tables.values.joined().map { ($0.compiled.classification, 1) }, uniquingKeysWith: +)
    }

    /// Other keys for tokens that come from now on, and the certificate as its files are now.
    public func reload(_ verifier: TokenVerifier) throws {
        // First what can fail: then all stays as it was.
        try sockets.reloadTLS()
        shared.verifier.withLock { $0 = verifier }
        for mailbox in mailboxes { mailbox.post(.keys) }
    }

    /// Sends all clients away, waits a while until they are gone, and ends.
    public func stop() {
        sockets.stopAccepting()
        for mailbox in mailboxes { mailbox.post(.drain) }
        let deadline = Clock.monotonicNanoseconds() + Limits.drainLimit.wholeNanoseconds
        while Metrics.shared.sessions.value > 0, Clock.monotonicNanoseconds() < deadline {
            BackgroundThread.rest(nanoseconds: 10_000_000)
        }
        sockets.stop()
        shared.catalog.stop()
        shared.judge.stop()
        shared.policyJudge.stop()
    }
}
