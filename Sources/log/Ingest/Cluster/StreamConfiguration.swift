import Bytes
import Cluster
import Diagnostics

/// Configuration of a cluster's stream, as the settings of a hub want it. It is compared with the configuration that the
/// stream has at the servers.
struct StreamConfiguration: Sendable, Equatable {
    /// Number of servers that store each message.
    var replicas: Int
    /// Age at which messages are removed, as the log's own retention; nil for no limit.
    var age: Duration?
    /// Size from which the oldest messages are removed; nil for no limit.
    var bytes: Int64?

    /// Name of the stream's metadata with the identity of its log.
    static let logName = "tidewire.log"
    /// Maximum size of a message: a slice with its heads.
    static let maximumMessageBytes = 768 << 10

    /// Members of the configuration that a hub sets, with the values that servers take for a member that is missing.
    private func members(_ names: ClusterNames) -> [(name: String, wanted: JSONValue, missing: JSONValue)] {
        [
            ("subjects", .array([.string(names.subject)]), .array([])),
            ("retention", .string("limits"), .string("limits")), ("discard", .string("old"), .string("old")),
            ("num_replicas", .number(replicas), .number(1)),
            ("max_msg_size", .number(Self.maximumMessageBytes), .number(-1)),
            ("max_age", .number(Int(age.map { $0.wholeNanoseconds } ?? 0)), .number(0)),
            ("max_bytes", .number(Int(bytes ?? -1)), .number(-1)),
            ("deny_delete", .bool(true), .bool(false)), ("deny_purge", .bool(true), .bool(false)),
            ("allow_direct", .bool(false), .bool(false)), ("allow_rollup_hdrs", .bool(false), .bool(false)),
        ]
    }

    /// Configuration of a new stream.
    func made(_ names: ClusterNames, _ log: ClusterLogID) -> JSONObject {
        var config = JSONObject([("name", .string(names.stream)), ("storage", .string("file"))])
        for (name, wanted, _) in members(names) { config[name] = wanted }
        config["metadata"] = .object(JSONObject([(Self.logName, .string("\(log)"))]))
        return config
    }

    /// Returns the property of a stream that makes it unfit for a log and that servers do not change; nil if there is
    /// none.
    static func fault(of config: JSONObject) -> String? {
        if config["storage"]?.string ?? "file" != "file" { return "it is not stored in files" }
        if config["retention"]?.string == "workqueue" { return "it is a work queue" }
        if config["sealed"]?.bool == true { return "it is sealed" }
        if config["mirror"]?.object != nil || config["sources"]?.array?.isEmpty == false {
            return "it is a copy of another stream"
        }
        return nil
    }

    /// Returns the configuration of a stream with the values of the settings, and what changes, in words. Members that
    /// a hub does not set are kept. Nil if nothing differs.
    func update(of config: JSONObject, _ names: ClusterNames) -> (config: JSONObject, changes: [String])? {
        var (updated, changes) = (config, [String]())
        for (name, wanted, missing) in members(names) {
            let present = config[name].flatMap { $0 == .null ? nil : $0 } ?? missing
            guard present != wanted else { continue }
            updated[name] = wanted
            changes.append("\(name) \(Self.words(present, name)) → \(Self.words(wanted, name))")
        }
        // Servers refuse a window for duplicates that is longer than messages are kept.
        if let age = updated["max_age"]?.integer, age > 0, let window = updated["duplicate_window"]?.integer,
            window > age
        {
            updated["duplicate_window"] = .number(age)
        }
        return changes.isEmpty ? nil : (updated, changes)
    }

    /// True if the change makes the loss of servers more dangerous than before.
    func isFewerReplicas(than config: JSONObject) -> Bool { config["num_replicas"]?.integer ?? 1 > replicas }

    private static func words(_ value: JSONValue, _ name: String) -> String {
        guard let number = value.integer, ["max_age", "max_bytes", "max_msg_size"].contains(name) else {
            return value.text
        }
        if number < 0 || name == "max_age" && number == 0 { return "unlimited" }
        return name == "max_age" ? "\(number / 1_000_000_000)s" : value.text
    }
}
