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

/// Pipeline of changes on one loop: log, schema, predicate index, body, frame, socket. Live delivery is a replay whose
/// position is the log's end.
///
/// If the catalog does not know the schema of the current change, the pipeline waits there; the log keeps later
/// changes.
public struct Pipeline: ~Copyable {
    private let sources: DeliverySources
    /// Reader of the log; nil until the log has begun.
    private var feed: LogFeed?
    private var reading: LogReading
    public var wait = DeliveryWait()
    var schemas = SchemaRegistry()
    public var router: ChangeRouter
    public var memberships: LiveMemberships
    /// Values that the current entry's changes lack.
    var values: EntryValues
    /// Messages to topics in the current entry.
    private var messages: EntryMessages
    private var questions: QuestionSender
    private var findings = LogFindings()
    private var accounts: DeliveryAccounts

    /// - Parameters:
    ///   - start: position at which reading begins, which the log must have; nil for the log's end.
    ///   - post: takes the answers to the pipeline's questions, from any thread; the loop hands them to `take`.
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

    /// True if the log is open: everything committed from now on will be seen.
    public var isOpen: Bool { feed != nil }

    /// Returns the results since the last report, on which the loop must act after each turn and after each event.
    public mutating func report() -> DeliveryReport {
        defer { findings = LogFindings() }
        return DeliveryReport(
            changedSets: memberships.takeChanged(), unfilledSets: memberships.takeUnfilled(), held: takeHeld(),
            isTiredOfWaiting: wait.hasTired(at: now),
            contradicted: router.takeContradicted(),
            uncomputed: values.takeMissed(), losses: router.takeLosses(), findings: findings,
            fed: router.takeFed())
    }

    // MARK: Reading

    private var now: UInt64 { sources.time.monotonicNanoseconds() }

    /// True if a catch-up must wait for answers. A catch-up is in no hurry, so its pipeline asks no more than may wait.
    private var isWaitingForAnswers: Bool { reading.place.isOfPast && router.isBurdened }

