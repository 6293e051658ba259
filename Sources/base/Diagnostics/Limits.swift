/// All maxima of the hub in one place: no queue, buffer, cache, frame or retry grows without one of these. Values that
/// only divide a room's time and memory are in that room (`DeliveryTunings.swift` and others).
///
/// `checkInvariants()` checks the relations between the maxima; the hub calls it when it starts. Each room checks its
/// tunings against the maxima when its threads are made.
public enum Limits {
    // MARK: Entries and transactions

    /// Largest payload of a log entry. PostgreSQL sends a change as one message of less than 1 GiB
    /// (`MaxAllocSize`), which fits here with the rest of its part. Lengths above this, read from damaged bytes,
    /// are refused before memory is allocated.
    public static let maximumEntryPayloadBytes = Int(Int32.max) - 255

    /// Largest message that the server can send, which is the largest change.
    static let maximumMessageBytes = (1 << 30) - 1

    /// Target size of a part of a long transaction. Such a transaction is written in parts, so that memory does not
    /// grow with its length. A single change larger than this makes one part of its own.
    public static let transactionPartTargetBytes = 1 << 20

    /// Transactions in progress that the server may stream at the same time. One more is a protocol error.
    public static let maximumStreamedTransactions = 256

    /// Memory that one streamed transaction may use before it goes to disk.
    public static let streamedTransactionBufferBytes = 256 << 10

    /// Memory that ingest may use at once, apart from a single change larger than that: the server sends a change as
    /// one message, and libpq delivers the message whole.
    public static let ingestMemoryBudgetBytes = 128 << 20

    /// Schemas remembered on one connection. The server announces each schema once, so the hub cannot forget one:
    /// at the limit it connects again.
    public static let maximumCachedRelations = 65_536

    // MARK: The event log

    /// Size at which a batch of log entries is flushed.
    public static let flushBatchBytes = 4 << 20

    /// Age at which a batch of log entries is flushed: the longest delay that group commit adds to a transaction.
    public static let groupCommitMaximumDelay = Duration.milliseconds(5)

    public static let minimumSegmentBytes = 1 << 20
    public static let defaultSegmentBytes = 64 << 20
    public static let maximumSegmentBytes = 1 << 30

    /// Largest values that retention can be set to. A larger value would be the same as "without limit".
    public static let maximumRetentionAge = Duration.seconds(36_500 * 86_400)
    public static let maximumRetentionBytes: Int64 = 1 << 50

    /// Keys in the filter of one segment (8 bytes each). A segment with more keys has no filter and is always read.
    public static let maximumKeyHashesPerSegment = 2 << 20

    /// Bytes that a scan of whole segments (recovery, verification) reads at once.
    public static let logScanBytes = 4 << 20

    /// Largest index file of a segment. A larger one is not trusted.
    public static let maximumSidecarBytes = 256 << 20

    /// Pieces that are removed from a log at once. A change has two or three pieces.
    public static let maximumErasurePatches = 4 << 20

    /// Longest time that a starting hub waits for another process that erases entries of the log.
    public static let erasureLockPatience = Duration.seconds(5)

    /// Largest audit file, in which commands record who saw masked values. A larger file must be moved away first.
    public static let maximumAuditBytes = 64 << 20

    /// Longest line of the audit file.
    public static let maximumAuditLineBytes = 64 << 10

    /// Statements of a replay that are sent to a database together, and their bytes. A single
    /// larger statement is sent alone.
    public static let maximumReplayStatements = 200
    public static let maximumReplayBytes = 1 << 20

    /// Messages of a replay in one request to a hub, few enough for a hub with a low rate; and attempts to send a
    /// request that exceeds the hub's rate.
    public static let maximumReplayMessages = 100
    public static let maximumReplayAttempts = 120

    /// Time that a database may take for one statement of a replay, including waits for locks.
    public static let replayPatienceMilliseconds = 600_000

    /// Time that an operation on segments waits until the ingest thread has sealed the newest one.
    public static let sealingPatience = Duration.seconds(30)

    /// Interval at which a lasting problem is reported again.
    public static let troubleReminderInterval = Duration.seconds(30)

    /// Different reasons for an unreachable database that are remembered, so that each is reported only now and then.
    public static let maximumOutages = 16

