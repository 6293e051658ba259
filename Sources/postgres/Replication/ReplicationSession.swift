import Bytes
import Change
import Diagnostics
import Postgres
import System

/// Life of one connection: set up, stream, confirm. `run` ends with an error, or returns when the interrupt rings.
///
/// The session reads the replication stream and passes transactions to the sink. To PostgreSQL, it confirms the
/// position up to which they are durable, and never a later one.
struct ReplicationSession<Sink: TransactionSink> {
    let settings: ReplicationSettings
    let spoolDirectory: any StorageDirectory
    let sink: Sink
    let interrupt: Wake
    let status: ReplicationStatus
    let lag: Lag
    /// Called when the stream begins.
    let streaming: () -> Void
    /// Called with the position up to which readers of the log have all changes.
    let covered: (LSN) -> Void

    struct Interrupted: Error {}

    func run() throws {
        let catalog = try Connection(
            settings.target, applicationName: "tidewire catalog",
            timeoutSeconds: Limits.connectTimeout.wholeSeconds,
            settings: [
                "statement_timeout=\(Limits.catalogQueryTimeout.wholeMilliseconds)",
                "default_transaction_read_only=off",
            ],
            interrupt: interrupt)
        try settings.preparation?.see(to: settings.target)
        let keeper = SlotKeeper(settings: settings, catalog: catalog, interrupt: interrupt)
        try keeper.checkServer()
        try keeper.ensurePublication()
        let replication = try Connection(
            settings.target, purpose: .replication, applicationName: "tidewire replication",
            timeoutSeconds: Limits.connectTimeout.wholeSeconds, interrupt: interrupt)
        // Checked before the slot exists, so that the stream of a new slot includes the publication from its first
        // change.
        var messages = MessagesPublication(settings, catalog)
        messages.look()
        try settle(keeper, replication)
        try stream(keeper, replication, messages)
    }

    // MARK: Start position

    private func settle(_ keeper: SlotKeeper, _ replication: Connection) throws {
        let (system, timeline, current) = try identify(replication)
        let publication = try keeper.published()
        var lineage = Lineage(timeline: timeline, database: try keeper.databaseNumber(), publication: publication)
        let slot = try slotState(keeper)
        let server = ServerState(
            system: system, lineage, try branch(to: timeline, replication), current: current, slot: slot)
        let decision = Continuity.decide(LogState(sink, slot: settings.slot), server)
        // A new history begins at the slot's position, which is unknown while another process moves the slot.
        if decision != .goesOn, let user = slot?.user {
            throw StreamFailure(slotBusy: settings.slot, "slot \(settings.slot) is in use by server process \(user)")
        }
        switch decision {
        case .goesOn: assert(!sink.isNew, "only a log that has begun goes on")
        case .begins:
            assert(sink.isNew, "a log begins once")
            try sink.begin(systemIdentifier: system, at: slot?.confirmed ?? current)
        case .needsSlot(let dropFirst, let gap):
            if dropFirst, settings.mayCreateSlot { try keeper.drop() }
            if sink.isNew, gap == nil { try sink.prepare(for: settings.slot) }
            let start = try keeper.create(replication)
            if let gap {
                try record(gap, to: start, system)
            } else {
                assert(sink.isNew, "only a new log gets another slot without a gap")
                try sink.begin(systemIdentifier: system, at: start)
            }
        case .broken(let gap):
            try record(gap, to: try end(of: gap, keeper, replication) ?? slot?.confirmed ?? current, system)
        }
        if decision == .goesOn {
            lineage.publication = publication ?? sink.lineage?.publication
        }
        // Written after the gap, so that a crash in between records the gap twice, not never.
        if sink.lineage != lineage { try sink.follow(lineage) }
        status.follows(FollowedDatabase(system: system, number: lineage.database))
    }

    /// Returns the slot's state; nil if there is none. A slot that is still being created has never been read, so a new
    /// log that begins with it lacks nothing.
    private func slotState(_ keeper: SlotKeeper) throws -> ServerState.Slot? {
        do {
            return try keeper.slotState()
        } catch let failure as StreamFailure where failure.reason == .slotBusy && sink.isNew {
            try sink.prepare(for: settings.slot)
            throw failure
        }
    }

