import Bytes
import Change

/// A transaction, or a part of a large one, on its way to the log. Borrowed: the receiver copies what it keeps.
public struct StorablePart: ~Escapable {
    public let info: TransactionInfo
    /// More parts of the same transaction follow unless this is the last.
    public let isLast: Bool
    public let changeCount: UInt32
    /// The stored form (`TransactionCodec`).
    public let payload: RawSpan
    /// The schemas its changes refer to.
    public let schemas: [Schema]
    /// Hashes of the rows and tables it touches (`RowKey`).
    public let keys: [UInt64]
    /// Tables whose catalog entries may have changed before it, zero for anything: to be said before it is.
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

/// The disk does not take what it is given; the same call may succeed later, and nothing was lost meanwhile.
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

/// Which of a server's histories the log follows. Both are numbers of PostgreSQL's: a recovery or a promotion begins
/// another timeline, and the databases of one server share its WAL.
public struct Lineage: Sendable, Equatable {
    public var timeline: UInt32
    public var database: UInt32
    /// Nil where that was not noted.
    public var publication: PublishedTables?

    public init(timeline: UInt32, database: UInt32, publication: PublishedTables? = nil) {
        self.timeline = timeline
        self.database = database
        self.publication = publication
    }
}

/// A database among all there are, but for its own physical copies.
public struct FollowedDatabase: Sendable, Equatable {
    /// As `IDENTIFY_SYSTEM` has it.
    public var system: UInt64
    public var number: UInt32

    public init(system: UInt64, number: UInt32) {
        self.system = system
        self.number = number
    }
}

/// A publication that the log has had every change of since a position, without a break. Another of the same name, made
/// after the first was dropped, has another number.
public struct FollowedPublication: Sendable, Equatable {
    public var number: UInt32
    public var since: LSN
    /// The offset that the first change behind the position got, or would have.
    public var offset: UInt64
    /// What is committed after this moment, in microseconds since 1970, lies behind the position.
    public var time: Int64

    public init(number: UInt32, since: LSN, offset: UInt64 = 0, time: Int64) {
        self.number = number
        self.since = since
        self.offset = offset
        self.time = time
    }
}

/// Where transactions go. One thread uses it. A call that throws `StorageStall` has taken nothing and is made again.
public protocol TransactionSink: AnyObject {
    /// The database the log is of, as `IDENTIFY_SYSTEM` numbers it; zero while the log is new.
    var systemIdentifier: UInt64 { get }
    /// Everything up to here has been taken, if not yet flushed.
    var position: LSN { get }
    /// Everything up to here survives a crash.
    var durablePosition: LSN { get }
    /// Bytes taken and not yet flushed.
    var pendingBytes: Int { get }
    /// Nothing has ever been taken: the log was made by this process.
    var isNew: Bool { get }
    /// What `position` belongs to; nil when it was never noted.
    var lineage: Lineage? { get }
    /// It was noted, and cannot be read.
    var isLineageDamaged: Bool { get }
    /// Since when it has every database message.
    var messages: FollowedPublication? { get }
    /// When it was last written to, in microseconds since 1970, by this process or one before it; nil where it is not known.
    var lastTime: Int64? { get }
    /// It has something of its own to write with the next flush.
    var hasNotes: Bool { get }

    /// Whether a new log was about to begin with this slot, which was not there before.
    func isBeginning(with slot: String) -> Bool
    /// A new log is about to begin with this slot, which is not there. Durable when it returns.
    func prepare(for slot: String) throws
    /// The first words of a new log: what it is the log of, and where it begins; with a gap, where another one was before.
    /// Both are there, or neither.
    func begin(systemIdentifier: UInt64, at position: LSN, after gap: Gap?) throws
    func append(_ part: borrowing StorablePart) throws
    /// The transaction whose parts were taken will not be finished: forget them.
    func abandon() throws
    /// There was nothing to store up to here.
    func advance(to position: LSN) throws
    func flush() throws
    /// History does not continue: say so durably and begin another epoch.
    func recordGap(_ gap: Gap, systemIdentifier: UInt64) throws
    /// From here on the log follows this history. Durable when it returns.
    func follow(_ lineage: Lineage) throws
    /// From here on the log has every database message; or, with nil, has them no more. Durable when it returns. The offset
    /// is the sink's to fill in.
    func followMessages(_ publication: FollowedPublication?) throws
}

/// For sinks that keep nothing.
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
