import Diagnostics

/// Tunings of time and memory for this module, which no document promises. Its limits are in
/// `Diagnostics/Limits.swift`.
extension Limits {
    /// Number of times that PostgreSQL is asked about a row on which policies fail while definitions change.
    static let policyTries = 3
    /// Time that all changes wait until PostgreSQL shows a transaction that concerns one table. After that, only the
    /// table's listeners wait.
    static let heldTablePatience = Duration.seconds(5)
    /// Bytes that a loop takes from the log, and deliveries that it hands to sockets, before it looks at its sockets
    /// again. Queueing a delivery is little work compared with sending, and one call sends all that is queued for a
    /// socket. So more is better, until a turn takes milliseconds.
    static let turnLogBytes = 1 << 20
    static let turnDeliveries = 250_000
    /// Divisor of a turn's bytes and deliveries for a catch-up, so that clients at the log's end hardly wait for
    /// clients that catch up.
    static let catchUpShare = 8

    /// Bytes charged to a turn for finding that a segment has nothing for any client.
    static let passedSegmentBytes = 32 << 10

    /// Bytes that a waiting delivery takes besides its body.
    static let waitingDeliveryBytes = 160

    /// Pauses before the log is read again after the kernel refused a read: the first one, and the longest.
    static let firstReadingPause = Duration.milliseconds(50)
    static let longestReadingPause = Duration.seconds(2)
    /// Time that a client that catches up waits for a readable log before the hub tells it to fetch.
    static let pastReadingPatience = Duration.seconds(30)

    /// Longest time that the hub looks for rows in a log that the kernel refuses to read.
    static let recallReadingPatience = Duration.seconds(3)

    /// Number of changes after which the hub asks PostgreSQL again whether it agrees with the hub's own decision.
    static let shadowInterval: UInt64 = 1000

    /// Bytes that a remembered generated value takes besides its text and the texts it was computed from.
    static let generatedValueBytes = 128

    /// Rows whose generated columns are asked for together: the rows of the current entry, which may be more, and rows
    /// of later entries within `generationAheadBytes`.
    static let generationBatchRows = 4096
    static let generationAheadBytes = 1 << 20

    /// Bytes that a remembered recalled row takes besides its values.
    static let recalledRowBytes = 96

    /// Rows looked for in the log together: those of the current change and of later changes within `recallAheadBytes`.
    static let recallBatchRows = 16_384
    static let recallAheadBytes = 4 << 20

    /// Bytes of the log that are read to find earlier versions of rows, and the time that this may take. A row not
    /// found by then is unread: listeners are told of its change.
    static let recallReadBytes: UInt64 = 1 << 30
    static let recallPatience = Duration.seconds(2)

    /// Number of a table's changes for which the hub remembers the table's rows after it needed one of them.
    static let recallFollowedChanges = 100_000

    /// Memory for outlines of the log's segments, which show quickly that a row is not in a segment.
    static let recallOutlineBytes = 64 << 20

    // Allowances of a loop for filters that are tried one by one, in steps of about half a nanosecond.

    /// Steps of filter work for each change.
    static let filterWorkOfChange = 200_000
    /// Steps of filter work for each connection, in addition to those for each change. A condition takes some dozens;
    /// one that searches in 5 KB takes some ten thousands.
    static let filterWorkOfConnection = 100_000
    /// Steps of filter work for all connections together, in addition to those for each connection: a tenth of the
    /// time, and some milliseconds at once.
    static let filterWorkPerMicrosecond = 200
    static let filterWorkReserve = 20_000_000

    /// Time for which changes leave out a connection whose filters took more work than allowed. The time doubles on
    /// each repetition.
    static let filterRest = Duration.seconds(2)
    /// Time after which a connection whose filters stayed within the allowance is treated as if they always had.
    static let filterRestForgotten = Duration.seconds(300)
}
