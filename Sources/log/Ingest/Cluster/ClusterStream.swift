import Bytes
import Cluster
import Diagnostics
import Nats
import Replication

/// Stream of a log at the cluster's servers: made if it is missing, else checked.
struct ClusterStream {
    /// Identity of the log whose messages the stream has.
    var log: ClusterLogID
    var first: UInt64
    /// Sequence of the last message; zero for an empty stream.
    var last: UInt64
    private let config: JSONObject

    init(log: ClusterLogID, first: UInt64, last: UInt64, config: JSONObject = JSONObject()) {
        self.log = log
        self.first = first
        self.last = last
        self.config = config
    }

    /// Opens the stream, or makes it if it is missing and `mayMake` is true. Returns nil if it is missing otherwise.
    static func open(
        _ jet: JetStream, _ names: ClusterNames, _ wanted: StreamConfiguration, mayMake: Bool
    ) throws(NatsError) -> ClusterStream? {
        if let known = try find(jet, names) { return known }
        guard mayMake else { return nil }
        do throws(NatsError) {
            _ = try jet.ask("STREAM.CREATE.\(names.stream)", .object(wanted.made(names, ClusterLogID.random())))
        } catch {
            // Another node may just have made it.
            if let known = try find(jet, names) { return known }
            throw error
        }
        Log.shared.info("made the cluster's stream", [.stream(names.stream), .count(UInt64(wanted.replicas))])
        return try read(jet, names)
    }

    /// Opens the stream; nil if there is none.
    static func find(_ jet: JetStream, _ names: ClusterNames) throws(NatsError) -> ClusterStream? {
        do throws(NatsError) {
            return try read(jet, names)
        } catch {
            if error.code == JetStreamRefusal.streamNotFound { return nil }
            throw error
        }
    }

    private static func read(_ jet: JetStream, _ names: ClusterNames) throws(NatsError) -> ClusterStream {
        let answer = try jet.ask("STREAM.INFO.\(names.stream)")
        let state = answer["state"]?.object
        let config = answer["config"]?.object ?? JSONObject()
        let told = config["metadata"]?.object?[StreamConfiguration.logName]?.string
        guard let id = told.flatMap({ ClusterLogID($0) }) else {
            throw unfit(names, "it was not made by a hub (its metadata has no \(StreamConfiguration.logName))")
        }
        if let fault = StreamConfiguration.fault(of: config) { throw unfit(names, fault) }
        return ClusterStream(
            log: id, first: UInt64(max(0, state?["first_seq"]?.integer ?? 0)),
            last: UInt64(max(0, state?["last_seq"]?.integer ?? 0)), config: config)
    }

    private static func unfit(_ names: ClusterNames, _ fault: String) -> NatsError {
        NatsError(
            operation: "open the stream \(names.stream)",
            message: "\(fault): remove it (nats stream rm \(names.stream)), or use another project name")
    }

    /// Reads where the stream ends now. The answer may be old: only an append that the stream accepts is certain.
    mutating func look(_ jet: JetStream, _ names: ClusterNames) throws(NatsError) {
        let now = try Self.read(jet, names)
        (first, last) = (now.first, now.last)
    }

    /// Changes the stream's configuration at the servers to what the settings want. If the servers refuse, the stream
    /// keeps its own, and the log says so.
    func fit(_ jet: JetStream, _ names: ClusterNames, _ wanted: StreamConfiguration) {
        guard let (updated, changes) = wanted.update(of: config, names) else { return }
        let fields: [LogField] = [.stream(names.stream), .reason(changes.joined(separator: ", "))]
        do throws(NatsError) {
            _ = try jet.ask("STREAM.UPDATE.\(names.stream)", .object(updated), timeout: .seconds(10))
        } catch {
            return Log.shared.error(
                "cannot change the cluster's stream to fit the settings: it stays as it is",
                fields + [
                    .error("\(error)"),
                    .hint(
                        "retention_age, retention_size and cluster_replicas decide this; they must fit the NATS servers"
                    ),
                ])
        }
        if wanted.isFewerReplicas(than: config) {
            Log.shared.warning("changed the cluster's stream to fit the settings: fewer servers store it", fields)
        } else {
            Log.shared.info("changed the cluster's stream to fit the settings", fields)
        }
    }
}
