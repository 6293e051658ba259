import Bytes
import Catalog
import Change
import Diagnostics
import EventLog
import Judging
import Matching
import Messages
import Net
import Policy
import Protocol
import System
import WebSocket

/// Pipeline that delivers changes on one loop: log, schema, predicate index, body, frame, socket. Live delivery and
/// catch-up use the same code; live delivery begins at the log's end.
///
/// If the catalog does not know the schema of the current change, the pipeline waits. The log keeps the later changes.
public struct Pipeline: ~Copyable {
    private let sources: DeliverySources
    /// Reader of the log; nil until the log is open.
    private var feed: LogFeed?
    private var reading: LogReading
    public var wait = DeliveryWait()
    var schemas = SchemaRegistry()
    public var router: ChangeRouter
    public var memberships: LiveMemberships
    /// Values that the current entry's changes lack and that the hub gets elsewhere.
    var values: EntryValues
    /// Messages to topics in the log entry that the pipeline is reading.
    private var messages: EntryMessages
    private var questions: QuestionSender
    private var findings = LogFindings()
    private var accounts: DeliveryAccounts

    /// Creates a pipeline.
    ///
    /// - Parameters:
    ///   - start: position of the first entry to read, which the log must have; nil for the log's end.
    ///   - post: receives answers to the pipeline's questions, on any thread. The loop passes them to `take`.
    public init(
        _ sources: DeliverySources, _ deflater: Deflater?, from start: EventLogPosition? = nil,
        post: @escaping @Sendable (DeliveryEvent) -> Void
    ) {
        self.sources = sources
        reading = LogReading(from: start)
        router = ChangeRouter(
            maximumBodyBytes: sources.maximumBodyBytes, deflater: deflater,
            deletesAreStrict: sources.deletesAreStrict, skipsSegments: start != nil, sources.metrics)
        memberships = LiveMemberships(sources.metrics)
        values = EntryValues(sources.metrics)
        messages = EntryMessages(FlawLog(sources.metrics.messagesSkipped))
        questions = QuestionSender(sources.asking, post: post)
        accounts = DeliveryAccounts(sources.time, sources.metrics)
    }

    /// True if the log is open, so that the pipeline will see everything committed from now on.
    public var isOpen: Bool { feed != nil }

    /// Returns the results since the last report, such as losses and changed membership sets. The loop must act on them
    /// after each turn and after each event.
    public mutating func report() -> DeliveryReport {
        defer { findings = LogFindings() }
        return DeliveryReport(
            changedSets: memberships.takeChanged(), unfilledSets: memberships.takeUnfilled(), held: takeHeld(),
            isTiredOfWaiting: wait.hasWaitedTooLong(at: now),
            contradicted: router.takeContradicted(),
            uncomputed: values.takeMissed(), losses: router.takeLosses(), findings: findings,
            fed: router.takeFed())
    }

    // MARK: Reading

    private var now: UInt64 { sources.time.monotonicNanoseconds() }

    /// True if the pipeline is a catch-up and must wait for answers before it reads on. A catch-up is in no hurry, so
    /// it limits its open questions.
    private var isWaitingForAnswers: Bool { reading.place.isOfPast && router.isBurdened }

    /// Reads and delivers for one turn. Returns true if there is more to do immediately.
    ///
    /// - Parameters:
    ///   - expiry: Unix time in seconds at which the first token of a channel expires. Reading ends there.
    ///   - hears: returns true if some channel on this loop receives messages to the topic.
    ///   - tell: delivers messages to topics, in order with the changes. If it returns false, the pipeline waits for
    ///     `messagesAreDelivered`.
    public mutating func run(
        on sink: any FrameSink, until expiry: Int64,
        hears: (_ topic: RawSpan, _ isPrivate: Bool) -> Bool, tell: (TurnBroadcasts) -> Bool
    ) -> Bool {
        guard wait.isReading, !isWaitingForAnswers, !isPausing, var feed = feed.take() else { return false }
        do {
            router.bindings.fillAllowances(sink.now)
            accounts.beginTurn()
            let budget = TurnBudget(until: expiry, sharing: reading.place.isOfPast)
            let more = try read(&feed, on: sink, budget, hears, tell)
            if let watcher = sources.watcher { watcher(wait.stage.name, more ? "budget spent" : "nothing to read") }
            self.feed = consume feed
            return more
        } catch {
            failed(error, in: feed.segment)
            // The reader keeps its place and continues once the kernel permits it.
            if case .transient = ReadingTrouble(error) { self.feed = consume feed }
            return false
        }
    }

