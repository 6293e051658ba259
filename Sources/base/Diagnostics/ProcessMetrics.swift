/// Metrics of the process, its sockets and its clients, for all projects together. Each name and help text is written
/// here once.
///
/// The code that creates a hub makes one instance and passes it on. `ProjectMetrics` has the metrics of one project.
public final class ProcessMetrics: Sendable {
    public enum UnfinishedInput: String, MetricLabel {
        /// The unfinished input of all connections reached its limit.
        case noRoom = "no_room"
        case tooSlow = "too_slow"

        public static let labelName = "reason"
    }

    /// Owner of the limit because of which the hub refused filters or presence of a connection.
    public enum RoomRefused: String, MetricLabel {
        case connection, project

        public static let labelName = "limit"
    }

    public enum Refusal: String, MetricLabel {
        case badRequest = "bad_request"
        case token
        case version
        case notFound = "not_found"
        case draining
        case timeout
        /// The project is suspended.
        case suspended
        /// The project has reached its limit of users, or of joins per second.
        case limit

        public static let labelName = "reason"
    }

    public enum RefusalReason: String, MetricLabel {
        case tooManyConnections = "too_many_connections"
        case outOfDescriptors = "out_of_descriptors"
        case outOfMemory = "out_of_memory"
        /// The TLS handshake failed or took too long.
        case handshake

        public static let labelName = "reason"
    }

    // MARK: The process
    /// Processor time of the process. Prometheus defines the names and meanings of the metrics that begin with
    /// `process_` ("Writing client libraries", "Process metrics").
    public let cpuTime = TimeCounter(
        "process_cpu_seconds_total", "Processor time that the process has used, in user and kernel mode, in seconds.")
    public let residentBytes = Gauge("process_resident_memory_bytes", "Resident memory of the process, in bytes.")
    public let virtualBytes = Gauge(
        "process_virtual_memory_bytes", "Virtual memory of the process, used or not, in bytes.")
    public let openDescriptors = Gauge(
        "process_open_fds",
        "Open file descriptors in the fullest descriptor table of the process. Each socket loop has its own table.")
    public let maximumDescriptors = Gauge(
        "process_max_fds", "Maximum number of open file descriptors in each descriptor table of the process.")
    public let startTime = Gauge(
        "process_start_time_seconds", "Start time of the process, in seconds since the beginning of 1970, UTC.")
    public let build: Information

    // MARK: Clients
    public let sessions = Gauge("tidewire_sessions", "WebSocket clients that are connected now.")
    public let refusals = CounterFamily<Refusal>(
        "tidewire_refused_requests_total", "HTTP requests and WebSocket upgrades that the hub refused, by reason.")

    // MARK: Sockets
    public let connectionsOpen = Gauge(
        "tidewire_connections_open", "Client connections of every kind that are open now.")
    public let connectionsAccepted = Counter(
        "tidewire_connections_accepted_total", "Client connections accepted since the hub started.")
    public let connectionsRefused = CounterFamily<RefusalReason>(
        "tidewire_connections_refused_total", "Client connections closed before they could be used, by reason.")
    public let socketBytesReceived = Counter(
        "tidewire_socket_received_bytes_total", "Bytes received from clients, without TLS.")
    public let socketBytesSent = Counter("tidewire_socket_sent_bytes_total", "Bytes sent to clients, without TLS.")
    public let piecesSent = Counter(
        "tidewire_socket_pieces_total", "Frames, or parts of large frames, queued for clients.")
    public let connectionsBlocked = Gauge(
        "tidewire_connections_blocked", "Client connections whose socket accepts no more data now.")
    public let outboxBytes = Gauge(
        "tidewire_outbox_bytes", "Bytes of memory that hold unsent data of blocked client connections.")
    public let filterParts = Gauge(
        "tidewire_filter_parts", "Conditions, and values in them, in the filters of all channels.")
    public let filtersRefused = CounterFamily<RoomRefused>(
        "tidewire_filters_refused_total",
        "Joins refused because their filters would exceed a limit of conditions and values, by scope of the limit.")
    public let presenceBytes = Gauge(
        "tidewire_presence_bytes", "Bytes of presence state that all channels of this hub's connections track.")
    public let presenceRefused = CounterFamily<RoomRefused>(
        "tidewire_presence_refused_total",
        "Presence states that the hub did not track because they would exceed a limit, by scope of the limit.")
    public let unfinishedInputBytes = Gauge(
        "tidewire_unfinished_input_bytes", "Bytes of incomplete messages and requests received from clients.")
    public let unfinishedInputRefused = CounterFamily<UnfinishedInput>(
        "tidewire_unfinished_input_refused_total",
        "Connections closed because a message or request stayed incomplete, by reason.")
    public let connectionsFellBehind = Counter(
        "tidewire_connections_fell_behind_total",
        "Client connections that the hub closed because they read their data too slowly.")

    /// Creates the metrics of a process.
    ///
    /// - Parameters:
    ///   - version: version of this program.
    ///   - swift: version of the compiler that built this program.
    public init(version: String = "unknown", swift: String = "unknown") {
        build = Information(
            "tidewire_build_info",
            "Always 1. The labels show the versions of the hub and of the Swift compiler.",
            [("version", version), ("swift", swift)])
        let names = (instruments + ProjectMetrics().instruments).map(\.name)
        precondition(names.allSatisfy(Exposition.isValidName), "each metric has a name that Prometheus takes")
        precondition(Set(names).count == names.count, "no two metrics share a name")
    }

    /// All metrics of the process, in the order of their declarations above.
    private var instruments: [any Instrument] {
        Mirror(reflecting: self).children.compactMap { $0.value as? any Instrument } + [Impossible.states]
    }

    /// Returns the metrics of the process and of the projects in Prometheus' text format. Each name appears once.
    /// Without any project, the project metrics appear with the value zero.
    public func render(_ projects: [ProjectMetrics]) -> [UInt8] {
        let shown = projects.isEmpty ? [ProjectMetrics()] : projects.sorted { ($0.tenant ?? "") < ($1.tenant ?? "") }
        return Exposition.text(of: instruments) + Exposition.text(of: shown)
    }
}
