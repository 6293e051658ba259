import Change
import Diagnostics
import EventLog
import Ingest
import Postgres
import Replication
import Server
import System

/// Worker process of the benchmark `ingest`: the hub's ingest alone. It reads WAL from a slot into an event log, up to
/// a position.
public enum DrainWorker {
    public struct Order: Sendable {
        public var databaseURL: String
        public var slot: String
        public var publication: String
        public var until: LSN
        public var dataDirectory: String
        public var streaming: Bool

        /// Name of the subcommand of `tidewire bench` that runs this worker.
        public static let command = "drain"

        var words: [String] {
            [Self.command, databaseURL, slot, publication, "\(until)", dataDirectory, streaming ? "on" : "off"]
        }

        public init(
            databaseURL: String, slot: String, publication: String, until: LSN, dataDirectory: String, streaming: Bool
        ) {
            self.databaseURL = databaseURL
            self.slot = slot
            self.publication = publication
            self.until = until
            self.dataDirectory = dataDirectory
            self.streaming = streaming
        }

        public init?(words: [String]) {
            guard words.count == 6, let until = LSN(words[3]) else { return nil }
            self.init(
                databaseURL: words[0], slot: words[1], publication: words[2], until: until, dataDirectory: words[4],
                streaming: words[5] == "on")
        }
    }

    /// Creates an empty log that begins at the slot's position, as if a hub had stopped there. The measured time then
    /// does not include the creation of the first segment.
    static func makeLog(dataDirectory: String, source: UInt64, at position: LSN) throws {
        let path = IngestService.Settings.logDirectory(dataDirectory)
        var options = EventLogOptions(source: source)
        options.segmentBytes = UInt64(Limits.defaultSegmentBytes)
        let sink = try LogSink(directory: DiskDirectory(path, creating: true), options: options)
        try sink.begin(systemIdentifier: source, at: position)
    }

    /// Runs the ingest until everything up to the position is durable and confirmed to PostgreSQL. Returns the maximum
    /// resident memory in KiB.
    public static func run(_ order: Order) throws -> Int {
        Log.shared.configure(level: .warning, format: .text)
        var settings = IngestService.Settings(
            replication: ReplicationSettings(
                target: ConnectionTarget(order.databaseURL), publication: order.publication, slot: order.slot,
                mayCreateSlot: false, mayCreatePublication: false, streaming: order.streaming),
            dataDirectory: order.dataDirectory)
        settings.retentionAge = nil
        let service = try IngestService(settings)
        guard let end = service.end else { throw BenchFailure("there is no log to drain into") }
        var state = end.state
        while state.lsn < order.until.rawValue { state = end.wait(beyond: state, timeout: .seconds(1)) }
        service.stop()
        let peak = TextFile.line("VmHWM", in: "/proc/self/status").flatMap { Int($0.prefix { $0 != " " }) }
        return peak ?? 0
    }
}