    private var isPausing: Bool { reading.health.isPausing(at: now) }

    /// Reason, for the operator, why the log cannot be read, so that commits do not reach clients. Nil while it can be
    /// read.
    public var unreadable: String? { reading.health.unreadable }
    /// True if the catch-up must end, because the log cannot be read at its position.
    public var hasLostPast: Bool { reading.health.hasLostPast }
    /// Epoch of the log entries that the pipeline has read; nil until it is known.
    public var epoch: UInt64? { reading.place.epoch }

    /// Opens the log if it has begun, normally at its end. If the hub had to wait for the log, opens it at its
    /// beginning, because the hub has answered joins before. The hub tells the clients of these joins that commits
    /// before the log are unknown. Bindings are placed after this call, so it must not wait for them.
    public mutating func openIfBegun(ringing bell: Wake) {
        guard !isOpen, !wait.hasFailed, !hasLostPast, !isPausing else { return }
        guard let end = sources.log.end() else { return reading.place.logIsMissing() }
        let state = end.state
        if let segment = reading.place.segmentAwaited(newest: state.segment) {
            return end.askForSegment(behind: segment)
        }
        do {
            let opened = try LogFeed(sources.log.open(), end: end, from: reading.place.beginning, ringing: bell)
            for gap in reading.place.opened(at: opened.position, end: end.state.position) { findings.noteGap(gap) }
            feed = consume opened
            memberships.forgetProgress()
            finishEntry()
            reading.hasRead(at: now)
        } catch {
            failed(error, in: state.segment)
            reading.place.isRefused(end: state.position)
        }
    }

    /// Resets the progress on the current log entry, because the entry is done or the log was opened again.
    private mutating func finishEntry() {
        wait.finishEntry()
        messages.finishEntry()
        values.finishEntry()
    }

    /// Text that clients receive with a loss, if the log began after their joins were answered.
    public static let logHasBegun = "the database is followed from now on"

    /// Epoch of the last entry that was read; before the first one, epoch of the position where reading begins. The
    /// next entry may be a gap, after which another epoch begins.
    public var epochReached: UInt64? { isOpen ? reading.place.epochReached : reading.place.epoch }

    /// Offset before which every change has been delivered or waits for an answer. No change from it on has been
    /// delivered.
    public var frontier: UInt64 { reading.place.frontier }

    /// Offset before which all messages to topics have been delivered. An entry's messages are delivered before its
    /// changes.
    public var messageFrontier: UInt64 { wait.isHeldByMessages ? frontier : max(frontier, reading.place.gathered) }

    /// Offset from which a channel that is placed now receives everything. It is after the current entry if the entry's
    /// messages were already gathered, because they are gathered only for topics with members at that moment.
    public var frontierForNewcomers: UInt64 { max(frontier, reading.place.gathered) }

    /// True if the pipeline is between entries and can read the next one.
    public var isBetweenEntries: Bool { isOpen && wait.isReading && reading.place.entryAt == nil }

    /// Returns the rows that came into the holder's sight or left it with the transaction at the frontier, if its
    /// memberships already count although its rows have not all been delivered; nil if there are none. A channel that
    /// comes to this reader now does not hear of them otherwise.
    public func rowsTouchedAhead(by policy: ActivePolicy) -> TouchedRows? {
        policy.rows { memberships.touchedAhead($0) }
    }

    /// True if the log has entries that the pipeline has not read yet.
    public var isBehind: Bool {
        isOpen && sources.log.end().map { reading.place.passed < $0.state.position.offset } ?? false
    }