    /// Longest time that the disk may refuse writes before the hub disconnects from the database, which
    /// otherwise could not shut down.
    public static let maximumStall = Duration.seconds(5)

    /// Bytes that one byte of a value may need in JSON (`\u0001`), and the resulting maximum for a line of an export.
    public static let worstJSONExpansion = 6
    public static let maximumImportLineBytes = worstJSONExpansion * maximumEntryPayloadBytes + (64 << 20)

    // MARK: Talking to PostgreSQL

    /// Interval at which a paused stream checks whether it may continue, and writes notes that wait for the log.
    public static let pauseTick = Duration.milliseconds(100)
    /// Length of a pause without a given end, and of the longest pause. PostgreSQL keeps all WAL meanwhile.
    public static let usualPause = Duration.seconds(600)
    public static let maximumPause = Duration.seconds(86_400)
    /// Longest text of a mark that an operator sets in the log.
    public static let maximumMarkBytes = 1024
    /// Time that an operator who sets a mark waits until the mark is on the disk.
    public static let markPatience = Duration.seconds(5)

    public static let reconnectBackoffInitial = Duration.milliseconds(200)
    public static let reconnectBackoffMaximum = Duration.seconds(5)
    /// Interval at which a thread that waits to reconnect checks whether another thread has reached the database.
    public static let recoveryInterval = Duration.milliseconds(100)
    public static let connectTimeout = Duration.seconds(5)
    public static let catalogQueryTimeout = Duration.seconds(2)

    /// Silence after which a server counts as gone, although it has its own, shorter limit for a statement.
    public static let answerTimeout = Duration.seconds(5)

    /// Largest message from the server. PostgreSQL's own limit (`PQ_LARGE_MESSAGE_LIMIT` is
    /// `MaxAllocSize`) is below 1 GiB.
    public static let maximumServerMessageBytes = 1 << 30

    /// Interval of status messages to the server. The server's `wal_sender_timeout` is 60 s unless changed.
    public static let statusInterval = Duration.seconds(10)

    /// Interval at which an idle slot is advanced, so that the slot does not keep WAL without changes for the hub.
    public static let idleProgressInterval = Duration.seconds(10)

    /// Interval at which the hub tries again to write one of its records beside the log.
    public static let recordRetryInterval = Duration.seconds(5)

    /// Intervals at which the ingest thread checks the publications, and tries to create a
    /// missing publication of messages.
    public static let publicationWatchInterval = Duration.seconds(3)
    public static let publicationRetryInterval = Duration.seconds(60)

    /// Longest delay of notes beside the changes (presence, the ledger) in a quiet database, and bytes of each
    /// kind that may wait for the disk.
    public static let noteInterval = Duration.seconds(1)
    public static let maximumWaitingNoteBytes = 8 << 20
    /// Size of a log entry of notes, unless a single note is larger.
    public static let noteEntryBytes = 64 << 10
    /// Longest text in the ledger (a join's bindings, claims). A longer text is left out.
    public static let maximumLedgerTextBytes = 4 << 10
    /// Bytes of the log that the ledger may take: in a second on average, and at once.
    public static let ledgerBytesPerSecond = 32 << 10
    public static let ledgerBurstBytes = 128 << 20
    /// Limits for deliveries that are recorded one by one: bytes in a second, and the bytes of a loop, or the time,
    /// that are collected before they are written.
    public static let deliveryBytesPerSecond = 256 << 10
    public static let deliveryBlockBytes = 48 << 10
    public static let deliveryBlockInterval = Duration.seconds(1)

    /// Lag that is worth a line in the log each time the hub is this far behind.
    public static let noteworthyLagBytes: Int64 = 64 << 20

    /// Default of PostgreSQL's `wal_sender_timeout`, after which PostgreSQL disconnects a silent client.
    public static let assumedServerTimeout = Duration.seconds(60)

    // MARK: Messages and channels

    /// Longest topic, which is kept for each channel. A binary frame allows 255 bytes; a text may be longer.
    public static let maximumTopicBytes = 1 << 10

    /// Longest message reference, which is kept for each channel and sent back. Clients count in decimal.
    public static let maximumRefBytes = 1 << 10

    /// Entries of `postgres_changes` in one join.
    public static let maximumBindingsPerChannel = 128

