import Change
import Diagnostics
import EventLog
import Postgres
import Replication
import Synchronization
import System

/// Service that feeds the event log. It runs the ingest thread, and a thread that reads old segments again to find
/// damage. It is started once and stopped once.
public final class IngestService: Sendable {
    public struct Settings: Sendable {
        public var replication: ReplicationSettings
        public var dataDirectory: String
        public var segmentBytes: Int
        public var retentionAge: Duration?
        public var retentionBytes: Int64?
        /// Number of bytes of sealed segments that are read again each second; nil means that none are.
        public var scrubRate: Int?
        /// Rules by which readers of the log mask values.
        public var maskRules: MaskRulesSource
        /// Cluster to which the hub belongs; nil for a hub on its own.
        public var cluster: ClusterSettings?

        public init(
            replication: ReplicationSettings, dataDirectory: String, segmentBytes: Int = Limits.defaultSegmentBytes,
            retentionAge: Duration? = nil, retentionBytes: Int64? = nil, scrubRate: Int? = nil,
            maskRules: MaskRulesSource = MaskRulesSource(path: nil)
        ) {
            self.replication = replication
            self.dataDirectory = dataDirectory
            self.segmentBytes = segmentBytes
            self.retentionAge = retentionAge
            self.retentionBytes = retentionBytes
            self.scrubRate = scrubRate
            self.maskRules = maskRules
        }

        /// Returns the path of the event log's directory.
        public static func logDirectory(_ dataDirectory: String) -> String { dataDirectory + "/log" }
        static func spoolDirectory(_ dataDirectory: String) -> String { dataDirectory + "/spool" }
    }

    private let interrupt: Wake
    private let thread: BackgroundThread
    private let scrubbing: (scrubber: LogScrubber, thread: BackgroundThread)?
    private let logEnd: SharedEnd
    private let opening: RetriedOpening<OpenedLog>
    private let followed: SharedFollowing
    private let notes: WaitingNotes
    let upkeep: LogUpkeep
    private let messages: StreamCoverage
    private let logFiles: SharedDirectory
    private let maskRules: MaskRulesSource
    public let status: ReplicationStatus
    /// State of the node in its cluster; nil for a hub on its own.
    public let cluster: ClusterStatus?
    /// Switch with which the hub stops reading from the database for a while.
    public let pause: StreamPause

    /// Opens the log and starts to follow the replication slot. Throws if the log is in use or damaged. If the machine
    /// lacks disk space or descriptors, or the disk fails, the service tries again and reports that in `status`.
    public init(_ settings: Settings) throws {
        let metrics = settings.replication.metrics
        let notes = WaitingNotes(metrics)
        let logEnd = SharedEnd()
        let followed = SharedFollowing()
        let upkeep = LogUpkeep()
        let logFiles = SharedDirectory()
        let opening = RetriedOpening {
            let log = try IngestService.directory(
                Settings.logDirectory(settings.dataDirectory), below: settings.dataDirectory)
            let spool = try IngestService.directory(
                Settings.spoolDirectory(settings.dataDirectory), below: settings.dataDirectory)
            // The log itself, with a lock of its own, is created only when the database is first reached.
            let lock = try IngestService.lock(settings.dataDirectory)
            if try settings.maskRules.renew(in: log) { Log.shared.info("wrote the mask rules of the event log") }
            try RetentionFile(
                seconds: settings.retentionAge.map { $0.components.seconds }, bytes: settings.retentionBytes
            ).write(in: log)
            let sink = try LogSink(
                directory: log, options: IngestService.options(settings), metrics: metrics, notes: notes,
                upkeep: upkeep, followed: followed.set, opened: logEnd.set)
            // This must precede any thread that reads the catalog.
            settings.replication.coverage.open(in: log, isNew: sink.isNew)
            logFiles.set(log)
            return OpenedLog(sink: sink, lock: lock, directory: log, spool: spool)
        }
        let interrupt = try Wake()
        let status = ReplicationStatus()
        self.interrupt = interrupt
        self.notes = notes
        self.upkeep = upkeep
        self.logEnd = logEnd
        self.followed = followed
        self.messages = settings.replication.messages
        self.pause = settings.replication.pause
        self.logFiles = logFiles
        self.maskRules = settings.maskRules
        self.status = status
        try opening.attempt(status)
        self.opening = opening
        let bell = try settings.cluster.map { _ in try Wake() }
        let clusterStatus = settings.cluster.map {
            ClusterStatus(node: $0.node, stream: ClusterNames(key: $0.key).stream)
        }
        cluster = clusterStatus
        let run = LogScope.carried {
            guard let opened = opening.take(status) else { return }
            if let cluster = settings.cluster, let bell, let clusterStatus {
                return ClusterMember(
                    cluster, settings.replication, retention: (settings.retentionAge, settings.retentionBytes),
                    log: opened.sink, directory: opened.directory, spool: opened.spool, interrupt: interrupt,
                    bell: bell, status: status, cluster: clusterStatus
                ).run()
            }
            Replicator(
                settings: settings.replication, spoolDirectory: opened.spool, sink: opened.sink, interrupt: interrupt,
                status: status
            ).run()
        }
        thread = try BackgroundThread("ingest", run)
        scrubbing = settings.scrubRate.flatMap { rate in
            let scrubber = LogScrubber(logFiles.get, bytesPerSecond: rate, metrics: metrics, end: logEnd.get)
            // The hub keeps all promises without the scrubber, so a failure to start it is ignored.
            return (try? BackgroundThread("log-scrub", LogScope.carried { scrubber.run() })).map { (scrubber, $0) }
        }
    }

    /// Durable end of the log, which readers in this process follow; nil until the log has begun.
    public var end: EventLogEnd? { logEnd.get() }

