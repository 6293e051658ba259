/// Every maximum of the hub in one place: no queue, buffer, cache, frame or retry grows without one of these. What only
/// says how a room shares out its time and memory stands in that room (`DeliveryTunings.swift` and others).
///
/// What relates them is checked by `checkInvariants()`, which the hub calls when it starts; what relates a room's tunings to
/// them, by the room when its threads are made.
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

    /// What a scan of whole segments (recovery, verification) reads at once.
    public static let logScanBytes = 4 << 20

    /// A segment's index larger than this is not believed.
    public static let maximumSidecarBytes = 256 << 20

    /// What is taken out of a log at once, in pieces of which a change has two or three.
    public static let maximumErasurePatches = 4 << 20

    /// The file in which commands write down who saw masked values; a larger one is to be moved away first.
    public static let maximumAuditBytes = 64 << 20

    /// A line of it.
    public static let maximumAuditLineBytes = 64 << 10

    /// Statements of a replay that are sent to a database together, and their bytes; a single larger one is sent alone.
    public static let maximumReplayStatements = 200
    public static let maximumReplayBytes = 1 << 20

    /// Messages of a replay that a hub is given by one request: few enough for a hub with a low rate, and how often it is asked
    /// again where that was too much.
    public static let maximumReplayMessages = 100
    public static let maximumReplayAttempts = 120

    /// How long a database may take for a statement of a replay, locks that it waits for included.
    public static let replayPatienceMilliseconds = 600_000

    /// How long somebody who changes segments waits for the ingest thread to seal the newest one.
    public static let sealingPatience = Duration.seconds(30)

    /// A trouble that lasts is said again after this long.
    public static let troubleReminderInterval = Duration.seconds(30)

    /// Different reasons for which a database cannot be reached, of which each is said but now and then.
    public static let maximumOutages = 16

    /// A disk that refuses for longer than this lets go of the database, which could not shut down otherwise.
    public static let maximumStall = Duration.seconds(5)

    /// A byte of a value may become six in JSON (`\u0001`); a line of an export is never longer than this.
    public static let worstJSONExpansion = 6
    public static let maximumImportLineBytes = worstJSONExpansion * maximumEntryPayloadBytes + (64 << 20)

    // MARK: Talking to PostgreSQL

    /// How often a stream that an operator paused looks whether it may go on, and writes what waits for the log.
    public static let pauseTick = Duration.milliseconds(100)
    /// A pause that names no end, and the longest: PostgreSQL keeps all WAL meanwhile.
    public static let usualPause = Duration.seconds(600)
    public static let maximumPause = Duration.seconds(86_400)
    /// Of a mark that an operator sets in the log.
    public static let maximumMarkBytes = 1024
    /// How long an operator who set one waits for the disk to have it.
    public static let markPatience = Duration.seconds(5)

    public static let reconnectBackoffInitial = Duration.milliseconds(200)
    public static let reconnectBackoffMaximum = Duration.seconds(5)
    /// Who waits to try again looks this often whether somebody else has reached the database.
    public static let recoveryInterval = Duration.milliseconds(100)
    public static let connectTimeout = Duration.seconds(5)
    public static let catalogQueryTimeout = Duration.seconds(2)

    /// A server that has its own, shorter limit for a statement and says nothing for so long is taken for gone.
    public static let answerTimeout = Duration.seconds(5)

    /// PostgreSQL's own limit for one message (`PQ_LARGE_MESSAGE_LIMIT` is `MaxAllocSize`) is below 1 GiB.
    public static let maximumServerMessageBytes = 1 << 30

    /// How often the server hears from us. Its `wal_sender_timeout` is 60 s unless changed.
    public static let statusInterval = Duration.seconds(10)

    /// How often an idle slot is moved on, so that it does not keep WAL that holds nothing of ours.
    public static let idleProgressInterval = Duration.seconds(10)

    /// Tables and schemas of the publication of which is remembered since when they are in it: a line in a file for each.
    /// In a publication with more than that, one that is taken out and put in again is not noticed.
    public static let maximumFollowedMembers = 4096

    /// How often the ingest thread looks at the publications, and tries to make the one of messages where it is missing.
    public static let publicationWatchInterval = Duration.seconds(3)
    public static let publicationRetryInterval = Duration.seconds(60)

    /// How long notes beside the changes (presence, the ledger) may stay behind in a quiet database, and what of each kind
    /// may wait for the disk.
    public static let noteInterval = Duration.seconds(1)
    public static let maximumWaitingNoteBytes = 8 << 20
    /// What one of their entries holds, unless a single note is larger.
    public static let noteEntryBytes = 64 << 10
    /// A text of the ledger that is longer (a join's bindings, claims) is left out.
    public static let maximumLedgerTextBytes = 4 << 10
    /// What the ledger may take of the log in a second, on average, and at once.
    public static let ledgerBytesPerSecond = 32 << 10
    public static let ledgerBurstBytes = 128 << 20
    /// The same for deliveries that are recorded one by one; and how many bytes of a loop's, or how long, are kept back.
    public static let deliveryBytesPerSecond = 256 << 10
    public static let deliveryBlockBytes = 48 << 10
    public static let deliveryBlockInterval = Duration.seconds(1)

    /// Being this far behind is worth a line in the log each time.
    public static let noteworthyLagBytes: Int64 = 64 << 20

    /// PostgreSQL's default `wal_sender_timeout`, after which it cuts a silent client.
    public static let assumedServerTimeout = Duration.seconds(60)

    // MARK: Messages and channels

    /// Kept for each channel. A binary frame can say 255 bytes; texts may be longer.
    public static let maximumTopicBytes = 1 << 10

    /// Kept for each channel and sent back; clients count in decimal.
    public static let maximumRefBytes = 1 << 10

    /// Entries of `postgres_changes` in one join.
    public static let maximumBindingsPerChannel = 128

    /// Conditions, and values that these name, in the filters of all channels of the process, of which a project has half:
    /// each takes some 360 bytes.
    public static let filterParts = 512 << 10
    /// Connections that have no more than this share so many times as much, apart from the others.
    public static let fewFilterParts = 64
    public static let filterPartsForFew = 8
    /// A channel with more is made ready apart, and nobody waits for it: a loop would take milliseconds.
    public static let filterPartsAtOnce = 1024
    /// Outcomes of filters with more are not remembered.
    public static let rememberedFilterParts = 64
    /// Of one connection.
    public static let filterPartsOfConnection = 16 << 10

    /// Ways in which one channel's bindings match together that are remembered.
    public static let maximumEnvelopesPerChannel = 256

    /// The echo path serves conformance runs, which send messages of 16 MiB.
    public static let maximumEchoBytes = 17 << 20

    /// Passes over the log for channels that came back that are under way on a loop at a time.
    public static let maximumCatchUps = 2
    /// Channels that a project's clients have or may come back to.
    public static let maximumDepartures = 131_072
    /// Of the name that a client's address may give it.
    public static let clientIDBytes = 128
    /// Interval at which clients are asked what they have received.
    public static let receiptInterval = Duration.seconds(1)
    /// Interval of the first receipts of a process.
    public static let earlyReceiptInterval = Duration.milliseconds(200)
    /// Number of receipts at the shorter interval.
    public static let earlyReceipts = 50
    public static let departureGrace = Duration.seconds(120)
    public static let maximumDepartureGrace = Duration.seconds(3600)

    /// Who asks for its position hears of it at least so often while the log moves on.
    public static let positionInterval = Duration.seconds(30)
    public static let maximumPositionInterval = Duration.seconds(3600)

    /// A join is answered after this long even if its bindings are not in place yet; they go on being tried.
    public static let joinPatience = Duration.seconds(3)
    /// So long changes wait for the bindings of a join that was answered without them, or of another token; after that they
    /// are not waited for, and their clients are told.
    public static let bindingPatience = Duration.seconds(10)
    /// When the hub ends, clients are sent away over this time, and have that long to go when all were told.
    public static let drainTime = Duration.seconds(10)
    public static let maximumDrainTime = Duration.seconds(300)
    public static let drainLimit = Duration.seconds(5)
    public static let bindAgainInterval = Duration.milliseconds(250)

    /// Changes of one page of a feed, where the request says nothing else, and at most.
    public static let feedPageChanges: UInt64 = 1000
    public static let maximumFeedPageChanges: UInt64 = 10_000
    /// A page says after this long how far it has come; one that waits at the log's end, that it waited in vain.
    public static let feedPageTime = Duration.seconds(10)
    public static let feedPollTime = Duration.seconds(25)
    /// A stream that has nothing to tell says after this long that it lives, and where it stands.
    public static let feedHeartbeat = Duration.seconds(15)

    /// A request's head, from its first byte or from the answer before.
    public static let requestTimeLimit = Duration.seconds(10)

    /// Writers give memory beyond this back after a large message.
    public static let keptWriterBytes = 256 << 10
    /// A change's body larger than this is handed to sockets where it is and not copied into each frame.
    public static let sharedBodyThresholdBytes = 8 << 10
    public static let compressionLevel = 1

    /// Messages of clients from this size on take so long to read that a loop reads them for no longer than so much of a
    /// turn. After joins it rests from them, so many times as long as these took.
    public static let largeMessageBytes = 4 << 10
    public static let turnLargeInput = Duration.milliseconds(1)
    public static let largeInputRests = 3
    public static let maximumLargeInputRest = Duration.milliseconds(60)
    /// By so much the memory for a connection's input grows at a time.
    public static let inputGrowthBytes = 1 << 20
    /// Deliveries of one channel that wait for PostgreSQL's answer to a filter.
    public static let maximumWaitingDeliveryBytes = 4 << 20
    /// Of all channels of one loop. At half of it the log waits for PostgreSQL, for a while.
    public static let maximumWaitingTotalBytes = 128 << 20
    /// For so long, before it is read on for a turn, and so often it is looked whether it has to.
    public static let crowdPatience = Duration.seconds(2)
    public static let crowdInterval = Duration.milliseconds(20)

    /// Joined and joining, on one loop. Each has three timers at most.
    public static let maximumChannelsPerLoop = 1 << 22
    /// Joins of one socket beyond its channels that wait for their refusal; one more, and it is closed.
    public static let maximumSurplusJoins = 4096
    /// Joins that wait for their refusal on one loop.
    public static let maximumRefusalsPerLoop = 1 << 17
    /// A channel is told that changes are missing at most this often.
    public static let lossInterval = Duration.seconds(1)
    /// … and at most this often that records lack values.
    public static let lackingValuesInterval = Duration.seconds(60)

    /// Rates are means over this long: what is below may come all at once.
    public static let rateWindow = Duration.seconds(10)
    /// Messages of one request.
    public static let maximumPostedMessages = 10_000
    /// How often it is looked whether the database's messages arrive, for channels that want to know, and for how long.
    public static let readinessInterval = Duration.milliseconds(500)
    public static let readinessPatience = Duration.seconds(60)
    /// Codes of errors that are counted apart for each project; there are fewer.
    public static let maximumErrorCodes = 64
    /// Broadcasts of other loops that one loop has not taken yet, for each project.
    public static let maximumMailedBytes = 64 << 20
    /// Of one private channel, said before it is known whether it may say anything.
    public static let maximumPendingWrites = 1024
    public static let maximumPendingWriteBytes = 8 << 20
    /// Topics of a project in which somebody is present.
    public static let maximumPresenceTopics = 1 << 20
    public static let maximumPresencesPerTopic = 1 << 16
    /// What connections may track in all, of which a project has half; one connection, and so one presence …
    public static let presenceBytes = 256 << 20
    public static let presenceBytesOfConnection = 8 << 20
    /// … and those that track no more than this, apart from the others, so many times as much.
    public static let fewPresenceBytes = 64 << 10
    public static let presenceBytesForFew = 2
    /// What one takes beside what is tracked.
    public static let presenceBytesBeside = 256

    /// Of one socket's frames while joins are decided.
    public static let maximumWaitingFrames: UInt16 = 64
    public static let maximumWaitingFrameBytes: UInt32 = 1 << 20

    /// The JSON of one change; a larger one is told with its small values (`poll_max_record_bytes` of the reference).
    public static let maximumChangeBodyBytes = 1 << 20

    /// Joined topics of one socket.
    public static let maximumChannelsPerClient: Int64 = 10_000

    /// A client's largest message, unless configured.
    public static let clientMessageBytes = 5_000_000
    public static let maximumClientMessageBytes = 64 << 20

    /// Answers to what failed wait this long, so that clients that try again at once do not storm …
    public static let connectErrorBackoff = Duration.seconds(2)
    public static let channelErrorBackoff = Duration.seconds(5)
    /// How long rows wait for values of a column's former type while the database is away.
    public static let conversionPatience = Duration.seconds(30)
    /// Refused joins of a socket that are told of at once.
    public static let promptRefusalsPerSocket: UInt8 = 5

    /// … and never longer than clients wait for them, which is 10 seconds.
    public static let maximumErrorBackoff = Duration.seconds(9)

    // MARK: Tokens

    /// A longer text is no token. Those of users with much metadata have some kilobytes.
    public static let maximumTokenBytes = 16 << 10

    /// Good tokens that each loop remembers.
    public static let rememberedTokens = 1024

    public static let maximumKeySetBytes = 256 << 10
    public static let maximumKeysInSet = 64
    public static let maximumOpaqueKeys = 1024

    /// Tables that have metrics of their own, unless configured; and at most.
    public static let measuredTables = 100
    public static let maximumMeasuredTables: Int64 = 10_000

    /// That clients are refused for one and the same reason is said so often.
    public static let refusalLineInterval = Duration.seconds(60)
    /// Of a host name that a client sent, in a line of the log.
    public static let shownHostBytes = 64

    /// What the process takes of the machine is not looked up more often for `/metrics`.
    public static let processFiguresInterval = Duration.seconds(2)

    // MARK: Projects

    /// Each that is in use has threads and connections of its own. A timer names one in ten bits.
    public static let maximumProjects = 1000
    /// Pause before a project that cannot be started is tried again; it doubles from the first value to the second.
    public static let shortestProjectRetry = Duration.seconds(1)
    public static let longestProjectRetry = Duration.seconds(60)
    /// Number of names of deleted projects that no project answers for. Beyond it, the oldest are ordinary names again.
    public static let maximumDeletedNames = 10_000
    /// Operators' requests that may wait for the one that runs for the same project.
    public static let maximumWaitingOperations = 100
    /// Operators' questions to event logs: so many processes answer them, for so long, and give so much; others wait.
    public static let questionsAtOnce = 2
    public static let maximumWaitingLogQuestions = 16
    public static let questionTimeLimit = Duration.seconds(60)
    public static let maximumQuestionBytes = 4 << 20
    /// What is more comes in parts, for whoever asks for it so: from a file, which is kept for a while; so many of these at once.
    public static let maximumAnswerBytes = 256 << 20
    public static let maximumKeptAnswers = 4
    public static let answerLifetime = Duration.seconds(600)
    /// Channels that are listed to operators, of how many of their positions the age is looked up, and how long loops are waited for.
    public static let maximumCensusEntries = 1000
    public static let maximumCensusAges = 32
    public static let censusPatience = Duration.seconds(5)
    /// Longest validity of an operator's token. A longer one is refused: it counts milliseconds, or never ends.
    public static let longestOperatorToken = Duration.seconds(20 * 366 * 86_400)
    /// Value of HTTP's Retry-After in answers about something that is not available for the moment.
    public static let retryAfter = Duration.seconds(1)
    /// What an operator asked for is waited for, and then given up.
    public static let operatorAnswerLimit = Duration.seconds(180)
    /// The file of stored projects; one project takes some kilobytes.
    public static let maximumProjectFileBytes = 64 << 20
    /// Length of a label of a host name (RFC 1035 §2.3.4).
    public static let maximumProjectNameBytes = 63
    /// What describes one project to the API, its levels and the members of one object in it.
    public static let maximumProjectBodyBytes = 256 << 10
    public static let maximumProjectDepth = 16
    public static let maximumProjectMembers = 1000

    /// Of what a project's clients do in a second or a window.
    public static let maximumRate: Int64 = 1_000_000_000
    public static let maximumClientPresenceWindow = Duration.seconds(86_400)

    /// The payload of a broadcast or of a presence, in the reference's units: so many times 1000 bytes, and some more for
    /// what stands around it.
    public static let maximumPayloadKilobytes: Int64 = 64_000
    public static let payloadSlackBytes = 500

    /// A socket that has no channel for so long is closed.
    public static let idleChannelTimeout = Duration.seconds(600)

    public static let messagesRetentionHours: Int64 = 72
    public static let maximumMessagesRetentionHours: Int64 = 87_600

    // MARK: Sockets

    /// Of all loops together.
    public static let maximumConnections: Int64 = 4_000_000
    public static let maximumLoops: Int64 = 256

    /// One table of descriptors rarely has more; a connection that is not there costs no memory.
    public static let maximumConnectionsPerLoop = 1 << 17

    /// Without memory or descriptors, accepting rests this long.
    public static let acceptRest = Duration.milliseconds(100)

    /// Without any byte from the client. The reference closes after the same time.
    public static let socketIdleLimit = Duration.seconds(60)

    /// From accept to the end of the TLS handshake.
    public static let handshakeLimit = Duration.seconds(10)

    /// What one read takes at most; the next connection gets its turn then.
    public static let socketReadBytes = 64 << 10

    /// What is kept of clients' messages and requests that are not whole, of all connections together; a project's have half.
    public static let unfinishedInputBytes = 192 << 20
    /// A message that was begun is whole after this long, whatever else its client sends meanwhile.
    public static let unfinishedInputLimit = Duration.seconds(60)
    /// The largest message of a client and what frames it.
    public static let receiveBufferBytes = clientMessageBytes + (64 << 10)

    /// What a blocked connection may have queued here, beside the kernel's own buffer …
    public static let outboxBytes = 8 << 20

    /// … of which so much makes it slow: from there on its channels read the log at its own pace …
    public static let filledBytes = 1 << 20

    /// … or less, where many are: no less than this …
    public static let leastFilledBytes = 32 << 10

    /// … how long it may take nothing at all …
    public static let outboxAge = Duration.seconds(30)

    /// … how many changes it may be told to be behind at most, where that is limited …
    public static let maximumOutboxLag: Int64 = 1 << 40

    /// … and what all that are blocked on one loop may hold together.
    public static let outboxTotalBytes = 128 << 20

    /// Free memory is handed back to the kernel when slow connections left this much …
    public static let givenBackBytes = 4 << 20

    /// … a moment later, together with what others leave.
    public static let giveBackDelay = Duration.seconds(1)

    /// One shared piece of bytes to send.
    public static let maximumPieceBytes = 64 << 20

    /// Memory for what is sent is taken in chunks of this size.
    public static let pieceChunkBytes = 64 << 10

    /// Chunks kept for reuse on each loop.
    public static let sparePieceChunks = 16

    /// A turn whose pieces passed this takes no more input until they are flushed.
    public static let turnPieceBytes = 8 << 20

    /// Pieces up to this are copied together for one call; larger ones are handed over where they are.
    public static let copiedPieceBytes = 2 << 10

    /// For the farewell of a connection that fell behind, and for what is queued for a peer that finished sending.
    public static let farewellLimit = Duration.seconds(15)

    /// Timers of one loop that are running.
    public static let maximumTimersPerLoop = 1 << 26

    // MARK: Requests and frames

    /// Request line and headers. Tokens with many claims come in headers.
    public static let maximumRequestHeadBytes = 32 << 10

    /// Path and query, which holds a token too.
    public static let maximumRequestTargetBytes = 16 << 10

    public static let maximumRequestHeaders = 100

    /// The reference's own limit, unless configured.
    public static let maximumRequestBodyBytes = 8_000_000
    public static let largestRequestBodyBytes = 64 << 20

    /// Pieces of one message: a peer that sends empty ones is not listened to forever.
    public static let maximumMessageFragments = 128 << 10

    /// Shorter messages gain nothing by compression.
    public static let compressionThresholdBytes = 512

    // MARK: What bindings mean

    /// How often the catalog is asked whether it changed while anybody is subscribed: a change of rights that the stream
    /// does not announce is this much late …
    public static let catalogPollInterval = Duration.milliseconds(500)

    /// … and while nobody is.
    public static let catalogIdlePollInterval = Duration.seconds(5)

    /// How long to wait for a transaction whose changes came down the stream before others can see it …
    public static let maximumVisibilityWait = Duration.seconds(5)

    /// … and how often that is tried before the log is read on and everybody is told that changes may be missing.
    public static let maximumVisibilityWaits = 12

    /// Times that the catalog is read anew because it changed meanwhile, before what was read last is taken.
    public static let maximumCatalogReads = 3

    /// Texts that policies lead to one after another: functions' bodies, other tables' policies.
    public static let maximumPolicyDepth = 16

    /// How long reading what a text means may wait for somebody who alters a table.
    public static let policyLockTimeout = Duration.milliseconds(200)

    /// Policies that are complained about by name.
    public static let maximumPolicyReports = 1024

    /// Tables that one binding with `*` may mean.
    public static let maximumTablesPerBinding = 10_000

    /// Requests waiting for the catalog's thread.
    public static let maximumWaitingBindings = 65_536
    public static let maximumWaitingBindingBytes = 64 << 20
    /// Relations that loops wait for.
    public static let maximumWaitingRefreshes = 4096
    /// Requests whose meaning is remembered.
    public static let maximumCachedBindings = 16_384
    /// Decisions about which the tables have been asked, on one loop.
    public static let maximumSecondOpinions = 64
    public static let maximumDemotedPolicies = 4096
    /// For so long nothing is read while the database cannot say what may be seen; then clients are sent away, to fetch what
    /// they missed when it is back.
    public static let maximumCatalogAbsence = Duration.seconds(60)
    /// Changes of a membership that wait until PostgreSQL has filled it; with more it is filled anew.
    public static let maximumMembershipDeltas = 4096
    /// So much of the log is looked through at the most for what memberships were at the transaction at hand, after
    /// PostgreSQL has said what they are now; and so long that is waited for.
    public static let membershipUnwindBytes = 64 << 20
    public static let membershipUnwindPatience = Duration.seconds(5)
    public static let membershipUnwindInterval = Duration.milliseconds(5)
    /// Warnings about one binding of many tables.
    public static let maximumBindingWarnings = 4
    /// Pairs of a role and a table whose rights are remembered.
    public static let maximumCachedAccess = 65_536

    /// Rows waiting for PostgreSQL to decide on them.
    public static let maximumWaitingQuestions = 65_536
    public static let maximumWaitingQuestionBytes = 64 << 20
    /// Rows in one round trip, and what their texts may take; a single larger one goes alone.
    public static let questionBatch = 256
    public static let questionBatchBytes = 4 << 20
    /// Statements that are kept prepared on a connection.
    public static let maximumPreparedQuestions = 256
    /// Filters that took too long of which it is remembered.
    public static let maximumPenalties = 1024

    // MARK: Asking PostgreSQL about rows under policies

    /// Connections that run what policies say; a policy occupies one at most.
    public static let policyConnections = 3
    /// Pairs of a row and a claimant that wait for an answer, and their texts.
    public static let maximumWaitingPairs = 4 << 20
    public static let maximumWaitingPolicyBytes = 128 << 20
    public static let maximumWaitingPolicyJobs = 131_072
    /// What the texts of rows or the claims may take in one statement; a single larger one goes alone.
    public static let policyStatementBytes = 4 << 20
    /// Policies that took too long of which it is remembered.
    public static let maximumPolicyPenalties = 4096
    /// Functions or statements kept on one connection.
    public static let maximumPolicyLoops = 256
    /// How often it is looked whether the snapshot sees a transaction.
    public static let visibilityRetryMilliseconds = 1
    /// The login that runs policies is looked at again after this long; where it may not, sooner.
    public static let policyLoginInterval = Duration.seconds(30)
    public static let unfitLoginInterval = Duration.seconds(5)
    /// Keys of one holder's membership; one with more is asked of PostgreSQL row by row.
    public static let maximumMembershipKeys = 4096
    /// Expressions explained at once.
    public static let maximumExplainedExpressions = 1024

    // MARK: Snapshots

    /// Snapshots of one project that are taken at the same time, each on a connection of its own …
    public static let snapshotConnections = 4
    /// … and those that wait for their turn; of one connection's channels one after the other.
    public static let maximumWaitingSnapshots = 1024
    public static let maximumSnapshotRows = 100_000
    /// Of the bodies of its rows.
    public static let maximumSnapshotBytes = 256 << 20
    /// How long PostgreSQL may take to read its rows.
    public static let snapshotStatementTimeout = Duration.seconds(30)
    /// How long a page waits for a client that does not take the one before.
    public static let snapshotPagePatience = Duration.seconds(15)
    /// The whole, from its first page on.
    public static let snapshotPatience = Duration.seconds(300)

    // MARK: Asking PostgreSQL about private channels

    /// Connections on which questions are asked together, one more for those like others that took too long …
    public static let channelConnections = 2
    /// … and those for questions that have to be asked alone.
    public static let channelConnectionsApart = 4
    /// When the rules of private channels change, so many of a loop's are asked about at a time …
    public static let rightsReviewedAtOnce = 16
    /// … and so often each, where the database does not say; then it is closed.
    public static let rightsReviewTries = 8
    public static let maximumWaitingChannelQuestions = 65_536
    public static let maximumWaitingChannelBytes = 64 << 20
    /// A question that is not answered by then is refused: the client waits 10 seconds for the answer to its join.
    public static let channelPatience = Duration.seconds(6)
    /// Askers or topics that took too long of which it is remembered.
    public static let maximumChannelPenalties = 4096

    // MARK: Generated columns

    /// What is remembered of them on each loop; what the entry at hand needs comes on top.
    public static let maximumGeneratedBytes = 8 << 20

    // MARK: Deleted rows

    /// Rows as they are, of tables whose deletes do not say what the row was: what each loop remembers …
    public static let maximumRecalledBytes = 32 << 20
    /// … and the largest of them. Larger ones are looked for in the log.
    public static let maximumRecalledRowBytes = 256 << 10
    /// What all rows that are found together may take.
    public static let recallBatchBytes = 8 << 20
    /// Loops that wait are few; each asks once.
    public static let maximumWaitingRecalls = 1024

    // MARK: Messages sent before

    /// Places of messages in the log that are remembered, of one project: 40 bytes each, and some 120 for each of which
    /// something became since. Older ones are looked for in their table.
    public static let archivedMessages = 1 << 20
    /// Messages of the database of which it is remembered whether they were let in, for the loops that come to them later.
    public static let rememberedAdmissions = 4096
    /// What one answer may hold, in messages and in bytes of them.
    public static let maximumReplayedMessages = 1000
    public static let maximumReplayedBytes = 32 << 20
    /// Questions that wait, of all who join at once.
    public static let maximumWaitingReplays = 65_536
    /// How long one waits until the log has been looked through.
    public static let replayPatience = Duration.seconds(3)
    /// What the clocks of hub and database may differ where times of one are held against times of the other.
    public static let clockTolerance = Duration.seconds(60)
    /// A message further in the future than this is not replayed yet.
    public static let replayHorizon = Duration.seconds(60)

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

    /// How long a connection is left out of changes at most whose filters take too much again and again.
    public static let maximumFilterRest = Duration.seconds(64)

    // MARK: Configuration and diagnostics

    public static let maximumConfigurationFileBytes = 1 << 20
    public static let maximumConfigurationIncludeDepth = 10
    public static let maximumSettingBytes = 64 << 10

    /// PostgreSQL's `NAMEDATALEN` - 1.
    public static let maximumIdentifierBytes = 63

    /// A longer text in a log line is cut here and ends in `…`.
    public static let maximumLogFieldBytes = 4 << 10
}

extension Limits {
    /// The arithmetic between the maxima. Whoever changes one number and breaks another hears of it at the first start.
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
