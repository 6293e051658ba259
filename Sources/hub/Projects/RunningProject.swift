import Asking
import Auth
import Catalog
import Change
import Delivery
import Diagnostics
import Gateway
import Ingest
import Judging
import Messages
import Peers
import Policy
import Postgres
import Replication
import Settings
import Synchronization
import System

/// Running project: the hub follows its database into its log, and serves clients from the log.
public final class RunningProject: Sendable {
    public let ingest: IngestService
    public let project: Project
    private let janitor: MessagesJanitor
    private let gateway: Gateway
    let metrics: ProjectMetrics
    /// Exchange with the other nodes of a cluster; nil for a hub on its own.
    let peers: PeerTalk?

    init(_ plan: ProjectPlan, number: UInt32, on gateway: Gateway) throws {
        let replication = plan.ingest.replication
        metrics = replication.metrics
        let ingest = try IngestService(plan.ingest)
        do {
            janitor = try MessagesJanitor(
                replication.target, hours: plan.messagesHours, reachability: replication.reachability)
        } catch {
            ingest.stop()
            throw error
        }
        do {
            let services = try ProjectServices(
                replication, policies: plan.policies, logDirectory: plan.logDirectory,
                ingest: ingest, janitor: janitor, messagesHours: plan.messagesHours,
                keepsCatalogs: plan.ledger != .nothing)
            let timeline: (@Sendable ([PresenceMark]) -> Void)? =
                plan.keepsPresenceTimeline ? { @Sendable marks in ingest.record(marks) } : nil
            var settings = plan.settings
            settings.resumeStore = Self.resumeStore(plan, loops: gateway.loopCount)
            settings.publication = Self.publication(plan)
            settings.demoted = Self.demoted(plan)
            settings.blocklist = try Blocklist(in: DiskDirectory(plan.ingest.dataDirectory))
            settings.roles.logins = Self.users(of: [replication.target, plan.policies].compactMap(\.self))
            let peers = Self.peers(plan, ingest, gateway)
            self.peers = peers
            let stream = ProjectStream(
                log: Self.log(of: ingest, plan), hearsDatabase: { ingest.isFollowingMessages },
                presenceTimeline: timeline, ledger: Self.ledger(plan, ingest),
                peers: peers,
                condition: { [metrics = gateway.metrics] in
                    Self.condition(
                        ingest.status, ingest.cluster, isCatalogKnown: $0, clients: Int(metrics.sessions.value))
                })
            let share = ProjectShare(
                number: number, loops: gateway.loopCount, gateway.budgets(), replication.metrics)
            project = Project(plan.name, settings, share, services, plan.verifier, stream)
            try project.listenToPeers()
            Self.meet(peers, plan)
        } catch {
            janitor.stop()
            ingest.stop()
            throw error
        }
        self.ingest = ingest
        self.gateway = gateway
        gateway.add(project)
    }

    private static func peers(_ plan: ProjectPlan, _ ingest: IngestService, _ gateway: Gateway) -> PeerTalk? {
        plan.ingest.cluster.map {
            PeerTalk(
                $0.servers, name: $0.node, project: $0.key, metrics: plan.ingest.replication.metrics,
                status: { [cluster = ingest.cluster, metrics = gateway.metrics] in
                    cluster?.told(clients: Int(metrics.sessions.value))
                })
        }
    }

    /// Waits until the other nodes of the cluster have told of their clients, which may come to this one at once.
    private static func meet(_ peers: PeerTalk?, _ plan: ProjectPlan) {
        guard let peers, !peers.waitForIntroduction() else { return }
        Log.shared.warning(
            "the other nodes of the cluster have not told of their clients yet: those that come to this node now are told to fetch",
            [.project(plan.name), .hint("'tidewire cluster members' shows the nodes that are heard")])
    }

    /// Number of clients that are connected to the hub.
    var clientCount: Int { Int(gateway.metrics.sessions.value) }

    private static func ledger(_ plan: ProjectPlan, _ ingest: IngestService) -> ChannelLedger? {
        guard plan.ledger != .nothing else { return nil }
        _ = ingest.record(LedgerNote(.began, time: plan.settings.time.unixMicroseconds(), session: 0, channel: 0))
        return ChannelLedger(plan.ledger, claims: plan.ledgerClaims) { note in ingest.record(note) }
    }

    private static func log(of ingest: IngestService, _ plan: ProjectPlan) -> LogSource {
        let directory = plan.logDirectory
        return LogSource(
            open: { () throws(SystemError) in try DiskDirectory(directory) }, end: { ingest.end },
            covered: { ingest.status.covered }, isReplica: plan.ingest.cluster != nil)
    }

