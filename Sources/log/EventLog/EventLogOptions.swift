import System

/// Settings for writing a log and for how long its entries are kept.
public struct EventLogOptions: Sendable {
    /// Maximum size of a segment. The next transaction begins a new segment if it would exceed it; a larger transaction
    /// stays whole.
    public var segmentBytes: UInt64 = 64 << 20
    /// Identity of the entries' source, a number of the caller's choice, such as a database's system identifier. A log
    /// is never continued from another source.
    public var source: UInt64
    /// Age after which a sealed segment is deleted, if all of its entries are older.
    public var retentionAge: Duration? = .seconds(72 * 3600)
    /// Size of the log above which the oldest sealed segments are deleted.
    public var retentionBytes: UInt64? = 10 << 30
    /// Version of the set of keys that are indexed, stored in sealed segments. Higher versions, chosen by the caller,
    /// index more keys.
    public var keyScheme: UInt32 = 0
    /// Finds the keys of an entry when an index must be built again.
    public var keysOf: EventLogKeys?
    /// True if a separate thread prepares each next segment, and the first segment is filled with zeros. A sync is then
    /// faster, because the file system has nothing to note.
    public var preparesSegments = true
    public var now: @Sendable () -> Int64 = { Clock.unixMicroseconds() }
    /// Monotonic clock in nanoseconds. With it, a step of the wall clock cannot make segments look older.
    public var monotonic: (@Sendable () -> UInt64)?
    /// First offset of a new log; not zero in a copy of a part of another log.
    public var firstOffset: UInt64 = 0
    public var firstLSN: UInt64 = 0
    public var newEpoch: @Sendable () -> UInt64 = { UInt64.random(in: 1 ... .max) }

    public init(source: UInt64) { self.source = source }
}

/// Result of opening a log for writing.
public struct EventLogRecovery: Sendable, Equatable {
    public var isNew = false
    /// Number of bytes that were read and checked.
    public var scannedBytes: UInt64 = 0
    /// Position at which a torn tail was cut off, if there was one.
    public var cutAt: UInt64?
    public var cutBytes: UInt64 = 0
    /// Number of segments rewritten for an erasure that was interrupted earlier.
    public var erasedSegments = 0
    /// True if such an erasure could not be finished now either.
    public var hasUnfinishedErasure = false
}
