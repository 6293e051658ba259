/// Maxima of the hub: every queue, buffer, cache, frame and retry is limited by one of these. Values that only divide a
/// room's (module's) time and memory are in that room (`DeliveryTunings.swift` and others).
///
/// `checkInvariants()` checks the relations between the maxima; the hub calls it when it starts. Each room checks its
/// tunings against the maxima when it creates its threads.
public enum Limits {
    // MARK: Entries and transactions

    /// Largest payload of a log entry. PostgreSQL sends a change as one message of less than 1 GiB
    /// (`MaxAllocSize`), which fits here with the rest of its part. Lengths above this, read from damaged bytes,
    /// are refused before memory is allocated.
    public static let maximumEntryPayloadBytes = Int(Int32.max) - 255

    /// Largest message that PostgreSQL can send, which is the largest change.
    static let maximumMessageBytes = (1 << 30) - 1

    /// Target size of a part of a long transaction. The log stores such a transaction in parts, so that memory does not
    /// grow with its length. A single change larger than this has a part of its own.
    public static let transactionPartTargetBytes = 1 << 20

    /// Maximum number of unfinished transactions that PostgreSQL may stream simultaneously. One more is a protocol
    /// error.
    public static let maximumStreamedTransactions = 256

    /// Memory that one streamed transaction may use before the hub moves it to a file.
    public static let streamedTransactionBufferBytes = 256 << 10

    /// Memory that the ingest thread may use at any time. A larger single change is allowed in addition, because
    /// PostgreSQL sends a change as one message, which libpq delivers as a whole.
    public static let ingestMemoryBudgetBytes = 128 << 20

    /// Maximum number of schemas remembered on one connection. PostgreSQL announces each schema only once, so the hub
    /// cannot forget one. At the limit, the hub reconnects.
    public static let maximumCachedRelations = 65_536

    // MARK: The event log

    /// Size at which a batch of log entries is flushed.
    public static let flushBatchBytes = 4 << 20

    /// Age at which a batch of log entries is flushed: the longest delay that group commit adds to a transaction.
    public static let groupCommitMaximumDelay = Duration.milliseconds(5)

    public static let minimumSegmentBytes = 1 << 20
    public static let defaultSegmentBytes = 64 << 20
    public static let maximumSegmentBytes = 1 << 30

    /// Maximum age that retention can be set to. A longer age would mean the same as "without limit".
    public static let maximumRetentionAge = Duration.seconds(36_500 * 86_400)
    /// Maximum size that retention can be set to. A larger size would mean the same as "without limit".
    public static let maximumRetentionBytes: Int64 = 1 << 50

    /// Maximum number of keys in the filter of one segment (8 bytes each). A segment with more keys has no filter, so
    /// every search reads it.
    public static let maximumKeyHashesPerSegment = 2 << 20

    /// Bytes of one read in a scan of whole segments (recovery, verification).
    public static let logScanBytes = 4 << 20

    /// Largest index file of a segment. The hub does not trust a larger one.
    public static let maximumSidecarBytes = 256 << 20

    /// Maximum number of pieces that one operation erases from a log. A change consists of two or three pieces.
    public static let maximumErasurePatches = 4 << 20

    /// Maximum time for which a starting hub waits for another process that is erasing entries of the log.
    public static let erasureLockPatience = Duration.seconds(5)

    /// Largest size of the audit file, in which commands record who saw masked values. An operator must move a larger
    /// file away before a command can write to it.
    public static let maximumAuditBytes = 64 << 20

    /// Largest audit file of operators' reads. A full one is kept as the file before, and replaces that.
    public static let maximumReadAuditBytes = 8 << 20

    /// Limits of the lines about reads: the time in which the same read of an operator is noted once, the lines of an
    /// operator in that time, and the operators whose reads are counted.
    public static let auditedReadPause = Duration.seconds(60)
    public static let maximumAuditedReads = 60
    public static let maximumAuditedOperators = 1000

    /// Longest line of the audit file.
    public static let maximumAuditLineBytes = 64 << 10

    /// Maximum number of statements that a replay sends to a database together.
    public static let maximumReplayStatements = 200
    /// Maximum bytes of the statements that a replay sends to a database together. A larger single statement is sent
    /// alone.
    public static let maximumReplayBytes = 1 << 20

    /// Maximum number of messages in one request of a replay to a hub, few enough for a hub with a low rate limit.
    public static let maximumReplayMessages = 100
    /// Maximum number of attempts of a replay to send a request that exceeds the hub's rate limit.
    public static let maximumReplayAttempts = 120

    /// Milliseconds that a database may take for one statement of a replay, including waits for locks.
    public static let replayPatienceMilliseconds = 600_000

    /// Maximum time for which an operation on segments waits until the ingest thread has sealed the newest one.
    public static let sealingPatience = Duration.seconds(30)

    /// Interval at which the hub reports a lasting problem again.
    public static let troubleReminderInterval = Duration.seconds(30)

    /// Maximum number of different reasons for an unreachable database that the hub remembers. It reports each
    /// remembered reason only at intervals.
    public static let maximumOutages = 16

    /// Maximum time for which the disk may refuse writes before the hub disconnects from PostgreSQL. A connected hub
    /// that does not read would prevent PostgreSQL from shutting down.
    public static let maximumStall = Duration.seconds(5)

    /// Maximum number of bytes that one byte of a value can need in JSON (`\u0001`).
    public static let worstJSONExpansion = 6
    /// Maximum bytes of one line of an import. A line of an export is never longer.
    public static let maximumImportLineBytes = worstJSONExpansion * maximumEntryPayloadBytes + (64 << 20)