    /// Returns the position at which history continues after a gap in the publication; nil for the slot's position.
    private func end(of gap: Gap.Reason, _ keeper: SlotKeeper, _ replication: Connection) throws -> LSN? {
        switch gap {
        // Before PostgreSQL 18, the WAL written without a publication can only be skipped as a whole.
        case .publicationRecreated where replication.serverVersion < 180_000: try keeper.advanceToEnd()
        case .publicationRecreated: sink.position
        default: nil
        }
    }

    private func identify(_ replication: Connection) throws -> (system: UInt64, timeline: UInt32, current: LSN) {
        let answer = try replication.execute("IDENTIFY_SYSTEM")
        guard let row = answer.first, row.count >= 3, let system = row[0].flatMap({ UInt64($0) }),
            let timeline = row[1].flatMap({ UInt32($0) }), let current = row[2].flatMap({ LSN($0) })
        else { throw StreamFailure(.protocolError, "the server did not identify itself") }
        return (system, timeline, current)
    }

    /// Returns how the server's timeline relates to the one that the log followed. PostgreSQL, "Streaming Replication
    /// Protocol": a history file has a line for each earlier timeline, with its number and the position at which it was
    /// left.
    private func branch(to timeline: UInt32, _ replication: Connection) throws -> ServerState.Branch {
        guard let followed = sink.lineage?.timeline, followed != timeline else { return .same }
        let answer: Rows
        do throws(PostgresError) {
            answer = try replication.execute("TIMELINE_HISTORY \(timeline)")
        } catch {
            // Without the file, the hub cannot exclude a loss.
            if error.sqlState == SQLState.undefinedFile { return .unrelated }
            throw error
        }
        return TimelineHistory.branch(from: followed, in: (answer.first?.last ?? nil) ?? "")
    }

    private func record(_ reason: Gap.Reason, to start: LSN, _ system: UInt64) throws {
        let gap = Gap(reason: reason, from: sink.position, to: start)
        try noting { () throws(SystemError) in try settings.coverage.forget() }
        if sink.isNew {
            try sink.begin(systemIdentifier: system, at: start, after: gap)
        } else {
            try sink.recordGap(gap, systemIdentifier: system)
        }
        assert(!sink.isNew && sink.position == start, "history goes on behind the gap")
        settings.metrics.gaps.add()
        Log.shared.error(
            "changes were lost before they reached the event log: the hub records a gap and begins a new epoch",
            [.reason(reason.rawValue), .slot(settings.slot), .fromLSN(gap.from), .toLSN(gap.to), .hint(reason.hint)])
    }

    // MARK: Streaming

    private func stream(
        _ keeper: SlotKeeper, _ replication: Connection, _ messages: MessagesPublication
    ) throws {
        assert(!sink.isNew, "a log begins before its stream")
        var spool = TransactionSpool(directory: spoolDirectory, maximum: Limits.maximumStreamedTransactions)
        try spool.removeAll()
        let sender = StatusSender(connection: replication)
        var assembler = TransactionAssembler(
            spool: spool, maximumSchemas: Limits.maximumCachedRelations, primaryKey: keeper.primaryKey,
            metrics: settings.metrics,
            betweenParts: { [sink] in try sender.sendIfDue(flushed: sink.durablePosition) })
        let listed = try listOwnPublications(keeper.catalog, &assembler)
        var stream = try ReplicationStream(
            replication, start(replication.serverVersion, listed), interrupt: interrupt)
        Log.shared.info(
            "streaming",
            [
                .slot(settings.slot), .publication(settings.publication), .lsn(sink.position),
                .serverVersion(replication.serverVersion),
            ])
        streaming()
        var pace = StreamPace(
            sink.durablePosition,
            SlotWatch(slot: settings.slot, catalog: keeper.catalog, metrics: settings.metrics, status: status),
            messages, PublicationWatch(keeper), settings.metrics)
        do {
            try loop(&stream, &assembler, &pace, sender)
        } catch {
            if assembler.isInTransaction { try abandon() }
            if !listed.isEmpty, Self.isAboutPublications(error) {
                for coverage in listed { coverage.failed() }
                throw error
            }
            throw explained(error, keeper)
        }
    }