    private mutating func read(
        _ feed: inout LogFeed, on sink: any FrameSink, _ budget: TurnBudget,
        _ hears: (RawSpan, Bool) -> Bool, _ tell: (TurnBroadcasts) -> Bool
    ) throws -> Bool {
        var budget = budget
        while budget.isLeft(on: sink), budget.isBeforeExpiry(accounts.moment / 1_000_000) {
            let entry: EventLogEntry
            switch try next(&feed) {
            case .entry(let next): entry = next
            case .none:
                reading.hasRead(at: now)
                return false
            case .passedOver:
                reading.hasRead(at: now)
                passOver(to: feed.position, &budget)
                continue
            }
            // Clients learn of the new epoch before its entries are delivered.
            if entry.kind != .gap, enters(entry.epoch) { return true }
            if reading.place.entryAt == nil { reading.hasRead(at: now) }
            reading.place.begin(entry)
            if schemas.enter(segment: entry.segment) { router.bindings.forgetRelations() }
            switch entry.kind {
            case .relation: try schemas.learn(feed.payload)
            case .gap:
                forgetPast()
                // A client that begins after the gap already knows of it. A gap takes no offset.
                if reading.place.beginsBehind(gap: entry) { break }
                findings.noteGap(try GapCodec.decode(feed.payload).reason.rawValue)
                // Clients learn of the gap before the next entries are delivered.
                budget.end()
            case .transaction:
                if !messages.areGathered, !schemas.messages.isEmpty {
                    reading.place.gather(entry)
                    try messages.gather(feed.payload, from: entry.offset, schemas.messages, &findings, &budget, hears)
                }
                if let met = messages.take(), !tell(met) {
                    wait.begin(.heldByMessages)
                    return false
                }
                guard try deliver(feed, entry, on: sink, &budget) else { return wait.isReading }
            case .catalogMark:
                let mark = try CatalogMarkCodec.decode(feed.payload)
                guard wait.mayPass(mark, sources.catalog) else { return pause(mark.xid == 0 ? nil : mark.xid) }
            default: break
            }
            budget.spend(entry: feed.payload.byteCount)
            assert(wait.isReading, "nothing is passed while something is awaited")
            reading.place.finish(entry)
            feed.finish()
            memberships.finish(entry)
            finishEntry()
            // Policies of holders whose memberships changed must be updated before the next entry.
            if memberships.hasChanged { return true }
        }
        return true
    }

    /// Returns the next entry of the log, if any. Skips useless segments, but only if the pipeline has no memberships,
    /// because memberships need every transaction.
    private mutating func next(_ feed: inout LogFeed) throws(EventLogError) -> LogFeed.Step {
        guard router.bindings.needs != nil, memberships.isEmpty else { return try feed.next() }
        return try feed.next { router.bindings.areUnconcerned(by: $0) }
    }

    /// Enters the epoch of a log entry. Returns true if the gap before it is missing from the log; the report then
    /// tells clients.
    private mutating func enters(_ epoch: UInt64) -> Bool {
        guard reading.place.enter(epoch) else { return false }
        forgetPast()
        findings.noteGap("the event log does not have what lay between any more")
        return true
    }

    /// Moves past a segment of the log that contains nothing for any client.
    private mutating func passOver(to position: EventLogPosition, _ budget: inout TurnBudget) {
        if enters(position.epoch) { budget.end() }
        reading.place.passOver(to: position)
        // Remembered rows may be out of date.
        router.forgetRows()
        sources.metrics.segmentsPassedOver.add()
        budget.spend(entry: Limits.passedSegmentBytes)
    }

    /// Delivers a log entry. Returns false if it is not done: the budget is spent, the pipeline must wait, or
    /// memberships have changed.
    private mutating func deliver(
        _ feed: borrowing LogFeed, _ entry: EventLogEntry, on sink: any FrameSink,
        _ budget: inout TurnBudget
    ) throws -> Bool {
        router.recall.settle()
        if router.bindings.index.count == 0, memberships.isEmpty {
            memberships.pass(try TransactionPart(feed.payload).xid)
            router.forgetRows()
            return true
        }
        guard sources.catalog.isCurrent else { return pause(nil) }
        try beginReading(feed, entry)
        if let xid = try unseen(feed) { return pause(xid) }
        if try hasUnsettledRows(feed) {
            wait.awaitPolicies(at: now)
            return paused()
        }
        wait.catalogSuffices()
        if !memberships.progress.hasApplied {
            try memberships.apply(feed, entry, &schemas)
            if memberships.hasChanged { return false }
        }
        guard try compose(feed) else { return false }
        guard let composed = values.composed else {
            return try match(feed.payload, feed, entry, on: sink, &budget)
        }
        return try match(composed.asBytes, feed, entry, on: sink, &budget)
    }