    /// Conditions, and values that the conditions name, in the filters of all channels of the process. A project may
    /// have half. Each takes some 360 bytes.
    public static let filterParts = 512 << 10
    /// Connections with at most `fewFilterParts` conditions and values share a separate limit, which is
    /// `filterPartsForFew` times as large as the limit of the others.
    public static let fewFilterParts = 64
    public static let filterPartsForFew = 8
    /// Conditions and values above which a channel is prepared apart, so that no other channel waits:
    /// a loop would need milliseconds.
    public static let filterPartsAtOnce = 1024
    /// Conditions and values above which the outcome of a filter is not remembered.
    public static let rememberedFilterParts = 64
    /// Conditions and values in the filters of one connection.
    public static let filterPartsOfConnection = 16 << 10

    /// Combinations of matching bindings that are remembered for one channel.
    public static let maximumEnvelopesPerChannel = 256

    /// Largest message on the echo path, which serves conformance runs with messages of 16 MiB.
    public static let maximumEchoBytes = 17 << 20

    /// Catch-ups (passes over the log for returning channels) that run on a loop at the same time.
    public static let maximumCatchUps = 2
    /// Channels that a project's clients have joined or may still resume.
    public static let maximumDepartures = 131_072
    /// Longest client id, a name that a client can give in the address it connects to.
    public static let clientIDBytes = 128
    /// Interval at which the hub checks which changes its clients have received.
    public static let receiptInterval = Duration.seconds(1)
    /// Interval of the first receipts of a process.
    public static let earlyReceiptInterval = Duration.milliseconds(200)
    /// Number of receipts at the shorter interval.
    public static let earlyReceipts = 50
    public static let departureGrace = Duration.seconds(120)
    public static let maximumDepartureGrace = Duration.seconds(3600)

    /// Longest interval between position messages while the log grows, for clients that ask for their
    /// position: default and largest setting.
    public static let positionInterval = Duration.seconds(30)
    public static let maximumPositionInterval = Duration.seconds(3600)

    /// Time after which a join is answered even if its bindings are not placed yet. The hub continues to place them.
    public static let joinPatience = Duration.seconds(3)
    /// Time that changes wait for the bindings of a join that was answered without them, or of a new token. After this
    /// time, changes no longer wait, and the clients are told.
    public static let bindingPatience = Duration.seconds(10)
    /// Time over which the hub disconnects its clients when it ends, by default and at most; and the time that the
    /// clients then have to go after all were told.
    public static let drainTime = Duration.seconds(10)
    public static let maximumDrainTime = Duration.seconds(300)
    public static let drainLimit = Duration.seconds(5)
    public static let bindAgainInterval = Duration.milliseconds(250)

    /// Changes in one page of a feed: default and maximum.
    public static let feedPageChanges: UInt64 = 1000
    public static let maximumFeedPageChanges: UInt64 = 10_000
    /// Time after which a page ends and tells its position: while it reads the log, and
    /// while it waits at the log's end.
    public static let feedPageTime = Duration.seconds(10)
    public static let feedPollTime = Duration.seconds(25)
    /// Interval at which a stream without changes sends a sign of life with its position.
    public static let feedHeartbeat = Duration.seconds(15)

    /// Time limit for a request's head, from its first byte or from the previous answer.
    public static let requestTimeLimit = Duration.seconds(10)

    /// Memory that a writer keeps after a large message. A writer returns the rest.
    public static let keptWriterBytes = 256 << 10
    /// Size above which a change's body is handed to sockets in place, instead of being copied into each frame.
    public static let sharedBodyThresholdBytes = 8 << 10
    public static let compressionLevel = 1

    /// Size from which a message of a client counts as large, and so takes long to read. In each turn, a loop
    /// reads such messages for at most `turnLargeInput`. After joins the loop pauses them for `largeInputRests`
    /// times as long as the joins took.
    public static let largeMessageBytes = 4 << 10
    public static let turnLargeInput = Duration.milliseconds(1)
    public static let largeInputRests = 3
    public static let maximumLargeInputRest = Duration.milliseconds(60)
    /// Largest step by which the memory for a connection's input grows.
    public static let inputGrowthBytes = 1 << 20
    /// Bytes of deliveries of one channel that wait for PostgreSQL's answer to a filter.
    public static let maximumWaitingDeliveryBytes = 4 << 20
    /// Bytes of deliveries of all channels of one loop that wait for PostgreSQL. At half of it,
    /// reading the log pauses for a while.
    public static let maximumWaitingTotalBytes = 128 << 20
    /// Longest pause of reading the log while deliveries wait for PostgreSQL, before the log is read for another turn;
    /// and the interval at which the hub checks whether the pause can end.
    public static let crowdPatience = Duration.seconds(2)
    public static let crowdInterval = Duration.milliseconds(20)