    // MARK: Talking to PostgreSQL

    /// Interval at which a paused replication stream checks whether it may continue, and writes notes that wait for the
    /// log.
    public static let pauseTick = Duration.milliseconds(100)
    /// Length of a pause for which the operator gives no length. PostgreSQL retains all WAL during a pause.
    public static let usualPause = Duration.seconds(600)
    /// Longest pause that an operator can request. PostgreSQL retains all WAL during a pause.
    public static let maximumPause = Duration.seconds(86_400)
    /// Longest text of a mark that an operator sets in the log.
    public static let maximumMarkBytes = 1024
    /// Maximum time for which a request to set a mark waits until the mark is on the disk.
    public static let markPatience = Duration.seconds(5)
    /// Maximum time for which a request to hand the replication slot over waits until another node of the cluster has it.
    public static let handoverPatience = Duration.seconds(15)
    /// Time for which a node of a cluster may be behind the stream until load balancers should send clients elsewhere.
    public static let clusterLagPatience = Duration.seconds(10)
    /// Maximum number of other nodes of a cluster that a node remembers, with those that have been silent for long.
    public static let maximumRememberedPeers = 1024

    public static let reconnectBackoffInitial = Duration.milliseconds(200)
    public static let reconnectBackoffMaximum = Duration.seconds(5)
    /// Interval at which a thread that waits to reconnect checks whether another thread has reached PostgreSQL.
    public static let recoveryInterval = Duration.milliseconds(100)
    public static let connectTimeout = Duration.seconds(5)
    public static let catalogQueryTimeout = Duration.seconds(2)

    /// Maximum time without an answer after which the hub considers PostgreSQL unreachable. PostgreSQL has its own,
    /// shorter limit for a statement.
    public static let answerTimeout = Duration.seconds(5)

    /// Largest message from the server. PostgreSQL's own limit (`PQ_LARGE_MESSAGE_LIMIT` is
    /// `MaxAllocSize`) is below 1 GiB.
    public static let maximumServerMessageBytes = 1 << 30

    /// Interval at which the hub sends status messages to PostgreSQL. PostgreSQL's `wal_sender_timeout` is 60 s by
    /// default.
    public static let statusInterval = Duration.seconds(10)

    /// Interval at which the hub advances an idle replication slot, so that PostgreSQL need not retain WAL that has no
    /// changes for the hub.
    public static let idleProgressInterval = Duration.seconds(10)

    /// Interval at which the hub repeats a failed write of one of its records beside the log.
    public static let recordRetryInterval = Duration.seconds(5)

    /// Interval at which the ingest thread checks the publications.
    public static let publicationWatchInterval = Duration.seconds(3)
    /// Interval at which the ingest thread tries to create a missing publication of messages.
    public static let publicationRetryInterval = Duration.seconds(60)

    /// Maximum delay of notes (presence, the ledger) before they are written to the log, while no change arrives.
    public static let noteInterval = Duration.seconds(1)
    /// Maximum time for which a channel waits for the log of this node to reach a position that another node of the
    /// cluster has sent.
    public static let replicaPatience = Duration.seconds(10)
    /// Maximum bytes of notes of one kind that wait until the log writes them.
    public static let maximumWaitingNoteBytes = 8 << 20
    /// Maximum size of a log entry of notes. A larger single note has an entry of its own.
    public static let noteEntryBytes = 64 << 10
    /// Longest text in a ledger note (a join's bindings, claims). The hub leaves out a longer text.
    public static let maximumLedgerTextBytes = 4 << 10
    /// Bytes per second that the ledger may write to the log on average.
    public static let ledgerBytesPerSecond = 32 << 10
    /// Bytes that the ledger may write to the log in one burst, above its average rate.
    public static let ledgerBurstBytes = 128 << 20
    /// Bytes per second of individually recorded deliveries that the hub may write to the log on average.
    public static let deliveryBytesPerSecond = 256 << 10
    /// Bytes of recorded deliveries that a loop collects before it has them written.
    public static let deliveryBlockBytes = 48 << 10
    /// Maximum time for which a loop collects recorded deliveries before it has them written.
    public static let deliveryBlockInterval = Duration.seconds(1)

    /// Lag behind PostgreSQL, in bytes, at which the hub writes a line to its log.
    public static let noteworthyLagBytes: Int64 = 64 << 20

    /// Default of PostgreSQL's `wal_sender_timeout`, after which PostgreSQL disconnects a client that sends nothing.
    public static let assumedServerTimeout = Duration.seconds(60)

    // MARK: Messages and channels

    /// Longest topic. The hub stores the topic of each channel. A binary frame allows 255 bytes; a text may be longer.
    public static let maximumTopicBytes = 1 << 10

    /// Longest message reference. The hub stores the reference of each channel and sends it back. Clients count in
    /// decimal.
    public static let maximumRefBytes = 1 << 10

    /// Maximum number of entries of `postgres_changes` in one join.
    public static let maximumBindingsPerChannel = 128

    /// Maximum number of conditions, and of values in them, in the filters of all channels of the process. One project
    /// may use half of them. Each uses about 360 bytes.
    public static let filterParts = 512 << 10
    /// Maximum number of conditions and values of a connection that counts as small. Small connections share a separate
    /// limit, so that a few large ones cannot exclude them.
    public static let fewFilterParts = 64
    /// Factor by which the limit that small connections share (see `fewFilterParts`) is larger than `filterParts`.
    public static let filterPartsForFew = 8
    /// Number of conditions and values above which a loop prepares a channel separately. The loop would need
    /// milliseconds for it, in which other channels would wait.
    public static let filterPartsAtOnce = 1024
    /// Number of conditions and values above which the hub does not remember the outcome of a filter.
    public static let rememberedFilterParts = 64
    /// Maximum number of conditions and values in the filters of one connection.
    public static let filterPartsOfConnection = 16 << 10

