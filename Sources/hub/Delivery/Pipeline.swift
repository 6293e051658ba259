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
    private let post: @Sendable (DeliveryEvent) -> Void
    /// Reader of the log; nil until the log has begun.
    private var feed: LogFeed?
    private var stage = DeliveryStage.reading
    /// Progress on the current entry.
    private var entry = EntryProgress()
    private var place: ReadingPlace
    private var health = ReadingHealth()
    /// Time in Unix microseconds, taken when the turn began or something was delivered last.
    private var moment: Int64 = 0
    private var schemas = SchemaRegistry()
    var router: ChangeRouter
    public var memberships: LiveMemberships
    /// True if the effects of the current transaction's later parts on memberships have been applied.
    private var isAheadOfParts = false
    private var catalogQuestion = CatalogQuestion()
    /// Tables without listeners here, while PostgreSQL does not show one of their transactions. The loop does not wait
    /// for these: nobody here is judged by a catalog that may be older than their rows.
    public var unheardTables: Set<UInt32> = []
    /// Tables among `unheardTables` that the loop passed without waiting, still to be reported.
    private var passedTables: [HeldTable] = []
    private var generation: GeneratedColumns
    private var questions = PendingBatches()
    private var findings = LogFindings()
    /// Messages to topics in the current entry.
    private var messages = BroadcastGathering()
    private var flaws: FlawLog
    private var tables: TableDelays
    /// Record of which segments of the log are needed, for a catch-up that may have much to read; nil at the log's end.
    var needs: SegmentNeeds?

    /// - Parameters:
    ///   - start: position at which reading begins, which the log must have; nil for the log's end.
    ///   - post: takes the answers to the pipeline's questions, from any thread; the loop hands them to `take`.
    public init(
        _ sources: DeliverySources, _ deflater: Deflater?, from start: EventLogPosition? = nil,
        post: @escaping @Sendable (DeliveryEvent) -> Void
    ) {
        self.sources = sources
        place = ReadingPlace(from: start)
        needs = start == nil ? nil : SegmentNeeds()
        self.post = post
        router = ChangeRouter(
            maximumBodyBytes: sources.maximumBodyBytes, deflater: deflater,
            tellsFormerKeys: !sources.deletesAreStrict, sources.metrics)
        memberships = LiveMemberships(sources.metrics)
        generation = GeneratedColumns(sources.metrics)
        flaws = FlawLog(sources.metrics.messagesSkipped)
        tables = TableDelays(sources.metrics.tables)
    }

    var deletesAreStrict: Bool { sources.deletesAreStrict }

    /// True if the log is open: everything committed from now on will be seen.
    public var isOpen: Bool { feed != nil }

    /// Returns the results since the last report, on which the loop must act after each turn and after each event.
    public mutating func report() -> DeliveryReport {
        defer { findings = LogFindings() }
        return DeliveryReport(
            changedSets: memberships.takeChanged(), unfilledSets: memberships.takeUnfilled(), held: takeHeld(),
            isTiredOfWaiting: hasTiredOfWaiting(),
            contradicted: router.takeContradicted().compactMap { router.policies.entries[$0]?.policy },
            uncomputed: generation.takeMissed(), losses: router.takeLosses(), findings: findings,
            fed: router.takeFed())
    }

    // MARK: Reading

    private var isReading: Bool { if case .reading = stage { true } else { false } }
    /// True if a rule of the hub's own was broken, so that nobody can be served any more.
    public var hasFailed: Bool { if case .failed = stage { true } else { false } }
    /// True if the pipeline waits for a catalog with policies that could be read.
    public var isHeldByPolicies: Bool { if case .heldByPolicies = stage { true } else { false } }

    /// Stops reading until the awaited thing has come. The pipeline waits for only one thing at a time.
    private mutating func wait(_ waiting: DeliveryStage) {
        stage = isReading ? waiting : impossible("an entry waits for one thing at a time")
    }

    /// Returns the stage that ends delivery, because a rule was broken. The hub sends this loop's clients away rather
    /// than tell them something that may be wrong.
    private func impossible(_ rule: StaticString) -> DeliveryStage {
        assertionFailure("\(rule)")
        Impossible.happened(rule, in: .delivery)
        return .failed
    }

    /// True if a catch-up must wait for answers. A catch-up is in no hurry, so its pipeline asks no more than may wait.
    private var isWaitingForAnswers: Bool { place.isOfPast && router.isBurdened }

    /// Reads and delivers for one turn. True if there is more to do at once. Messages to topics that somebody hears are
    /// told at their places among the changes. From `expiry` on, in Unix seconds, nothing more is read, because a
    /// channel's token expires then.
    public mutating func run(
        on sink: any FrameSink, until expiry: Int64,
        hears: (_ topic: RawSpan, _ isPrivate: Bool) -> Bool, tell: (TurnBroadcasts) -> Void
    ) -> Bool {
        guard isReading, !isWaitingForAnswers, !isPausing, var feed = feed.take() else { return false }
        do {
            router.fillPurses(sink.now)
            moment = sources.time.unixMicroseconds()
            let more = try read(&feed, on: sink, TurnBudget(until: expiry, sharing: place.isOfPast), hears, tell)
            if let watcher = sources.watcher { watcher(stage.name, more ? "budget spent" : "nothing to read") }
            self.feed = consume feed
            return more
        } catch {
            failed(error, in: feed.segment)
            // The reader continues at its place once the kernel permits it.
            if case .transient = ReadingTrouble(error) { self.feed = consume feed }
            return false
        }
    }

    private var isPausing: Bool { health.isPausing(at: sources.time.monotonicNanoseconds()) }

    /// Text for the operator while commits do not reach clients because the log cannot be read.
    public var unreadable: String? { health.unreadable }
    /// True if the catch-up must be given up.
    public var hasLostPast: Bool { health.hasLostPast }
    /// Epoch of history that has been read; nil until it is known.
    public var epoch: UInt64? { place.epoch }

    /// Opens the log at its end. If the hub had to wait for the log, opens it at its beginning, because joins have been
    /// answered meanwhile. The hub tells those clients so, since nobody knows what was committed before the log began.
    /// Bindings wait for this call, so it must not wait for bindings.
    public mutating func openIfBegun(ringing bell: Wake) {
        guard !isOpen, !hasFailed, !hasLostPast, !isPausing else { return }
        guard let end = sources.log.end() else { return place.logIsMissing() }
        let state = end.state
        if let segment = place.segmentAwaited(newest: state.segment) { return end.askForSegment(behind: segment) }
        do {
            let opened = try LogFeed(sources.log.open(), end: end, from: place.beginning, ringing: bell)
            findings.gaps += place.opened(at: opened.position, end: end.state.position)
            feed = consume opened
            // Progress on an entry of an earlier feed does not apply to the entries of this feed.
            entry = EntryProgress()
            isAheadOfParts = false
            generation.settle()
            hasRead()
        } catch {
            failed(error, in: state.segment)
            place.isRefused(end: state.position)
        }
    }

    /// Reason that clients are told when the log begins after their joins were answered.
    public static let logHasBegun = "the database is followed from now on"

    /// Epoch of what was read last, or of the position from which the reader begins. A gap behind that position is still
    /// to be read.
    public var epochReached: UInt64? { isOpen ? place.epochReached : place.epoch }

    /// Offset before which every change has been delivered or waits for an answer. No later change has.
    public var frontier: UInt64 { place.frontier(done: entry.done) }

    /// Offset before which all messages to topics have been told. The messages of an entry come before its changes.
    public var messageFrontier: UInt64 { max(frontier, place.gathered) }

    /// True if the pipeline is between entries and nothing keeps it from going on.
    public var isBetweenEntries: Bool { isOpen && isReading && place.entryAt == nil }

    /// True if the log has changes that the pipeline has not looked at yet.
    public var isBehind: Bool { isOpen && sources.log.end().map { place.passed < $0.state.position.offset } ?? false }

    private mutating func read(
        _ feed: inout LogFeed, on sink: any FrameSink, _ budget: TurnBudget,
        _ hears: (RawSpan, Bool) -> Bool, _ tell: (TurnBroadcasts) -> Void
    ) throws -> Bool {
        var budget = budget
        while budget.isLeft(on: sink), budget.isBeforeExpiry(moment / 1_000_000) {
            let entry: EventLogEntry
            switch try next(&feed) {
            case .entry(let next): entry = next
            case .none:
                hasRead()
                return false
            case .passedOver:
                hasRead()
                passOver(to: feed.position, &budget)
                continue
            }
            // Clients are told of the new epoch before what follows.
            if entry.kind != .gap, enters(entry.epoch) { return true }
            if place.entryAt == nil { hasRead() }
            place.begin(entry)
            if schemas.enter(segment: entry.segment) { router.forgetRelations() }
            switch entry.kind {
            case .relation: try schemas.learn(feed.payload)
            case .gap:
                memberships.discardAll()
                router.forgetRows()
                // A client that begins after the gap knows of the gap, which takes no offset.
                if place.beginsBehind(gap: entry) { break }
                findings.gaps.append(try GapCodec.decode(feed.payload).reason.rawValue)
                // Clients are told of the gap before what follows.
                budget.end()
            case .transaction:
                try gatherMessages(feed, entry, &budget, hears)
                if let met = messages.take() { tell(met) }
                guard try deliver(feed, entry, on: sink, &budget) else { return isReading }
                if !entry.isContinued { isAheadOfParts = false }
            case .catalogMark: guard try passes(CatalogMarkCodec.decode(feed.payload)) else { return false }
            default: break
            }
            budget.spend(entry: feed.payload.byteCount)
            assert(isReading, "nothing is passed while something is awaited")
            place.finish(entry)
            feed.finish()
            self.entry = EntryProgress()
            generation.settle()
            // Holders whose memberships just changed are judged again before anything else is read.
            if memberships.hasChanged { return true }
        }
        return true
    }

    /// Returns the next entry, if any. A follower with memberships must see every transaction, of any table.
    private mutating func next(_ feed: inout LogFeed) throws(EventLogError) -> LogFeed.Step {
        guard var wanted = needs, memberships.isEmpty else { return try feed.next() }
        defer { needs = wanted }
        return try feed.next { wanted.isUseless($0) }
    }

    /// Enters the epoch of an entry. Returns true if the gap before the epoch is missing, of which clients are told.
    private mutating func enters(_ epoch: UInt64) -> Bool {
        guard place.enter(epoch) else { return false }
        memberships.discardAll()
        router.forgetRows()
        findings.gaps.append("the event log does not have what lay between any more")
        return true
    }

    /// Passes over a segment, because nothing before the position is for any client.
    private mutating func passOver(to position: EventLogPosition, _ budget: inout TurnBudget) {
        if enters(position.epoch) { budget.end() }
        place.passOver(to: position)
        // Remembered rows may differ by now.
        router.forgetRows()
        sources.metrics.segmentsPassedOver.add()
        budget.spend(entry: Limits.passedSegmentBytes)
    }

    /// Gathers the entry's messages to topics. No policy judges messages here, so they do not wait for the catalog.
    private mutating func gatherMessages(
        _ feed: borrowing LogFeed, _ entry: EventLogEntry, _ budget: inout TurnBudget, _ hears: (RawSpan, Bool) -> Bool
    ) throws {
        guard !self.entry.hasGathered, !schemas.messages.isEmpty else { return }
        self.entry.hasGathered = true
        place.gather(entry)
        var part = try TransactionPart(feed.payload)
        var offset = entry.offset
        while let change = try part.next() {
            defer { offset += 1 }
            guard let layout = schemas.messages.layout(of: change.relation) else { continue }
            if change.isForgotten { findings.hasForgottenMessages = true }
            switch try DatabaseMessage.read(change, layout) {
            case .noInsert: continue
            case .flawed(let flaw): DatabaseMessage.note(flaw, &flaws)
            case .message(let message):
                guard hears(message.topic, message.isPrivate) else { continue }
                budget.spend(deliveries: 1)
                gather(message, at: offset)
            }
        }
    }

    private mutating func gather(_ message: borrowing DatabaseMessage, at offset: UInt64) {
        guard message.isBinary else {
            let broadcast = Broadcast(.json, event: message.event, payload: message.json, id: message.id)
            return messages.add(broadcast, topic: message.topic, isPrivate: message.isPrivate, offset: offset)
        }
        var bytes = ByteWriter(capacity: message.payloadByteCount + 1)
        message.appendBinary(to: &bytes)
        let broadcast = Broadcast(.binary, event: message.event, payload: bytes.bytes, id: message.id)
        messages.add(broadcast, topic: message.topic, isPrivate: message.isPrivate, offset: offset)
    }

    /// Delivers the entry. False if it is not done: the budget is spent, the catalog is missing, or memberships have
    /// changed.
    private mutating func deliver(
        _ feed: borrowing LogFeed, _ entry: EventLogEntry, on sink: any FrameSink,
        _ budget: inout TurnBudget
    ) throws -> Bool {
        router.recall.settle()
        if router.index.count == 0, memberships.isEmpty {
            memberships.pass(try TransactionPart(feed.payload).xid)
            router.forgetRows()
            return true
        }
        guard sources.catalog.isCurrent else { return pause(nil) }
        try beginReading(feed, entry)
        if let xid = try unseen(feed) { return pause(xid) }
        if try hasUnsettledRows(feed) { return holdForPolicies() }
        self.entry.waitingSince = nil
        if !self.entry.hasAppliedMemberships {
            try applyMemberships(feed, entry)
            if memberships.hasChanged { return false }
        }
        guard try compose(feed) else { return false }
        guard case .composed(let composed) = self.entry.composition else {
            return try match(feed.payload, feed, entry, on: sink, &budget)
        }
        return try match(composed.asBytes, feed, entry, on: sink, &budget)
    }

    /// Begins a transaction. Names and labels have the meaning that they had when the transaction was committed.
    private mutating func beginReading(_ feed: borrowing LogFeed, _ entry: EventLogEntry) throws(ByteError) {
        let isOfThisHistory = sources.log.end().map { $0.state.position.epoch == entry.epoch } ?? true
        let lsn = try TransactionPart(feed.payload).commitLSN
        guard schemas.begin(at: lsn, isOfThisHistory: isOfThisHistory) else { return }
        router.forgetRelations()
        router.forgetRows()
        memberships.forgetRelations()
        generation.forgetPlans()
    }

    private mutating func match(
        _ payload: RawSpan, _ feed: borrowing LogFeed, _ entry: EventLogEntry, on sink: any FrameSink,
        _ budget: inout TurnBudget
    ) throws -> Bool {
        let doubted = schemas.doubtedSchemas
        var part = try TransactionPart(payload, doubting: doubted.span)
        precondition(self.entry.done <= part.changeCount, "no more is done than there is")
        for _ in 0..<self.entry.done { _ = try part.next() }
        let info = part.info
        router.begin(info, endingBefore: entry.offset + UInt64(part.changeCount))
        if !router.opinions.isEmpty { try router.confirmContradictions(at: info.commitLSN) }
        var delivered = 0
        defer {
            account(delivered, info.commitTime)
            send(seeing: info.xid)
        }
        while self.entry.done < part.changeCount {
            var ahead = part
            let outcome = try router.match(&part, at: moment)
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
            guard budget.isLeft(on: sink) else { return self.entry.done == part.changeCount }
            if case .unknownRelation(let fingerprint) = outcome, !(try learn(fingerprint)) {
                return pause(info.xid)
            }
        }
        return true
    }

    // MARK: Memberships

    /// Applies an entry's effect on memberships before its rows, because every holder is judged by the memberships as
    /// the whole transaction leaves them.
    private mutating func applyMemberships(_ feed: borrowing LogFeed, _ entry: EventLogEntry) throws {
        self.entry.hasAppliedMemberships = true
        var part = try TransactionPart(feed.payload)
        self.entry.begun = part.info
        guard !isAheadOfParts else { return }
        memberships.pass(part.xid)
        guard !memberships.isEmpty else { return }
        memberships.begin(part.info)
        try apply(&part)
        guard entry.isContinued else { return }
        isAheadOfParts = true
        do {
            try applyLaterParts(feed, of: entry)
        } catch {
            // Only half of the transaction is applied: PostgreSQL fills the sets again, and they are unwound to before
            // it.
            memberships.discardAll()
            (self.entry.hasAppliedMemberships, isAheadOfParts) = (false, false)
            throw error
        }
    }

    @_lifetime(part: copy part)
    private mutating func apply(_ part: inout TransactionPart) throws {
        while let unknown = try memberships.apply(&part, schemas) {
            let relation = try relation(unknown)
            memberships.noteRelation(unknown, relation, foreign: schemas.unsure(relation))
        }
    }

    /// Applies the later parts of a transaction to memberships. The parts are read again afterwards for their rows.
    private mutating func applyLaterParts(_ feed: borrowing LogFeed, of first: EventLogEntry) throws {
        var reader = try feed.reader(at: first)
        while try reader.next() {
            let entry = reader.entry
            if entry.kind == .relation { try schemas.learn(reader.payload) }
            guard entry.kind == .transaction, entry.segment != first.segment || entry.position != first.position else {
                continue
            }
            var part = try TransactionPart(reader.payload)
            try apply(&part)
            if !entry.isContinued { return }
        }
    }

    /// Unwinds sets that PostgreSQL filled with more than the log has come to, once the log has all of it. The sets are
    /// then as they were at the current transaction. Returns the sets that are settled.
    public mutating func settleFills(_ now: UInt64) -> [MembershipSet] {
        defer { measureAtHand() }
        guard memberships.isUnwinding else { return [] }
        let covered = sources.log.covered()
        var isWhole = false
        if memberships.mayUnwind(coveredUpTo: covered), let feed = feed.take() {
            var isRefused = false
            do {
                isWhole = try unwind(feed)
            } catch {
                isRefused = ReadingTrouble(error) == .transient
            }
            self.feed = consume feed
            // The memberships are unwound again after a while, but not forever.
            if isRefused, !memberships.isTiredOfUnwinding(now) { return [] }
        }
        return memberships.unwound(coveredUpTo: covered, now, isLost: !isWhole)
    }

    /// Checks which sets are valid for the current transaction. A set that was filled after the transaction began may
    /// contain newer rows.
    private mutating func measureAtHand() {
        if let info = entry.begun { memberships.begin(info) }
    }

    /// Takes the effects of the log's later transactions out of the sets. False if the log ahead is too long or has a
    /// gap.
    private mutating func unwind(_ feed: borrowing LogFeed) throws -> Bool {
        memberships.beginUnwinding()
        var left = Limits.membershipUnwindBytes
        var isOfAppliedTransaction = isAheadOfParts
        if let entry = feed.atHand {
            if entry.kind == .transaction, !self.entry.hasAppliedMemberships, !isAheadOfParts {
                var part = try TransactionPart(feed.payload)
                try unwind(&part)
            }
            if entry.kind == .transaction, !entry.isContinued { isOfAppliedTransaction = false }
        }
        var reader = feed.ahead()
        while try reader.next() {
            left -= reader.entry.header.byteCount
            guard left > 0, reader.entry.kind != .gap else { return false }
            if reader.entry.kind == .relation { try schemas.learn(reader.payload) }
            guard reader.entry.kind == .transaction else { continue }
            if !isOfAppliedTransaction {
                var part = try TransactionPart(reader.payload)
                try unwind(&part)
            } else if !reader.entry.isContinued {
                isOfAppliedTransaction = false
            }
        }
        return true
    }

    @_lifetime(part: copy part)
    private mutating func unwind(_ part: inout TransactionPart) throws {
        while let unknown = try memberships.unwind(&part, schemas) {
            let relation = try relation(unknown)
            memberships.noteRelation(unknown, relation, foreign: schemas.unsure(relation))
        }
    }

    /// Data that the hub must get before it can deliver the current change.
    private enum Missing {
        case nothing
        /// The row of the change, as the log has it.
        case row
        /// Values of another type than their columns have now.
        case values
    }

    /// Delivers the judged changes, as far as the budget reaches and up to the first one whose row lacks something.
    @_lifetime(part: copy part)
    private mutating func deliverMatched(
        _ part: inout TransactionPart, _ info: TransactionInfo, of whole: EventLogEntry, on sink: any FrameSink,
        _ budget: inout TurnBudget
    ) throws(ByteError) -> (delivered: Int, Missing) {
        var delivered = 0
        for place in 0..<router.matchedChanges {
            guard budget.isLeft(on: sink), let change = try part.next() else { break }
            if change.isForgotten {
                try noteForgotten(change.relation, at: whole.offset + UInt64(entry.done))
                entry.done += 1
                budget.end()
                continue
            }
            if !router.opinions.isEmpty, change.relation != 0 {
                try router.opinions.pass(change, try relation(change.relation))
            }
            if router.policies.sampling.isDue(), change.relation != 0 {
                try router.sample(change, try relation(change.relation))
            }
            var completion: Completion?
            let isWanted = router.hasMatches(at: place)
            if isWanted || router.recall.isConcerned(with: change.relation), change.relation != 0 {
                let missing = try complete(place, change, isWanted: isWanted, &completion)
                guard case .nothing = missing else { return (delivered, missing) }
            }
            if change.operation == .update, change.oldImage != .full, router.leavingRows.count > 0 {
                try noteUnknownDeparture(change, completion, at: whole.offset + UInt64(entry.done))
            }
            if isWanted || completion != nil {
                sources.metrics.changesMatched.add()
                let held = router.heldCount
                let position = EventLogPosition(epoch: whole.epoch, offset: whole.offset + UInt64(entry.done))
                let moment = ChangeRouter.Moment(
                    commitTime: info.commitTime, commitLSN: info.commitLSN, position)
                let count = try router.deliver(
                    place, ReadableChange(change, relation(change.relation)), completion, moment, on: sink)
                delivered += count
                if count > 0 { tables.note(count, of: change.relation, try relation(change.relation)) }
                budget.spend(deliveries: count + router.heldCount - held)
                if isWaitingForAnswers { budget.end() }
            }
            if change.operation == .truncate, case let table = try relation(change.relation).oid,
                schemas.isDeclared(table)
            {
                findings.truncated[table] = whole.offset + UInt64(entry.done)
                // Clients are told of the truncation before what follows.
                budget.end()
            }
            entry.done += 1
        }
        return (delivered, .nothing)
    }

    /// Notes a change whose values were removed from the log. Any listener of the table may miss something, and is told
    /// before what follows.
    private mutating func noteForgotten(_ fingerprint: UInt64, at offset: UInt64) throws(ByteError) {
        // Remembered rows may differ by now.
        router.forgetRows()
        let table = try relation(fingerprint).oid
        if schemas.isDeclared(table) { findings.forgotten[table] = offset }
    }

    /// Notes an update without its whole old row. The table's replica identity may have been another for a while, of
    /// which no client was told.
    private mutating func noteUnknownDeparture(
        _ change: borrowing Change, _ completion: Completion?, at offset: UInt64
    ) throws(ByteError) {
        guard completion?.former == nil, change.relation != 0 else { return }
        let table = try relation(change.relation).oid
        if schemas.promisesWholeRows(table) { router.missDeparture(from: table, at: offset) }
    }

    /// Finds the values that the change's images lack, if some client looks at them.
    private mutating func complete(
        _ place: Int, _ change: borrowing Change, isWanted: Bool, _ completion: inout Completion?
    ) throws(ByteError) -> Missing {
        let foreign = isWanted ? schemas.foreignColumns(change.relation) : nil
        if foreign != nil, entry.converted.map({ entry.done >= $0.end }) ?? true { return .values }
        let isLacking = isWanted ? try router.needsRow(at: place, change) : false
        let isNeeded = isLacking && !isOpenDelete(change)
        let isConcerned = router.recall.isConcerned(with: change.relation)
        if !isLacking, foreign == nil, !isConcerned { return .nothing }
        var known = RowRecall.Known()
        if isNeeded || isConcerned {
            let relation = try relation(change.relation)
            let past = try router.recall.pass(
                change, relation, isWaiting: isWanted, isNeeded: isNeeded && schemas.isRecallable(relation.oid),
                mayAsk: mayAskForRow, isBroken: schemas.isBroken(relation.oid))
            switch past {
            case .untold, .missing: break
            case .row(let found): known = found
            case .unknown: return .row
            }
        }
        let isCompleted = isWanted && (known.whole != nil || isLacking || foreign != nil)
        if !isCompleted, known.former == nil { return .nothing }
        let whole = isCompleted ? try wholeChange(change, known.whole, foreign) : nil
        completion = Completion(whole, former: known.former)
        return .nothing
    }

    /// True if the hub sends this delete to every client that asked for deletes, no matter who could see the row.
    /// Filters are then tried on the delete's own values, and reveal nothing more of the row.
    private func isOpenDelete(_ change: borrowing Change) -> Bool {
        guard change.operation == .delete, !sources.deletesAreStrict else { return false }
        guard let oid = schemas.relation(change.relation)?.oid, let table = sources.catalog.snapshot?.table(oid) else {
            return true
        }
        return table.hasRowSecurity
    }

    private func wholeChange(
        _ change: borrowing Change, _ row: [UInt8]?, _ foreign: ForeignColumns?
    ) throws(ByteError) -> WholeChange {
        let relation = try relation(change.relation)
        guard let foreign else {
            guard let row else { return WholeChange(asIs: change, relation) }
            return WholeChange(change, row: row, relation, change.relation)
        }
        let (old, new) = (entry.converted?.old[entry.done] ?? [:], entry.converted?.new[entry.done] ?? [:])
        let isDelete = change.operation == .delete
        var oldRow: [UInt8] = []
        if let row = change.old { oldRow = try foreign.rewritten(row, old) }
        if let row {
            let row = try foreign.rewritten(row.asTuple, isDelete ? old : new)
            return WholeChange(change, row: row, old: oldRow, foreign.converted, foreign.fingerprint)
        }
        guard let current = change.new else {
            return WholeChange(change, images: oldRow, [], foreign.converted, foreign.fingerprint)
        }
        let newRow = try foreign.rewritten(current, new)
        return WholeChange(change, images: oldRow, newRow, foreign.converted, foreign.fingerprint)
    }

    // MARK: Conversion of values

    /// Asks PostgreSQL for the converted values of the current change, and of later changes in its entry.
    private mutating func convert(_ payload: RawSpan) throws {
        let doubted = schemas.doubtedSchemas
        var part = try TransactionPart(payload, doubting: doubted.span)
        for _ in 0..<entry.done { _ = try part.next() }
        var request = ConversionRequest(from: entry.done)
        while !request.isFull, let change = try part.next() {
            try request.add(change, schemas.foreignColumns(change.relation))
        }
        let ticket = questions.nextTicket()
        wait(.converting(ticket: ticket, request))
        sources.asking.filterEvaluator.convert(request.questions) { [post] values in
            post(.converted(ticket: ticket, values))
        }
    }

    private mutating func converted(_ ticket: UInt64, _ values: [ColumnText]) {
        guard case .converting(ticket, let request) = stage else { return }
        stage = .reading
        entry.converted = request.converted(values)
    }

    // MARK: Earlier rows

    /// True if the log may be asked for the row of the current change. It is asked once for each catalog: another one
    /// may name rows differently, and what was known of them is forgotten.
    private var mayAskForRow: Bool { entry.recalledAt != entry.done || entry.recallEra != router.recall.era }

    /// Asks the log for the row of the current change, and for rows of which later changes have only the keys.
    private mutating func recall(_ feed: borrowing LogFeed, _ entry: EventLogEntry) throws {
        var request = RecallRequest(
            segment: entry.segment, position: entry.position,
            end: entry.position + UInt64(entry.header.byteCount), changes: self.entry.done)
        try collect(feed, into: &request)
        request.reading = schemas.lookback(request.relations.values.map(\.oid))
        self.entry.recalledAt = self.entry.done
        self.entry.recallEra = router.recall.era
        let ticket = questions.nextTicket()
        wait(.recalling(ticket: ticket, request))
        sources.asking.recall.find(request) { [post] answers in post(.recalled(ticket: ticket, answers)) }
    }

    private mutating func collect(_ feed: borrowing LogFeed, into request: inout RecallRequest) throws {
        var part = try TransactionPart(feed.payload)
        for _ in 0..<entry.done { _ = try part.next() }
        let schemas = schemas
        guard try router.recall.collect(&part, into: &request, { schemas.relation($0) }) else { return }
        var left = Limits.recallAheadBytes
        var newer: [UInt64: Relation] = [:]
        var reader = feed.ahead()
        while left > 0, reader.looksAhead() {
            left -= reader.entry.header.byteCount
            switch reader.entry.kind {
            case .gap: return
            case .relation:
                let fingerprint = RelationCodec.fingerprint(of: reader.payload)
                newer[fingerprint] = schemas.read(try RelationCodec.decode(reader.payload), fingerprint).relation
            case .transaction:
                var part = try TransactionPart(reader.payload)
                let known = newer
                guard
                    try router.recall.collect(&part, into: &request, { known[$0] ?? schemas.relation($0) })
                else { return }
            default: break
            }
        }
    }

    private mutating func recalled(_ ticket: UInt64, _ answers: [RecallAnswer]) {
        guard case .recalling(ticket, let request) = stage else { return }
        stage = .reading
        do {
            missUnread(request, answers)
            guard try isComputed(request, answers) else { return }
            remember(request, try composed(answers))
        } catch {
            cannotRecall(request, error)
        }
    }

    /// Remembers the rows, unless another catalog has come since the question: it may name rows differently.
    private mutating func remember(_ request: RecallRequest, _ answers: [RecallAnswer]) {
        if entry.recallEra == router.recall.era { router.recall.fill(request, answers) }
    }

    /// Tells the listeners of tables whose rows the log did not give, because some may miss changes of these rows.
    private mutating func missUnread(_ request: RecallRequest, _ answers: [RecallAnswer]) {
        var tables: Set<UInt32> = []
        for (row, answer) in zip(request.rows, answers) {
            if case .unread = answer { tables.insert(row.id.table) }
        }
        if !tables.isEmpty { router.missChanges(of: tables) }
    }

    /// Marks the rows of the request as missing, because this program cannot read them in the log; the client is told.
    private mutating func cannotRecall(_ request: RecallRequest, _ error: any Error) {
        Log.shared.error("rows that were looked for in the event log do not read", [.reason("\(error)")])
        let answers = request.rows.map { _ in RecallAnswer.unread }
        missUnread(request, answers)
        remember(request, answers)
    }

    // MARK: Generated columns

    mutating func watchGenerated(_ table: UInt32, as role: String) {
        generation.watch(table, as: role)
        forgetComposed()
    }

    mutating func leaveGenerated(_ table: UInt32, as role: String) { generation.leave(table, as: role) }

    /// Has the entry looked through for generated columns again. The number of its changes stays the same.
    private mutating func forgetComposed() {
        entry.composition = .unknown
    }

    /// Snapshot that defines the generated columns; nil if there is nothing to compute, or no login that may do so.
    private var generationSnapshot: CatalogSnapshot? {
        guard generation.isWatching, sources.mayCompute else { return nil }
        return sources.catalog.snapshot
    }

    /// Puts the values of generated columns into the entry. False if the hub must wait for values.
    private mutating func compose(_ feed: borrowing LogFeed) throws -> Bool {
        guard case .unknown = entry.composition, let snapshot = generationSnapshot else { return true }
        let schemas = schemas
        let doubted = schemas.doubtedSchemas
        var part = try TransactionPart(feed.payload, doubting: doubted.span)
        let whole = part
        var batch = GeneratedColumns.Batch()
        if try generation.collect(&part, into: &batch, { schemas.relation($0) }, snapshot) {
            guard batch.isEmpty else {
                try collectAhead(feed, snapshot, into: &batch)
                compute(batch, for: nil)
                return false
            }
            var part = whole
            entry.composition = .composed(try generation.compose(&part, { schemas.relation($0) }, snapshot))
            return true
        }
        entry.composition = .asItIs
        return true
    }

    /// Collects the rows of later entries that need values, up to where definitions may change.
    private mutating func collectAhead(
        _ feed: borrowing LogFeed, _ snapshot: CatalogSnapshot, into batch: inout GeneratedColumns.Batch
    ) throws {
        let schemas = schemas
        var left = Limits.generationAheadBytes
        var newer: [UInt64: Relation] = [:]
        var reader = feed.ahead()
        while left > 0, batch.rowCount < Limits.generationBatchRows, reader.looksAhead() {
            left -= reader.entry.header.byteCount
            switch reader.entry.kind {
            case .gap, .catalogMark: return
            case .relation:
                let fingerprint = RelationCodec.fingerprint(of: reader.payload)
                newer[fingerprint] = schemas.read(try RelationCodec.decode(reader.payload), fingerprint).relation
            case .transaction:
                var part = try TransactionPart(reader.payload)
                let known = newer
                _ = try generation.collect(&part, into: &batch, { known[$0] ?? schemas.relation($0) }, snapshot)
            default: break
            }
        }
    }

    private mutating func compute(_ batch: GeneratedColumns.Batch, for recalled: DeliveryStage.Recalled?) {
        let ticket = questions.nextTicket()
        wait(.computing(ticket: ticket, batch, for: recalled))
        sources.asking.policyEvaluator.compute(generation.requests(batch)) { [post] values in
            post(.computed(ticket: ticket, values))
        }
    }

    private mutating func computed(_ ticket: UInt64, _ values: [[[GeneratedValue]]]) {
        guard case .computing(ticket, let batch, let recalled) = stage else { return }
        stage = .reading
        generation.fill(batch, values)
        guard let recalled else { return }
        do {
            remember(recalled.request, try composed(recalled.answers))
        } catch {
            cannotRecall(recalled.request, error)
        }
    }

    /// False if the hub must wait for generated values of rows that the log was searched for.
    private mutating func isComputed(_ request: RecallRequest, _ answers: [RecallAnswer]) throws(ByteError) -> Bool {
        guard let snapshot = generationSnapshot else { return true }
        var batch = GeneratedColumns.Batch()
        try generation.collect(answers, into: &batch, snapshot)
        if batch.isEmpty { return true }
        compute(batch, for: (request, answers))
        return false
    }

    private mutating func composed(_ answers: [RecallAnswer]) throws(ByteError) -> [RecallAnswer] {
        guard let snapshot = generationSnapshot else { return answers }
        return try generation.composed(answers, snapshot)
    }

    /// False if the catalog must be read again before changes of this schema can be judged.
    private mutating func learn(_ fingerprint: UInt64) throws -> Bool {
        schemas.isReady(fingerprint, try relation(fingerprint), sources.catalog.snapshot, &router)
    }

    private func relation(_ fingerprint: UInt64) throws(ByteError) -> Relation {
        guard let relation = schemas.relation(fingerprint) ?? generation.relation(fingerprint) else {
            throw ByteError(expected: "the schema of each change before it", offset: 0)
        }
        return relation
    }

    private mutating func account(_ delivered: Int, _ commitTime: Int64) {
        guard delivered > 0 else { return }
        count(delivered)
        moment = sources.time.unixMicroseconds()
        let microseconds = max(0, moment - commitTime)
        sources.metrics.commitToSocketSeconds.record(UInt64(microseconds) * 1000)
        tables.tell(after: UInt64(microseconds) * 1000)
    }

    /// Records that the log can be read again: the earlier trouble is over.
    private mutating func hasRead() {
        guard let lasted = health.hasRead(at: sources.time.monotonicNanoseconds()) else { return }
        Log.shared.info("the event log is read again", [.duration(lasted)])
    }

    /// Gives up as little as possible after an error: nothing if the kernel refuses only for now, the deleted part if
    /// retention was faster, or the rest of a damaged segment. The hub tells clients that miss something.
    private mutating func failed(_ error: any Error, in segment: UInt64) {
        sources.watcher?(stage.name, "log error")
        switch ReadingTrouble(error) {
        case .transient: isRefused(error)
        case .past:
            Log.shared.warning("the event log's retention overtook its readers", [.reason("\(error)")])
            lose(.end)
        case .segment(let damaged):
            Log.shared.error(
                "a part of the event log cannot be read", [.segment(damaged ?? segment), .reason("\(error)")])
            if place.isOfPast { return health.losePast() }
            health.loseSegment(LostPlace.segment(segment).reason)
            lose(.segment(max(segment, damaged ?? segment)))
        case .log:
            Log.shared.error("the event log cannot be read", [.reason("\(error)")])
            if place.isOfPast { return health.losePast() }
            isRefused(error)
        }
    }

    private mutating func lose(_ lost: LostPlace) {
        place.lose(lost)
        memberships.discardAll()
        router.forgetRows()
    }

    private mutating func isRefused(_ error: any Error) {
        let now = sources.time.monotonicNanoseconds()
        switch health.isRefused(Self.words(for: error), ofPast: place.isOfPast, at: now) {
        case .first:
            Log.shared.warning("the event log cannot be read for now; it is tried again", [.reason("\(error)")])
        case .again: break
        // A client that catches up must not wait forever.
        case .givenUp:
            Log.shared.error("a part of the event log cannot be read for long", [.reason("\(error)")])
        }
    }

    /// Returns a text without a path, because everyone who can reach the port sees the text.
    private static func words(for error: any Error) -> String {
        let code: Int32? =
            switch error {
            case let error as SystemError: error.code
            case EventLogError.failure(let failure): failure.code
            default: nil
            }
        guard let code else { return "the event log cannot be read" }
        return "the event log cannot be read: \(SystemError(operation: "", subject: "", code: code).reason)"
    }

    // MARK: Waiting for the catalog

    /// True if the entry has rows of tables whose policies could not be read for the moment.
    private func hasUnsettledRows(_ feed: borrowing LogFeed) throws(ByteError) -> Bool {
        try !tables(feed, among: sources.catalog.snapshot?.policies.unsettled ?? []).isEmpty
    }

    /// Returns the current transaction if the catalog must see it first. That is so if policies of one of its tables
    /// may have changed earlier, without a record in the stream. One read of the catalog serves all transactions that
    /// it showed.
    private mutating func unseen(_ feed: borrowing LogFeed) throws(ByteError) -> UInt32? {
        guard !entry.hasCatalog else { return nil }
        let tables = try tables(feed, among: sources.catalog.unannounced)
        guard !tables.isEmpty else { return nil }
        let xid = try TransactionPart(feed.payload).xid
        return hasSeen(xid) || isUnheard(tables, xid) ? nil : xid
    }

    /// True if the tables concern nobody here. Otherwise notes the tables, whose rows then wait.
    private mutating func isUnheard(_ tables: Set<UInt32>, _ xid: UInt32) -> Bool {
        guard tables.isSubset(of: unheardTables) else {
            entry.heldTables = tables
            return false
        }
        passedTables += tables.sorted().map { HeldTable(table: $0, xid: xid) }
        return true
    }

    private mutating func takeHeld() -> [HeldTable] {
        defer { passedTables = [] }
        guard case .awaitingCatalog(let xid?, _) = stage, let since = entry.waitingSince, sources.catalog.isCurrent,
            sources.time.monotonicNanoseconds() - since > Limits.heldTablePatience.wholeNanoseconds,
            // The server may not know a transaction from before a gap.
            place.epoch == sources.log.end()?.state.position.epoch
        else { return passedTables }
        return passedTables + entry.heldTables.sorted().map { HeldTable(table: $0, xid: xid) }
    }

    /// True if the current entry waits for some tables only.
    public var isHeldByTables: Bool { stage.awaitsCatalog && !entry.heldTables.isEmpty }

    /// Continues an entry that waited for tables to which nobody listens here any more.
    public mutating func readOnUnheard() {
        guard isHeldByTables, entry.heldTables.isSubset(of: unheardTables) else { return }
        stage = .reading
        entry.heldTables = []
        entry.waitingSince = nil
    }

    /// Returns the given tables that have rows in the entry.
    private func tables(_ feed: borrowing LogFeed, among tables: Set<UInt32>) throws(ByteError) -> Set<UInt32> {
        if tables.isEmpty { return [] }
        var found: Set<UInt32> = []
        var part = try TransactionPart(feed.payload)
        while found.count < tables.count, let change = try part.next() {
            guard change.relation != 0 else { continue }
            let table = try relation(change.relation).oid
            if tables.contains(table) { found.insert(table) }
        }
        return found
    }

    /// Waits until policies can be read. The catalog is read again by itself until then, and each result is a new
    /// snapshot.
    private mutating func holdForPolicies() -> Bool {
        wait(.heldByPolicies)
        entry.isWaiting(since: sources.time.monotonicNanoseconds())
        sources.metrics.readerPauses.add()
        return false
    }

    /// False if the catalog must be read before anything after the mark is judged. One read serves all loops, and all
    /// marks of transactions that it showed.
    private mutating func passes(_ mark: CatalogMark) -> Bool {
        if entry.hasCatalog || mark.xid != 0 && hasSeen(mark.xid) { return true }
        if mark.xid != 0, mark.table != 0, isUnheard([mark.table], mark.xid) { return true }
        return pause(mark.xid == 0 ? nil : mark.xid)
    }

    /// True if the loop has heard of the newest snapshot, and that snapshot shows the transaction. The order of the
    /// checks matters: news of a snapshot may still be on its way to the loop.
    public func hasSeen(_ xid: UInt32) -> Bool {
        let catalog = sources.catalog
        return catalog.isCurrent && catalog.hasSeen(xid) && catalog.snapshot?.version == catalogQuestion.heardOf
    }

    private mutating func pause(_ xid: UInt32?) -> Bool {
        wait(.awaitingCatalog(seeing: xid, unseen: 0))
        entry.isWaiting(since: sources.time.monotonicNanoseconds())
        sources.metrics.readerPauses.add()
        refresh(seeing: xid)
        return false
    }

    private mutating func refresh(seeing xid: UInt32?) {
        let ticket = catalogQuestion.ask()
        sources.catalog.refresh(seeing: xid) { [post] snapshot in post(.refreshed(ticket: ticket, snapshot != nil)) }
    }

    /// Continues reading if the catalog has answered. Without a snapshot the pipeline stays, and the loop asks again
    /// later.
    private mutating func catalogRefreshed(_ ticket: UInt64, _ isKnown: Bool) {
        guard catalogQuestion.takeAnswer(ticket), isKnown, case .awaitingCatalog = stage else { return }
        stage = .reading
        entry.hasCatalog = true
        entry.waitingSince = nil
    }

    /// True once each time clients have waited for the catalog for as long as they may be made to.
    private mutating func hasTiredOfWaiting() -> Bool {
        let now = sources.time.monotonicNanoseconds()
        guard stage.awaitsCatalog, let since = entry.waitingSince,
            now - since > Limits.maximumCatalogAbsence.wholeNanoseconds
        else {
            return false
        }
        entry.waitingSince = now
        return true
    }

    public mutating func askAgain() {
        guard case .awaitingCatalog(let xid, var unseen) = stage, !catalogQuestion.isUnderWay else { return }
        if sources.catalog.isCurrent { unseen += 1 }
        guard unseen < Limits.maximumVisibilityWaits else {
            // The server does not know a transaction of the log: the server went back in time, or waits for its
            // standby.
            findings.gaps.append("the catalog does not show what was committed")
            stage = .awaitingCatalog(seeing: nil, unseen: 0)
            return refresh(seeing: nil)
        }
        stage = .awaitingCatalog(seeing: xid, unseen: unseen)
        refresh(seeing: xid)
    }

    /// Takes a new snapshot. Tables that differ in it match nothing until they are declared again.
    public mutating func take(_ snapshot: CatalogSnapshot) {
        sources.watcher?(stage.name, "new catalog")
        catalogQuestion.hear(snapshot.version)
        // Converted values have the types of the earlier catalog, and so have those that are under way.
        switch stage {
        case .heldByPolicies, .converting: stage = .reading
        case .reading, .awaitingCatalog, .recalling, .computing, .failed: break
        }
        entry.converted = nil
        generation.forgetPlans()
        forgetComposed()
        schemas.take(snapshot, &router)
        memberships.forgetRelations()
    }

    mutating func declare(_ table: CatalogTable) -> UInt64 { schemas.declare(table, &router) }

    func holds(_ declaration: UInt64, of table: CatalogTable) -> Bool { schemas.holds(declaration, of: table) }

    /// True if a table was replaced since the last call: the caller must then check all bindings.
    public mutating func takeReplacement() -> Bool {
        let (ofTable, ofMembership) = (schemas.takeReplacement(), memberships.takeReplacement())
        return ofTable || ofMembership
    }

    // MARK: Asking PostgreSQL

    private mutating func send(seeing xid: UInt32) {
        guard router.hasQuestions else { return }
        let asked = router.takeQuestions()
        if !asked.ofFilters.isEmpty {
            let ticket = questions.add(ofFilters: asked.ofFilters.map(\.pending))
            sources.asking.filterEvaluator.ask(asked.ofFilters.map(\.question)) { [post] answers in
                post(.judged(ticket: ticket, answers))
            }
        }
        for (ticket, sight) in asked.ofTables {
            sources.asking.policyEvaluator.look(sight, seeing: xid) { [post] seen in post(.looked(ticket: ticket, seen))
            }
        }
        if !asked.ofPolicies.isEmpty {
            let ticket = questions.add(ofPolicies: asked.ofPolicies.map(\.pending))
            let asking = asked.ofPolicies.map { PolicyQuestion($0.policy, rows: [$0.row], claimants: $0.claimants) }
            sources.asking.policyEvaluator.ask(asking, seeing: xid) { [post] answers in
                post(.judgedByPolicy(ticket: ticket, answers))
            }
        }
    }

    /// Takes the answer to a question of the pipeline.
    public mutating func take(_ event: DeliveryEvent, on sink: any FrameSink) {
        sources.watcher?(stage.name, event.name)
        switch event {
        case .refreshed(let ticket, let isKnown): catalogRefreshed(ticket, isKnown)
        case .judged(let ticket, let answers): judged(ticket, answers, on: sink)
        case .judgedByPolicy(let ticket, let answers): judged(ticket, answers, on: sink)
        case .looked(let ticket, let seen): router.opinions.take(ticket, seen)
        case .recalled(let ticket, let answers): recalled(ticket, answers)
        case .computed(let ticket, let values): computed(ticket, values)
        case .converted(let ticket, let values): converted(ticket, values)
        }
    }

    private mutating func judged(_ ticket: UInt64, _ answers: [Bool?], on sink: any FrameSink) {
        guard let pending = questions.takeFilters(ticket) else { return }
        var answers = answers
        if answers.count != pending.count {
            Impossible.happened("each question about a filter has its answer", in: .delivery)
            answers = pending.map { _ in nil }
        }
        var delivered = 0
        for (question, answer) in zip(pending, answers) { delivered += router.settle(question, answer, on: sink) }
        count(delivered)
    }

    private mutating func judged(_ ticket: UInt64, _ answers: [PolicyAnswers], on sink: any FrameSink) {
        guard let pending = questions.takePolicies(ticket) else { return }
        precondition(answers.count == pending.count, "each question about a policy has its answers")
        var delivered = 0
        for (questions, answers) in zip(pending, answers) {
            for (place, question) in questions.enumerated() {
                delivered += router.settle(
                    question, answers[0, place], hasFailed: answers.hasFailed(0, place), on: sink)
            }
        }
        count(delivered)
    }

    private func count(_ delivered: Int) { sources.metrics.deliveries.add(delivered) }
}

/// Limits of one turn of a loop, after which the loop serves its sockets.
struct TurnBudget {
    private var bytes = Limits.turnLogBytes
    private var deliveries = Limits.turnDeliveries
    /// Time at which the first token expires, in Unix seconds.
    private let expiry: Int64

    /// Creates the budget of a turn. A catch-up (`sharing`) leaves most of the time to clients at the log's end.
    init(until expiry: Int64, sharing: Bool) {
        self.expiry = expiry
        guard sharing else { return }
        bytes /= Limits.catchUpShare
        deliveries /= Limits.catchUpShare
    }

    /// True if the tokens of all channels are still valid.
    func isBeforeExpiry(_ now: Int64) -> Bool { now < expiry }

    func isLeft(on sink: any FrameSink) -> Bool {
        bytes > 0 && deliveries > 0 && sink.turnPieceBytes < Limits.turnPieceBytes
            && !sink.hasQueuedEnough
    }

    mutating func spend(entry size: Int) { bytes -= size + 64 }
    mutating func spend(deliveries count: Int) { deliveries -= count + 1 }
    mutating func end() { deliveries = 0 }
}