    /// Channels on one loop, joined and joining. Each channel has at most three timers.
    public static let maximumChannelsPerLoop = 1 << 22
    /// Joins of one socket beyond its maximum of channels that wait for their refusal. One more,
    /// and the hub closes the socket.
    public static let maximumSurplusJoins = 4096
    /// Joins that wait for their refusal on one loop.
    public static let maximumRefusalsPerLoop = 1 << 17
    /// Shortest interval at which a channel is told that changes are missing.
    public static let lossInterval = Duration.seconds(1)
    /// Shortest interval at which a channel is told that records lack values.
    public static let lackingValuesInterval = Duration.seconds(60)

    /// Time over which rates are averaged: the amount that a rate allows in this time may come all at once.
    public static let rateWindow = Duration.seconds(10)
    /// Messages in one request.
    public static let maximumPostedMessages = 10_000
    /// Interval and duration of the checks whether the database's messages arrive, for channels that want to know.
    public static let readinessInterval = Duration.milliseconds(500)
    public static let readinessPatience = Duration.seconds(60)
    /// Error codes that are counted separately for each project. Fewer codes exist.
    public static let maximumErrorCodes = 64
    /// Bytes of broadcasts from other loops that one loop has not taken yet, for each project.
    public static let maximumMailedBytes = 64 << 20
    /// Messages of one private channel, and their bytes, that wait until the hub knows whether the channel may write.
    public static let maximumPendingWrites = 1024
    public static let maximumPendingWriteBytes = 8 << 20
    /// Topics of a project in which a client is present.
    public static let maximumPresenceTopics = 1 << 20
    public static let maximumPresencesPerTopic = 1 << 16
    /// Bytes that all connections may track as presence, of which a project may use half; and the bytes of one
    /// connection, and so of one presence.
    public static let presenceBytes = 256 << 20
    public static let presenceBytesOfConnection = 8 << 20
    /// Connections that track at most `fewPresenceBytes` share a separate limit, which is `presenceBytesForFew` times
    /// as large as the limit of the others.
    public static let fewPresenceBytes = 64 << 10
    public static let presenceBytesForFew = 2
    /// Bytes that one presence counts in addition to the tracked state.
    public static let presenceBytesBeside = 256

    /// Frames of one socket, and their bytes, that wait while joins are decided.
    public static let maximumWaitingFrames: UInt16 = 64
    public static let maximumWaitingFrameBytes: UInt32 = 1 << 20

    /// Largest JSON of one change. A larger change is sent with its small values only
    /// (`poll_max_record_bytes` of the reference).
    public static let maximumChangeBodyBytes = 1 << 20

    /// Topics that one socket may have joined.
    public static let maximumChannelsPerClient: Int64 = 10_000

    /// Largest message of a client: default and largest setting.
    public static let clientMessageBytes = 5_000_000
    public static let maximumClientMessageBytes = 64 << 20

    /// Delays of answers to failures, so that clients that retry at once do not overload the hub.
    public static let connectErrorBackoff = Duration.seconds(2)
    public static let channelErrorBackoff = Duration.seconds(5)
    /// Time that rows wait for values of a column's former type while the database is unreachable.
    public static let conversionPatience = Duration.seconds(30)
    /// Refused joins of a socket that are answered at once.
    public static let promptRefusalsPerSocket: UInt8 = 5

    /// Longest delay of an answer to a failure. Clients wait 10 seconds for an answer.
    public static let maximumErrorBackoff = Duration.seconds(9)

    // MARK: Tokens

    /// Longest token. Tokens of users with much metadata have some kilobytes.
    public static let maximumTokenBytes = 16 << 10

    /// Valid tokens that each loop remembers.
    public static let rememberedTokens = 1024

