import Bytes
import Change
import Diagnostics
import Postgres
import System

/// Session of one connection: it sets up the stream, reads it, and confirms positions. `run` ends with an error, or
/// returns when the interrupt is signalled.
///
/// The session passes transactions from the replication stream to the sink. It confirms to PostgreSQL only the position
/// up to which they are durable.
struct ReplicationSession<Sink: TransactionSink> {
    let settings: ReplicationSettings
    let spoolDirectory: any StorageDirectory
    let sink: Sink
    let interrupt: Wake
    let status: ReplicationStatus
    let lag: Lag
    /// Function that is called when the stream begins.
    let streaming: () -> Void
    /// Function that is called with the position up to which readers of the log have all changes.
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
            timeoutSeconds: Limits.connectTimeout.wholeSeconds, settings: settings.streamOptions, interrupt: interrupt)
        // The publication is checked before the slot exists, so that the stream of a new slot includes the publication
        // from its first change.
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
        // A new history begins at the slot's position. While another process uses the slot and advances it, that
        // position is unknown.
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
        // The lineage is written after the gap. After a crash in between, the gap is recorded twice, but never lost.
        if sink.lineage != lineage { try sink.follow(lineage) }
        status.follows(FollowedDatabase(system: system, number: lineage.database))
    }

    /// Returns the slot's state; nil if there is no slot. If the slot is still being created, no program has read from
    /// it, so a new log that begins with it misses nothing.
    private func slotState(_ keeper: SlotKeeper) throws -> ServerState.Slot? {
        do {
            return try keeper.slotState()
        } catch let failure as StreamFailure where failure.reason == .slotBusy && sink.isNew {
            try sink.prepare(for: settings.slot)
            throw failure
        }
    }

    /// Returns the position at which the history continues after a gap in the publication; nil if it is the slot's
    /// position.
    private func end(of gap: Gap.Reason, _ keeper: SlotKeeper, _ replication: Connection) throws -> LSN? {
        switch gap {
        // Before PostgreSQL 18, all WAL that was written without a publication must be skipped as a whole.
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

    /// Returns how the server's timeline relates to the timeline that the log has followed. PostgreSQL, "Streaming
    /// Replication Protocol": a history file has a line for each earlier timeline, with its number and the position at
    /// which it ended.
    private func branch(to timeline: UInt32, _ replication: Connection) throws -> ServerState.Branch {
        guard let followed = sink.lineage?.timeline, followed != timeline else { return .same }
        let answer: Rows
        do throws(PostgresError) {
            answer = try replication.execute("TIMELINE_HISTORY \(timeline)")
        } catch {
            // Without the history file, the hub cannot exclude a loss.
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

    /// Returns those of the hub's own publications that the stream can include from now on.
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
        try sink.followMemberships(settings.coverage.followed)
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

    /// Runs a write to a file beside the log. A failure of the disk stalls the stream, in the same way as a failed
    /// write to the log.
    private func noting(_ body: () throws(SystemError) -> Void) throws(StorageStall) {
        do throws(SystemError) { try body() } catch {
            throw StorageStall(operation: error.operation, path: error.subject, reason: error.reason, hint: "")
        }
    }

    /// True if the error is about publications: one does not exist, or two of them publish different columns of a
    /// table.
    private static func isAboutPublications(_ error: any Error) -> Bool {
        guard let refusal = error as? PostgresError, refusal.operation == "stream" else { return false }
        return refusal.sqlState == SQLState.undefinedObject || refusal.sqlState == SQLState.featureNotSupported
    }

    private func start(_ serverVersion: Int, _ listed: [StreamCoverage]) -> StartReplication {
        // PostgreSQL 14 introduced streaming, messages and protocol version 2.
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
            // Whole transactions are flushed when no more data is waiting. In the middle of a transaction a flush has
            // no benefit, so the loop waits for more data.
            if pace.hasWhole, !assembler.isInTransaction { try flush(&pace, status) }
            try keepInTouch(&pace, status, assembler.isInTransaction)
            covered(coveredPosition(pace, assembler.isInTransaction))
            // The next stream includes another publication, or handles a dropped one. No change is lost between the two
            // streams.
            let position = max(sink.position, pace.idlePosition)
            let isOver =
                pace.isPublicationBroken || settings.ownPublications.contains { $0.isWaiting(at: position) }
                || settings.pause.isOn || sink.isOver
            if isOver, !assembler.isInTransaction { return try leave(&pace, status, false) }
            let ready = stream.wait(interrupt: interrupt, timeoutMilliseconds: pace.millisecondsToNextDuty())
            if ready.interrupt { return try leave(&pace, status, assembler.isInTransaction) }
            if ready.socket { try stream.receive() }
        }
    }

    /// Returns the position up to which readers of the log have all changes. When the server reports the end of its
    /// WAL, all earlier commits have been received.
    private func coveredPosition(_ pace: StreamPace, _ isInTransaction: Bool) -> LSN {
        isInTransaction || pace.hasWhole
            ? sink.durablePosition : max(sink.durablePosition, pace.idlePosition)
    }

    /// Processes all data that has arrived. Flushes in between if a batch is large or old enough.
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
                    // A stream that always has data must not prevent the hub from stopping.
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

    /// Repeats the call while the disk fails. No data is lost while it waits.
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

    /// Performs the regular duties: status messages to the server, checks of the slot and of publications, and
    /// advancing an idle slot.
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
        // Sent at every attempt. During a stall the hub reads nothing, so it does not see a server's requests for a
        // status message, which a server with a short wal_sender_timeout sends.
        try status.send(flushed: sink.durablePosition)
        if interrupt.sleep(milliseconds: Limits.diskRetryInterval.wholeMilliseconds) { throw Interrupted() }
    }

    /// Drops the parts of the unfinished transaction. Repeats that while the disk fails, because they must be removed
    /// before another transaction is appended.
    private func abandon() throws {
        while true {
            do { return try sink.abandon() } catch is StorageStall {
                if interrupt.sleep(milliseconds: Limits.diskRetryInterval.wholeMilliseconds) { throw Interrupted() }
            }
        }
    }

    /// Ends the stream cleanly: flushes and confirms whole transactions, so that the next start repeats none.
    private func leave(_ pace: inout StreamPace, _ status: StatusSender, _ isInTransaction: Bool) throws {
        if isInTransaction { try sink.abandon() }
        if !isInTransaction, pace.idlePosition > sink.position { try sink.advance(to: pace.idlePosition) }
        try sink.flush()
        assert(sink.pendingBytes == 0, "a stream that ends leaves nothing in memory")
        try? status.send(flushed: sink.durablePosition)
    }

    /// Returns a more precise error if the publication was dropped and created again. PostgreSQL looks up the
    /// publication in the catalog as it was at each change, so it does not exist for the changes in between.
    private func explained(_ error: any Error, _ keeper: SlotKeeper) -> any Error {
        // The error is recognized by its code, because its message may be in the server's language. During streaming,
        // the publication is the hub's only object that can be undefined.
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

/// Sender of status messages with the durable position to the server. It remembers the time of the last one.
final class StatusSender {
    private let connection: Connection
    private(set) var lastSentAt = Clock.monotonicNanoseconds()
    private var stallBeganAt: UInt64?

    init(connection: Connection) { self.connection = connection }

    func send(flushed: LSN) throws(PostgresError) {
        var message = ByteWriter(capacity: 40)
        message.append(UInt8(ascii: "r"))
        // The hub reports the same position as written, flushed and applied, because it counts only flushed data.
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

    /// Returns true at the first failure of the disk after a success.
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

/// Schedule of the stream: when to flush, when to send a status message, and when to advance an idle slot.
struct StreamPace {
    private(set) var messages: UInt64 = 0
    /// True if there are whole transactions that have not been flushed.
    var hasWhole = false
    private(set) var idlePosition: LSN = .zero
    private var replyIsWanted = false
    private var firstPendingAt: UInt64 = 0
    private var lastStatusAt = Clock.monotonicNanoseconds()
    private var lastIdleAt: UInt64 = 0

    var watch: SlotWatch
    var publication: MessagesPublication
    var clients: PublicationWatch
    /// True if the stream must end because its publication was dropped or replaced.
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
    /// True if an idle slot is due to be advanced. It is also due if the server asks for a reply: the server may be
    /// shutting down, and then waits until the hub confirms the end of the WAL.
    var idleIsDue: Bool {
        replyIsWanted || Clock.monotonicNanoseconds() - lastIdleAt >= Limits.idleProgressInterval.wholeNanoseconds
    }
    var hasDuty: Bool { statusIsDue || idleIsDue }

    /// True if notes that wait for a flush are due. They are due after a short delay.
    var notesAreDue: Bool {
        Clock.monotonicNanoseconds() - lastIdleAt >= Limits.noteInterval.wholeNanoseconds
    }

    func millisecondsToNextDuty() -> Int32 {
        let limit = Limits.statusInterval.wholeNanoseconds
        // The clock is read only once, because the limit may pass between two readings.
        let since = min(sinceStatus, limit)
        let toStatus = since == limit ? 0 : Int32((limit - since) / 1_000_000 + 1)
        // Notes are added by other threads, which do not wake this loop. So the wait is never longer than the interval
        // of notes.
        return min(toStatus, Int32(Limits.noteInterval.wholeMilliseconds))
    }
}
