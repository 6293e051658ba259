import Diagnostics

/// Tunings of time and memory for this module. They are not documented for users. The module's limits are in
/// `Diagnostics/Limits.swift`.
extension Limits {
    /// Number of times that the hub asks PostgreSQL about a row if policies fail on it while definitions change.
    static let policyTries = 3
    /// Longest time that all changes wait for PostgreSQL to show a transaction of one table. After that, only the
    /// table's listeners wait.
    static let heldTablePatience = Duration.seconds(5)
    /// Bytes of the log that a loop reads in one turn before it serves its sockets again. Larger turns are more
    /// efficient, because one system call then sends more frames, as long as a turn takes less than some milliseconds.
    static let turnLogBytes = 1 << 20
    /// Maximum number of deliveries that a loop queues in one turn before it serves its sockets again.
    static let turnDeliveries = 250_000
    /// Divisor of a turn's bytes and deliveries for a catch-up, so that it hardly delays clients at the log's end.
    static let catchUpShare = 8

    /// Bytes that a turn counts for skipping a segment that contains nothing for any client.
    static let passedSegmentBytes = 32 << 10

    /// Memory in bytes that is counted for a waiting delivery besides its body.
    static let waitingDeliveryBytes = 160

    /// First pause before the hub reads the log again, after the kernel refused a read.
    static let firstReadingPause = Duration.milliseconds(50)
    /// Longest pause between attempts to read the log.
    static let longestReadingPause = Duration.seconds(2)
    /// Longest time that a client that catches up waits for an unreadable log. Then the hub tells the client to fetch.
    static let pastReadingPatience = Duration.seconds(30)

    /// Longest time that the hub retries a search for rows while the kernel refuses to read the log.
    static let recallReadingPatience = Duration.seconds(3)

    /// Largest number of changes between two checks of the hub's decisions against PostgreSQL.
    static let shadowInterval: UInt64 = 1000

    /// Memory that a remembered generated value uses besides its text and its inputs, in bytes.
    static let generatedValueBytes = 128

    /// Maximum number of rows for whose generated columns the hub asks together. Rows of the current entry are all
    /// included, even if they are more.
    static let generationBatchRows = 4096
    /// Bytes of later entries in which the hub looks for rows with generated columns to compute.
    static let generationAheadBytes = 1 << 20

    /// Memory that a remembered row uses besides its values, in bytes.
    static let recalledRowBytes = 96

    /// Maximum number of rows for which one search of the log looks.
    static let recallBatchRows = 16_384
    /// Maximum number of bytes of later entries in which the hub looks for more rows that a search must find.
    static let recallAheadBytes = 4 << 20

    /// Bytes of the log that one search for rows may read. A row not found by then is unread: the hub tells the
    /// listeners of its change.
    static let recallReadBytes: UInt64 = 1 << 30
    /// Longest duration of one search for rows in the log.
    static let recallPatience = Duration.seconds(2)

    /// Number of a table's changes for which the hub goes on remembering the table's rows after it needed one.
    static let recallFollowedChanges = 100_000

    /// Memory for outlines of segments, in bytes. An outline quickly shows that a row is not in the segment.
    static let recallOutlineBytes = 64 << 20

    // Work allowances of a loop for filters that it evaluates one by one. A step takes about half a nanosecond.

    /// Steps of filter work that the allowance grants for each change.
    static let filterWorkOfChange = 200_000
    /// Steps of filter work for each connection and change, added to `filterWorkOfChange`. A condition takes some
    /// dozens; a search in a text of 5 KB takes some ten thousands.
    static let filterWorkOfConnection = 100_000
    /// Steps of filter work per microsecond that all connections of a loop share: about a tenth of the loop's time.
    static let filterWorkPerMicrosecond = 200
    /// Largest number of shared steps that may be saved up: some milliseconds of work.
    static let filterWorkReserve = 20_000_000

    /// Duration for which changes skip a connection whose filters exceeded the allowance. It doubles on each
    /// repetition.
    static let filterRest = Duration.seconds(2)
    /// Duration within the allowance after which the hub forgets that a connection's filters had exceeded it.
    static let filterRestForgotten = Duration.seconds(300)
}