    public static let maximumKeySetBytes = 256 << 10
    public static let maximumKeysInSet = 64
    public static let maximumOpaqueKeys = 1024

    /// Tables with metrics of their own: default and largest setting.
    public static let measuredTables = 100
    public static let maximumMeasuredTables: Int64 = 10_000

    /// Interval at which the log reports that clients are refused for one and the same reason.
    public static let refusalLineInterval = Duration.seconds(60)
    /// Longest part of a client's host name in a line of the log.
    public static let shownHostBytes = 64

    /// Shortest interval at which the figures of the process are read for `/metrics`.
    public static let processFiguresInterval = Duration.seconds(2)

    // MARK: Projects

    /// Projects of one hub. Each project in use has its own threads and connections. A
    /// timer names a project in ten bits.
    public static let maximumProjects = 1000
    /// Pause before a project that cannot be started is tried again; it doubles from the first value to the second.
    public static let shortestProjectRetry = Duration.seconds(1)
    public static let longestProjectRetry = Duration.seconds(60)
    /// Number of names of deleted projects that no project answers for. Beyond it, the oldest are ordinary names again.
    public static let maximumDeletedNames = 10_000
    /// Operators' requests that may wait for the one that runs for the same project.
    public static let maximumWaitingOperations = 100
    /// Limits of operators' questions to event logs: processes that answer at once, waiting
    /// questions, time, and size of an answer.
    public static let questionsAtOnce = 2
    public static let maximumWaitingLogQuestions = 16
    public static let questionTimeLimit = Duration.seconds(60)
    public static let maximumQuestionBytes = 4 << 20
    /// Limits of larger answers, which are given in parts to callers that ask for parts: their size, the number of
    /// files that keep them, and the time for which a file is kept.
    public static let maximumAnswerBytes = 256 << 20
    public static let maximumKeptAnswers = 4
    public static let answerLifetime = Duration.seconds(600)
    /// Limits of a list of channels for operators: channels, positions whose age is looked up,
    /// and the time to wait for loops.
    public static let maximumCensusEntries = 1000
    public static let maximumCensusAges = 32
    public static let censusPatience = Duration.seconds(5)
    /// Longest validity of an operator's token. A longer one is refused: it counts milliseconds, or never ends.
    public static let longestOperatorToken = Duration.seconds(20 * 366 * 86_400)
    /// Value of HTTP's Retry-After in answers about something that is not available for the moment.
    public static let retryAfter = Duration.seconds(1)
    /// Time that the hub waits for the result of an operator's request before giving up.
    public static let operatorAnswerLimit = Duration.seconds(180)
    /// Largest file of stored projects. One project takes some kilobytes.
    public static let maximumProjectFileBytes = 64 << 20
    /// Length of a label of a host name (RFC 1035 §2.3.4).
    public static let maximumProjectNameBytes = 63
    /// Limits of the text that describes a project to the API: its size, its levels and
    /// the members of one object in it.
    public static let maximumProjectBodyBytes = 256 << 10
    public static let maximumProjectDepth = 16
    public static let maximumProjectMembers = 1000

    /// Largest settings for clients of a project: a rate in a second, and a window.
    public static let maximumRate: Int64 = 1_000_000_000
    public static let maximumClientPresenceWindow = Duration.seconds(86_400)

    /// Largest payload of a broadcast or a presence in the reference's units of 1000 bytes, and
    /// additional bytes for the text around it.
    public static let maximumPayloadKilobytes: Int64 = 64_000
    public static let payloadSlackBytes = 500

    /// Time after which a socket without any channel is closed.
    public static let idleChannelTimeout = Duration.seconds(600)

    public static let messagesRetentionHours: Int64 = 72
    public static let maximumMessagesRetentionHours: Int64 = 87_600

    // MARK: Sockets

    /// Connections of all loops together.
    public static let maximumConnections: Int64 = 4_000_000
    public static let maximumLoops: Int64 = 256

    /// Connections of one loop. A descriptor table rarely has more; a connection that does not exist costs no memory.
    public static let maximumConnectionsPerLoop = 1 << 17

    /// Pause of accepting connections after memory or descriptors ran out.
    public static let acceptRest = Duration.milliseconds(100)

    /// Time without any byte from the client after which a socket is closed. The reference closes after the same time.
    public static let socketIdleLimit = Duration.seconds(60)

