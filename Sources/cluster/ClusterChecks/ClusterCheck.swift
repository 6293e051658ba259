/// Check of a cluster's servers against the needs of a hub. It is a pure function of the servers' answers.
public struct ClusterCheck {
    private let answers: [MonitorAnswer]
    private let needs: ClusterNeeds
    private let reports: [ServerReport]

    /// Difference of two clocks that is reported, in milliseconds.
    private static let clockTolerance: Int64 = 2_000

    /// Returns the faults, in the order in which a person would repair them. A trial has no refusals.
    public static func findings(_ answers: [MonitorAnswer], _ needs: ClusterNeeds) -> [ClusterFinding] {
        let found = ClusterCheck(answers, needs).run()
        guard needs.isTrial else { return found }
        return found.map { finding in
            var finding = finding
            if finding.severity == .refusal { finding.severity = .warning }
            return finding
        }
    }

    private init(_ answers: [MonitorAnswer], _ needs: ClusterNeeds) {
        self.answers = answers
        self.needs = needs
        reports = answers.compactMap(\.report)
    }

    private func run() -> [ClusterFinding] {
        let all = [
            [silent(), foreign()], versions(), [jetStream(), lazySync(), tooFew(), clusters(), leader(), offline()],
            [payload(), storage(), sameName(), sameServer(), unchecked(), clocks()], [encryption(), login()],
        ]
        return all.flatMap { $0 }.compactMap(\.self)
    }

    private func names(_ isAffected: (ServerReport) -> Bool) -> [String] { reports.filter(isAffected).map(\.name) }

    // MARK: Answers

    private func silent() -> ClusterFinding? {
        let silent = answers.compactMap { answer in
            if case .silent(let reason) = answer.outcome { (answer.monitor, reason) } else { nil }
        }
        guard let first = silent.first else { return nil }
        let isAnyAnswered = silent.count < answers.count
        return ClusterFinding(
            kind: .silent, severity: isAnyAnswered ? .warning : .wait, servers: silent.map(\.0),
            detail: "no answer from the monitoring port (\(first.1)), so the hub cannot check the "
                + (isAnyAnswered ? "server" : "servers"),
            repair:
                "start the server, or set cluster_monitor to the addresses of the monitoring ports, which each server opens by",
            configuration: "http: 0.0.0.0:8222")
    }

    private func foreign() -> ClusterFinding? {
        let foreign = answers.filter { $0.outcome == .foreign }.map(\.monitor)
        guard !foreign.isEmpty else { return nil }
        return ClusterFinding(
            kind: .foreign, severity: .refusal, servers: foreign, detail: "the answer is not that of a NATS server",
            repair: "set cluster_monitor to the addresses of the servers' monitoring ports, which each server opens by",
            configuration: "http: 0.0.0.0:8222")
    }

    private func versions() -> [ClusterFinding?] {
        let old = Dictionary(grouping: reports.filter { $0.version < ClusterNeeds.minimumVersion }, by: \.version)
        return old.sorted { $0.key < $1.key }.map { version, reports in
            ClusterFinding(
                kind: .version, severity: .refusal, servers: reports.map { $0.name },
                detail: "version \(version) can lose messages that it has acknowledged",
                repair: "install nats-server \(ClusterNeeds.minimumVersion) or later, one server after the other",
                configuration: nil)
        }
    }

    // MARK: JetStream

    private func jetStream() -> ClusterFinding? {
        let off = names { $0.jetStream == nil }
        guard !off.isEmpty else { return nil }
        return ClusterFinding(
            kind: .jetStreamOff, severity: .refusal, servers: off,
            detail: "JetStream is off, so the server stores nothing",
            repair: "write into the configuration and restart the server",
            configuration: "jetstream { store_dir: /var/lib/nats, sync_interval: always }")
    }

    private func lazySync() -> ClusterFinding? {
        let lazy = reports.filter { $0.jetStream.map { !$0.syncsAlways } ?? false }
        guard let interval = lazy.compactMap(\.jetStream?.syncInterval).max() else { return nil }
        return ClusterFinding(
            kind: .lazySync, severity: .refusal, servers: lazy.map(\.name),
            detail:
                "the server writes to its disk only every \(interval.components.seconds) s: a power failure of the servers "
                + "loses messages that they have acknowledged",
            repair: "write into the configuration and restart the servers, one after the other",
            configuration: "jetstream { store_dir: \(Self.store(lazy)), sync_interval: always }")
    }