    /// Maximum number of combinations of matching bindings that the hub remembers for one channel.
    public static let maximumEnvelopesPerChannel = 256

    /// Largest message on the echo path, which serves conformance runs with messages of 16 MiB.
    public static let maximumEchoBytes = 17 << 20

    /// Maximum number of catch-ups (passes over the log for returning channels) that run on one loop simultaneously.
    public static let maximumCatchUps = 2
    /// Maximum number of channels of a project that are joined or may still resume.
    public static let maximumResumableChannels = 131_072
    /// Longest client id. A client can state this name in the URL to which it connects.
    public static let clientIDBytes = 128
    /// Interval at which the hub asks clients which changes they have received (see `SocketReceipt`).
    public static let receiptInterval = Duration.seconds(1)
    /// Interval at which the hub asks clients, the first `earlyReceipts` times after its start, which changes they have
    /// received.
    public static let earlyReceiptInterval = Duration.milliseconds(200)
    /// Number of times that the hub, after its start, asks clients at `earlyReceiptInterval` which changes they have
    /// received.
    public static let earlyReceipts = 50
    public static let resumeGrace = Duration.seconds(120)
    public static let maximumDepartureGrace = Duration.seconds(3600)

    /// Maximum time between two position messages to a client that asks for its position, while the log grows. This is
    /// the default.
    public static let positionInterval = Duration.seconds(30)
    /// Largest setting for the maximum time between two position messages.
    public static let maximumPositionInterval = Duration.seconds(3600)

    /// Time after which the hub answers a join even if its bindings are not in place yet. The hub continues to place
    /// them.
    public static let joinPatience = Duration.seconds(3)
    /// Time for which changes wait for the bindings of a join that was answered without them, or for those of a new
    /// token. After this time, changes no longer wait, and the hub tells the clients.
    public static let bindingPatience = Duration.seconds(10)
    /// Default time over which a hub that shuts down disconnects its clients.
    public static let drainTime = Duration.seconds(10)
    /// Largest setting of the time over which a hub that shuts down disconnects its clients.
    public static let maximumDrainTime = Duration.seconds(300)
    /// Maximum additional time for which a hub that shuts down waits, first for its loops to notify all clients, then
    /// for the clients to disconnect.
    public static let drainLimit = Duration.seconds(5)
    public static let bindAgainInterval = Duration.milliseconds(250)

    /// Default number of changes in one page of a feed.
    public static let feedPageChanges: UInt64 = 1000
    /// Maximum number of changes in one page of a feed.
    public static let maximumFeedPageChanges: UInt64 = 10_000
    /// Time after which the hub ends a page that still reads the log, and states the page's position.
    public static let feedPageTime = Duration.seconds(10)
    /// Time after which the hub ends a page that waits at the end of the log, and states the page's position.
    public static let feedPollTime = Duration.seconds(25)
    /// Interval at which a stream of a feed without changes sends its position, which shows that it is alive.
    public static let feedHeartbeat = Duration.seconds(15)

    /// Time within which a client must send the head of a request, counted from its first byte or from the previous
    /// answer.
    public static let requestTimeLimit = Duration.seconds(10)

    /// Memory that a writer keeps after a large message. It frees the rest.
    public static let keptWriterBytes = 256 << 10
    /// Size above which sockets share the bytes of a change's body. A smaller body is copied into each frame.
    public static let sharedBodyThresholdBytes = 8 << 10
    public static let compressionLevel = 1

    /// Size from which a message of a client counts as large. Reading large messages takes long.
    public static let largeMessageBytes = 4 << 10
    /// Time that a loop spends on large messages in one turn.
    public static let turnLargeInput = Duration.milliseconds(1)
    /// Factor for the pause after large joins: the loop reads no large message for this multiple of the time that the
    /// joins took.
    public static let largeJoinPauseFactor = 3
    /// Maximum pause after large joins in which a loop reads no large message.
    public static let maximumLargeInputRest = Duration.milliseconds(60)
    /// Maximum step by which the memory for a connection's input grows.
    public static let inputGrowthBytes = 1 << 20
    /// Maximum bytes of one channel's deliveries that wait for PostgreSQL's answer to a filter.
    public static let maximumWaitingDeliveryBytes = 4 << 20
    /// Maximum bytes of all deliveries on one loop that wait for PostgreSQL. At half of it, the loop stops reading the
    /// log for a limited time.
    public static let maximumWaitingTotalBytes = 128 << 20
    /// Maximum time for which a loop does not read the log because deliveries wait for PostgreSQL.
    public static let crowdPatience = Duration.seconds(2)
    /// Interval at which a loop checks whether it can read the log again.
    public static let crowdInterval = Duration.milliseconds(20)

    /// Maximum number of channels on one loop, joined and joining. Each channel has at most three timers.
    public static let maximumChannelsPerLoop = 1 << 22
    /// Maximum number of refused joins of one socket that wait for their answer although the socket has its maximum of
    /// channels. If the client sends one more, the hub closes the socket.
    public static let maximumSurplusJoins = 4096
    /// Maximum number of refused joins on one loop that wait for their answer.
    public static let maximumRefusalsPerLoop = 1 << 17
    /// Minimum time between two messages to a channel that changes are missing.
    public static let lossInterval = Duration.seconds(1)
    /// Minimum time between two messages to a channel that records lack values.
    public static let lackingValuesInterval = Duration.seconds(60)