    /// Time limit from accept to the end of the TLS handshake.
    public static let handshakeLimit = Duration.seconds(10)

    /// Most bytes of one read. After it, the next connection gets its turn.
    public static let socketReadBytes = 64 << 10

    /// Bytes of clients' incomplete messages and requests, of all connections together. A project may use half.
    public static let unfinishedInputBytes = 192 << 20
    /// Time within which a message must be complete after its first byte, whatever else the client sends meanwhile.
    public static let unfinishedInputLimit = Duration.seconds(60)
    /// Size of the receive buffer: the largest message of a client and its framing.
    public static let receiveBufferBytes = clientMessageBytes + (64 << 10)

    /// Bytes that may be queued in the hub for a blocked connection, beside the kernel's own buffer.
    public static let outboxBytes = 8 << 20

    /// Queued bytes from which a connection counts as slow: its channels then read the
    /// log at the connection's own pace.
    public static let filledBytes = 1 << 20

    /// Least value to which the threshold for slow connections falls when many connections are blocked.
    public static let leastFilledBytes = 32 << 10

    /// Time for which a blocked connection may take nothing at all.
    public static let outboxAge = Duration.seconds(30)

    /// Largest setting of the changes by which a blocked connection may be behind the event log's end.
    public static let maximumOutboxLag: Int64 = 1 << 40

    /// Bytes that may be queued for all blocked connections of one loop together.
    public static let outboxTotalBytes = 128 << 20

    /// Memory freed by slow connections from which free memory is returned to the kernel.
    public static let givenBackBytes = 4 << 20

    /// Delay before free memory is returned to the kernel, so that memory freed by other connections is included.
    public static let giveBackDelay = Duration.seconds(1)

    /// Largest shared piece of bytes to send.
    public static let maximumPieceBytes = 64 << 20

    /// Size of the chunks in which memory for outgoing bytes is allocated.
    public static let pieceChunkBytes = 64 << 10

    /// Chunks kept for reuse on each loop.
    public static let sparePieceChunks = 16

    /// Bytes of pieces to send above which a turn takes no more input until the pieces are flushed.
    public static let turnPieceBytes = 8 << 20

    /// Size up to which pieces are copied together for one system call. Larger ones are handed over in place.
    public static let copiedPieceBytes = 2 << 10

    /// Time to send the last message to a connection that fell behind, or the queued bytes
    /// to a peer that finished sending.
    public static let farewellLimit = Duration.seconds(15)

    /// Running timers of one loop.
    public static let maximumTimersPerLoop = 1 << 26

    // MARK: Requests and frames

    /// Length of a request's first line and headers. Tokens with many claims come in headers.
    public static let maximumRequestHeadBytes = 32 << 10

    /// Length of a request's path and query, which may contain a token too.
    public static let maximumRequestTargetBytes = 16 << 10

    public static let maximumRequestHeaders = 100

    /// Largest body of a request: default (the reference's own limit) and largest setting.
    public static let maximumRequestBodyBytes = 8_000_000
    public static let largestRequestBodyBytes = 64 << 20

    /// Fragments of one message. Prevents a peer from sending empty fragments forever.
    public static let maximumMessageFragments = 128 << 10

    /// Size below which messages are not compressed, because they would gain nothing.
    public static let compressionThresholdBytes = 512

    // MARK: Bindings and the catalog

    /// Interval at which the hub checks the catalog for changes while a client is subscribed. A change of rights that
    /// the stream does not announce takes effect this much late.
    public static let catalogPollInterval = Duration.milliseconds(500)

    /// Interval at which the hub checks the catalog for changes while no client is subscribed.
    public static let catalogIdlePollInterval = Duration.seconds(5)

    /// Time to wait until a transaction that came down the stream is visible to other sessions.
    public static let maximumVisibilityWait = Duration.seconds(5)

    /// Number of waits for the visibility of a transaction before the log is read on and all clients are
    /// told that changes may be missing.
    public static let maximumVisibilityWaits = 12

    /// Times that the catalog is read because it changed meanwhile, before the last result is used.
    public static let maximumCatalogReads = 3

    /// Depth of texts that lead from one to another in policies: bodies of functions, policies of other tables.
    public static let maximumPolicyDepth = 16

