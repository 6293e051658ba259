import Calling
import ClusterChecks
import Crypto
import Diagnostics
import Nats
import Settings
import System

/// Survey of the NATS servers of a cluster: reads their monitoring ports, connects as the hub does, and checks both.
public enum ClusterSurvey {
    /// Longest wait for each step of a question to a monitoring port.
    private static let patienceMilliseconds = 2_000

    /// Returns the faults of the servers that the configuration names. Blocks until each has answered, or has not for
    /// too long.
    public static func findings(of cluster: ClusterConfiguration) -> [ClusterFinding] {
        let needs = ClusterNeeds(
            replicas: cluster.replicas, storedBytes: cluster.retentionBytes, isEncrypted: cluster.isEncrypted,
            hasLogin: cluster.login != .none, isTrial: cluster.isTrial)
        var found = ClusterCheck.findings(cluster.monitors.map { answer(of: $0, cluster) }, needs)
        // Connections fail for the same causes; one report of each is enough.
        let explained: Set<ClusterFinding.Kind> = [.loginWanted, .plain, .encrypted]
        if !found.contains(where: { explained.contains($0.kind) }), let finding = connection(cluster) {
            found.append(finding)
        }
        return found
    }

    // MARK: Start of a hub

    /// Waits until the servers answer and are fit for the hub's cluster. Reports warnings. Throws if the servers are not
    /// fit, or do not answer within the time, or the hub is told to stop.
    static func admit(_ cluster: ClusterConfiguration, within limit: Duration = .seconds(60)) throws(HubError) {
        let deadline = Clock.monotonicNanoseconds() + UInt64(limit.components.seconds) * 1_000_000_000
        var isWaiting = false
        while true {
            let found = findings(of: cluster)
            let refusals = found.filter { $0.severity == .refusal }
            guard refusals.isEmpty else { throw .unfitCluster(refusals) }
            let silent = found.filter { $0.severity == .wait }
            if silent.isEmpty {
                for finding in found {
                    if cluster.isTrial {
                        report(finding, "the cluster is a trial, and may lose data")
                    } else {
                        report(finding, "the servers of the cluster have a fault")
                    }
                }
                return
            }
            let isOver = Clock.monotonicNanoseconds() >= deadline
            guard !isOver else { throw .silentCluster(silent) }
            if !isWaiting {
                isWaiting = true
                for finding in silent { report(finding, "waits for the servers of the cluster") }
            }
            if Signals.wait(for: Hub.endingSignals, milliseconds: 1_000) != nil { throw .silentCluster(silent) }
        }
    }

    private static func report(_ finding: ClusterFinding, _ words: StaticString) {
        Log.shared.warning(words, [.reason(finding.message), .hint(finding.hint)])
    }

    // MARK: Questions

    private static func answer(of monitor: String, _ cluster: ClusterConfiguration) -> MonitorAnswer {
        let asked = Clock.unixMicroseconds() / 1_000
        let outcome = outcome(of: monitor, cluster)
        return MonitorAnswer(
            monitor: monitor, outcome: outcome, asked: asked, answered: Clock.unixMicroseconds() / 1_000)
    }

    private static func outcome(of monitor: String, _ cluster: ClusterConfiguration) -> MonitorAnswer.Outcome {
        guard let address = HubAddress(monitor)?.root else { return .foreign }
        do {
            let request = try HubRequest(
                address, token: nil, trusting: cluster.authoritiesFile, waiting: patienceMilliseconds)
            let answer = try request.get("varz")
            return answer.status == 200 ? ServerReport(answer.body).map { .report($0) } ?? .foreign : .foreign
        } catch {
            return .silent(reason: "\(error)")
        }
    }

    /// Connects as the hub does, and returns the fault if that fails.
    private static func connection(_ cluster: ClusterConfiguration) -> ClusterFinding? {
        do {
            let connection = try NatsConnection(cluster.connection(named: "tidewire \(cluster.node) survey")) {}
            return connection.isConnected ? nil : fault("connection lost")
        } catch {
            let reason = "\(error)"
            // With TLS 1.3, a server refuses the hub's certificate only after the handshake: it closes the connection.
            let isClosed = cluster.connection(named: "").isSecure && reason.contains("Expected 'PONG', got ''")
            return fault(isClosed ? reason + " (the server closed the TLS connection)" : reason)
        }
    }

    private static func fault(_ reason: String) -> ClusterFinding {
        let words = reason.lowercased()
        let (repair, isLasting, configuration): (String, Bool, String?) =
            if words.contains("libnats") {
                ("install libnats (Debian's libnats3.4)", true, nil)
            } else if ["ssl", "tls", "certificate", "secure"].contains(where: { words.contains($0) }) {
                (
                    "compare cluster_ca, cluster_certificate and cluster_key with the servers' configuration; the certificate of "
                        + "a server must name its host", true, "tls { cert_file: …, key_file: …, ca_file: … }"
                )
            } else if words.contains("authorization") || words.contains("authentication") {
                (
                    "compare the hub's login (the setting cluster, cluster_credentials, cluster_nkey, cluster_token_file) with the "
                        + "servers' configuration", true, "authorization { user: …, password: … }"
                )
            } else {
                (
                    "start the servers, and compare the setting cluster with the address in their configuration", false,
                    "listen: 0.0.0.0:4222"
                )
            }
        return ClusterFinding(
            kind: .connection, severity: isLasting ? .refusal : .wait, servers: [],
            detail: "the hub cannot connect: \(reason)", repair: repair, configuration: configuration)
    }
}
