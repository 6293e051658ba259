import System

/// How a log is written and how long it is kept.
public struct EventLogOptions: Sendable {
    /// A segment is closed when the next transaction would make it larger; one large transaction still stays whole.
    public var segmentBytes: UInt64 = 64 << 20
    /// Where the entries come from (the caller's own number, such as a database system's identifier). A log is
    /// never continued from another source.
    public var source: UInt64
    /// Sealed segments with only older entries are deleted.
    public var retentionAge: Duration? = .seconds(72 * 3600)
    /// The oldest sealed segments are deleted while the log is larger.
    public var retentionBytes: UInt64? = 10 << 30
    /// Which keys are noted, as a number of the caller's own that sealed segments keep: later ones note more.
    public var keyScheme: UInt32 = 0
    /// Finds keys again when an index must be made from the entries.
    public var keysOf: EventLogKeys?
    /// Prepares the next segment on a thread of its own, and fills the first one with zeros: a sync is then faster,
    /// because the file system has nothing to note.
    public var preparesSegments = true
    public var now: @Sendable () -> Int64 = { Clock.unixMicroseconds() }
    /// Nanoseconds on the monotonic clock, so that a step of the wall clock makes no segment older than it is.
    public var monotonic: (@Sendable () -> UInt64)?
    /// Where a new log begins: not at zero when it is a copy of a part of another.
    public var firstOffset: UInt64 = 0
    public var firstLSN: UInt64 = 0
    public var newEpoch: @Sendable () -> UInt64 = { UInt64.random(in: 1 ... .max) }

    public init(source: UInt64) { self.source = source }
}

/// What was found when a log was opened for writing.
public struct EventLogRecovery: Sendable, Equatable {
    public var isNew = false
    /// Bytes that were read and checked.
    public var scannedBytes: UInt64 = 0
    /// Where a torn tail was cut off, if there was one.
    public var cutAt: UInt64?
    public var cutBytes: UInt64 = 0
    /// Of how many segments something was taken out that an interrupted erasure had left.
    public var erasedSegments = 0
    /// It could not be finished now either.
    public var hasUnfinishedErasure = false
}