    /// Time that reading the meaning of a text may wait for a session that alters a table.
    public static let policyLockTimeout = Duration.milliseconds(200)

    /// Policies that the log complains about by name.
    public static let maximumPolicyReports = 1024

    /// Tables that one binding with `*` may cover.
    public static let maximumTablesPerBinding = 10_000

    /// Requests that wait for the catalog's thread, and their bytes.
    public static let maximumWaitingBindings = 65_536
    public static let maximumWaitingBindingBytes = 64 << 20
    /// Requests of loops for a newer catalog that wait for the catalog's thread.
    public static let maximumWaitingRefreshes = 4096
    /// Requests for bindings whose meaning is remembered.
    public static let maximumCachedBindings = 16_384
    /// Decisions on rows that PostgreSQL is asked to confirm at the same time, on one loop.
    public static let maximumSecondOpinions = 64
    public static let maximumDemotedPolicies = 4096
    /// Time for which the log is not read while the database cannot tell which rows may be seen. Afterwards clients are
    /// disconnected; they fetch the missed changes when the database is back.
    public static let maximumCatalogAbsence = Duration.seconds(60)
    /// Changes of a membership that wait until PostgreSQL has filled it. With more changes,
    /// the membership is filled again.
    public static let maximumMembershipDeltas = 4096
    /// Limits of finding out past memberships, after PostgreSQL has told the present ones: bytes of the log that are
    /// searched back to the current transaction, and the time to wait for that.
    public static let membershipUnwindBytes = 64 << 20
    public static let membershipUnwindPatience = Duration.seconds(5)
    public static let membershipUnwindInterval = Duration.milliseconds(5)
    /// Warnings about one binding that covers many tables.
    public static let maximumBindingWarnings = 4
    /// Pairs of a role and a table whose rights are remembered.
    public static let maximumCachedAccess = 65_536

    /// Rows that wait for PostgreSQL's decision, and their bytes.
    public static let maximumWaitingQuestions = 65_536
    public static let maximumWaitingQuestionBytes = 64 << 20
    /// Rows in one round trip, and the bytes of their texts. A single larger row goes alone.
    public static let questionBatch = 256
    public static let questionBatchBytes = 4 << 20
    /// Statements that stay prepared on one connection.
    public static let maximumPreparedQuestions = 256
    /// Filters remembered for having taken too long.
    public static let maximumPenalties = 1024

    // MARK: Asking PostgreSQL about rows under policies

    /// Connections that evaluate policies. One policy occupies at most one connection.
    public static let policyConnections = 3
    /// Pairs of a row and a subscriber that wait for an answer, the bytes of their texts, and their jobs.
    public static let maximumWaitingPairs = 4 << 20
    public static let maximumWaitingPolicyBytes = 128 << 20
    public static let maximumWaitingPolicyJobs = 131_072
    /// Bytes of rows' texts, or of claims, in one statement. A single larger text goes alone.
    public static let policyStatementBytes = 4 << 20
    /// Policies remembered for having taken too long.
    public static let maximumPolicyPenalties = 4096
    /// Functions or statements kept on one connection.
    public static let maximumPolicyLoops = 256
    /// Interval at which the hub checks whether the snapshot sees a transaction.
    public static let visibilityRetryMilliseconds = 1
    /// Interval at which the hub checks again the login that evaluates policies: while the login
    /// is permitted to, and while not.
    public static let policyLoginInterval = Duration.seconds(30)
    public static let unfitLoginInterval = Duration.seconds(5)
    /// Keys of one holder's membership. For a membership with more keys, PostgreSQL is asked row by row.
    public static let maximumMembershipKeys = 4096
    /// Expressions explained at once.
    public static let maximumExplainedExpressions = 1024

    // MARK: Snapshots

    /// Snapshots of one project that run at the same time, each on its own connection.
    public static let snapshotConnections = 4
    /// Snapshots that wait for their turn. Those of one connection's channels run one after the other.
    public static let maximumWaitingSnapshots = 1024
    public static let maximumSnapshotRows = 100_000
    /// Bytes of the bodies of all rows of one snapshot.
    public static let maximumSnapshotBytes = 256 << 20
    /// Time that PostgreSQL may take to read the rows of one snapshot.
    public static let snapshotStatementTimeout = Duration.seconds(30)
    /// Time that a page of a snapshot waits for a client that does not take the page before.
    public static let snapshotPagePatience = Duration.seconds(15)
    /// Time for a whole snapshot, from its first page on.
    public static let snapshotPatience = Duration.seconds(300)