    /// Time over which rates are averaged. A client may use the amount that its rate allows in this time all together.
    public static let rateWindow = Duration.seconds(10)
    /// Maximum number of messages in one HTTP request.
    public static let maximumPostedMessages = 10_000
    /// Interval at which the hub checks whether messages from the database arrive, for channels that ask for it.
    public static let readinessInterval = Duration.milliseconds(500)
    /// Maximum time for which the hub checks whether messages from the database arrive.
    public static let readinessPatience = Duration.seconds(60)
    /// Maximum number of error codes that the hub counts separately for each project. Fewer codes exist.
    public static let maximumErrorCodes = 64
    /// Maximum bytes of a project's broadcasts from other loops that one loop has not processed yet.
    public static let maximumMailedBytes = 64 << 20
    /// Maximum number of messages of one private channel that wait until the hub knows whether the channel may write.
    public static let maximumPendingWrites = 1024
    /// Maximum bytes of messages of one private channel that wait until the hub knows whether the channel may write.
    public static let maximumPendingWriteBytes = 8 << 20
    /// Maximum number of topics of a project in which clients are present.
    public static let maximumPresenceTopics = 1 << 20
    public static let maximumPresencesPerTopic = 1 << 16
    /// Maximum bytes of presence that all connections together may track. One project may use half of them.
    public static let presenceBytes = 256 << 20
    /// Maximum bytes of presence that one connection may track, and so of one presence.
    public static let presenceBytesOfConnection = 8 << 20
    /// Maximum bytes of presence of a connection that counts as small. Small connections share a separate limit, so
    /// that a few large ones cannot exclude them.
    public static let fewPresenceBytes = 64 << 10
    /// Factor by which the limit that small connections share (see `fewPresenceBytes`) is larger than `presenceBytes`.
    public static let presenceBytesForFew = 2
    /// Bytes that each presence counts in addition to its tracked state.
    public static let presenceBytesBeside = 256

    /// Maximum number of frames of one socket that wait while the hub decides about its joins.
    public static let maximumWaitingFrames: UInt16 = 64
    /// Maximum bytes of frames of one socket that wait while the hub decides about its joins.
    public static let maximumWaitingFrameBytes: UInt32 = 1 << 20

    /// Largest JSON of one change. The hub sends a larger change without its large values, as Supabase Realtime does
    /// (`poll_max_record_bytes`).
    public static let maximumChangeBodyBytes = 1 << 20

    /// Maximum number of topics that one socket may join.
    public static let maximumChannelsPerClient: Int64 = 10_000

    /// Default of the maximum size of a client's message.
    public static let clientMessageBytes = 5_000_000
    /// Largest setting of the maximum size of a client's message.
    public static let maximumClientMessageBytes = 64 << 20

    /// Delay of the answer to a connection that failed, so that a client that reconnects immediately does not overload
    /// the hub.
    public static let connectErrorBackoff = Duration.seconds(2)
    /// Delay of the answer to a channel's join that failed, for the same reason as `connectErrorBackoff`.
    public static let channelErrorBackoff = Duration.seconds(5)
    /// Maximum time for which rows wait, while PostgreSQL is unreachable, for values of a column's former type to be
    /// converted.
    public static let conversionPatience = Duration.seconds(30)
    /// Number of refused joins of a socket that the hub answers without delay.
    public static let promptRefusalsPerSocket: UInt8 = 5

    /// Maximum delay of an answer to a failure. Clients wait 10 seconds for an answer.
    public static let maximumErrorBackoff = Duration.seconds(9)

    // MARK: Tokens

    /// Longest token. Tokens of users with much metadata have several kilobytes.
    public static let maximumTokenBytes = 16 << 10

    /// Number of valid tokens that each loop remembers.
    public static let rememberedTokens = 1024

    public static let maximumKeySetBytes = 256 << 10
    public static let maximumKeysInSet = 64
    public static let maximumOpaqueKeys = 1024

    /// Default number of tables that have their own metrics.
    public static let measuredTables = 100
    /// Largest setting of the number of tables that have their own metrics.
    public static let maximumMeasuredTables: Int64 = 10_000

    /// Interval at which the hub logs that it refuses clients for the same reason.
    public static let refusalLineInterval = Duration.seconds(60)
    /// Maximum number of bytes of a client's host name that a log line shows.
    public static let shownHostBytes = 64

    /// Minimum time between two readings of the process's figures for `/metrics`.
    public static let processFiguresInterval = Duration.seconds(2)

    // MARK: Projects