    /// True if the log will have the database messages that are committed now: the stream is running and includes their
    /// publication.
    public var isFollowingMessages: Bool { status.isStreaming && messages.followedSince != nil }

    /// Publication of the database messages, with the point from which the log has all of them. Nil if the log lacks
    /// some.
    public var messagesFollowed: FollowedPublication? { followed.get() }

    /// Queues presence events for the log. The call never waits: if the queue is full, the events are dropped and
    /// counted.
    public func record(_ marks: [PresenceMark]) { notes.presence.record(marks) }

    /// Queues an event of a channel for the log. Returns false if it was dropped.
    public func record(_ note: LedgerNote) -> Bool { notes.ledger.record([note]) }

    /// Offset of the next change; nil if the log has not begun.
    public var nextOffset: UInt64? { end?.state.position.offset }

    /// Returns the first offset that the log has; nil if the log has not begun or cannot be read now.
    public func oldestOffset(in logDirectory: String) -> UInt64? {
        (try? DiskDirectory(logDirectory)).flatMap { try? EventLogReader.oldestOffset(in: $0, end: end) }
    }

    /// Queues a record of the catalog for the log. Returns false if it was dropped.
    public func record(_ catalog: CatalogRecord) -> Bool { notes.catalogs.record([catalog]) }

    /// Queues an operator's action for the log. Returns false if it was dropped.
    public func record(_ mark: OperatorMark) -> Bool { notes.marks.record([mark]) }

    /// Reads the file of mask_rules again, and writes the rules into the log's directory. Returns false if they are the
    /// same, or if the log is not open yet: it gets the rules when it opens. After an error the former rules stay.
    public func renewMaskRules() throws -> Bool { try logFiles.get().map { try maskRules.renew(in: $0) } ?? false }

    /// Writes waiting notes and seals the present segment, so that all content is in sealed segments. Returns false on
    /// a timeout.
    public func seal(within patience: Duration) -> Bool { upkeep.seal(within: patience) }

    /// Queues rows that the hub read from the database. They are written after all changes received so far. Returns
    /// false if they were dropped.
    public func record(_ rows: KeptRows) -> Bool { notes.rows.record([rows]) }

    /// True if all queued actions of operators and all queued rows have been written to the log.
    public var hasWrittenMarks: Bool { notes.marks.isEmpty && notes.rows.isEmpty }

    /// Ends the stream, flushes and confirms the whole transactions, and closes the log. The owner calls this once.
    public func stop() {
        scrubbing?.scrubber.stop()
        interrupt.ring()
        opening.end()
        thread.join()
        scrubbing?.thread.join()
    }

    private static func directory(_ path: String, below parent: String) throws(SystemError) -> DiskDirectory {
        _ = try DiskDirectory(parent, creating: true)
        return try DiskDirectory(path, creating: true)
    }

    /// Takes the lock that makes this process the only hub with this data directory. Creates missing directories.
    public static func lock(_ dataDirectory: String) throws -> any StorageLock {
        try Directories.make(dataDirectory)
        let spool = try DiskDirectory(Settings.spoolDirectory(dataDirectory), creating: true)
        switch try spool.lock("LOCK") {
        case .taken(let lock): return lock
        case .heldElsewhere(let processID):
            throw EventLogError.lockedElsewhere(path: dataDirectory, processID: processID)
        }
    }

    private static func options(_ settings: Settings) -> EventLogOptions {
        var options = EventLogOptions(source: 0)
        options.segmentBytes = UInt64(settings.segmentBytes)
        options.retentionAge = settings.retentionAge
        options.retentionBytes = settings.retentionBytes.map { UInt64($0) }
        let keys = indexOptions()
        (options.keyScheme, options.keysOf) = (keys.keyScheme, keys.keysOf)
        return options
    }

    /// Returns the options for building an index again, which find the keys of the rows in a segment.
    public static func indexOptions() -> EventLogOptions {
        var options = EventLogOptions(source: 0)
        options.keyScheme = RowKey.scheme
        let finder = StoredKeys()
        options.keysOf = { kind, payload in
            switch kind {
            case .relation:
                finder.relation(payload)
                return []
            case .transaction: return finder.keys(ofTransaction: payload)
            case .ledger: return LedgerCodec.keys(of: payload)
            case .catalogRecord, .catalogMark: return [RowKey.catalog]
            case .operatorMark: return [RowKey.marks]
            case .keptRows: return KeptRowsCodec.keys(of: payload)
            default: return []
            }
        }
        return options
    }
}

/// Opened log of the ingest thread, with the lock of the data directory.
private struct OpenedLog {
    let sink: LogSink
    let lock: any StorageLock
    let directory: DiskDirectory
    let spool: DiskDirectory
}

/// Holder of the log's directory. It is nil until the log has been opened.
private final class SharedDirectory: Sendable {
    private let directory = Mutex<(any StorageDirectory)?>(nil)

    func set(_ directory: any StorageDirectory) { self.directory.withLock { $0 = directory } }
    @Sendable func get() -> (any StorageDirectory)? { directory.withLock { $0 } }
}

/// Holder of the publication whose messages the log has completely. The ingest thread sets it.
private final class SharedFollowing: Sendable {
    private let publication = Mutex<FollowedPublication?>(nil)

    func set(_ publication: FollowedPublication?) { self.publication.withLock { $0 = publication } }
    func get() -> FollowedPublication? { publication.withLock { $0 } }
}

/// Holder of the durable end of the log. It is nil until the log has begun.
private final class SharedEnd: Sendable {
    private let end = Mutex<EventLogEnd?>(nil)

    func set(_ end: EventLogEnd) { self.end.withLock { $0 = end } }
    func get() -> EventLogEnd? { end.withLock { $0 } }
}