    /// Returns those of the hub's own publications that the stream can carry from here on.
    private func listOwnPublications(
        _ catalog: Connection, _ assembler: inout TransactionAssembler
    ) throws -> [StreamCoverage] {
        let messages = settings.messages
        if settings.coverage.isKept {
            settings.coverage.resume(
                try catalog.publicationNumber(settings.coverage.publication), at: sink.position)
        }
        if let followed = sink.messages { messages.resume(followed, at: sink.position) }
        let listed = settings.ownPublications.filter { $0.isListable(at: sink.position) }
        let hasMemberships = listed.contains { $0 === settings.coverage }
        try noting { () throws(SystemError) in
            try settings.coverage.keep(isListed: hasMemberships, at: sink.position)
        }
        if settings.coverage.began(isListed: hasMemberships, at: sink.position) { assembler.markEverything() }
        let hasMessages = listed.contains { $0 === messages }
        _ = messages.began(isListed: hasMessages, at: sink.position)
        if hasMessages {
            guard sink.messages?.number != messages.number else { return listed }
            if sink.messages != nil {
                Log.shared.warning(
                    "the publication for messages was dropped and created again: messages sent in between are not in the event log",
                    [.publication(messages.publication)])
            }
            try sink.followMessages(
                FollowedPublication(number: messages.number, since: sink.position, time: try catalog.serverTime()))
        } else if sink.messages != nil {
            try sink.followMessages(nil)
        }
        return listed
    }

    /// Runs a write to a file beside the log. A failure of the disk stalls the stream, as for the log itself.
    private func noting(_ body: () throws(SystemError) -> Void) throws(StorageStall) {
        do throws(SystemError) { try body() } catch {
            throw StorageStall(operation: error.operation, path: error.subject, reason: error.reason, hint: "")
        }
    }

    /// True if the error is about publications: one is gone, or they differ about a table's columns.
    private static func isAboutPublications(_ error: any Error) -> Bool {
        guard let refusal = error as? PostgresError, refusal.operation == "stream" else { return false }
        return refusal.sqlState == SQLState.undefinedObject || refusal.sqlState == SQLState.featureNotSupported
    }

    private func start(_ serverVersion: Int, _ listed: [StreamCoverage]) -> StartReplication {
        // Streaming, messages and protocol 2 came with PostgreSQL 14.
        let isModern = serverVersion >= 140_000
        let streams = settings.streaming && isModern
        let names = [settings.publication] + listed.map(\.publication)
        var options = [
            (name: "proto_version", value: streams ? "2" : "1"),
            (name: "publication_names", value: names.map { Quoted.identifier($0) }.joined(separator: ",")),
        ]
        if isModern { options.append((name: "messages", value: "true")) }
        if streams { options.append((name: "streaming", value: "on")) }
        return StartReplication(slot: settings.slot, startLSN: sink.position.rawValue, options: options)
    }

    private func loop(
        _ stream: inout ReplicationStream, _ assembler: inout TransactionAssembler, _ pace: inout StreamPace,
        _ status: StatusSender
    ) throws {
        while true {
            try drain(&stream, &assembler, &pace, status)
            // Whole transactions go to the disk as soon as nothing more is waiting. In the middle of a transaction a
            // flush has no benefit, so the loop waits for more.
            if pace.hasWhole, !assembler.isInTransaction { try flush(&pace, status) }
            try keepInTouch(&pace, status, assembler.isInTransaction)
            covered(coveredPosition(pace, assembler.isInTransaction))
            // The next stream includes another publication, or handles a lost one; nothing is lost in between.
            let position = max(sink.position, pace.idlePosition)
            let isOver =
                pace.isPublicationBroken || settings.ownPublications.contains { $0.isWaiting(at: position) }
                || settings.pause.isOn
            if isOver, !assembler.isInTransaction { return try leave(&pace, status, false) }
            let ready = stream.wait(interrupt: interrupt, timeoutMilliseconds: pace.millisecondsToNextDuty())
            if ready.interrupt { return try leave(&pace, status, assembler.isInTransaction) }
            if ready.socket { try stream.receive() }
        }
    }