    /// Maximum number of projects of one hub. Each project in use has its own threads and connections. A timer's token
    /// has ten bits for the project.
    public static let maximumProjects = 1000
    /// Pause before the hub tries again to start a project that failed to start. It doubles after each failure.
    public static let shortestProjectRetry = Duration.seconds(1)
    /// Longest pause before the hub tries again to start a project.
    public static let longestProjectRetry = Duration.seconds(60)
    /// Maximum number of deleted projects whose names the hub remembers. Requests for such a name get no project's
    /// answer. Beyond this number, the oldest names count as never used.
    public static let maximumDeletedNames = 10_000
    /// Maximum number of operators' requests that wait for a running request for the same project.
    public static let maximumWaitingOperations = 100
    /// Maximum number of processes that answer operators' questions to event logs simultaneously.
    public static let questionsAtOnce = 2
    /// Maximum number of operators' questions to event logs that wait for a process.
    public static let maximumWaitingLogQuestions = 16
    /// Maximum time for answering an operator's question to an event log.
    public static let questionTimeLimit = Duration.seconds(60)
    /// Maximum size of an answer to an operator's question to an event log, unless the caller reads it in parts.
    public static let maximumQuestionBytes = 4 << 20
    /// Maximum size of an answer to a question that the caller reads in parts.
    public static let maximumAnswerBytes = 256 << 20
    /// Maximum number of files in which the hub keeps answers that callers read in parts.
    public static let maximumKeptAnswers = 4
    /// Time for which the hub keeps a file with an answer that a caller reads in parts.
    public static let answerLifetime = Duration.seconds(600)
    /// Maximum number of channels in a list for operators.
    public static let maximumCensusEntries = 1000
    /// Maximum number of positions in a list of channels whose age the hub looks up.
    public static let maximumCensusAges = 32
    /// Maximum time for which a request for a list of channels waits for the loops.
    public static let censusPatience = Duration.seconds(5)
    /// Longest validity of an operator's token. The hub refuses a longer one: its expiry was probably written in
    /// milliseconds, or is meant to be never.
    public static let longestOperatorToken = Duration.seconds(20 * 366 * 86_400)
    /// Value of the HTTP header Retry-After if something is unavailable only for the moment.
    public static let retryAfter = Duration.seconds(1)
    /// Maximum time for which the hub waits for the result of an operator's request.
    public static let operatorAnswerLimit = Duration.seconds(180)
    /// Largest file of stored projects. One project needs several kilobytes.
    public static let maximumProjectFileBytes = 64 << 20
    /// Longest name of a project: the length of a label of a host name (RFC 1035 §2.3.4).
    public static let maximumProjectNameBytes = 63
    /// Maximum size of the text that describes a project to the API.
    public static let maximumProjectBodyBytes = 256 << 10
    /// Maximum number of nested levels in the text that describes a project.
    public static let maximumProjectDepth = 16

    /// Largest setting of a rate per second for clients of a project.
    public static let maximumRate: Int64 = 1_000_000_000
    /// Largest setting of the window in which a client's presence events are counted.
    public static let maximumClientPresenceWindow = Duration.seconds(86_400)

    /// Largest setting of the payload of a broadcast or presence, in units of 1000 bytes, as in Supabase Realtime.
    public static let maximumPayloadKilobytes: Int64 = 64_000
    /// Number of bytes that a payload may exceed its limit by, for the text around it.
    public static let payloadSlackBytes = 500

    /// Time after which the hub closes a socket that has no channel.
    public static let idleChannelTimeout = Duration.seconds(600)

    public static let messagesRetentionHours: Int64 = 72
    public static let maximumMessagesRetentionHours: Int64 = 87_600

    // MARK: Sockets

    /// Maximum number of connections of all loops together.
    public static let maximumConnections: Int64 = 4_000_000
    public static let maximumLoops: Int64 = 256

    /// Maximum number of connections of one loop. A descriptor table rarely has more. Unused places cost no memory.
    public static let maximumConnectionsPerLoop = 1 << 17

    /// Pause before the hub accepts connections again after memory or descriptors were exhausted.
    public static let acceptRest = Duration.milliseconds(100)

    /// Time after which the hub closes a socket from which it has received nothing. Supabase Realtime uses the same
    /// time.
    public static let socketIdleLimit = Duration.seconds(60)

    /// Maximum time from accepting a connection to the end of its TLS handshake.
    public static let handshakeLimit = Duration.seconds(10)

    /// Maximum number of bytes of one read from a socket. After it, the loop continues with the next connection.
    public static let socketReadBytes = 64 << 10

    /// Maximum bytes of incomplete messages and requests, of all connections together. One project may use half of
    /// them.
    public static let unfinishedInputBytes = 192 << 20
    /// Time within which a client must complete a message after its first byte, even if it sends control frames in
    /// between.
    public static let unfinishedInputLimit = Duration.seconds(60)
    /// Size of the receive buffer: room for a client's message of the default maximum size with its framing.
    public static let receiveBufferBytes = clientMessageBytes + (64 << 10)

    /// Maximum bytes that the hub queues for a blocked connection, in addition to the kernel's buffer.
    public static let outboxBytes = 8 << 20

    /// Number of queued bytes above which a connection counts as slow. Its channels then read the log at the
    /// connection's own speed.
    public static let filledBytes = 1 << 20

    /// Lower bound of `filledBytes`. The hub lowers that threshold when many connections are blocked.
    public static let leastFilledBytes = 32 << 10

    /// Time after which the hub closes a blocked connection that has accepted no bytes.
    public static let outboxAge = Duration.seconds(30)

    /// Largest setting of the number of changes by which a blocked connection may lag behind the end of the log.
    public static let maximumOutboxLag: Int64 = 1 << 40

    /// Maximum bytes queued for all blocked connections of one loop together.
    public static let outboxTotalBytes = 128 << 20

    /// Number of bytes freed by slow connections after which the hub returns free memory to the kernel.
    public static let memoryReturnThresholdBytes = 4 << 20

    /// Delay before the hub returns free memory to the kernel. Memory that other connections free in this time is
    /// included.
    public static let giveBackDelay = Duration.seconds(1)

    /// Largest piece of bytes to send that several sockets share.
    public static let maximumPieceBytes = 64 << 20

    /// Size of the chunks in which memory for outgoing bytes is allocated.
    public static let pieceChunkBytes = 64 << 10

    /// Number of free chunks of memory for outgoing bytes that each loop keeps for reuse.
    public static let sparePieceChunks = 16

    /// Bytes of pieces to send above which a loop reads no more input in its turn, until the pieces are flushed.
    public static let turnPieceBytes = 8 << 20

    /// Size up to which pieces are copied together for one system call. Larger pieces are passed without a copy.
    public static let copiedPieceBytes = 2 << 10

