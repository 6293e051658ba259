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

    /// Maximum size of a message: a slice with its heads.
    private static let maximumMessageBytes = 768 << 10

    /// Opens the stream, or makes it if it is missing.
    ///
    /// - Parameters:
    ///   - age: age at which messages are removed, as the log's own retention; nil for no limit.
    ///   - bytes: size from which the oldest messages are removed; nil for no limit.
    static func open(
        _ jet: JetStream, _ names: ClusterNames, replicas: Int, age: Duration?, bytes: Int64?
    ) throws(NatsError) -> ClusterStream {
        if let known = try find(jet, names) { return known }
        let id = ClusterLogID.random()
        let config = JSONObject([
            ("name", .string(names.stream)), ("subjects", .array([.string(names.subject)])),
            ("retention", .string("limits")), ("storage", .string("file")), ("discard", .string("old")),
            ("num_replicas", .number(replicas)), ("max_msg_size", .number(maximumMessageBytes)),
            ("max_age", .number(Int(age.map { $0.wholeNanoseconds } ?? 0))),
            ("max_bytes", .number(Int(bytes ?? -1))), ("deny_delete", .bool(true)), ("deny_purge", .bool(true)),
            ("allow_direct", .bool(false)), ("allow_rollup_hdrs", .bool(false)),
            ("metadata", .object(JSONObject([(Self.logName, .string("\(id)"))]))),
        ])
        do throws(NatsError) {
            _ = try jet.ask("STREAM.CREATE.\(names.stream)", .object(config))
        } catch {
            // Another node may just have made it.
            if let known = try find(jet, names) { return known }
            throw error
        }
        Log.shared.info("made the cluster's stream", [.stream(names.stream), .count(UInt64(replicas))])
        return try read(jet, names)
    }

    /// Opens the stream; nil if there is none.
    private static func find(_ jet: JetStream, _ names: ClusterNames) throws(NatsError) -> ClusterStream? {
        do throws(NatsError) {
            return try read(jet, names)
        } catch {
            if error.code == JetStreamRefusal.streamNotFound { return nil }
            throw error
        }
    }

    private static let logName = "tidewire.log"

    private static func read(_ jet: JetStream, _ names: ClusterNames) throws(NatsError) -> ClusterStream {
        let answer = try jet.ask("STREAM.INFO.\(names.stream)")
        let state = answer["state"]?.object
        let told = answer["config"]?.object?["metadata"]?.object?[logName]?.string
        guard let id = told.flatMap({ ClusterLogID($0) }) else {
            throw NatsError(
                operation: "open the stream \(names.stream)",
                message:
                    "it was not made by a hub (its metadata has no \(logName)): remove it, or use another project name")
        }
        return ClusterStream(
            log: id, first: UInt64(max(0, state?["first_seq"]?.integer ?? 0)),
            last: UInt64(max(0, state?["last_seq"]?.integer ?? 0)))
    }

    /// Reads where the stream ends now. The answer may be old: only an append that the stream accepts is certain.
    mutating func look(_ jet: JetStream, _ names: ClusterNames) throws(NatsError) {
        let now = try Self.read(jet, names)
        (first, last) = (now.first, now.last)
    }
}