    /// Returns the position up to which readers of the log have all changes. When the server reports the end of its
    /// WAL, every earlier commit has arrived.
    private func coveredPosition(_ pace: StreamPace, _ isInTransaction: Bool) -> LSN {
        isInTransaction || pace.hasWhole
            ? sink.durablePosition : max(sink.durablePosition, pace.idlePosition)
    }

    /// Processes everything that has arrived. Flushes in between if a batch is large or old enough.
    private func drain(
        _ stream: inout ReplicationStream, _ assembler: inout TransactionAssembler, _ pace: inout StreamPace,
        _ status: StatusSender
    ) throws {
        let whileStalled: (StorageStall) throws -> Void = { try self.waitOut($0, status) }
        while true {
            while let message = try stream.next() {
                var reader = ByteReader(message)
                switch try reader.uint8() {
                case UInt8(ascii: "w"):
                    try reader.skip(24)
                    try assembler.receive(reader.rest(), into: sink, whileStalled: whileStalled)
                    pace.received(message.byteCount)
                case UInt8(ascii: "k"):
                    let end = LSN(try reader.uint64())
                    try reader.skip(8)
                    pace.kept(alive: end, wantsReply: try reader.uint8() == 1)
                default: throw ByteError(expected: "a replication message (w or k)", offset: 0)
                }
                if pace.messages & 63 == 0 || sink.pendingBytes > Limits.flushBatchBytes {
                    pace.hasWhole = sink.position > sink.durablePosition
                    if pace.flushIsDue(sink.pendingBytes) { try flush(&pace, status) }
                    try keepInTouch(&pace, status, assembler.isInTransaction)
                    // A stream that never pauses must not prevent a stop.
                    if interrupt.isRung || settings.pause.isOn { return }
                }
            }
            guard stream.hasMore else { break }
            try stream.receive()
        }
        pace.hasWhole = sink.position > sink.durablePosition
    }

    private func flush(_ pace: inout StreamPace, _ status: StatusSender) throws {
        try untilTaken(status) { try sink.flush() }
        assert(sink.pendingBytes == 0, "a flush leaves nothing in memory")
        pace.hasWhole = false
        try confirm(&pace, status)
    }

    /// Repeats the call while the disk fails. Waiting loses nothing.
    private func untilTaken(_ status: StatusSender, _ body: () throws -> Void) throws {
        while true {
            do {
                try body()
                return status.stallEnded()
            } catch let stall as StorageStall {
                try waitOut(stall, status)
            }
        }
    }

    private func confirm(_ pace: inout StreamPace, _ status: StatusSender) throws {
        assert(sink.durablePosition <= sink.position, "only what was accepted is confirmed")
        try status.send(flushed: sink.durablePosition)
        pace.confirmed(sink.durablePosition)
        settings.metrics.confirmedLSN.set(sink.durablePosition.rawValue)
    }

    /// Does the regular work: status messages to the server, checks of slot and publications, and moving an idle slot
    /// on.
    private func keepInTouch(_ pace: inout StreamPace, _ status: StatusSender, _ isInTransaction: Bool) throws {
        pace.watch.look(sink.position, &lag.clock)
        pace.publication.look()
        if pace.clients.finds(otherThan: sink.lineage?.publication) { pace.isPublicationBroken = true }
        if !isInTransaction, sink.hasNotes, pace.notesAreDue { try flush(&pace, status) }
        guard pace.hasDuty else { return }
        if !isInTransaction, pace.idlePosition > sink.position, pace.idleIsDue {
            let end = pace.idlePosition
            try untilTaken(status) { try sink.advance(to: end) }
            assert(sink.position == end, "an idle log moves to the end of the WAL")
            return try flush(&pace, status)
        }
        if pace.statusIsDue { try confirm(&pace, status) }
    }