    /// Time for sending the last message to a connection that was too slow, or the queued bytes to a client that has
    /// finished sending.
    public static let farewellLimit = Duration.seconds(15)

    /// Maximum number of running timers of one loop.
    public static let maximumTimersPerLoop = 1 << 26

    // MARK: Requests and frames

    /// Maximum length of a request's first line and headers. Headers can contain tokens with many claims.
    public static let maximumRequestHeadBytes = 32 << 10

    /// Maximum length of a request's path and query, which can also contain a token.
    public static let maximumRequestTargetBytes = 16 << 10

    public static let maximumRequestHeaders = 100

    /// Default maximum size of a request's body, the same as that of Supabase Realtime.
    public static let maximumRequestBodyBytes = 8_000_000
    /// Largest setting of the maximum size of a request's body.
    public static let largestRequestBodyBytes = 64 << 20

    /// Maximum number of fragments of one message. The limit prevents a client from sending empty fragments forever.
    public static let maximumMessageFragments = 128 << 10

    /// Size below which the hub does not compress a message, because compression would gain nothing.
    public static let compressionThresholdBytes = 512

    // MARK: Bindings and the catalog

    /// Interval at which the hub checks the catalog for changes while a client is subscribed. A change of rights that
    /// the replication stream does not announce takes effect after at most this time.
    public static let catalogPollInterval = Duration.milliseconds(500)

    /// Interval at which the hub checks the catalog for changes while no client is subscribed.
    public static let catalogIdlePollInterval = Duration.seconds(5)

    /// Time of one wait for a transaction from the replication stream to become visible to other sessions.
    public static let maximumVisibilityWait = Duration.seconds(5)

    /// Number of unsuccessful waits for a transaction's visibility after which the hub reads the log further and tells
    /// all clients that changes may be missing.
    public static let maximumVisibilityWaits = 12

    /// Maximum number of times that the hub reads the catalog because it changed during the reading. Then the hub uses
    /// the last result.
    public static let maximumCatalogReads = 3

    /// Maximum depth of texts that lead to other texts in policies: bodies of functions, policies of other tables.
    public static let maximumPolicyDepth = 16

    /// Time for which PostgreSQL may wait for a session that alters a table when the hub asks for the meaning of a
    /// text.
    public static let policyLockTimeout = Duration.milliseconds(200)

    /// Maximum number of blocks of 65,536 transaction numbers that a loop keeps, in 2 MB, to notice commits that the log
    /// has and PostgreSQL does not show yet.
    public static let passedTransactionBlocks = 256

    /// Maximum number of policies that the hub names in its log as problematic.
    public static let maximumPolicyReports = 1024

    /// Maximum number of tables that one binding with `*` may cover.
    public static let maximumTablesPerBinding = 10_000

    /// Maximum number of requests that wait for the catalog's thread.
    public static let maximumWaitingBindings = 65_536
    /// Maximum bytes of the requests that wait for the catalog's thread.
    public static let maximumWaitingBindingBytes = 64 << 20
    /// Maximum number of loops' requests for a newer catalog that wait for the catalog's thread.
    public static let maximumWaitingRefreshes = 4096
    /// Maximum number of requests for bindings whose meaning the hub remembers.
    public static let maximumCachedBindings = 16_384
    /// Maximum number of decisions about rows that one loop simultaneously asks PostgreSQL to confirm.
    public static let maximumSecondOpinions = 64
    public static let maximumDemotedPolicies = 4096
    /// Maximum time for which the hub does not read the log because PostgreSQL cannot tell which rows clients may see.
    /// Then the hub disconnects clients. They receive the missed changes when PostgreSQL is reachable again.
    public static let maximumCatalogAbsence = Duration.seconds(60)
    /// Maximum number of changes to a membership that wait until PostgreSQL has returned the membership's keys. With
    /// more changes, the hub reads the keys again.
    public static let maximumMembershipDeltas = 4096
    /// Bytes of the log that the hub searches for past memberships, backward from the current transaction, after
    /// PostgreSQL has answered the present ones.
    public static let membershipUnwindBytes = 64 << 20
    /// Maximum time for which the hub waits for the log when it searches for past memberships. Time for which nothing
    /// reaches the log does not count.
    public static let membershipUnwindPatience = Duration.seconds(5)
    /// Maximum time for which the hub waits for the log when it searches for past memberships, with the time for which
    /// nothing reaches the log. It is longer than a cluster is without a feeder when the leader of its stream is lost
    /// twice in a row.
    public static let membershipStandstillPatience = Duration.seconds(30)
    /// Interval at which the hub checks whether the log has what the search for past memberships needs.
    public static let membershipUnwindInterval = Duration.milliseconds(5)
    /// Maximum number of warnings about one binding that covers many tables. The last one names the others.
    public static let maximumBindingWarnings = 4
    /// Maximum number of tables that a warning names for each code that other warnings would have.
    public static let maximumNamedTables = 50
    /// Maximum number of pairs of a role and a table whose rights the hub remembers.
    public static let maximumCachedAccess = 65_536

    /// Maximum number of rows that wait for PostgreSQL's decision on a filter.
    public static let maximumWaitingQuestions = 65_536
    /// Maximum bytes of the rows that wait for PostgreSQL's decision on a filter.
    public static let maximumWaitingQuestionBytes = 64 << 20
    /// Maximum number of rows or values about which the hub asks PostgreSQL in one round trip, for filters and
    /// conversions.
    public static let questionBatch = 256
    /// Maximum bytes of the texts in one round trip for filters and conversions. A larger single row is sent alone.
    public static let questionBatchBytes = 4 << 20
    /// Maximum number of prepared statements that stay on one connection for filters or for the catalog.
    public static let maximumPreparedQuestions = 256
    /// Maximum number of filters that the hub remembers because they took too long.
    public static let maximumPenalties = 1024

