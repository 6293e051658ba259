import Bytes
import Change

/// Transaction, or part of a large one, on its way to the log. The part is borrowed: the receiver copies the data that
/// it keeps.
public struct StorablePart: ~Escapable {
    public let info: TransactionInfo
    /// True for the last part of a transaction; false if more parts follow.
    public let isLast: Bool
    public let changeCount: UInt32
    /// Stored form (`TransactionCodec`).
    public let payload: RawSpan
    /// Schemas to which the changes refer.
    public let schemas: [Schema]
    /// Hashes of the rows and tables that the part touches (`RowKey`).
    public let keys: [UInt64]
    /// Tables whose catalog entries may have changed before this part; zero means any table. The log records them
    /// before the part.
    public let marks: [UInt32]

    @_lifetime(copy payload)
    init(
        info: TransactionInfo, isLast: Bool, changeCount: UInt32, payload: RawSpan, schemas: [Schema], keys: [UInt64],
        marks: [UInt32] = []
    ) {
        self.info = info
        self.isLast = isLast
        self.changeCount = changeCount
        self.payload = payload
        self.schemas = schemas
        self.keys = keys
        self.marks = marks
    }
}

/// Failure of the disk to accept data. The same call may succeed later; nothing is lost meanwhile.
public struct StorageStall: Error, Sendable {
    public var operation: String
    public var path: String
    public var reason: String
    public var hint: String

    public init(operation: String, path: String, reason: String, hint: String) {
        self.operation = operation
        self.path = path
        self.reason = reason
        self.hint = hint
    }
}

/// Identity of the server's history that the log follows, by PostgreSQL's numbers. A recovery or promotion begins
/// another timeline, and the databases of one server share its WAL.
public struct Lineage: Sendable, Equatable {
    public var timeline: UInt32
    public var database: UInt32
    /// Number of the publication that the log follows; nil if it was not recorded. PostgreSQL decodes a change by the
    /// catalog of that moment: changes committed while the publication was missing never arrive, and no error reports
    /// that. A publication that is created again gets a new number.
    public var publication: UInt32?

    public init(timeline: UInt32, database: UInt32, publication: UInt32? = nil) {
        self.timeline = timeline
        self.database = database
        self.publication = publication
    }
}

/// Identity of a database. Only physical copies of the database share it.
public struct FollowedDatabase: Sendable, Equatable {
    /// System identifier from `IDENTIFY_SYSTEM`.
    public var system: UInt64
    public var number: UInt32

    public init(system: UInt64, number: UInt32) {
        self.system = system
        self.number = number
    }
}

/// Publication of which the log has every change since a position, without a break. A publication of the same name that
/// was created later has another number.
public struct FollowedPublication: Sendable, Equatable {
    public var number: UInt32
    public var since: LSN
    /// Offset of the first change after the position.
    public var offset: UInt64
    /// Moment after which all commits lie behind the position, in microseconds since 1970.
    public var time: Int64

    public init(number: UInt32, since: LSN, offset: UInt64 = 0, time: Int64) {
        self.number = number
        self.since = since
        self.offset = offset
        self.time = time
    }
}

/// Receiver of transactions. One thread uses it. A call that throws `StorageStall` has changed nothing and is repeated.
public protocol TransactionSink: AnyObject {
    /// System identifier of the log's database, from `IDENTIFY_SYSTEM`; zero while the log is new.
    var systemIdentifier: UInt64 { get }
    /// Position up to which everything was accepted, flushed or not.
    var position: LSN { get }
    /// Position up to which everything survives a crash.
    var durablePosition: LSN { get }
    /// Number of accepted bytes that are not flushed yet.
    var pendingBytes: Int { get }
    /// True if the log is new and nothing was ever accepted.
    var isNew: Bool { get }
    /// History to which `position` belongs; nil if it was never recorded.
    var lineage: Lineage? { get }
    /// True if a history was recorded but cannot be read.
    var isLineageDamaged: Bool { get }
    /// Publication of database messages, with the point from which the log has all of them.
    var messages: FollowedPublication? { get }
    /// Time of the last write by this or an earlier process, in microseconds since 1970; nil if unknown.
    var lastTime: Int64? { get }
    /// True if the sink itself has entries to write with the next flush.
    var hasNotes: Bool { get }

    /// True if a new log was about to begin with this slot, which did not exist before.
    func isBeginning(with slot: String) -> Bool
    /// Records durably that a new log is about to begin with this slot, which does not exist yet.
    func prepare(for slot: String) throws
    /// Begins a new log with its database and position, or with a gap if another log existed before. Either both are
    /// recorded or neither.
    func begin(systemIdentifier: UInt64, at position: LSN, after gap: Gap?) throws
    func append(_ part: borrowing StorablePart) throws
    /// Drops the accepted parts of a transaction that will not be finished.
    func abandon() throws
    /// Moves the position on, because there is nothing to store before it.
    func advance(to position: LSN) throws
    func flush() throws
    /// Records durably that history does not continue, and begins another epoch.
    func recordGap(_ gap: Gap, systemIdentifier: UInt64) throws
    /// Records durably that the log follows this history from here on.
    func follow(_ lineage: Lineage) throws
    /// Records durably that the log has every database message from here on; with nil, that it no longer does. The sink
    /// fills in the offset.
    func followMessages(_ publication: FollowedPublication?) throws
}

/// Defaults for sinks that store nothing.
extension TransactionSink {
    public var lineage: Lineage? { nil }
    public var isLineageDamaged: Bool { false }
    public func isBeginning(with slot: String) -> Bool { false }
    public func prepare(for slot: String) throws {}
    public func begin(systemIdentifier: UInt64, at position: LSN) throws {
        try begin(systemIdentifier: systemIdentifier, at: position, after: nil)
    }
    public var messages: FollowedPublication? { nil }
    public var hasNotes: Bool { false }
    public var lastTime: Int64? { nil }
    public func followMessages(_ publication: FollowedPublication?) throws {}
    public func follow(_ lineage: Lineage) throws {}
}