    private static func store(_ reports: [ServerReport]) -> String {
        reports.lazy.compactMap(\.jetStream?.storeDirectory).first ?? "/var/lib/nats"
    }

    private func tooFew() -> ClusterFinding? {
        let sizes = reports.compactMap(\.jetStream?.clusterSize)
        guard let size = sizes.max(), size < needs.replicas else { return nil }
        let routes = (1...needs.replicas).map { "nats://nats\($0):6222" }.joined(separator: ", ")
        return ClusterFinding(
            kind: .tooFewServers, severity: .refusal, servers: [],
            detail:
                "the cluster has \(size == 1 ? "one server" : "\(size) servers"), and each message is to be stored by "
                + "\(needs.replicas) (cluster_replicas)",
            repair:
                "write into the configuration of each of \(needs.replicas) servers, each with a server_name of its own",
            configuration: "cluster { name: tidewire, listen: 0.0.0.0:6222, routes: [\(routes)] }")
    }

    private func clusters() -> ClusterFinding? {
        let inClusters = reports.filter { $0.jetStream != nil }
        let known = Set(inClusters.map { $0.cluster ?? "" })
        let isApart = known.count > 1 || inClusters.count > 1 && inClusters.contains { $0.jetStream?.clusterSize == 1 }
        guard isApart else { return nil }
        return ClusterFinding(
            kind: .differentClusters, severity: .refusal, servers: inClusters.map(\.name),
            detail:
                "the servers do not form one cluster (\(known.map { $0.isEmpty ? "none" : $0 }.sorted().joined(separator: ", ")))",
            repair: "give all of them the same cluster name, and routes to each other",
            configuration: "cluster { name: tidewire, listen: 0.0.0.0:6222, routes: [nats://nats1:6222, …] }")
    }

    private func leader() -> ClusterFinding? {
        let clustered = reports.filter { $0.jetStream != nil }
        guard !clustered.isEmpty, clustered.allSatisfy({ $0.jetStream?.hasLeader == false }) else { return nil }
        return ClusterFinding(
            kind: .noLeader, severity: .wait, servers: clustered.map(\.name),
            detail: "JetStream has no leader: less than half of the servers reach each other, so they store nothing",
            repair: "start the other servers, and let the servers reach each other's cluster port (6222)",
            configuration: nil)
    }

    private func offline() -> ClusterFinding? {
        let silent = Set(reports.flatMap { $0.jetStream?.offline ?? [] }).subtracting(reports.map(\.name))
        guard !silent.isEmpty else { return nil }
        return ClusterFinding(
            kind: .offline, severity: .warning, servers: silent.sorted(),
            detail: "the other servers do not reach this server, so the cluster survives one failure less",
            repair: "start the server, or look at its log", configuration: nil)
    }

    // MARK: Limits

    private func payload() -> ClusterFinding? {
        let small = reports.filter { $0.maximumPayload < ClusterNeeds.messageBytes }
        guard let smallest = small.map(\.maximumPayload).min() else { return nil }
        return ClusterFinding(
            kind: .payload, severity: .refusal, servers: small.map(\.name),
            detail:
                "the server takes messages of \(smallest) bytes, and the hub sends up to \(ClusterNeeds.messageBytes)",
            repair: "write into the configuration and reload it (nats-server --signal reload)",
            configuration: "max_payload: 1MB")
    }

    private func storage() -> ClusterFinding? {
        guard let wanted = needs.storedBytes else { return nil }
        let small = reports.filter { $0.jetStream.map { $0.maximumStorage < wanted } ?? false }
        guard let smallest = small.compactMap(\.jetStream?.maximumStorage).min() else { return nil }
        let gigabytes = (wanted >> 30) + 1
        return ClusterFinding(
            kind: .storage, severity: .refusal, servers: small.map(\.name),
            detail:
                "the server may store \(smallest >> 20) MB, and the log may grow to \(wanted >> 20) MB (retention_size)",
            repair:
                "lower retention_size, or, if the disk has the room, write into the configuration and restart the server",
            configuration:
                "jetstream { store_dir: \(Self.store(small)), sync_interval: always, max_file_store: \(gigabytes)GB }"
        )
    }