    /// Begins a transaction: from now on, names of columns and labels of enum types mean what they meant when it was
    /// committed.
    private mutating func beginReading(_ feed: borrowing LogFeed, _ entry: EventLogEntry) throws(ByteError) {
        let isOfThisHistory = sources.log.end().map { $0.state.position.epoch == entry.epoch } ?? true
        let lsn = try TransactionPart(feed.payload).commitLSN
        guard schemas.begin(at: lsn, isOfThisHistory: isOfThisHistory) else { return }
        router.bindings.forgetRelations()
        router.forgetRows()
        memberships.forgetRelations()
        values.forgetPlans()
    }

    private mutating func match(
        _ payload: RawSpan, _ feed: borrowing LogFeed, _ entry: EventLogEntry, on sink: any FrameSink,
        _ budget: inout TurnBudget
    ) throws -> Bool {
        let doubted = schemas.doubtedSchemas
        var part = try TransactionPart(payload, doubting: doubted.span)
        precondition(reading.place.done <= part.changeCount, "no more is done than there is")
        for _ in 0..<reading.place.done { _ = try part.next() }
        let info = part.info
        router.begin(info, endingBefore: entry.offset + UInt64(part.changeCount))
        if !router.opinions.isEmpty { try router.confirmContradictions(at: info.commitLSN) }
        var delivered = 0
        defer {
            accounts.tell(delivered, committed: info.commitTime)
            if router.hasQuestions { questions.send(router.takeQuestions(), seeing: info.xid) }
        }
        while reading.place.done < part.changeCount {
            var ahead = part
            let outcome = try router.match(&part, at: accounts.moment, committed: info.commitTime)
            let (count, missing) = try deliverMatched(&ahead, info, of: entry, on: sink, &budget)
            delivered += count
            switch missing {
            case .nothing: break
            case .row:
                try recall(feed, entry)
                return false
            case .values:
                try convert(payload)
                return false
            }
            guard budget.isLeft(on: sink) else { return reading.place.done == part.changeCount }
            if case .unknownRelation(let fingerprint) = outcome,
                try !schemas.isReady(fingerprint, relation(fingerprint), sources.catalog.snapshot, &router)
            {
                // The catalog must be read again before changes of this schema are matched.
                return pause(info.xid)
            }
        }
        return true
    }

    // MARK: Memberships

    /// Removes the effects of transactions after the current one from PostgreSQL's answers, once the log has all
    /// transactions that an answer contains. Returns the membership sets that decisions can use now.
    public mutating func settleFills(_ now: UInt64) -> [MembershipSet] {
        // Channels that catch up wait together. At the log's end, entries that are there must not wait for one channel.
        let delaysOthers = memberships.isUnwinding && !reading.place.isOfPast && isBehind
        return memberships.settleFills(
            &feed, coveredUpTo: sources.log.covered, delaysOthers: delaysOthers, now, &schemas)
    }

    // MARK: Changes

    /// Delivers the changes that matched until the budget is spent or a change lacks values that the hub must get
    /// first.
    @_lifetime(part: copy part)
    private mutating func deliverMatched(
        _ part: inout TransactionPart, _ info: TransactionInfo, of whole: EventLogEntry, on sink: any FrameSink,
        _ budget: inout TurnBudget
    ) throws(ByteError) -> (delivered: Int, EntryValues.Missing) {
        var delivered = 0
        for place in 0..<router.matchedChanges {
            guard budget.isLeft(on: sink), let change = try part.next() else { break }
            let offset = whole.offset + UInt64(reading.place.done)
            if change.isForgotten {
                try noteForgotten(change.relation, at: offset)
                reading.place.passChange()
                budget.end()
                continue
            }
            if !router.opinions.isEmpty, change.relation != 0 {
                try router.opinions.pass(change, try relation(change.relation))
            }
            if router.bindings.policies.sampling.isDue(), change.relation != 0 {
                try router.sample(change, try relation(change.relation))
            }
            var completion: Completion?
            let isWanted = router.hasMatches(at: place)
            if isWanted || router.recall.isConcerned(with: change.relation), change.relation != 0 {
                let missing = try values.complete(
                    change, at: place, number: reading.place.done, isWanted: isWanted, &router, schemas, sources,
                    &completion)
                guard case .nothing = missing else { return (delivered, missing) }
            }
            if change.operation == .update, change.oldImage != .full, router.bindings.wantDepartures {
                try noteUnknownDeparture(change, completion, at: offset)
            }
            if isWanted || completion != nil {
                sources.metrics.changesMatched.add()
                let held = router.heldCount
                let moment = ChangeMoment(
                    commitTime: info.commitTime, commitLSN: info.commitLSN,
                    EventLogPosition(epoch: whole.epoch, offset: offset))
                let count = try router.deliver(
                    place, ReadableChange(change, relation(change.relation)), completion, moment, on: sink)
                delivered += count
                if count > 0 { accounts.note(count, of: change.relation, try relation(change.relation)) }
                budget.spend(deliveries: count + router.heldCount - held)
                if isWaitingForAnswers { budget.end() }
            }
            if change.operation == .truncate, case let table = try relation(change.relation).oid,
                schemas.isDeclared(table)
            {
                findings.noteTruncation(of: table, at: offset)
                // Clients learn of the truncation before the next changes are delivered.
                budget.end()
            }
            reading.place.passChange()
        }
        return (delivered, .nothing)
    }

