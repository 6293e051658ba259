import Bytes
import Diagnostics
import Synchronization

/// Counters of one project that the reference (Supabase Realtime) has and `ProjectMetrics` does not. The page shows
/// them under the names that the reference's dashboards use, together with some of `ProjectMetrics`. Each has the label
/// `tenant`.
final class ReferenceMetrics: Sendable {
    /// Number of broadcasts from clients, plus deliveries of broadcasts and database messages to sockets, except for
    /// replays.
    let events = Counter()
    let inputBytes = Counter()
    /// Number of refused joins and closed channels, by the code sent to the client.
    private let errors = Mutex<[String: UInt64]>([:])

    /// Counts an error. `reason` is a code, or begins with a code and a colon.
    func addError(_ reason: String) {
        let code = String(reason.prefix { $0 != ":" })
        errors.withLock { errors in
            guard errors[code] != nil || errors.count < Limits.maximumErrorCodes else { return }
            errors[code, default: 0] += 1
        }
    }

    fileprivate var errorCounts: [(code: String, count: UInt64)] {
        errors.withLock { $0.map { (code: $0.key, count: $0.value) } }.sorted { $0.code < $1.code }
    }
}

extension ReferenceMetrics {
    /// Returns the metrics of all projects in Prometheus' text format. Each metric is listed once, with a line for each
    /// project.
    static func render(_ projects: [Project]) -> [UInt8] {
        var writer = ByteWriter(capacity: 4096)
        append(
            "realtime_tenants_connected", "gauge", "Projects that this hub serves now.", to: &writer,
            [("", UInt64(projects.count))])
        let named = projects.map { (label(tenant: $0.name), $0) }
        func each(_ name: StaticString, _ type: StaticString, _ help: StaticString, _ value: (Project) -> UInt64) {
            append(name, type, help, to: &writer, named.map { ($0.0, value($0.1)) })
        }
        each("realtime_connections_connected", "gauge", "Sockets of this hub that have joined a channel.") {
            UInt64($0.userCount)
        }
        each(
            "realtime_connections_connected_cluster", "gauge",
            "Sockets that have joined a channel on this hub. The name is that of the reference server; other nodes of a cluster report their own."
        ) { UInt64($0.userCount) }
        each("realtime_channel_joins", "counter", "Joins of channels that were accepted.") {
            $0.metrics.channelEvents[.joined].value
        }
        each("realtime_channel_events", "counter", "Broadcasts from clients, and deliveries of broadcasts to sockets.")
        { $0.reference.events.value }
        each(
            "realtime_channel_presence_events", "counter",
            "Presence states that clients added, removed or changed, and deliveries of differences to sockets."
        ) {
            $0.metrics.presenceChanges.value + $0.metrics.presenceDeliveries.value
        }
        each("realtime_channel_db_events", "counter", "Row changes that the hub handed to sockets.") {
            $0.metrics.deliveries.value
        }
        each("realtime_channel_input_bytes", "counter", "Bytes of the messages that clients sent.") {
            $0.reference.inputBytes.value
        }
        let errors = projects.flatMap { project in
            project.reference.errorCounts.map { (label(tenant: project.name, code: $0.code), $0.count) }
        }
        append("realtime_channel_error", "counter", "Errors sent to clients, by code.", to: &writer, errors)
        return writer.copied()
    }

    private static func append(
        _ name: StaticString, _ type: StaticString, _ help: StaticString, to writer: inout ByteWriter,
        _ values: [(labels: String, value: UInt64)]
    ) {
        writer.append("# HELP ")
        writer.append(name)
        writer.append(" ")
        writer.append(help)
        writer.append("\n# TYPE ")
        writer.append(name)
        writer.append(" ")
        writer.append(type)
        writer.append("\n")
        for (labels, value) in values {
            writer.append(name)
            for byte in labels.utf8 { writer.append(byte) }
            writer.append(" ")
            writer.append(decimal: value)
            writer.append("\n")
        }
    }

    private static func label(tenant: String, code: String? = nil) -> String {
        let tenant = "tenant=\"\(escaped(tenant))\""
        return code.map { "{code=\"\(escaped($0))\",\(tenant)}" } ?? "{\(tenant)}"
    }

    private static func escaped(_ value: String) -> String {
        value.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"").replacing("\n", with: "\\n")
    }
}