    /// Opens the store of clients' positions; nil if the setting `catch_up` is off. If the file cannot be used, keeps
    /// the positions in memory only, so that clients cannot resume after a restart.
    private static func resumeStore(_ plan: ProjectPlan, loops: Int) -> ResumeStore? {
        guard plan.catchUp != .nobody else { return nil }
        let time = plan.settings.time
        do {
            let directory = try DiskDirectory(plan.ingest.dataDirectory)
            let resumeStore = try ResumeStore(
                loops: loops, scope: plan.catchUp, grace: plan.catchUpGrace, in: directory, time: time)
            try resumeStore.start()
            return resumeStore
        } catch {
            Log.shared.warning(
                "cannot store the positions of clients: after a restart, the hub cannot resume them",
                [.error("\(error)"), .project(plan.name)])
            return try? ResumeStore(loops: loops, scope: plan.catchUp, grace: plan.catchUpGrace, in: nil, time: time)
        }
    }

    /// Opens the record of when tables left the publication. If the file cannot be used, keeps it in memory only. After
    /// a restart, the hub then cannot tell clients which changes they missed because a table had left the publication.
    private static func publication(_ plan: ProjectPlan) -> PublicationRecord {
        do {
            let record = PublicationRecord(in: try DiskDirectory(plan.ingest.dataDirectory))
            try record.start()
            return record
        } catch {
            Log.shared.warning(
                "cannot store which tables left the publication: after a restart, clients are not told of changes they missed by it",
                [.error("\(error)"), .project(plan.name)])
            return PublicationRecord(in: nil)
        }
    }

    /// Opens the record of policies that only PostgreSQL evaluates. If the file cannot be used, PostgreSQL evaluates
    /// all policies.
    private static func demoted(_ plan: ProjectPlan) -> DemotedPolicies {
        do {
            let record = DemotedPolicies(in: try DiskDirectory(plan.ingest.dataDirectory))
            try record.start()
            return record
        } catch {
            Log.shared.error(
                "cannot store which policies PostgreSQL has to decide: PostgreSQL decides all policies",
                [.error("\(error)"), .project(plan.name)])
            return DemotedPolicies(unreadable: ())
        }
    }

    /// Returns the user names that the connection addresses of the targets contain.
    private static func users(of targets: [ConnectionTarget]) -> Set<String> {
        Set(targets.flatMap { ((try? $0.parameters()) ?? []).filter { $0.0 == "user" }.map(\.1) })
    }

    private static func condition(
        _ status: ReplicationStatus, _ cluster: ClusterStatus?, isCatalogKnown: Bool, clients: Int
    ) -> ProjectHealthReport {
        let trouble = status.trouble
        var report = ProjectHealthReport(
            isStreaming: status.isStreaming, isLogWritable: trouble?.reason != .diskStall,
            isCatalogKnown: isCatalogKnown, clients: clients,
            trouble: trouble.map { $0.reason.rawValue }, warning: status.danger)
        report.node = cluster?.health
        return report
    }

    /// Replaces the keys for verifying tokens. They apply to tokens that arrive from now on.
    func replace(_ verifier: TokenVerifier) {
        project.verifier.withLock { $0 = verifier }
        project.post(.keys)
    }

    /// Disconnects the project's clients and ends the project.
    func stop() {
        gateway.remove(project)
        end()
    }

    /// Ends the project. The caller must have disconnected its clients, and the loops must have ended or no longer use
    /// it.
    func end() {
        project.stop()
        janitor.stop()
        ingest.stop()
    }

    public var followsMemberships: Bool { project.catalog.snapshot?.followable.isEmpty == false }
    public var hasUnsettledPolicies: Bool { project.catalog.snapshot?.policies.unsettled.isEmpty == false }

    public var policyLoginIsFit: Bool { project.policyEvaluator.availability == .available }

    /// True if the hub follows a table with this name: policies that read it can be evaluated by the hub.
    public func follows(_ name: String) -> Bool {
        guard let snapshot = project.catalog.snapshot else { return false }
        return snapshot.followable.keys.contains { snapshot.related($0)?.name == name }
    }

    /// Returns the number of policies of the tables with this name, by the way in which each is decided.
    public func policyClasses(of name: String) -> [CompiledPolicy.Classification: Int] {
        guard let snapshot = project.catalog.snapshot else { return [:] }
        let tables = snapshot.policies.policies.filter { snapshot.related($0.key)?.name == name }
        return Dictionary(
            tables.values.joined().map { ($0.compiled.classification, 1) }, uniquingKeysWith: +)
    }
}