    // MARK: Names

    private func sameName() -> ClusterFinding? {
        let named = Dictionary(grouping: reports, by: \.name).filter { Set($0.value.map(\.id)).count > 1 }
        guard let name = named.keys.sorted().first else { return nil }
        return ClusterFinding(
            kind: .sameName, severity: .refusal, servers: named.keys.sorted(),
            detail: "two servers have this name: JetStream takes them for one and the same",
            repair: "give each server a name of its own", configuration: "server_name: \(name)-2")
    }

    private func sameServer() -> ClusterFinding? {
        let same = Dictionary(grouping: answers.filter { $0.report != nil }) { $0.report?.id ?? "" }.values
            .filter { $0.count > 1 }.map { $0.map(\.monitor).sorted() }.sorted { $0[0] < $1[0] }
        guard let first = same.first else { return nil }
        return ClusterFinding(
            kind: .sameServer, severity: .warning, servers: first,
            detail: "the addresses lead to one and the same server",
            repair: "set cluster_monitor to one address of each server", configuration: nil)
    }

    private func unchecked() -> ClusterFinding? {
        let size = reports.compactMap(\.jetStream?.clusterSize).max() ?? 0
        guard !reports.isEmpty, size > answers.count else { return nil }
        return ClusterFinding(
            kind: .unchecked, severity: .warning, servers: [],
            detail:
                "the cluster has \(size) servers, and cluster_monitor names \(answers.count): the hub does not check the others",
            repair: "set cluster_monitor to the monitoring ports of all servers", configuration: nil)
    }

    private func clocks() -> ClusterFinding? {
        let offsets = answers.map { ($0.report?.name ?? $0.monitor, $0.clockOffset) }
        let wrong = offsets.filter { abs($0.1) > Self.clockTolerance }
        guard let worst = wrong.map({ abs($0.1) }).max() else { return nil }
        return ClusterFinding(
            kind: .clocks, severity: .warning, servers: wrong.map(\.0),
            detail:
                "the clock differs from this machine's by \(worst / 1_000) s: messages and logins expire earlier or later",
            repair: "synchronize the clocks of the machines (timedatectl set-ntp true)", configuration: nil)
    }

    // MARK: Access

    private func encryption() -> ClusterFinding? {
        let other = names { $0.isEncrypted != needs.isEncrypted }
        guard !other.isEmpty else { return nil }
        if needs.isEncrypted {
            return ClusterFinding(
                kind: .plain, severity: .refusal, servers: other,
                detail: "the server does not encrypt, and the hub asks for it",
                repair: "write into the configuration (or nats:// instead of tls:// into cluster)",
                configuration: "tls { cert_file: /etc/nats/server.pem, key_file: /etc/nats/server.key }")
        }
        return ClusterFinding(
            kind: .encrypted, severity: .refusal, servers: other, detail: "the server takes only encrypted connections",
            repair: "write tls:// instead of nats:// into the setting cluster", configuration: nil)
    }

    private func login() -> ClusterFinding? {
        let asking = names(\.asksForLogin)
        if !needs.hasLogin, !asking.isEmpty {
            return ClusterFinding(
                kind: .loginWanted, severity: .refusal, servers: asking, detail: "the server asks for a login",
                repair:
                    "give the hub one: user and password in the setting cluster, cluster_credentials, cluster_nkey or "
                    + "cluster_token_file", configuration: nil)
        }
        let open = names { !$0.asksForLogin }
        guard !open.isEmpty else { return nil }
        return ClusterFinding(
            kind: .open, severity: .warning, servers: open,
            detail: "the server asks for no login: whoever reaches its port can read the log and write into it",
            repair: "write into the configuration, and the same user and password into the setting cluster",
            configuration: "authorization { user: tidewire, password: … }")
    }
}
