import Auth
import ClusterChecks
import Crypto
import Diagnostics
import Gateway
import Glibc
import Ingest
import Net
import Pages
import Policy
import Postgres
import Projects
import Replication
import Settings
import System
import WebSocket

/// Hub as a whole: starts everything from a configuration, runs it, and ends it in order.
public final class Hub: Sendable {
    public static let endingSignals: [Int32] = [SIGINT, SIGTERM]
    /// Signal on which the hub reads certificates, key sets and mask rules again.
    public static let reloadSignal = SIGHUP

    let gateway: Gateway
    let director: ProjectDirector
    private let configuration: Configuration

    /// Checks the limits, opens the logs, begins to follow the databases and listens for clients. The caller must have
    /// blocked signals before (`Hub.blockSignals`), so that all threads started here block them too.
    ///
    /// - Parameters:
    ///   - echoes: true to serve `/echo`, for conformance runs.
    ///   - inProcessClients: plays clients inside the hub, for benchmarks; requires one loop.
    ///   - maskRulesCheck: checks the file of mask_rules.
    ///   - preparation: makes what a new project's database lacks, and the settings' own if the settings ask for it.
    public init(
        _ configuration: Configuration, echoes: Bool = false, inProcessClients: InProcessClients? = nil,
        maskRulesCheck: MaskRulesCheck? = nil, preparation: DatabasePreparing? = nil
    ) throws {
        Limits.checkInvariants()
        let keys = try configuration.tokenKeys()
        let cluster = try configuration.cluster(hostName: HostName.current)
        if let cluster { try ClusterSurvey.admit(cluster) }
        try Directories.make(configuration.dataDirectory)
        Log.shared.info(
            "starting",
            [
                .version(Product.version), .pid(getpid()), .path(configuration.dataDirectory),
                .publication(configuration.publication), .slot(configuration.slot),
            ])
        Hub.report(keys)
        do {
            gateway = try Gateway(
                Hub.gatewaySettings(configuration, keys, echoes: echoes),
                ProcessMetrics(version: Product.version, swift: Product.swift), inProcessClients: inProcessClients)
        } catch {
            throw HubError.explaining(error, listen: configuration.listen)
        }
        do {
            director = try ProjectDirector(
                ProjectPlanner(
                    configuration: configuration, keys: keys, cluster: cluster, preparation: preparation,
                    maskRulesCheck: maskRulesCheck),
                on: gateway)
        } catch {
            gateway.stop()
            throw error
        }
        gateway.open(director)
        self.configuration = configuration
    }

    private static func gatewaySettings(
        _ configuration: Configuration, _ keys: TokenKeys, echoes: Bool
    ) -> GatewaySettings {
        var sockets = SocketSettings(
            host: configuration.listen.host, port: configuration.listen.port,
            loopCount: configuration.loops ?? Processors.count, tls: configuration.tls)
        sockets.backend = configuration.backend
        sockets.ownDescriptorTables = true
        sockets.maximumConnections = max(1, configuration.maximumConnections / sockets.loopCount)
        sockets.idleLimit = configuration.idleTimeout
        // A client that receives the largest message as an echo is not slow, although more bytes wait than usual.
        sockets.outboxBytes =
            echoes ? max(2 * Limits.maximumEchoBytes, configuration.outboxBytes) : configuration.outboxBytes
        sockets.outboxAge = configuration.outboxAge
        let largest = echoes ? max(Limits.maximumEchoBytes, configuration.frameBytes) : configuration.frameBytes
        // The buffer has room for a whole message and the bytes read after it.
        sockets.receiveBytes = largest + Limits.socketReadBytes + Limits.inputGrowthBytes
        var settings = GatewaySettings(sockets: sockets)
        settings.echoes = echoes
        settings.deflates = configuration.compresses
        settings.requestLimits.maximumBodyBytes = configuration.maximumRequestBodyBytes
        settings.maximumMessageBytes = configuration.frameBytes
        settings.idleChannelLimit = configuration.idleChannelTimeout
        settings.connectErrorDelay = configuration.connectErrorBackoff
        settings.joinErrorDelay = configuration.channelErrorBackoff
        settings.outboxLag = configuration.outboxLag.map { UInt64($0) }
        settings.drainTime = configuration.drainTime
        settings.metricsGate = keys.metricsGate
        settings.unknownHosts = configuration.unknownHosts
        settings.mainProject = configuration.projectName
        settings.console = ConsoleGate(
            configuration.console, operators: keys.operators, key: keys.consoleKey, version: Product.version,
            in: try? DiskDirectory(configuration.dataDirectory), at: Clock.unixMicroseconds() / 1_000_000)
        return settings
    }

    private static func report(_ keys: TokenKeys) {
        for note in keys.notes { Log.shared.warning("the hub does not use a key", [.reason(note)]) }
        for short in keys.shortSecrets {
            Log.shared.warning(
                "a secret is too short: anyone with one token could find the secret by trying, and sign other tokens",
                [
                    .setting(short.setting), .bytes(short.byteCount), .limit(ShortSecret.soundBytes),
                    .hint("make a longer one with 'openssl rand -base64 32', and sign the tokens with it again"),
                ])
        }
        guard !keys.canRecogniseAnyone else { return }
        Log.shared.warning(
            "no client can connect: the hub has no key to check tokens with",
            [.hint("set jwt_secret (TIDEWIRE_JWT_SECRET, or JWT_SECRET), jwks or api_keys")])
    }

