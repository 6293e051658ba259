/// Every maximum of the hub in one place: no queue, buffer, cache, frame or retry grows without one of these.
///
/// What relates them is checked by `checkInvariants()`, which the hub calls when it starts.
public enum Limits {
    // MARK: Entries and transactions

    /// PostgreSQL sends a change as one message of less than 1 GiB (`MaxAllocSize`); with what shares its part that fits
    /// here. Small enough that a length read from damaged bytes is refused before memory is asked for.
    public static let maximumEntryPayloadBytes = Int(Int32.max) - 255

    /// The largest message the server can send, which is the largest change.
    static let maximumMessageBytes = (1 << 30) - 1

    /// A long transaction is written in parts of about this size, so that memory does not grow with its length. A single
    /// change larger than this makes one part of its own.
    public static let transactionPartTargetBytes = 1 << 20

    /// Transactions in progress that the server streams to us at the same time; one more is a protocol error.
    public static let maximumStreamedTransactions = 256

    /// What one streamed transaction may hold in memory before it goes to disk.
    public static let streamedTransactionBufferBytes = 256 << 10

    /// What ingest may hold at once, apart from a single change larger than that: the server sends a change as one
    /// message, and libpq hands it over whole.
    public static let ingestMemoryBudgetBytes = 128 << 20

    /// Schemas remembered on one connection. The server announces each once, so none can be forgotten: at the limit the
    /// connection is made anew.
    public static let maximumCachedRelations = 65_536

    /// PostgreSQL's own limit (`MaxHeapAttributeNumber` is 1600; a message can only name fewer).
    public static let maximumColumns = 1600

    // MARK: The event log

    /// A batch is flushed when it is this large …
    public static let flushBatchBytes = 4 << 20

    /// … or this old: the most that group commit may add to a transaction's way to the disk.
    public static let groupCommitMaximumDelay = Duration.milliseconds(5)

    public static let minimumSegmentBytes = 1 << 20
    public static let defaultSegmentBytes = 64 << 20
    public static let maximumSegmentBytes = 1 << 30

    /// What retention may be set to: any more is "without limit" in other words.
    public static let maximumRetentionAge = Duration.seconds(36_500 * 86_400)
    public static let maximumRetentionBytes: Int64 = 1 << 50

    /// Keys remembered for one segment's filter (8 bytes each). A segment with more has no filter and is always read.
    public static let maximumKeyHashesPerSegment = 2 << 20

    /// Distance of the points of a segment's sparse index.
    public static let indexStride: UInt64 = 64 << 10

    /// What a reader of the log reads at once, and keeps between entries.
    public static let logReadBytes = 1 << 20

    /// What a scan of whole segments (recovery, verification) reads at once.
    public static let logScanBytes = 4 << 20

    /// Steps in which a spare segment is filled with zeros.
    public static let zeroFillBytes = 1 << 20

    /// A segment's index larger than this is not believed.
    public static let maximumSidecarBytes = 256 << 20

    /// A segment that took longer to fill than this leaves the disk time to fill the next one with zeros.
    public static let calmFillMicroseconds: Int64 = 5_000_000

    /// Between two attempts to write after the disk was full or failed.
    public static let diskRetryInterval = Duration.seconds(1)

    /// A trouble that lasts is said again after this long.
    public static let troubleReminderInterval = Duration.seconds(30)

    /// A disk that refuses for longer than this lets go of the database, which could not shut down otherwise.
    public static let maximumStall = Duration.seconds(5)

    /// A byte of a value may become six in JSON (`\u0001`); a line of an export is never longer than this.
    public static let worstJSONExpansion = 6
    public static let maximumImportLineBytes = worstJSONExpansion * maximumEntryPayloadBytes + (64 << 20)

    // MARK: Talking to PostgreSQL

    public static let reconnectBackoffInitial = Duration.milliseconds(200)
    public static let reconnectBackoffMaximum = Duration.seconds(30)
    public static let connectTimeout = Duration.seconds(5)
    public static let catalogQueryTimeout = Duration.seconds(2)

    /// What is read from the stream at once, and kept between reads.
    public static let streamReadBytes = 1 << 20

