import Change
import Diagnostics
import EventLog
import Postgres
import Replication
import Synchronization
import System

/// Service that runs the ingest thread with its log, sink and replicator, and the thread that reads old segments again.
/// It is started once and stopped once.
public final class IngestService: Sendable {
    public struct Settings: Sendable {
        public var replication: ReplicationSettings
        public var dataDirectory: String
        public var segmentBytes: Int
        public var retentionAge: Duration?
        public var retentionBytes: Int64?
        /// Number of bytes of sealed segments that are read again per second; nil turns this off.
        public var scrubRate: Int?
        /// File with the rules by which readers of the log mask values.
        public var maskRules: String?

        public init(
            replication: ReplicationSettings, dataDirectory: String, segmentBytes: Int = Limits.defaultSegmentBytes,
            retentionAge: Duration? = nil, retentionBytes: Int64? = nil, scrubRate: Int? = nil,
            maskRules: String? = nil
        ) {
            self.replication = replication
            self.dataDirectory = dataDirectory
            self.segmentBytes = segmentBytes
            self.retentionAge = retentionAge
            self.retentionBytes = retentionBytes
            self.scrubRate = scrubRate
            self.maskRules = maskRules
        }

        /// Returns the event log's directory below the data directory.
        public static func logDirectory(_ dataDirectory: String) -> String { dataDirectory + "/log" }
        static func spoolDirectory(_ dataDirectory: String) -> String { dataDirectory + "/spool" }
    }

    private let interrupt: Wake
    private let thread: BackgroundThread
    private let scrubbing: (scrubber: LogScrubber, thread: BackgroundThread)?
    private let logEnd: SharedEnd
    private let opening: PatientOpening<OpenedLog>
    private let followed: SharedFollowing
    private let notes: WaitingNotes
    let upkeep: LogUpkeep
    private let messages: StreamCoverage
    public let status: ReplicationStatus
    /// Switch that stops reading from the database for a while.
    public let pause: StreamPause

    /// Opens the log and starts to follow the slot. Throws an error if the log is in use or damaged. If the machine is
    /// short of space or descriptors, or the disk fails, the service waits and reports that.
    public init(_ settings: Settings) throws {
        let metrics = settings.replication.metrics
        let notes = WaitingNotes(metrics)
        let logEnd = SharedEnd()
        let followed = SharedFollowing()
        let upkeep = LogUpkeep()
        let logFiles = SharedDirectory()
        let opening = PatientOpening {
            let log = try IngestService.directory(
                Settings.logDirectory(settings.dataDirectory), below: settings.dataDirectory)
            let spool = try IngestService.directory(
                Settings.spoolDirectory(settings.dataDirectory), below: settings.dataDirectory)
            // The log's own lock comes only with the log, which is created when the database is first reached.
            let lock = try IngestService.lock(settings.dataDirectory)
            try MaskRulesFile.keep(settings.maskRules, in: log)
            let sink = try LogSink(
                directory: log, options: IngestService.options(settings), metrics: metrics, notes: notes,
                upkeep: upkeep, followed: followed.set, opened: logEnd.set)
            // Opened before any thread reads the catalog.
            settings.replication.coverage.open(in: log, isNew: sink.isNew)
            logFiles.set(log)
            return OpenedLog(sink: sink, lock: lock, spool: spool)
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
        self.status = status
        try opening.attempt(status)
        self.opening = opening
        let run = LogScope.carried {
            guard let opened = opening.take(status) else { return }
            Replicator(
                settings: settings.replication, spoolDirectory: opened.spool, sink: opened.sink, interrupt: interrupt,
                status: status
            ).run()
        }
        thread = try BackgroundThread("ingest", run)
        scrubbing = settings.scrubRate.flatMap { rate in
            let scrubber = LogScrubber(logFiles.get, bytesPerSecond: rate, metrics: metrics, end: logEnd.get)
            // The scrubber is optional: the hub keeps all promises without it.
            return (try? BackgroundThread("log-scrub", LogScope.carried { scrubber.run() })).map { (scrubber, $0) }
        }
    }

    /// Durable end of the log, which readers in this process follow; nil until the log has begun.
    public var end: EventLogEnd? { logEnd.get() }

    /// True if messages committed now will be in the log: the stream is running and includes their publication.
    public var isFollowingMessages: Bool { status.isStreaming && messages.followedSince != nil }

    /// Publication of database messages and the point from which the log has all of them; nil if it does not have them.
    public var messagesFollowed: FollowedPublication? { followed.get() }

    /// Queues presence events for the log, after earlier ones. Never waits: if the queue is full, events are dropped
    /// and counted.
    public func record(_ marks: [PresenceMark]) { notes.presence.record(marks) }

    /// Queues an event of a channel for the log; returns false if it was dropped.
    public func record(_ note: LedgerNote) -> Bool { notes.ledger.record([note]) }

    /// Offset of the next change; nil if there is no log yet.
    public var nextOffset: UInt64? { end?.state.position.offset }

    /// Returns the first offset in the log; nil if there is no log yet, or it cannot be read now.
    public func oldestOffset(in logDirectory: String) -> UInt64? {
        (try? DiskDirectory(logDirectory)).flatMap { try? EventLogReader.oldestOffset(in: $0, end: end) }
    }

    /// Queues a record of the catalog for the log; returns false if it was dropped.
    public func record(_ catalog: CatalogRecord) -> Bool { notes.catalogs.record([catalog]) }

    /// Queues an operator's action for the log; returns false if it was dropped.
    public func record(_ mark: OperatorMark) -> Bool { notes.marks.record([mark]) }

    /// Writes waiting notes and seals the present segment, so that all content is in sealed segments. Returns false on
    /// a timeout.
    public func seal(within patience: Duration) -> Bool { upkeep.seal(within: patience) }

    /// Queues rows read from the database for the log, after all changes received so far; returns false if they were
    /// dropped.
    public func record(_ rows: KeptRows) -> Bool { notes.rows.record([rows]) }

    /// True if all operators' actions and rows are durable in the log.
    public var hasWrittenMarks: Bool { notes.marks.isEmpty && notes.rows.isEmpty }

    /// Ends the stream, flushes and confirms whole transactions, and closes the log. Call it once.
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

    /// Takes the lock that makes this process the only hub of the data directory. Creates missing directories.
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

    /// Returns options for building an index again: the keys by which rows are found in segments.
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

/// Log of the ingest thread, with its locks.
private struct OpenedLog {
    let sink: LogSink
    let lock: any StorageLock
    let spool: DiskDirectory
}

/// Directory of the log's files, available once it has been opened.
private final class SharedDirectory: Sendable {
    private let directory = Mutex<(any StorageDirectory)?>(nil)

    func set(_ directory: any StorageDirectory) { self.directory.withLock { $0 = directory } }
    @Sendable func get() -> (any StorageDirectory)? { directory.withLock { $0 } }
}

/// Publication whose messages the log has completely, set by the ingest thread.
private final class SharedFollowing: Sendable {
    private let publication = Mutex<FollowedPublication?>(nil)

    func set(_ publication: FollowedPublication?) { self.publication.withLock { $0 = publication } }
    func get() -> FollowedPublication? { publication.withLock { $0 } }
}

/// Durable end of the log, available once the log has begun.
private final class SharedEnd: Sendable {
    private let end = Mutex<EventLogEnd?>(nil)

    func set(_ end: EventLogEnd) { self.end.withLock { $0 = end } }
    func get() -> EventLogEnd? { end.withLock { $0 } }
}
