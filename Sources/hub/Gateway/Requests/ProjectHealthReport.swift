import Bytes

/// Health of a project, for answers over HTTP.
public struct ProjectHealthReport: Sendable, Equatable {
    /// True if changes stream from PostgreSQL.
    public var isStreaming: Bool
    /// True if the event log accepts entries.
    public var isLogWritable: Bool
    /// True if the hub has read the catalog, which it needs for subscriptions.
    public var isCatalogKnown: Bool
    /// True if the log can be read, so that connected clients receive its changes.
    public var isLogReadable = true
    public var clients: Int
    /// Description of the obstacle while changes do not stream. The text never contains a secret, because any client
    /// that can reach the port can read it.
    public var trouble: String?
    /// Description of a problem that may become a loss if no operator acts.
    public var warning: String?

    /// State of this node in its cluster.
    public struct Node: Sendable, Equatable {
        public var name: String
        public var state: String
        /// Number of messages of the cluster's stream that the log lacks.
        public var missing: UInt64
        /// Seconds since the log last had everything that the node knew of.
        public var lagSeconds: Double
        /// True if clients should go to other nodes, because this one is too far behind.
        public var isFarBehind: Bool
        /// Reason why the node does not take part; nil if it does.
        public var refusal: String?

        public init(
            name: String, state: String, missing: UInt64, lagSeconds: Double, isFarBehind: Bool, refusal: String?
        ) {
            self.name = name
            self.state = state
            self.missing = missing
            self.lagSeconds = lagSeconds
            self.isFarBehind = isFarBehind
            self.refusal = refusal
        }
    }

    /// State of this node in its cluster; nil for a hub on its own.
    public var node: Node?

    /// Reason why the project does not run; nil if it runs.
    public private(set) var absence: ProjectAbsence?

    /// Summary of all projects, for a hub that has several.
    struct Others: Sendable, Equatable {
        var count: Int
        var notReady: Int
        /// Names of the projects that are not ready; nil if the client may not know them.
        var names: [String]?
    }

    var others: Others?

    public init(
        isStreaming: Bool, isLogWritable: Bool, isCatalogKnown: Bool, clients: Int, trouble: String?,
        warning: String? = nil
    ) {
        self.warning = warning
        self.isStreaming = isStreaming
        self.isLogWritable = isLogWritable
        self.isCatalogKnown = isCatalogKnown
        self.clients = clients
        self.trouble = trouble
    }

    /// Creates the report of a project that does not run.
    init(absent absence: ProjectAbsence) {
        self.init(isStreaming: false, isLogWritable: false, isCatalogKnown: false, clients: 0, trouble: nil)
        isLogReadable = false
        self.absence = absence
    }

    public var isReady: Bool {
        isStreaming && isLogWritable && isLogReadable && isCatalogKnown && !(node?.isFarBehind ?? false)
    }

    /// Body of `/ready`.
    var json: [UInt8] {
        var writer = ByteWriter()
        writer.append(isReady ? #"{"ready":true"# : #"{"ready":false"#)
        if let absence { writer.append(",\"state\":\"\(absence.rawValue)\"") }
        append("streaming", isStreaming, to: &writer)
        append("log_writable", isLogWritable, to: &writer)
        append("log_readable", isLogReadable, to: &writer)
        append("catalog_known", isCatalogKnown, to: &writer)
        if let trouble {
            writer.append(#","trouble":"#)
            JSONText.appendString(trouble, to: &writer)
        }
        if let warning {
            writer.append(#","warning":"#)
            JSONText.appendString(warning, to: &writer)
        }
        if let node { append(node, to: &writer) }
        if let others { append(others, to: &writer) }
        writer.append("}")
        return writer.copied()
    }

    private func append(_ node: Node, to writer: inout ByteWriter) {
        writer.append(#","cluster":{"node":"#)
        JSONText.appendString(node.name, to: &writer)
        writer.append(#","state":"#)
        JSONText.appendString(node.state, to: &writer)
        append("far_behind", node.isFarBehind, to: &writer)
        writer.append(#","lag_messages":"#)
        writer.append(decimal: node.missing)
        writer.append(#","lag_seconds":"#)
        writer.append("\(node.lagSeconds)")
        if let refusal = node.refusal {
            writer.append(#","refusal":"#)
            JSONText.appendString(refusal, to: &writer)
        }
        writer.append("}")
    }

    private func append(_ others: Others, to writer: inout ByteWriter) {
        assert(others.names.map { $0.count == others.notReady } ?? true, "each project that is not ready is named")
        writer.append(#","projects":"#)
        writer.append(decimal: UInt64(others.count))
        writer.append(#","projects_not_ready":"#)
        writer.append(decimal: UInt64(others.notReady))
        guard let names = others.names else { return }
        writer.append(#","not_ready":["#)
        for (index, name) in names.enumerated() {
            if index > 0 { writer.append(",") }
            JSONText.appendString(name, to: &writer)
        }
        writer.append("]")
    }

    private func append(_ name: StaticString, _ value: Bool, to writer: inout ByteWriter) {
        writer.append(",\"")
        writer.append(name)
        writer.append(value ? "\":true" : "\":false")
    }
}