    /// Records a change whose values were removed from the log. All listeners of the table may have missed something;
    /// the loop tells them before it delivers more.
    private mutating func noteForgotten(_ fingerprint: UInt64, at offset: UInt64) throws(ByteError) {
        // Remembered rows may be out of date.
        router.forgetRows()
        let table = try relation(fingerprint).oid
        if schemas.isDeclared(table) { findings.noteForgotten(table, at: offset) }
    }

    /// Records an update without its whole old row, if clients were promised whole old rows. The table's replica
    /// identity may have differed for a while.
    private mutating func noteUnknownDeparture(
        _ change: borrowing Change, _ completion: Completion?, at offset: UInt64
    ) throws(ByteError) {
        guard completion?.former == nil, change.relation != 0 else { return }
        let table = try relation(change.relation).oid
        if schemas.promisesWholeRows(table) { router.losses.missDeparture(from: table, at: offset) }
    }

    // MARK: Values that changes lack

    /// Asks PostgreSQL to convert values of the current change and of later changes in its entry.
    private mutating func convert(_ payload: RawSpan) throws {
        let request = try EntryValues.conversion(of: payload, after: reading.place.done, schemas)
        wait.begin(.converting(ticket: questions.convert(request), request))
    }

    /// Asks the log for the row of the current change, and for rows of which later changes contain only the key.
    private mutating func recall(_ feed: borrowing LogFeed, _ entry: EventLogEntry) throws {
        let request = try router.recall.request(after: reading.place.done, of: entry, feed, schemas)
        values.ask(for: reading.place.done, in: router.recall.era)
        wait.begin(.recalling(ticket: questions.find(request), request))
    }

    private mutating func recalled(_ ticket: UInt64, _ answers: [RecallAnswer]) {
        guard let request = wait.recalled(ticket),
            let batch = values.take(answers, to: request, generationSnapshot, &router)
        else { return }
        compute(batch, for: (request, answers))
    }

    /// Catalog snapshot that defines the generated columns; nil if no binding needs them, or no login may compute them.
    private var generationSnapshot: CatalogSnapshot? {
        guard values.isComputing, sources.mayCompute else { return nil }
        return sources.catalog.snapshot
    }

    /// Adds the values of generated columns to the current entry. Returns false if the pipeline must wait for values.
    private mutating func compose(_ feed: borrowing LogFeed) throws -> Bool {
        guard values.isUncomposed, let snapshot = generationSnapshot,
            let batch = try values.compose(feed, schemas, snapshot)
        else { return true }
        compute(batch, for: nil)
        return false
    }

    private mutating func compute(_ batch: GeneratedColumns.Batch, for recalled: DeliveryStage.Recalled?) {
        wait.begin(.computing(ticket: questions.compute(values.requests(batch)), batch, for: recalled))
    }

    private mutating func computed(_ ticket: UInt64, _ answers: [[[GeneratedValue]]]) {
        guard let (batch, recalled) = wait.computed(ticket) else { return }
        values.fill(batch, answers)
        if let recalled { values.remember(recalled.answers, to: recalled.request, generationSnapshot, &router) }
    }

    private func relation(_ fingerprint: UInt64) throws(ByteError) -> Relation {
        try values.relation(fingerprint, schemas)
    }