    // MARK: Asking PostgreSQL about rows under policies

    /// Number of connections with the login that evaluates policies. One policy uses at most one of them at a time.
    public static let policyConnections = 3
    /// Maximum number of pairs of a row and a role with claims in one queue of questions to PostgreSQL about policies,
    /// memberships or generated columns.
    public static let maximumWaitingPairs = 4 << 20
    /// Maximum bytes of the texts in one queue of questions about policies, memberships or generated columns.
    public static let maximumWaitingPolicyBytes = 128 << 20
    /// Maximum number of jobs, each with one or more questions, in one queue of questions about policies, memberships
    /// or generated columns.
    public static let maximumWaitingPolicyJobs = 131_072
    /// Maximum bytes of rows' texts, of claims, or of questions about channels in one statement. A larger single text
    /// is sent alone.
    public static let policyStatementBytes = 4 << 20
    /// Maximum number of policies that the hub remembers because they took too long.
    public static let maximumPolicyPenalties = 4096
    /// Maximum number of functions or statements for evaluating policies that are kept on one connection.
    public static let maximumClaimsScripts = 256
    /// Milliseconds after which the hub checks again whether PostgreSQL's snapshot includes a transaction.
    public static let visibilityRetryMilliseconds = 1
    /// Interval at which the hub checks the login that evaluates policies, while the login has the necessary rights.
    public static let policyLoginInterval = Duration.seconds(30)
    /// Interval at which the hub checks the login that evaluates policies, while the login lacks necessary rights.
    public static let unfitLoginInterval = Duration.seconds(5)
    /// Maximum number of keys in one holder's membership. For a larger membership, the hub asks PostgreSQL about each
    /// row.
    public static let maximumMembershipKeys = 4096
    /// Maximum number of keys that came or went in a holder's memberships for which the hub sends the rows with these
    /// keys. With more, the client fetches its rows again.
    public static let maximumTouchedKeys = 256
    /// Maximum number of times in quick succession that the hub sends a channel rows because its user may see other rows
    /// than before. With more, the client fetches its rows again.
    public static let otherRowsBurst = 64
    /// Interval after which a channel may be sent such rows once more.
    public static let otherRowsInterval = Duration.milliseconds(250)
    /// Maximum number of expressions that one request to PostgreSQL explains.
    public static let maximumExplainedExpressions = 1024

    // MARK: Snapshots

    /// Maximum number of snapshots of one project that run simultaneously, each on its own connection.
    public static let snapshotConnections = 4
    /// Maximum number of snapshots that wait to run. The snapshots for one connection's channels run one after the
    /// other.
    public static let maximumWaitingSnapshots = 1024
    public static let maximumSnapshotRows = 100_000
    /// Maximum bytes of the bodies of all rows of one snapshot.
    public static let maximumSnapshotBytes = 256 << 20
    /// Time that PostgreSQL may take to read the rows of one snapshot.
    public static let snapshotStatementTimeout = Duration.seconds(30)
    /// Time for which a page of a snapshot waits for a client that does not accept the previous page.
    public static let snapshotPagePatience = Duration.seconds(15)
    /// Maximum time for a whole snapshot, counted from its first page.
    public static let snapshotPatience = Duration.seconds(300)

    // MARK: Asking PostgreSQL about private channels

    /// Number of connections on which PostgreSQL answers several questions about private channels together. One more
    /// connection serves questions that resemble slow ones.
    public static let channelConnections = 2
    /// Number of connections for questions about private channels that the hub must ask alone.
    public static let channelConnectionsApart = 4
    /// Maximum number of a loop's channels whose rights are being checked again, after the rules of private channels
    /// changed.
    public static let rightsReviewedAtOnce = 16
    /// Number of attempts to check one channel's rights again while PostgreSQL does not answer. Then the hub closes the
    /// channel.
    public static let rightsReviewTries = 8
    public static let maximumWaitingChannelQuestions = 65_536
    public static let maximumWaitingChannelBytes = 64 << 20
    /// Time after which the hub answers an unanswered question about rights in a private channel with a refusal. A
    /// client waits 10 seconds for the reply to its join.
    public static let channelPatience = Duration.seconds(6)
    /// Maximum number of users or topics that the hub remembers because a question about their rights took too long.
    public static let maximumChannelPenalties = 4096

    // MARK: Generated columns

    /// Maximum bytes of generated values that each loop remembers, in addition to those that the current entry needs.
    public static let maximumGeneratedBytes = 8 << 20

    // MARK: Deleted rows

    /// Maximum bytes of current rows that each loop remembers, for tables whose deletes do not contain the old row.
    public static let maximumRecalledBytes = 32 << 20
    /// Largest current row that a loop remembers. The hub searches the log for larger ones.
    public static let maximumRecalledRowBytes = 256 << 10
    /// Maximum bytes of all rows that one search of the log for deleted rows finds.
    public static let recallBatchBytes = 8 << 20
    /// Maximum number of searches for old rows that wait. Each loop has at most one search at a time.
    public static let maximumWaitingRecalls = 1024

    // MARK: Earlier messages