    private func waitOut(_ stall: StorageStall, _ status: StatusSender) throws {
        settings.metrics.diskStalls.add()
        if status.stallBegins() {
            Log.shared.error(
                "cannot write the event log: the hub confirms nothing to PostgreSQL until it can",
                [.operation(stall.operation), .path(stall.path), .error(stall.reason), .hint(stall.hint)])
        }
        if status.stallIsTooLong { throw stall }
        // Sent at every attempt. Nothing is read during a stall, so requests of a server with a short
        // wal_sender_timeout get no answer.
        try status.send(flushed: sink.durablePosition)
        if interrupt.sleep(milliseconds: Limits.diskRetryInterval.wholeMilliseconds) { throw Interrupted() }
    }

    /// Drops the unfinished transaction, and repeats that while the disk fails. An unfinished transaction must be gone
    /// before another is appended.
    private func abandon() throws {
        while true {
            do { return try sink.abandon() } catch is StorageStall {
                if interrupt.sleep(milliseconds: Limits.diskRetryInterval.wholeMilliseconds) { throw Interrupted() }
            }
        }
    }

    /// Ends the stream cleanly: flushes and confirms whole transactions, so that the next start repeats nothing.
    private func leave(_ pace: inout StreamPace, _ status: StatusSender, _ isInTransaction: Bool) throws {
        if isInTransaction { try sink.abandon() }
        if !isInTransaction, pace.idlePosition > sink.position { try sink.advance(to: pace.idlePosition) }
        try sink.flush()
        assert(sink.pendingBytes == 0, "a stream that ends leaves nothing in memory")
        try? status.send(flushed: sink.durablePosition)
    }

    /// Returns a more exact error if the publication was dropped and created again. PostgreSQL looks it up in the
    /// catalog of the time of each change, so it is missing for the changes in between.
    private func explained(_ error: any Error, _ keeper: SlotKeeper) -> any Error {
        // The message may be in the server's own language. During streaming, no other object of the hub can be
        // undefined.
        guard let refusal = error as? PostgresError, refusal.sqlState == SQLState.undefinedObject,
            refusal.operation == "stream", (try? keeper.publicationExists) == true
        else { return error }
        return PublicationWasRecreated()
    }
}

struct PublicationWasRecreated: Error {}

extension Gap.Reason {
    var hint: String {
        switch self {
        case .slotMissing: "somebody dropped the slot; clients are told to fetch again"
        case .slotInvalidated: "the server removed WAL that the slot needed: raise max_slot_wal_keep_size"
        case .slotAdvanced: "another program used the slot, or this log is an older copy"
        case .databaseRestored: "the database is an older copy than the one the log followed"
        case .otherDatabase: "the database URL leads to another server than before"
        case .publicationRecreated:
            "the publication was dropped and created again; changes made in between cannot be decoded"
        case .logDamaged: "an operator gave up a damaged part of the log"
        case .logMissing:
            "the slot is older than this log: check that data_dir is the directory that was used before; nothing was lost "
                + "if this is the first start, with a slot made by hand"
        case .lineageDamaged:
            "log/lineage cannot be read, so the hub does not know whether the log followed another history"
        }
    }
}

/// Sender of status updates with the durable position to the server. Remembers the time of the last update.
final class StatusSender {
    private let connection: Connection
    private(set) var lastSentAt = Clock.monotonicNanoseconds()
    private var stallBeganAt: UInt64?

    init(connection: Connection) { self.connection = connection }

    func send(flushed: LSN) throws(PostgresError) {
        var message = ByteWriter(capacity: 40)
        message.append(UInt8(ascii: "r"))
        // Written, flushed and applied positions are the same here: only flushed data counts.
        for _ in 0..<3 { message.append(big: flushed.rawValue) }
        let now = PostgresTime.postgres(fromUnixMicroseconds: Clock.unixMicroseconds())
        message.append(big: UInt64(bitPattern: now))
        message.append(UInt8(0))
        try connection.sendCopy(message.bytes)
        lastSentAt = Clock.monotonicNanoseconds()
    }