    private mutating func failed(_ error: any Error, in segment: UInt64) {
        sources.watcher?(wait.stage.name, "log error")
        if reading.failed(error, in: segment, at: now) { forgetPast() }
    }

    /// Forgets remembered rows and membership keys of earlier entries, because some entries were skipped.
    private mutating func forgetPast() {
        memberships.discardAll()
        router.forgetRows()
    }

    // MARK: Waiting for the catalog

    /// True if the current entry has rows of tables whose policies the catalog could not read for now.
    private func hasUnsettledRows(_ feed: borrowing LogFeed) throws(ByteError) -> Bool {
        try !schemas.tables(of: feed.payload, among: sources.catalog.snapshot?.policies.unsettled ?? []).isEmpty
    }

    /// Returns the current transaction if the catalog must show it first; nil otherwise. The catalog must show it if
    /// policies of one of its tables may have changed earlier without a mark in the log.
    private mutating func unseen(_ feed: borrowing LogFeed) throws(ByteError) -> UInt32? {
        guard !wait.hasCatalog else { return nil }
        let tables = try schemas.tables(of: feed.payload, among: sources.catalog.unannounced)
        guard !tables.isEmpty else { return nil }
        let xid = try TransactionPart(feed.payload).xid
        return wait.mayPass(tables, of: xid, sources.catalog) ? nil : xid
    }

    private mutating func takeHeld() -> [HeldTable] {
        let passed = wait.takePassed()
        guard wait.awaitsTransaction, sources.catalog.isCurrent,
            // PostgreSQL may not know a transaction from before a gap.
            reading.place.epoch == sources.log.end()?.state.position.epoch
        else { return passed }
        return passed + wait.tablesHeldLong(at: now)
    }

    /// True if the loop has received the newest snapshot, and that snapshot shows the transaction.
    public func hasSeen(_ xid: UInt32) -> Bool { wait.hasSeen(xid, sources.catalog) }

    /// Begins to wait for a catalog that shows the transaction; if nil, for a newly read catalog. Returns false: the
    /// current entry is not done.
    private mutating func pause(_ xid: UInt32?) -> Bool {
        questions.refresh(wait.awaitCatalog(seeing: xid, at: now))
        return paused()
    }

    private func paused() -> Bool {
        sources.metrics.readerPauses.add()
        return false
    }

    public mutating func askAgain() {
        guard let request = wait.askAgain(isCurrent: sources.catalog.isCurrent) else { return }
        if request.hasGivenUp { findings.noteGap("the catalog does not show what was committed") }
        questions.refresh(request)
    }

    /// Uses a new catalog snapshot. Tables that changed in it match nothing until they are declared again.
    public mutating func take(_ snapshot: CatalogSnapshot) {
        sources.watcher?(wait.stage.name, "new catalog")
        wait.hear(snapshot.version)
        values.catalogHasChanged()
        schemas.take(snapshot, &router)
        memberships.catalogHasChanged()
    }

    /// Returns true if a table's columns were replaced in the indexes since the last call: the caller must then check
    /// all bindings.
    public mutating func takeReplacement() -> Bool {
        let (ofTable, ofMembership) = (schemas.takeReplacement(), memberships.takeReplacement())
        return ofTable || ofMembership
    }

    // MARK: Asking PostgreSQL

    /// Accepts the answer to one of the pipeline's questions.
    public mutating func take(_ event: DeliveryEvent, on sink: any FrameSink) {
        sources.watcher?(wait.stage.name, event.name)
        switch event {
        case .refreshed(let ticket, let isKnown): wait.catalogRefreshed(ticket, isKnown)
        case .judged(let ticket, let answers):
            if let pending = questions.takeFilters(ticket) {
                accounts.count(router.settle(pending, answers, on: sink))
            }
        case .judgedByPolicy(let ticket, let answers):
            if let pending = questions.takePolicies(ticket) {
                accounts.count(router.settle(pending, answers, on: sink))
            }
        case .looked(let ticket, let seen): router.opinions.take(ticket, seen)
        case .recalled(let ticket, let answers): recalled(ticket, answers)
        case .computed(let ticket, let answers): computed(ticket, answers)
        case .converted(let ticket, let answers):
            if let request = wait.converted(ticket) { values.take(request.converted(answers)) }
        }
    }
}