    /// Maximum number of messages of a project whose places in the log the hub remembers. Each uses 40 bytes, and about
    /// 120 more if its row was changed later. The hub looks up older messages in their table.
    public static let archivedMessages = 1 << 20
    /// Number of messages from the database for which the hub remembers whether they were admitted. Loops that reach a
    /// message later use this.
    public static let rememberedAdmissions = 4096
    /// Maximum number of earlier messages in one answer.
    public static let maximumReplayedMessages = 1000
    /// Maximum bytes of earlier messages in one answer.
    public static let maximumReplayedBytes = 32 << 20
    /// Maximum number of waiting requests for earlier messages, of all clients that are joining.
    public static let maximumWaitingReplays = 65_536
    /// Time for which a request for earlier messages waits for the search of the log.
    public static let replayPatience = Duration.seconds(3)
    /// Largest difference that the hub assumes between its clock and the database's clock when it compares times of
    /// both.
    public static let clockTolerance = Duration.seconds(60)
    /// Time by which a message's timestamp may lie in the future. A message further in the future is not replayed yet.
    public static let replayHorizon = Duration.seconds(60)

    // MARK: Filters

    public static let maximumFilterBytes = 64 << 10
    public static let maximumFilterConditions = 100

    /// Maximum depth of nested groups in a filter.
    public static let maximumFilterDepth = 16

    /// Maximum number of elements of an `in` list. Supabase Realtime allows 100.
    public static let maximumFilterListElements = 1000

    /// Maximum number of keys by which the index finds one filter. A filter with more keys is tried on every change.
    public static let maximumFilterKeys = 1000

    /// Maximum work of evaluating one condition on one row: the bytes of the value times the bytes of the text that is
    /// searched for in it. This takes some milliseconds. For more work the hub asks PostgreSQL, where it can cancel the
    /// evaluation.
    public static let maximumFilterWork = 1 << 22

    /// Maximum time for which the hub leaves a connection out of changes, after the connection's filters repeatedly
    /// took too much time.
    public static let maximumFilterRest = Duration.seconds(64)

    // MARK: Configuration and diagnostics

    public static let maximumConfigurationFileBytes = 1 << 20
    public static let maximumConfigurationIncludeDepth = 10
    public static let maximumSettingBytes = 64 << 10

    /// Longest identifier: PostgreSQL's `NAMEDATALEN` - 1.
    public static let maximumIdentifierBytes = 63

    /// Longest text in a log line. The hub cuts a longer text and adds `…`.
    public static let maximumLogFieldBytes = 4 << 10
}

extension Limits {
    /// Checks the relations between the maxima. A change that breaks one of them is found when the hub next starts.
    public static func checkInvariants() {
        checkSizes()
        checkSockets()
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
            questionBatch <= maximumPreparedQuestions, "the statements of one round trip must be kept prepared")
        precondition(
            policyStatementBytes <= maximumWaitingPolicyBytes, "what one statement may send must fit the queue")
        precondition(
            maximumFilterListElements <= maximumFilterKeys, "a list of the largest size is found by its keys")
        precondition(
            recallBatchBytes + maximumRecalledRowBytes <= maximumRecalledBytes / 2,
            "what is found together must still be remembered when it is needed")
        precondition(
            maximumSettingBytes < maximumConfigurationFileBytes, "the longest setting must fit a configuration file")
    }

    private static func checkSockets() {
        precondition(copiedPieceBytes < pieceChunkBytes, "a piece worth copying must fit a chunk")
        precondition(outboxBytes <= outboxTotalBytes, "one connection's outbox must fit what all may hold")
        precondition(
            leastFilledBytes <= filledBytes && filledBytes < outboxBytes,
            "the slow are told apart before they are closed")
        precondition(
            maximumWaitingDeliveryBytes < maximumWaitingTotalBytes, "one channel's deliveries must fit those of all")
        precondition(
            turnPieceBytes + sparePieceChunks * pieceChunkBytes <= outboxTotalBytes,
            "a turn must fit the memory for what is sent")
        precondition(maximumPieceBytes <= outboxTotalBytes, "the largest piece must fit what a loop may hold")
        precondition(socketReadBytes <= receiveBufferBytes, "what one read brings must fit the receive buffer")
        precondition(
            clientMessageBytes + 14 <= receiveBufferBytes, "the largest frame must fit the receive buffer")
        precondition(
            maximumRequestTargetBytes < maximumRequestHeadBytes && maximumRequestHeadBytes <= receiveBufferBytes,
            "the longest request line must fit a head, and the largest head the receive buffer")
        precondition(
            3 * maximumChannelsPerLoop + Int(maximumConnections) + maximumRefusalsPerLoop < maximumTimersPerLoop,
            "whatever may have a timer must get one")
        precondition(farewellLimit < outboxAge, "a farewell is given less time than the data before it")
        precondition(
            maximumTokenBytes < clientMessageBytes && maximumTokenBytes < maximumSettingBytes,
            "a token must fit a message, and the setting that maps a key to one")
        precondition(clientMessageBytes <= maximumClientMessageBytes, "the usual message must be an allowed one")
        precondition(
            Int(maximumPayloadKilobytes) * 1000 + payloadSlackBytes <= maximumClientMessageBytes,
            "the largest payload must fit the largest message")
        precondition(maximumRequestBodyBytes <= largestRequestBodyBytes, "the usual body must be an allowed one")
        precondition(
            max(connectErrorBackoff, channelErrorBackoff) <= maximumErrorBackoff, "clients must hear of what failed")
        precondition(handshakeLimit < socketIdleLimit, "a handshake must not outlive the idle limit")
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
            catalogPollInterval <= catalogIdlePollInterval, "the catalog is asked more often when it matters")
        precondition(
            catalogQueryTimeout < answerTimeout, "a server that stops a statement itself must have the time to say so")
        precondition(
            catalogQueryTimeout <= connectTimeout, "a question to the catalog is quicker than a connection")
    }
}