    /// Reads and delivers for one turn. True if there is more to do at once. Messages to topics that somebody hears are
    /// told at their places among the changes; if `tell` returns false, the pipeline waits for `messagesAreDelivered`.
    /// From `expiry` on, in Unix seconds, nothing more is read, because a channel's token expires then.
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
            // The reader continues at its place once the kernel permits it.
            if case .transient = ReadingTrouble(error) { self.feed = consume feed }
            return false
        }
    }

    private var isPausing: Bool { reading.health.isPausing(at: now) }

    /// Text for the operator while commits do not reach clients because the log cannot be read.
    public var unreadable: String? { reading.health.unreadable }
    /// True if the catch-up must be given up.
    public var hasLostPast: Bool { reading.health.hasLostPast }
    /// Epoch of history that has been read; nil until it is known.
    public var epoch: UInt64? { reading.place.epoch }

    /// Opens the log at its end. If the hub had to wait for the log, opens it at its beginning, because joins have been
    /// answered meanwhile. The hub tells those clients so, since nobody knows what was committed before the log began.
    /// Bindings wait for this call, so it must not wait for bindings.
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

    /// Ends an entry, or the progress on one of an earlier feed.
    private mutating func finishEntry() {
        wait.finishEntry()
        messages.finishEntry()
        values.finishEntry()
    }

    /// Reason that clients are told when the log begins after their joins were answered.
    public static let logHasBegun = "the database is followed from now on"

    /// Epoch of what was read last, or of the position from which the reader begins. A gap behind that position is still
    /// to be read.
    public var epochReached: UInt64? { isOpen ? reading.place.epochReached : reading.place.epoch }

    /// Offset before which every change has been delivered or waits for an answer. No later change has.
    public var frontier: UInt64 { reading.place.frontier }

    /// Offset before which all messages to topics have been told. The messages of an entry come before its changes.
    public var messageFrontier: UInt64 { wait.isHeldByMessages ? frontier : max(frontier, reading.place.gathered) }

    /// Offset from which on the pipeline still delivers everything to a channel that is placed now. Messages of an entry
    /// are gathered at once, for the topics that somebody hears then.
    public var frontierForNewcomers: UInt64 { max(frontier, reading.place.gathered) }

    /// True if the pipeline is between entries and nothing keeps it from going on.
    public var isBetweenEntries: Bool { isOpen && wait.isReading && reading.place.entryAt == nil }

    /// True if the log has changes that the pipeline has not looked at yet.
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
            // Clients are told of the new epoch before what follows.
            if entry.kind != .gap, enters(entry.epoch) { return true }
            if reading.place.entryAt == nil { reading.hasRead(at: now) }
            reading.place.begin(entry)
            if schemas.enter(segment: entry.segment) { router.bindings.forgetRelations() }
            switch entry.kind {
            case .relation: try schemas.learn(feed.payload)
            case .gap:
                forgetPast()
                // A client that begins after the gap knows of the gap, which takes no offset.
                if reading.place.beginsBehind(gap: entry) { break }
                findings.noteGap(try GapCodec.decode(feed.payload).reason.rawValue)
                // Clients are told of the gap before what follows.
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
            // Holders whose memberships just changed are judged again before anything else is read.
            if memberships.hasChanged { return true }
        }
        return true
    }

    /// Returns the next entry, if any. A follower with memberships must see every transaction, of any table.
    private mutating func next(_ feed: inout LogFeed) throws(EventLogError) -> LogFeed.Step {
        guard router.bindings.needs != nil, memberships.isEmpty else { return try feed.next() }
        return try feed.next { router.bindings.areUnconcerned(by: $0) }
    }

    /// Enters the epoch of an entry. Returns true if the gap before the epoch is missing, of which clients are told.
    private mutating func enters(_ epoch: UInt64) -> Bool {
        guard reading.place.enter(epoch) else { return false }
        forgetPast()
        findings.noteGap("the event log does not have what lay between any more")
        return true
    }

    /// Passes over a segment, because nothing before the position is for any client.
    private mutating func passOver(to position: EventLogPosition, _ budget: inout TurnBudget) {
        if enters(position.epoch) { budget.end() }
        reading.place.passOver(to: position)
        // Remembered rows may differ by now.
        router.forgetRows()
        sources.metrics.segmentsPassedOver.add()
        budget.spend(entry: Limits.passedSegmentBytes)
    }

    /// Delivers the entry. False if it is not done: the budget is spent, the catalog is missing, or memberships have
    /// changed.
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

    /// Begins a transaction. Names and labels have the meaning that they had when the transaction was committed.
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
            let outcome = try router.match(&part, at: accounts.moment)
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
                // The catalog is read again before changes of this schema are judged.
                return pause(info.xid)
            }
        }
        return true
    }

    // MARK: Memberships

    /// Unwinds sets that PostgreSQL filled with more than the log has come to, once the log has all of it. The sets are
    /// then as they were at the current transaction. Returns the sets that are settled.
    public mutating func settleFills(_ now: UInt64) -> [MembershipSet] {
        memberships.settleFills(&feed, coveredUpTo: sources.log.covered, now, &schemas)
    }

    // MARK: Changes

    /// Delivers the judged changes, as far as the budget reaches and up to the first one whose row lacks something.
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
                // Clients are told of the truncation before what follows.
                budget.end()
            }
            reading.place.passChange()
        }
        return (delivered, .nothing)
    }

    /// Notes a change whose values were removed from the log. Any listener of the table may miss something, and is told
    /// before what follows.
    private mutating func noteForgotten(_ fingerprint: UInt64, at offset: UInt64) throws(ByteError) {
        // Remembered rows may differ by now.
        router.forgetRows()
        let table = try relation(fingerprint).oid
        if schemas.isDeclared(table) { findings.noteForgotten(table, at: offset) }
    }

    /// Notes an update without its whole old row. The table's replica identity may have been another for a while, of
    /// which no client was told.
    private mutating func noteUnknownDeparture(
        _ change: borrowing Change, _ completion: Completion?, at offset: UInt64
    ) throws(ByteError) {
        guard completion?.former == nil, change.relation != 0 else { return }
        let table = try relation(change.relation).oid
        if schemas.promisesWholeRows(table) { router.losses.missDeparture(from: table, at: offset) }
    }

    // MARK: Values that changes lack

    /// Asks PostgreSQL for the converted values of the current change, and of later changes in its entry.
    private mutating func convert(_ payload: RawSpan) throws {
        let request = try EntryValues.conversion(of: payload, after: reading.place.done, schemas)
        wait.begin(.converting(ticket: questions.convert(request), request))
    }

    /// Asks the log for the row of the current change, and for rows of which later changes have only the keys.
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

    /// Snapshot that defines the generated columns; nil if there is nothing to compute, or no login that may do so.
    private var generationSnapshot: CatalogSnapshot? {
        guard values.isComputing, sources.mayCompute else { return nil }
        return sources.catalog.snapshot
    }

    /// Puts the values of generated columns into the entry. False if the hub must wait for values.
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

    /// Forgets what earlier changes say, because changes were left out.
    private mutating func forgetPast() {
        memberships.discardAll()
        router.forgetRows()
    }

    // MARK: Waiting for the catalog

    /// True if the entry has rows of tables whose policies could not be read for the moment.
    private func hasUnsettledRows(_ feed: borrowing LogFeed) throws(ByteError) -> Bool {
        try !schemas.tables(of: feed.payload, among: sources.catalog.snapshot?.policies.unsettled ?? []).isEmpty
    }

    /// Returns the current transaction if the catalog must see it first. That is so if policies of one of its tables
    /// may have changed earlier, without a record in the stream. One read of the catalog serves all transactions that
    /// it showed.
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
            // The server may not know a transaction from before a gap.
            reading.place.epoch == sources.log.end()?.state.position.epoch
        else { return passed }
        return passed + wait.tablesHeldLong(at: now)
    }

    /// True if the loop has heard of a snapshot that shows the transaction.
    public func hasSeen(_ xid: UInt32) -> Bool { wait.hasSeen(xid, sources.catalog) }

    /// Waits for a catalog that shows the transaction, or for a fresh one. Returns false: the entry is not done.
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

    /// Takes a new snapshot. Tables that differ in it match nothing until they are declared again.
    public mutating func take(_ snapshot: CatalogSnapshot) {
        sources.watcher?(wait.stage.name, "new catalog")
        wait.hear(snapshot.version)
        values.catalogHasChanged()
        schemas.take(snapshot, &router)
        memberships.catalogHasChanged()
    }

    /// True if a table was replaced since the last call: the caller must then check all bindings.
    public mutating func takeReplacement() -> Bool {
        let (ofTable, ofMembership) = (schemas.takeReplacement(), memberships.takeReplacement())
        return ofTable || ofMembership
    }

    // MARK: Asking PostgreSQL

    /// Takes the answer to a question of the pipeline.
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