    // MARK: Asking PostgreSQL about private channels

    /// Connections on which questions are asked together. One more serves questions like others that took too long.
    public static let channelConnections = 2
    /// Connections for questions that must be asked alone.
    public static let channelConnectionsApart = 4
    /// Channels of one loop that are asked about at a time after the rules of private channels change.
    public static let rightsReviewedAtOnce = 16
    /// Attempts to review one channel's rights while the database does not answer. Then the channel is closed.
    public static let rightsReviewTries = 8
    public static let maximumWaitingChannelQuestions = 65_536
    public static let maximumWaitingChannelBytes = 64 << 20
    /// Time after which an unanswered question is refused. A client waits 10 seconds for the answer to its join.
    public static let channelPatience = Duration.seconds(6)
    /// Askers or topics remembered for having taken too long.
    public static let maximumChannelPenalties = 4096

    // MARK: Generated columns

    /// Bytes of generated values remembered on each loop, in addition to those that the current entry needs.
    public static let maximumGeneratedBytes = 8 << 20

    // MARK: Deleted rows

    /// Bytes of present rows that each loop remembers, for tables whose deletes do not contain the old row.
    public static let maximumRecalledBytes = 32 << 20
    /// Largest present row that a loop remembers. Larger ones are searched for in the log.
    public static let maximumRecalledRowBytes = 256 << 10
    /// Bytes of all rows that one search may find together.
    public static let recallBatchBytes = 8 << 20
    /// Waiting searches for old rows. The loops that wait are few, and each asks once.
    public static let maximumWaitingRecalls = 1024

    // MARK: Earlier messages

    /// Places of messages in the log that are remembered for one project: 40 bytes each, and some 120 for each message
    /// whose row changed since. Older messages are looked up in their table.
    public static let archivedMessages = 1 << 20
    /// Messages of the database for which the hub remembers whether they were admitted,
    /// for loops that reach them later.
    public static let rememberedAdmissions = 4096
    /// Messages in one answer, and their bytes.
    public static let maximumReplayedMessages = 1000
    public static let maximumReplayedBytes = 32 << 20
    /// Waiting questions for earlier messages, of all clients that join at once.
    public static let maximumWaitingReplays = 65_536
    /// Time that a question for earlier messages waits until the log has been searched.
    public static let replayPatience = Duration.seconds(3)
    /// Largest assumed difference between the clocks of hub and database, where times of both are compared.
    public static let clockTolerance = Duration.seconds(60)
    /// Time in the future beyond which a message is not replayed yet.
    public static let replayHorizon = Duration.seconds(60)

    // MARK: Filters

    public static let maximumFilterBytes = 64 << 10
    public static let maximumFilterConditions = 100

    /// Depth of nested groups in a filter.
    public static let maximumFilterDepth = 16

    /// Elements of an `in` list. The reference takes 100.
    public static let maximumFilterListElements = 1000

    /// Keys by which the index finds one filter. A filter with more keys is tried on every change.
    public static let maximumFilterKeys = 1000

    /// Work of one condition on one row: bytes of a value times bytes of the pattern or part searched for in it, some
    /// milliseconds. Beyond that, the hub asks PostgreSQL, which can be told to give up.
    public static let maximumFilterWork = 1 << 22

    /// Longest time that a connection is left out of changes after its filters took too much time again and again.
    public static let maximumFilterRest = Duration.seconds(64)

    // MARK: Configuration and diagnostics

    public static let maximumConfigurationFileBytes = 1 << 20
    public static let maximumConfigurationIncludeDepth = 10
    public static let maximumSettingBytes = 64 << 10

    /// Longest identifier: PostgreSQL's `NAMEDATALEN` - 1.
    public static let maximumIdentifierBytes = 63

    /// Longest text in a log line. A longer text is cut here and ends in `…`.
    public static let maximumLogFieldBytes = 4 << 10
}

extension Limits {
    /// Checks the relations between the maxima. A change that breaks one is found at the first start of the hub.
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