    /// PostgreSQL's own limit for one message (`PQ_LARGE_MESSAGE_LIMIT` is `MaxAllocSize`) is below 1 GiB.
    public static let maximumServerMessageBytes = 1 << 30

    /// The rest between two reads of a busy stream, in which more comes together; far below what a commit takes.
    public static let streamRestMicroseconds: UInt32 = 50

    /// How often the server hears from us. Its `wal_sender_timeout` is 60 s unless changed.
    public static let statusInterval = Duration.seconds(10)

    /// How often an idle slot is moved on, so that it does not keep WAL that holds nothing of ours.
    public static let idleProgressInterval = Duration.seconds(10)

    /// How often the server is asked about our slot.
    public static let slotWatchInterval = Duration.seconds(15)

    /// Being this far behind is worth a line in the log each time.
    public static let noteworthyLagBytes: Int64 = 64 << 20

    /// PostgreSQL's default `wal_sender_timeout`, after which it cuts a silent client.
    public static let assumedServerTimeout = Duration.seconds(60)

    // MARK: Filters

    public static let maximumFilterBytes = 64 << 10
    public static let maximumFilterConditions = 100

    /// Groups within groups.
    public static let maximumFilterDepth = 16

    /// Elements of an `in`; the reference takes 100.
    public static let maximumFilterListElements = 1000

    /// Keys by which one filter is found in the index; with more it is tried on every change.
    public static let maximumFilterKeys = 1000

    /// Bytes of a value times bytes of the pattern or part looked for in it, within one condition on one row: some
    /// milliseconds. Beyond that PostgreSQL is asked, which can be told to give up.
    public static let maximumFilterWork = 1 << 22

    // MARK: Configuration and diagnostics

    public static let maximumConfigurationFileBytes = 1 << 20
    public static let maximumConfigurationIncludeDepth = 10
    public static let maximumSettingBytes = 64 << 10

    /// PostgreSQL's `NAMEDATALEN` - 1.
    public static let maximumIdentifierBytes = 63

    /// A longer text in a log line is cut here and ends in `…`.
    public static let maximumLogFieldBytes = 4 << 10

    public static let maximumMetrics = 4096
}

extension Limits {
    /// The arithmetic between the maxima. Whoever changes one number and breaks another hears of it at the first start.
    public static func checkInvariants() {
        checkSizes()
        checkTimes()
    }

    private static func checkSizes() {
        precondition(
            transactionPartTargetBytes <= flushBatchBytes, "a part of a transaction must fit a flush batch")
        precondition(
            flushBatchBytes + transactionPartTargetBytes + maximumStreamedTransactions * streamedTransactionBufferBytes
                <= ingestMemoryBudgetBytes, "what ingest may buffer must fit its memory budget")
        precondition(
            minimumSegmentBytes <= defaultSegmentBytes && defaultSegmentBytes <= maximumSegmentBytes,
            "the default segment size must be an allowed one")
        precondition(
            transactionPartTargetBytes <= minimumSegmentBytes, "a usual part must fit the smallest segment")
        precondition(
            maximumMessageBytes + 2 * transactionPartTargetBytes <= maximumEntryPayloadBytes,
            "the largest change must fit an entry, beside what its part already holds")
        precondition(
            maximumEntryPayloadBytes <= Int(Int32.max), "an entry's length must fit the 32 bits of its header")
        precondition(
            maximumImportLineBytes > worstJSONExpansion * maximumEntryPayloadBytes,
            "whatever is exported must be importable")
        precondition(
            maximumFilterListElements <= maximumFilterKeys, "a list of the largest size is found by its keys")
        precondition(
            maximumSettingBytes < maximumConfigurationFileBytes, "the longest setting must fit a configuration file")
    }

    private static func checkTimes() {
        precondition(
            reconnectBackoffInitial <= reconnectBackoffMaximum, "the first wait must not be longer than the longest")
        precondition(
            groupCommitMaximumDelay < statusInterval, "a batch must be on disk before its status is due")
        precondition(
            statusInterval * 3 <= assumedServerTimeout, "two lost status messages must not cut the connection")
        precondition(
            idleProgressInterval <= assumedServerTimeout, "an idle slot must move on while the server still listens")
        precondition(
            catalogQueryTimeout <= connectTimeout, "a question to the catalog is quicker than a connection")
    }
}
