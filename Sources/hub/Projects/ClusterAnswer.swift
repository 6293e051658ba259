import Bytes
import Diagnostics
import Gateway
import Ingest
import Peers
import Replication
import Settings
import System
import WebSocket

extension ClusterSettings {
    /// Creates the settings by which a project's log takes part in the hub's cluster. Each project has a stream of its
    /// own.
    public init(_ cluster: ClusterConfiguration, project: String) {
        self.init(
            servers: cluster.connection(named: "tidewire \(cluster.node)"), node: cluster.node, project: project,
            replicas: cluster.replicas)
    }
}

extension ClusterStatus {
    /// Returns the state that the node tells the other nodes.
    func told(clients: Int) -> PeerStatus {
        let (report, now) = (report, Clock.monotonicNanoseconds())
        return PeerStatus(
            node: node, state: report.state.rawValue, tenure: report.tenure, feedsSince: report.feedsSince,
            sequence: report.sequence, lag: report.lag(at: now), isFarBehind: report.isFarBehind(at: now),
            clients: clients)
    }

    /// State of the node for load balancers.
    var health: ProjectHealthReport.Node {
        let (report, now) = (report, Clock.monotonicNanoseconds())
        return ProjectHealthReport.Node(
            name: node, state: report.state.rawValue, missing: report.missing,
            lagSeconds: Double(report.lag(at: now) / 1_000_000) / 1_000, isFarBehind: report.isFarBehind(at: now),
            refusal: report.refusal?.rawValue)
    }
}

extension RunningProject {
    /// Answer about the node and its cluster. A hub on its own is `alone`.
    var clusterAnswer: HTTPResponse {
        guard let cluster = ingest.cluster else {
            return Self.data(JSONObject([("state", .string("alone"))]))
        }
        let (report, now) = (cluster.report, Clock.monotonicNanoseconds())
        let peers = (self.peers?.members(at: now) ?? []).filter { $0.status.node != cluster.node }
        let own = cluster.told(clients: clientCount)
        let last = max(report.last, peers.map(\.status.sequence).max() ?? 0)
        let all: [(status: PeerStatus, silence: UInt64)] = [(status: own, silence: 0)] + peers
        let feeder = all.filter { $0.status.feedsSince != nil && $0.silence < PeerTalk.patience }
            .max { $0.status.tenure < $1.status.tenure }?.status
        let members: [JSONValue] =
            [Self.member(own, silence: nil, last)] + peers.map { Self.member($0.status, silence: $0.silence, last) }
        return Self.data(
            JSONObject([
                ("node", .string(cluster.node)), ("state", .string(report.state.rawValue)),
                ("stream", .string(cluster.streamName)), ("server", Self.text(report.server)),
                ("tenure", .number(String(report.tenure))),
                ("feeder", Self.text(feeder?.node ?? report.feeder ?? "")),
                ("feeding_since", feeder?.feedsSince.map { .string(TimeText.write($0) + "Z") } ?? .null),
                ("sequence", .number(String(report.sequence))), ("last_sequence", .number(String(last))),
                ("lag_messages", .number(String(last - min(last, report.sequence)))),
                ("lag_seconds", Self.seconds(report.lag(at: now))), ("far_behind", .bool(own.isFarBehind)),
                ("refusal", report.refusal.map { .string($0.rawValue) } ?? .null),
                ("trouble", report.trouble.map { .string($0) } ?? .null),
                ("stream_leader", Self.text(report.stream?.leader ?? "")),
                ("stream_replicas", .array((report.stream?.replicas ?? []).map(Self.replica))),
                ("stream_first_sequence", report.stream.map { .number(String($0.first)) } ?? .null),
                ("stream_bytes", report.stream.map { .number(String($0.bytes)) } ?? .null),
                ("members", .array(members)),
            ]))
    }

    /// Gives the replication slot up, so that another node takes it, and waits until one has.
    func handOver() -> HTTPResponse {
        guard let cluster = ingest.cluster else {
            return .message(.conflict, "this hub is no node of a cluster: its setting cluster is empty")
        }
        guard !ingest.pause.isOn else {
            return .message(.conflict, "the stream is paused, and another node would end the pause: resume it first")
        }
        let began = Clock.monotonicNanoseconds()
        let others = (peers?.members(at: began) ?? []).filter {
            $0.silence < PeerTalk.patience && $0.status.state == ClusterStatus.State.following.rawValue
                && !$0.status.isFarBehind && $0.status.node != cluster.node
        }
        guard !others.isEmpty else {
            return .message(.conflict, "no other node of the cluster is there that could take the slot")
        }
        let tenure = cluster.report.tenure
        guard cluster.wantHandover() else {
            let feeder = cluster.report.feeder.map { "node \($0) does" } ?? "no node does now"
            return .message(.conflict, "node \(cluster.node) does not hold the replication slot; \(feeder)")
        }
        Log.shared.info("an operator asked to hand the replication slot over", [.tenure(tenure)])
        let deadline = began + Limits.handoverPatience.wholeNanoseconds
        while Clock.monotonicNanoseconds() < deadline {
            let report = cluster.report
            if report.tenure > tenure, report.state != .feeding, let feeder = report.feeder, feeder != cluster.node {
                return Self.data(
                    JSONObject([
                        ("from", .string(cluster.node)), ("to", .string(feeder)),
                        ("tenure", .number(String(report.tenure))),
                        ("seconds", Self.seconds(Clock.monotonicNanoseconds() - began)),
                    ]))
            }
            BackgroundThread.rest(nanoseconds: 20_000_000)
        }
        return .message(
            .serviceUnavailable,
            "no other node has taken the slot within \(Limits.handoverPatience.wholeSeconds) s: this node takes it again if "
                + "none does")
    }

    private static func member(_ status: PeerStatus, silence: UInt64?, _ last: UInt64) -> JSONValue {
        let isSilent = silence.map { $0 >= PeerTalk.patience } ?? false
        return .object(
            JSONObject([
                ("node", .string(status.node)), ("state", .string(isSilent ? "silent" : status.state)),
                ("asked", .bool(silence == nil)), ("sequence", .number(String(status.sequence))),
                ("lag_messages", .number(String(last - min(last, status.sequence)))),
                ("lag_seconds", isSilent ? .null : seconds(status.lag)), ("far_behind", .bool(status.isFarBehind)),
                ("clients", .number(isSilent ? 0 : status.clients)), ("heard_seconds", seconds(silence ?? 0)),
            ]))
    }

    private static func replica(_ replica: ClusterStatus.StreamHealth.Replica) -> JSONValue {
        .object(
            JSONObject([
                ("server", .string(replica.server)), ("current", .bool(replica.isCurrent)),
                ("offline", .bool(replica.isOffline)),
            ]))
    }

    private static func text(_ text: String) -> JSONValue { text.isEmpty ? .null : .string(text) }

    /// Seconds with three digits after the point.
    private static func seconds(_ nanoseconds: UInt64) -> JSONValue {
        let milliseconds = nanoseconds / 1_000_000
        let rest = String(milliseconds % 1_000)
        return .number("\(milliseconds / 1_000)." + String(repeating: "0", count: 3 - rest.utf8.count) + rest)
    }

    private static func data(_ object: JSONObject) -> HTTPResponse {
        .json(.ok, JSONValue.object(JSONObject([("data", .object(object))])).bytes)
    }
}