    var isDue: Bool { Clock.monotonicNanoseconds() - lastSentAt >= Limits.statusInterval.wholeNanoseconds }

    func sendIfDue(flushed: LSN) throws(PostgresError) {
        if isDue { try send(flushed: flushed) }
    }

    /// True at the first failure of the disk in a row.
    func stallBegins() -> Bool {
        guard stallBeganAt == nil else { return false }
        stallBeganAt = Clock.monotonicNanoseconds()
        return true
    }

    var stallIsTooLong: Bool {
        guard let began = stallBeganAt else { return false }
        return Clock.monotonicNanoseconds() - began >= Limits.maximumStall.wholeNanoseconds
    }

    func stallEnded() {
        guard stallBeganAt != nil else { return }
        stallBeganAt = nil
        Log.shared.info("the hub can write the event log again")
    }
}

/// Schedule of the stream: when to flush, when to send a status update, and when to move an idle slot on.
struct StreamPace {
    private(set) var messages: UInt64 = 0
    /// True if whole transactions wait for the disk.
    var hasWhole = false
    private(set) var idlePosition: LSN = .zero
    private var replyIsWanted = false
    private var firstPendingAt: UInt64 = 0
    private var lastStatusAt = Clock.monotonicNanoseconds()
    private var lastIdleAt: UInt64 = 0

    var watch: SlotWatch
    var publication: MessagesPublication
    var clients: PublicationWatch
    /// True if the stream must end, because its publication is gone or changed.
    var isPublicationBroken = false
    private let metrics: ProjectMetrics

    init(
        _ position: LSN, _ watch: SlotWatch, _ publication: MessagesPublication, _ clients: PublicationWatch,
        _ metrics: ProjectMetrics
    ) {
        idlePosition = position
        self.watch = watch
        self.publication = publication
        self.clients = clients
        self.metrics = metrics
    }

    mutating func received(_ bytes: Int) {
        messages &+= 1
        metrics.bytesIngested.add(bytes)
    }

    mutating func kept(alive end: LSN, wantsReply: Bool) {
        idlePosition = max(idlePosition, end)
        replyIsWanted = replyIsWanted || wantsReply
        metrics.receivedLSN.set(end.rawValue)
    }

    mutating func confirmed(_ position: LSN) {
        let now = Clock.monotonicNanoseconds()
        lastStatusAt = now
        lastIdleAt = now
        firstPendingAt = 0
        replyIsWanted = false
    }

    mutating func flushIsDue(_ pendingBytes: Int) -> Bool {
        if pendingBytes >= Limits.flushBatchBytes { return true }
        guard hasWhole else { return false }
        let now = Clock.monotonicNanoseconds()
        if firstPendingAt == 0 { firstPendingAt = now }
        return now - firstPendingAt >= Limits.groupCommitMaximumDelay.wholeNanoseconds
    }

    private var sinceStatus: UInt64 { Clock.monotonicNanoseconds() - lastStatusAt }
    var statusIsDue: Bool { replyIsWanted || sinceStatus >= Limits.statusInterval.wholeNanoseconds }
    /// True if an idle slot is to move on. A server that asks for a reply may be shutting down, and waits until the hub
    /// confirms its last byte.
    var idleIsDue: Bool {
        replyIsWanted || Clock.monotonicNanoseconds() - lastIdleAt >= Limits.idleProgressInterval.wholeNanoseconds
    }
    var hasDuty: Bool { statusIsDue || idleIsDue }

    /// True if waiting notes are due for a flush, after a short delay.
    var notesAreDue: Bool {
        Clock.monotonicNanoseconds() - lastIdleAt >= Limits.noteInterval.wholeNanoseconds
    }

    func millisecondsToNextDuty() -> Int32 {
        let limit = Limits.statusInterval.wholeNanoseconds
        // The clock is read once: between two readings the limit may pass.
        let since = min(sinceStatus, limit)
        let toStatus = since == limit ? 0 : Int32((limit - since) / 1_000_000 + 1)
        // Notes come from other threads, which do not wake this loop.
        return min(toStatus, Int32(Limits.noteInterval.wholeMilliseconds))
    }
}
