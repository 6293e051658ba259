import Bytes
import Change

/// Transaction, or part of a large one, that is passed to the log. The part is borrowed, so the receiver copies the
/// bytes that it keeps.
public struct StorablePart: ~Escapable {
    public let info: TransactionInfo
    /// True for the last part of a transaction; false if more parts follow.
    public let isLast: Bool
    public let changeCount: UInt32
    /// Stored form (`TransactionCodec`).
    public let payload: RawSpan
    /// Schemas to which the changes refer.
    public let schemas: [Schema]
    /// Hashes of the rows and tables that the part changes (`RowKey`).
    public let keys: [UInt64]
    /// OIDs of tables whose catalog entries may have changed before this part; zero means any table. The log records
    /// them before the part.
    public let marks: [UInt32]

    @_lifetime(copy payload)
    public init(
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

/// Error of a disk that does not accept data. The same call may succeed later; no data is lost in the meantime.
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

/// Identity of the history that the log follows, by PostgreSQL's numbers. A recovery or promotion begins another
/// timeline. The databases of one server share its WAL.
public struct Lineage: Sendable, Equatable {
    public var timeline: UInt32
    public var database: UInt32
    /// OID of the publication that the log follows; nil if it was not recorded. PostgreSQL decodes a change by the
    /// catalog at the time of the change. So changes committed while the publication did not exist never arrive, and no
    /// error reports that. A publication that is created again has a new OID.
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

/// Publication of which the log has every change after a position, without a break. A publication with the same name
/// that was created later has another OID.
public struct FollowedPublication: Sendable, Equatable {
    public var number: UInt32
    public var since: LSN
    /// Offset of the first change after the position.
    public var offset: UInt64
    /// Time after which all commits are after the position, in microseconds since 1970, UTC.
    public var time: Int64

    public init(number: UInt32, since: LSN, offset: UInt64 = 0, time: Int64) {
        self.number = number
        self.since = since
        self.offset = offset
        self.time = time
    }
}

/// Publication of the tables that decide memberships, and the position from which the log has all their changes.
public struct FollowedMemberships: Sendable, Equatable {
    public var number: UInt32
    public var since: LSN

    public init(number: UInt32, since: LSN) {
        self.number = number
        self.since = since
    }
}

/// Receiver of transactions. Only one thread uses it. If a call throws `StorageStall`, it has changed nothing, and the
/// caller repeats it.
public protocol TransactionSink: AnyObject {
    /// System identifier of the log's database, from `IDENTIFY_SYSTEM`; zero if the log is new.
    var systemIdentifier: UInt64 { get }
    /// Position up to which the sink has accepted everything, flushed or not.
    var position: LSN { get }
    /// Position up to which everything accepted survives a crash.
    var durablePosition: LSN { get }
    /// Number of accepted bytes that are not flushed yet.
    var pendingBytes: Int { get }
    /// True if the log is new and has never accepted anything.
    var isNew: Bool { get }
    /// History to which `position` belongs; nil if none was recorded.
    var lineage: Lineage? { get }
    /// True if a history was recorded but the record cannot be read.
    var isLineageDamaged: Bool { get }
    /// Publication of database messages, with the point from which the log has all messages; nil if it does not have
    /// all.
    var messages: FollowedPublication? { get }
    /// Time of the last write by this or an earlier process, in microseconds since 1970; nil if unknown.
    var lastTime: Int64? { get }
    /// True if the sink has notes to write with the next flush: entries that do not come from PostgreSQL.
    var hasNotes: Bool { get }
    /// True if the sink accepts nothing any more: another hub feeds the log.
    var isOver: Bool { get }

    /// True if a new log is about to begin with this slot, as an earlier `prepare(for:)` recorded.
    func isBeginning(with slot: String) -> Bool
    /// Records durably that a new log is about to begin with this slot, which does not exist yet.
    func prepare(for slot: String) throws
    /// Begins a new log with its database and position. If another log existed before, begins with a gap. The call
    /// records everything or nothing.
    func begin(systemIdentifier: UInt64, at position: LSN, after gap: Gap?) throws
    func append(_ part: borrowing StorablePart) throws
    /// Removes the accepted parts of a transaction that will not be completed.
    func abandon() throws
    /// Advances the position, because there is nothing to store before it.
    func advance(to position: LSN) throws
    func flush() throws
    /// Records durably that the history does not continue, and begins another epoch.
    func recordGap(_ gap: Gap, systemIdentifier: UInt64) throws
    /// Records durably that the log follows this history from now on.
    func follow(_ lineage: Lineage) throws
    /// Records durably that the log has every database message from now on; with nil, that it no longer does. The sink
    /// sets the offset.
    func followMessages(_ publication: FollowedPublication?) throws
    /// Records durably since when the log has all changes of the tables that decide memberships; with nil, that it does
    /// not have them.
    func followMemberships(_ publication: FollowedMemberships?) throws
    /// Tells the position before which all commits that concern the log are in it. Called again and again while the
    /// stream runs.
    func covered(_ position: LSN)
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
    public var isOver: Bool { false }
    public func followMessages(_ publication: FollowedPublication?) throws {}
    public func follow(_ lineage: Lineage) throws {}
    public func followMemberships(_ publication: FollowedMemberships?) throws {}
    public func covered(_ position: LSN) {}
}
