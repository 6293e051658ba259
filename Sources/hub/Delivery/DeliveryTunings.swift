import Diagnostics

/// How the room shares out its time and memory: promised to nobody. Its maxima are in `Diagnostics/Limits.swift`.
extension Limits {
    /// Time that all changes wait until PostgreSQL shows a transaction that concerns one table. After that, only the table's
    /// listeners wait.
    static let heldTablePatience = Duration.seconds(5)
    /// What a loop takes from the log, and hands to sockets, before it looks at its sockets again. Queueing a delivery is
    /// little work beside sending it, and what is queued together for a socket is sent by one call: the more the better,
    /// until it is a matter of milliseconds.
    static let turnLogBytes = 1 << 20
    static let turnDeliveries = 250_000
    /// What part of that those take who catch up, so that those at the log's end hardly wait for them.
    static let catchUpShare = 8

    /// What it takes of a turn to find that a segment has nothing for anybody, beside so many bytes that are read.
    static let passedSegmentBytes = 32 << 10

    /// What a delivery that waits takes beside its body.
    static let waitingDeliveryBytes = 160

    /// Pauses before the log is read again after the kernel refused a read: the first one, and the longest.
    static let firstReadingPause = Duration.milliseconds(50)
    static let longestReadingPause = Duration.seconds(2)
    /// Time that a client that catches up waits for a readable log before the hub tells it to fetch.
    static let pastReadingPatience = Duration.seconds(30)

    /// Time that rows are looked for in a log that the kernel refuses to read.
    static let recallReadingPatience = Duration.seconds(3)

    /// After so many changes PostgreSQL is asked again whether it agrees with what was decided without it.
    static let shadowInterval: UInt64 = 1000

    /// What a generated value takes that is remembered, beside its texts and those it was made of.
    static let generatedValueBytes = 128

    /// Rows whose generated columns are asked for together: those of the entry at hand, which may be more, and of entries up
    /// to this far behind it.
    static let generationBatchRows = 4096
    static let generationAheadBytes = 1 << 20

    /// What a recalled row that is remembered takes beside its values.
    static let recalledRowBytes = 96

    /// Rows looked for in the log together: those of the change at hand and of changes up to this far behind it.
    static let recallBatchRows = 16_384
    static let recallAheadBytes = 4 << 20

    /// How much of the log is read for such rows, and for how long; what is not found then counts as not there.
    static let recallReadBytes: UInt64 = 1 << 30
    static let recallPatience = Duration.seconds(2)

    /// Rows of a table of which one was needed are remembered for so many of its changes.
    static let recallFollowedChanges = 100_000

    /// What is remembered of the log's segments, to find out quickly that a row is not in them.
    static let recallOutlineBytes = 64 << 20

    // What filters that are tried one by one may take of a loop, in steps of about half a nanosecond.

    /// Of each change.
    static let filterWorkOfChange = 200_000
    /// Of each connection beside that: a condition takes some dozens, one that searches in 5 KB some ten thousands.
    static let filterWorkOfConnection = 100_000
    /// Of all connections together beside that: a tenth of the time, and some milliseconds at once.
    static let filterWorkPerMicrosecond = 200
    static let filterWorkReserve = 20_000_000

    /// A connection whose filters took more than that is left out of changes for so long, and twice as long each time that it
    /// does so again.
    static let filterRest = Duration.seconds(2)
    /// A connection whose filters took no more than that for so long is treated as if they never had.
    static let filterRestForgotten = Duration.seconds(300)
}