    /// State of replication: if changes arrive now, and why not.
    public var status: ReplicationStatus { director.main?.ingest.status ?? ReplicationStatus() }

    var followsMemberships: Bool { director.main?.followsMemberships ?? false }
    /// True if the hub follows the table, so that it can use memberships in it.
    func follows(_ table: String) -> Bool { director.main?.follows(table) ?? false }
    /// True if some policies could not be read for now. Changes of their tables' rows wait.
    var hasUnsettledPolicies: Bool { director.main?.hasUnsettledPolicies ?? false }

    /// True if the hub has no login that may run the functions in policies and generated columns.
    var policyLoginIsRefused: Bool { director.main.map { !$0.project.mayCompute } ?? false }

    /// True if the hub knows that it has a login that may run the functions in policies.
    var policyLoginIsFit: Bool { director.main?.policyLoginIsFit ?? false }

    /// True if the hub evaluates all policies of a table without PostgreSQL. `members` is the table with memberships
    /// that the policies read; nil if there is none.
    public func decides(_ table: String, with members: String?) -> Bool {
        let classes = policyClasses(of: table)
        return !hasUnsettledPolicies && !classes.isEmpty && classes.keys.allSatisfy { $0 != .fallback }
            && members.map(follows) ?? true
    }

    /// Returns how many policies of the table are decided in each way (by the hub or by PostgreSQL).
    func policyClasses(of table: String) -> [CompiledPolicy.Classification: Int] {
        director.main?.policyClasses(of: table) ?? [:]
    }

    /// Port to which clients connect.
    public var port: UInt16 { gateway.port }

    /// Reads the files of keys, certificates and mask rules again. If one cannot be used, the hub logs this and keeps
    /// the old ones.
    public func reload() {
        director.renewMaskRules()
        do {
            let keys = try configuration.tokenKeys()
            Hub.report(keys)
            // The step that can fail is first, so that a failure changes nothing.
            try gateway.reloadTLS()
            director.replace(keys)
            Log.shared.info("read the keys and certificates again")
        } catch {
            Log.shared.error(
                "cannot use the new keys and certificates: the hub keeps the old ones", [.reason("\(error)")])
        }
    }

    private static func isToldToHurry() -> Bool {
        guard let signal = Signals.wait(for: endingSignals, milliseconds: 0) else { return false }
        Log.shared.info("received a second signal to stop: disconnecting all clients at once", [.signal(Int(signal))])
        return true
    }

    public static func blockSignals() { Signals.block(endingSignals + [reloadSignal]) }

    /// Waits for a signal. Returns a signal that ends the hub. Returns nil when the time is up, and also after the
    /// reload signal, on which `hub` reads its keys again.
    public static func waitForSignal(reloading hub: Hub? = nil, milliseconds: Int = 86_400_000) -> Int32? {
        guard let signal = Signals.wait(for: endingSignals + [reloadSignal], milliseconds: milliseconds) else {
            return nil
        }
        guard signal == reloadSignal else { return signal }
        hub?.reload()
        return nil
    }

    /// Ends the hub in order. At a second ending signal, the hub disconnects all clients immediately. It still does
    /// everything else, so that nothing is lost.
    public func stop() {
        director.close()
        gateway.drain(unless: Hub.isToldToHurry)
        gateway.stop()
        director.endAll()
        Log.shared.info("stopped")
    }
}

public enum HubError: Error, CustomStringConvertible {
    case cannotListen(address: String, reason: String)
    case cannotServeTLS(reason: String)
    /// Servers of the cluster that could lose or refuse the log.
    case unfitCluster([ClusterFinding])
    /// Servers of the cluster that did not answer within the time that the hub waits for them.
    case silentCluster([ClusterFinding])

    static func explaining(_ error: any Error, listen: ListenAddress) -> any Error {
        if let error = error as? TLSConfigurationError { return HubError.cannotServeTLS(reason: "\(error)") }
        guard let error = error as? SystemError, ["bind", "listen", "resolve"].contains(error.operation) else {
            return error
        }
        let reason = error.operation == "resolve" ? "the name cannot be resolved" : error.reason
        return HubError.cannotListen(address: listen.description, reason: reason)
    }

    public var description: String {
        switch self {
        case .cannotServeTLS(let reason):
            "the certificate or its key cannot be used (tls_certificate, tls_key): \(reason)"
        case .cannotListen(let address, let reason):
            "cannot listen on \(address): \(reason)"
        case .unfitCluster(let findings):
            "the NATS servers are not fit for a cluster: " + findings.map(\.message).joined(separator: "; ")
        case .silentCluster(let findings):
            "the NATS servers of the cluster are not ready: " + findings.map(\.message).joined(separator: "; ")
        }
    }

    /// True if the cause is a server that cannot be reached, which may change by itself.
    public var isUnreachable: Bool { if case .silentCluster = self { true } else { false } }

    /// Advice for the user about the error.
    public var advice: String {
        switch self {
        case .cannotServeTLS:
            "tls_certificate and tls_key must name PEM files that fit each other and that the hub may read."
        case .cannotListen:
            "Choose another address with --listen (TIDEWIRE_LISTEN), or stop the program that listens there."
        case .unfitCluster(let findings):
            findings.map(\.hint).joined(separator: "\n")
                + "\nFor a trial without data that matters: cluster_trial = on."
        case .silentCluster(let findings): findings.map(\.hint).joined(separator: "\n")
        }
    }
}
