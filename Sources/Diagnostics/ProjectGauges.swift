import Synchronization

/// Where one project stands at this moment: numbers of which one for all projects together would say nothing.
///
/// Those of the settings' own project have no label, so that a hub without others looks as it always did; those of others
/// have the project's name as `tenant`.
public final class ProjectGauges: Sendable {
    public let replicationConnected = Gauge(
        "tidewire_replication_connected", "1 while changes are streaming from PostgreSQL, else 0.")
    public let receivedLSN = Gauge("tidewire_received_lsn", "Last WAL position received, as a number.")
    public let confirmedLSN = Gauge(
        "tidewire_confirmed_lsn", "WAL position confirmed to PostgreSQL after it was durable here, as a number.")
    public let slotLagBytes = Gauge(
        "tidewire_slot_lag_bytes", "WAL that PostgreSQL keeps for the slot beyond the confirmed position.")
    public let logFirstOffset = Gauge("tidewire_log_first_offset", "Oldest offset the event log still holds.")
    public let logEndOffset = Gauge("tidewire_log_end_offset", "Offset the next change will get.")
    public let logSizeBytes = Gauge("tidewire_log_size_bytes", "Bytes the event log's segments take.")

    public let catalogConnected = Gauge(
        "tidewire_catalog_connected", "1 while the catalog can be asked what bindings mean, else 0.")
    public let catalogVersion = Gauge(
        "tidewire_catalog_version", "Changes of tables or rights that the hub has seen since it started.")
    public let judgeConnected = Gauge(
        "tidewire_judge_connected", "1 while PostgreSQL can be asked about rows that a filter leaves open, else 0.")

    /// Whose they are, unless the settings' own project's.
    let tenant: String?

    public init(of tenant: String? = nil) { self.tenant = tenant }

    /// In the order of their declarations above.
    var all: [Gauge] { Mirror(reflecting: self).children.compactMap { $0.value as? Gauge } }
}

/// The projects whose gauges are shown: one of each name.
final class ShownProjects: Sendable {
    private let gauges = Mutex<[String?: ProjectGauges]>([:])

    func add(_ project: ProjectGauges) { gauges.withLock { $0[project.tenant] = project } }

    /// Nothing happens where another of the same name has taken its place.
    func remove(_ project: ProjectGauges) {
        gauges.withLock { if $0[project.tenant] === project { $0[project.tenant] = nil } }
    }

    /// The settings' own first, then by name. Without any project all gauges are there and zero.
    var inOrder: [ProjectGauges] {
        let shown = gauges.withLock { Array($0.values) }
        return shown.isEmpty ? [ProjectGauges()] : shown.sorted { ($0.tenant ?? "") < ($1.tenant ?? "") }
    }
}
