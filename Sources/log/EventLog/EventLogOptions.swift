import System

/// Options for writing a log, and for how long its entries are kept.
public struct EventLogOptions: Sendable {
    /// Maximum size of a segment in bytes. A transaction that would exceed it begins a new segment. A transaction
    /// larger than a segment is not divided.
    public var segmentBytes: UInt64 = 64 << 20
    /// Identity of the source of the entries, a number that the caller chooses, such as a database's system identifier.
    /// The log of one source is not continued from another.
    public var source: UInt64
    /// Age of its newest entry from which a sealed segment is deleted; nil means never.
    public var retentionAge: Duration? = .seconds(72 * 3600)
    /// Size of the log in bytes above which the oldest sealed segments are deleted; nil means no limit.
    public var retentionBytes: UInt64? = 10 << 30
    /// Version of the rules by which entries have keys for the index. It is stored in sealed segments. The caller
    /// chooses a higher version when it adds keys.
    public var keyScheme: UInt32 = 0
    /// Returns the keys of an entry, for building an index again; nil if indexes cannot be built again.
    public var keysOf: EventLogKeys?
    /// True if a separate thread prepares the next segment in advance, and if the first segment is filled with zeros. A
    /// sync is then faster, because the file system does not have to record new blocks.
    public var preparesSegments = true
    /// Wall clock in microseconds since 1970.
    public var now: @Sendable () -> Int64 = { Clock.unixMicroseconds() }
    /// Monotonic clock in nanoseconds. If it is given, setting the wall clock forward does not make segments look
    /// older.
    public var monotonic: (@Sendable () -> UInt64)?
    /// First offset of a new log. It is not zero in a copy of a part of another log.
    public var firstOffset: UInt64 = 0
    /// LSN that a new log has reached before its first entry.
    public var firstLSN: UInt64 = 0
    /// Returns a new random epoch.
    public var newEpoch: @Sendable () -> UInt64 = { UInt64.random(in: 1 ... .max) }

    public init(source: UInt64) { self.source = source }
}

/// Findings from opening a log for writing.
public struct EventLogRecovery: Sendable, Equatable {
    public var isNew = false
    /// Number of bytes that were read and checked.
    public var scannedBytes: UInt64 = 0
    /// Byte position at which an unfinished write was cut off; nil if there was none.
    public var cutAt: UInt64?
    /// Number of bytes that were cut off.
    public var cutBytes: UInt64 = 0
    /// Number of segments that were rewritten to finish an interrupted erasure.
    public var erasedSegments = 0
    /// True if an interrupted erasure could not be finished now.
    public var hasUnfinishedErasure = false
}
