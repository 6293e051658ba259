import Bytes

/// How the hub is, for those who ask over HTTP.
public struct ProjectHealthReport: Sendable, Equatable {
    /// Changes stream from PostgreSQL.
    public var isStreaming: Bool
    /// The event log takes what comes.
    public var isLogWritable: Bool
    /// The catalog is known: clients can subscribe.
    public var isCatalogKnown: Bool
    /// Whoever is connected hears of what the log has.
    public var isLogReadable = true
    public var clients: Int
    /// In words, when changes do not stream: what is in the way. Never a secret: it goes to whoever can reach the port.
    public var trouble: String?
    /// In words, what may become a loss if nobody does anything.
    public var warning: String?

    /// Reason why the project does not run; nil if it runs.
    public private(set) var absence: ProjectAbsence?

    /// How many projects there are and how many of them are not ready, where there are several.
    struct Others: Sendable, Equatable {
        var count: Int
        var notReady: Int
        /// Of those that are not ready; nil for who may not know.
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

    public var isReady: Bool { isStreaming && isLogWritable && isLogReadable && isCatalogKnown }

    /// The body of `/ready`.
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
        if let others { append(others, to: &writer) }
        writer.append("}")
        return writer.copied()
    }

    private func append(_ others: Others, to writer: inout ByteWriter) {
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
