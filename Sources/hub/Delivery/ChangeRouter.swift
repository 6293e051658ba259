import Bytes
import Catalog
import Change
import Diagnostics
import EventLog
import Judging
import Matching
import Net
import Policy
import Protocol
import System
import WebSocket

/// Changes in, frames at sockets out: who wants a change, what they may see of it, and in which envelope.
///
/// One loop owns it. A body is written once for all who see the same columns, a frame once for all who also have the same
/// envelope.
struct ChangeRouter: ~Copyable {
    var audience = Audience()
    var views: ViewTable
    /// Who wants a row as a change leaves it, or of a row that goes as it was …
    var index = PredicateIndex(maximumRelations: Limits.maximumCachedRelations, allowance: .ofFilters)
    /// … and who wants to know of rows that updates take out of their view.
    var departures = PredicateIndex(
        judging: .old, maximumRelations: Limits.maximumCachedRelations, allowance: .ofFilters)
    var policies = ActivePolicies()
    /// What rows were whose deletes do not say it.
    var recall: RowRecall
    private var matches = MatchBatch()
    private var recalled = MatchBatch()
    private var departed = MatchBatch()
    private var departedWhole = MatchBatch()
    private var departedFormer = MatchBatch()
    private var desk: FrameWriter
    private var touches = MatchedChannels()
    /// Where deliveries are recorded one by one.
    var sent = SentChanges()
    private var waiting: [UInt32: WaitingQueue] = [:]
    private let total: WaitingTotal
    /// Bodies of the change at hand that somebody waits with, by view.
    private var waitingBodies: [UInt32: WaitingBody] = [:]
    /// Listeners that were told first what rows there were, until the log has come to all that was in that.
    private var snapshots: [UInt32: SeenTransactions] = [:]
    /// Listeners of whom much waits.
    private var burdened: Set<UInt32> = []
    /// Since when too much waits; nil when it does not.
    private var crowdedSince: UInt64?
    /// Deliveries that had to wait, ever.
    private(set) var heldCount = 0
    private var asked = AskedQuestions()
    /// Members that see the change at hand, and for whom it is to be found out whether they saw the row before.
    private var withPast: [UInt32] = []
    /// Members of the node at hand.
    private var nodeMembers: [UInt32] = []
    private var changeNumber: UInt64 = 0

    /// Counts changes that could not be judged for want of a value.
    private let absent: Counter

    init(maximumBodyBytes: Int, deflater: Deflater?, tellsFormerKeys: Bool = false, _ metrics: ProjectMetrics) {
        absent = metrics.drops[.absentValue]
        fedChanges = metrics.feedChanges
        skipped = SkippedListeners(drops: metrics.drops[.tooMuchWork])
        recall = RowRecall(metrics.recalls)
        total = WaitingTotal(metrics.heldBytes)
        opinions = SecondOpinions(metrics.shadowSamples)
        views = ViewTable(tellsFormerKeys: tellsFormerKeys)
        desk = FrameWriter(maximumBodyBytes: maximumBodyBytes, deflater: deflater)
    }

    /// Channels whose waiting deliveries became too many: to be closed.
    private(set) var overfull: [UInt32] = []
    /// Channels that miss something because a question was not answered, or could not even be asked: to be told.
    private(set) var unanswered: Set<UInt32> = []

    /// Feeds that were told of changes since the last time.
    private var fed: Set<UInt32> = []
    private let fedChanges: Counter

    mutating func takeFed() -> [UInt32] {
        defer { fed = [] }
        return fed.isEmpty ? [] : fed.sorted()
    }

    /// What tables were asked about decisions.
    var opinions: SecondOpinions

    /// Changes were not looked at, or may be missing: rows may be others by now than what is remembered of them.
    mutating func forgetRows() {
        recall.forgetAll()
        opinions.forgetAll()
    }

    /// Policies of which PostgreSQL said something else than was decided without it.
    var contradicted: [UInt32] = []

    mutating func takeContradicted() -> [UInt32] {
        defer { contradicted = [] }
        return contradicted
    }

    /// Channels that got an update without values that it left unchanged, because the log does not have them: to be told.
    private var lacking: Set<UInt32> = []

    /// Tables from whose view rows may have gone that nobody knows, and where in the log the last of them did.
    private var unknownDepartures: [UInt32: UInt64] = [:]

    /// Channels that were left out because to try somebody's filter would have taken more than there was for that.
    private var skipped: SkippedListeners

    mutating func takeLosses() -> DeliveryLosses {
        missUnknownDepartures()
        defer {
            lacking = []
            overfull = []
            unanswered = []
        }
        let stopped = Set(index.takeStopped() + departures.takeStopped())
        return DeliveryLosses(
            lacking: lacking.sorted(), overfull: overfull, unanswered: unanswered.sorted(), stopped: stopped.sorted(),
            skipped: skipped.take())
    }

    mutating func fillPurses(_ now: UInt64) {
        index.fillPurse(now)
        departures.fillPurse(now)
    }

    var hasQuestions: Bool { !asked.isEmpty }

    mutating func takeQuestions() -> AskedQuestions {
        defer { asked = AskedQuestions() }
        return asked
    }

    // MARK: Tables

    mutating func declare(table oid: UInt32, columns: [String]) {
        index.declare(table: oid, columns: columns)
        departures.declare(table: oid, columns: columns)
    }

    mutating func forget(table oid: UInt32) {
        index.forget(table: oid)
        departures.forget(table: oid)
    }

    /// Forgets what the columns of stored schemas mean, so that it is read again.
    mutating func forgetRelations() {
        index.forgetRelations()
        departures.forgetRelations()
    }

    mutating func noteRelation(_ fingerprint: UInt64, _ relation: Relation, foreign: Set<Int>) {
        index.noteRelation(fingerprint, relation, foreign: foreign)
        departures.noteRelation(fingerprint, relation, foreign: foreign)
    }

    // MARK: A change

    /// Judges some of the part's next changes.
    @_lifetime(part: copy part)
    mutating func match(
        _ part: inout TransactionPart, at now: Int64
    ) throws(ByteError) -> PredicateIndex.Outcome {
        let moment = PostgresMoment.of(now)
        index.moment = moment
        departures.moment = moment
        if departures.count > 0 {
            var same = part
            _ = try Self.match(&same, by: &departures, into: &departed, audience, &skipped)
        }
        return try Self.match(&part, by: &index, into: &matches, audience, &skipped, leavingPartial: true)
    }

    /// Nothing is matched but by this: whoever is left out for what it would take is noted, to be told.
    @_lifetime(part: copy part)
    private static func match(
        _ part: inout TransactionPart, by index: inout PredicateIndex, into batch: inout MatchBatch,
        _ audience: borrowing Audience, _ skipped: inout SkippedListeners, leavingPartial: Bool = false
    ) throws(ByteError) -> PredicateIndex.Outcome {
        let outcome = try index.match(&part, into: &batch, leavingPartial: leavingPartial)
        if batch.hasSkipped { note(skippedOf: batch, index, audience, in: &skipped) }
        return outcome
    }

    private static func note(
        skippedOf batch: borrowing MatchBatch, _ index: borrowing PredicateIndex, _ audience: borrowing Audience,
        in skipped: inout SkippedListeners
    ) {
        for change in 0..<batch.changeCount {
            for node in 0..<batch.skipped(of: change).count {
                let members = index.members(of: batch.skipped(of: change), at: node)
                for place in members.indices {
                    guard let member = audience.members[members[place]] else { continue }
                    skipped.add(member.listener)
                }
                skipped.drops.add(members.count)
            }
        }
    }

    /// Whether the row has to be known whole before the change is delivered: somebody looks at what its image lacks, or
    /// would get it without values that did not change.
    func needsRow(at place: Int, _ change: borrowing Change) throws(ByteError) -> Bool {
        assert(place < matches.changeCount, "a change is looked at after it was judged")
        if matches.isLeft(place) { return true }
        guard change.operation == .update, change.oldImage != .full, hasMatches(at: place) else { return false }
        guard let new = change.new else { return false }
        return try new.isPartial()
    }

    /// How many changes `match` judged.
    var matchedChanges: Int { matches.changeCount }

    func hasMatches(at place: Int) -> Bool {
        assert(place < matches.changeCount, "a change is looked at after it was judged")
        return matches.isLeft(place) || !matches.certain(of: place).isEmpty || !matches.asking(of: place).isEmpty
            || hasDepartures(at: place)
    }

    private func hasDepartures(at place: Int) -> Bool {
        departures.count > 0 && place < departed.changeCount
            && (!departed.certain(of: place).isEmpty || !departed.asking(of: place).isEmpty)
    }

    struct Moment {
        let commitTime: Int64
        let commitLSN: LSN
        /// The change's place in the log.
        let position: EventLogPosition
        fileprivate(set) var number: UInt64 = 0
        /// An update that says what the row was: not everybody who sees the new row may see the old one.
        fileprivate(set) var hasPast = false

        init(commitTime: Int64, commitLSN: LSN, _ position: EventLogPosition) {
            self.commitTime = commitTime
            self.commitLSN = commitLSN
            self.position = position
        }

        var offset: UInt64 { position.offset }

        /// Where whoever was told of the change stands.
        var behind: EventLogPosition { EventLogPosition(epoch: position.epoch, offset: position.offset + 1) }

        fileprivate func of(_ change: borrowing Change) -> Moment {
            var moment = self
            moment.hasPast = change.operation == .update && change.oldImage != .none
            return moment
        }
    }

    /// Delivers one of the changes that were judged, or what it was completed to; says how many channels got it now.
    mutating func deliver(
        _ place: Int, _ change: borrowing ReadableChange, _ completion: Completion? = nil, _ moment: Moment,
        on loop: SocketLoop
    ) throws(ByteError) -> Int {
        assert(place < matches.changeCount, "a change is delivered after it was judged")
        changeNumber += 1
        desk.begin()
        touches.removeAll()
        if !waitingBodies.isEmpty { waitingBodies = [:] }
        var moment = moment.of(change.change)
        moment.number = changeNumber
        let former = completion?.former
        if let whole = completion?.whole { return try deliver(change, whole, former, moment, on: loop) }
        var delivered = try distribute(place, change, former, moment, on: loop)
        if departures.count > 0 { try addDepartures(of: place, change, former, moment) }
        delivered += try deliverTouched(change, moment, on: loop)
        return delivered
    }

    /// The same for a change that stands by itself. Of a delete nobody gets more than the delete has.
    private mutating func deliver(
        _ change: borrowing ReadableChange, _ whole: WholeChange, _ former: [UInt8]?, _ moment: Moment,
        on loop: SocketLoop
    ) throws(ByteError) -> Int {
        var part = try TransactionPart(whole.part.asBytes)
        try matchWhole(part, whole)
        swap(&matches, &recalled)
        swap(&departed, &departedWhole)
        defer {
            swap(&matches, &recalled)
            swap(&departed, &departedWhole)
        }
        assert(matches.changeCount <= 1, "a completed change stands by itself")
        guard matches.changeCount == 1, let completed = try part.next() else { return 0 }
        let judged = ReadableChange(completed, whole.relation)
        if change.change.operation == .delete {
            let delivered = try distribute(0, judging: judged, change, former: change, moment, on: loop)
            return try delivered + deliverTouched(change, moment, on: loop)
        }
        let moment = moment.of(judged.change)
        if try judged.change.new?.isPartial() == true, change.change.oldImage != .full {
            try noteLacking(judged, moment)
        }
        // A row of the schema that was says nothing in another one.
        let past = whole.fingerprint == change.change.relation ? former : nil
        let delivered = try distribute(0, judged, past, moment, on: loop)
        if departures.count > 0 { try addDepartures(of: 0, judged, past, moment) }
        return try delivered + deliverTouched(judged, moment, on: loop)
    }

    /// Those who are shown a column that is still absent.
    private mutating func noteLacking(_ change: borrowing ReadableChange, _ moment: Moment) throws(ByteError) {
        guard let new = change.change.new else { return }
        var names: [String] = []
        var columns = new.columns()
        for column in change.relation.columns {
            if case .unchanged? = try columns.next() { names.append(column.name) }
        }
        for node in 0..<matches.certain(of: 0).count {
            for place in 0..<index.members(of: matches.certain(of: 0), at: node).count {
                let number = index.members(of: matches.certain(of: 0), at: node)[place]
                guard let member = audience.members[number], audience.wants(moment, member),
                    let key = views.views[member.view]?.key
                else { continue }
                let isShown = names.contains { key.table.slot(named: $0).map(key.delivered.contains) ?? false }
                if isShown { lacking.insert(member.listener) }
            }
        }
    }

    /// What is still absent is asked about.
    private mutating func matchWhole(_ part: TransactionPart, _ whole: WholeChange) throws(ByteError) {
        var same = part
        if case .unknownRelation = try Self.match(&same, by: &index, into: &recalled, audience, &skipped) {
            noteRelation(whole.fingerprint, whole.relation, foreign: [])
            same = part
            _ = try Self.match(&same, by: &index, into: &recalled, audience, &skipped)
        }
        guard departures.count > 0 else { return departedWhole.removeAll() }
        same = part
        _ = try Self.match(&same, by: &departures, into: &departedWhole, audience, &skipped)
    }

    private mutating func distribute(
        _ place: Int, _ change: borrowing ReadableChange, _ past: [UInt8]?, _ moment: Moment, on loop: SocketLoop
    ) throws(ByteError) -> Int {
        guard let past, moment.hasPast else {
            return try distribute(place, judging: change, change, former: change, moment, on: loop)
        }
        let bytes = Self.part(of: change.change, asItWas: past)
        var part = try TransactionPart(bytes.asBytes)
        guard let was = try part.next() else { return 0 }
        let former = ReadableChange(was, change.relation)
        return try distribute(place, judging: change, change, former: former, moment, on: loop)
    }

    /// The change with the whole row that it only names.
    private static func part(of change: borrowing Change, asItWas tuple: [UInt8]) -> [UInt8] {
        let new = if let new = change.new { new.bytes } else { RawSpan() }
        var writer = ByteWriter(capacity: tuple.count + new.byteCount + 128)
        TransactionCodec.begin(
            TransactionInfo(xid: 0, commitLSN: LSN(0), endLSN: LSN(0), commitTime: 0), firstIndex: 0, to: &writer)
        TransactionCodec.append(
            change.operation, relation: change.relation, oldImage: .full, old: tuple.asBytes, new: new, to: &writer)
        TransactionCodec.finish(endLSN: LSN(0), changeCount: 1, in: &writer)
        return writer.copied()
    }

    /// To those who matched; `judged` is what they matched, `change` what they get, and `former` says what the row was.
    private mutating func distribute(
        _ place: Int, judging judged: borrowing ReadableChange, _ change: borrowing ReadableChange,
        former: borrowing ReadableChange, _ moment: Moment, on loop: SocketLoop
    ) throws(ByteError) -> Int {
        var delivered = 0
        withPast.removeAll(keepingCapacity: true)
        for node in 0..<matches.certain(of: place).count {
            delivered += try deliver(to: node, of: place, change, moment, on: loop)
        }
        for number in withPast {
            guard let member = audience.members[number] else { continue }
            let seen = try policies.seen(by: member, former, moment, &index, &views, &asked)
            touches.add(member, seen, &audience.recipients, moment.number)
        }
        for node in 0..<matches.asking(of: place).count {
            try ask(node, of: place, judged, former: former, moment)
        }
        return delivered
    }

    /// Members that are all there is of their channel are served at once; others are collected first. Those who may not see
    /// the old row, perhaps, are left for afterwards.
    private mutating func deliver(
        to node: Int, of place: Int, _ change: borrowing ReadableChange, _ moment: Moment, on loop: SocketLoop
    ) throws(ByteError) -> Int {
        var delivered = 0
        // Neighbours most often get the same frame, which then need not be looked for again.
        var last: (envelope: UInt32, view: UInt32, isCompressed: Bool, frame: FramePieces)?
        Self.copyMembers(of: node, of: place, matches, index, to: &nodeMembers)
        for number in nodeMembers {
            guard let member = audience.members[number] else { continue }
            let recipient = audience.recipients[Int(member.listener)]
            if recipient.since > moment.offset { continue }
            if moment.hasPast, member.policy != Member.noPolicy {
                withPast.append(number)
                continue
            }
            assert(member.policy == Member.noPolicy || !moment.hasPast, "who sees the old row is found out first")
            assert(audience.listeners.contains(member.listener), "a binding is of a channel that is there")
            guard recipient.isServedAtOnce else {
                touches.add(member, Seen(view: member.view), &audience.recipients, moment.number)
                continue
            }
            let envelope = recipient.soleEnvelope ?? audience.envelope(ofSole: member)
            if let last, last.envelope == envelope, last.view == member.view,
                last.isCompressed == recipient.wantsCompression
            {
                FrameWriter.send(last.frame, to: recipient.connection, on: loop)
            } else {
                try desk.write(change, moment, member.view, &views)
                let frame = desk.frame(
                    envelope, member.view, compressed: recipient.wantsCompression, &views, &audience.envelopes,
                    on: loop)
                last = (envelope, member.view, recipient.wantsCompression, frame)
                FrameWriter.send(frame, to: recipient.connection, on: loop)
            }
            sent.add(recipient.seat, moment.offset)
            delivered += 1
        }
        return delivered
    }

    /// Those who certainly matched, out of the index, so that it is not held while they are served.
    private static func copyMembers(
        of node: Int, of place: Int, _ matches: borrowing MatchBatch, _ index: borrowing PredicateIndex,
        to numbers: inout [UInt32]
    ) {
        let members = index.members(of: matches.certain(of: place), at: node)
        numbers.removeAll(keepingCapacity: true)
        // SAFETY: the pointer is used within the call.
        unsafe members.withUnsafeBufferPointer { unsafe numbers.append(contentsOf: $0) }
    }

    // MARK: Asking

    /// The members of a node whose predicate PostgreSQL has to decide.
    private mutating func ask(
        _ node: Int, of place: Int, _ change: borrowing ReadableChange, former: borrowing ReadableChange,
        _ moment: Moment
    ) throws(ByteError) {
        let image: RowTexts.Image = change.change.operation == .delete ? .old : .new
        let asking = matches.asking(of: place)[node]
        var questions = NodeQuestions(
            try index.filterVerdict(of: asking, on: change.change), index.question(of: asking),
            hasFilter: index.hasFilter(asking))
        let count = index.members(of: matches.asking(of: place), at: node).count
        for at in 0..<count {
            let number = index.members(of: matches.asking(of: place), at: node)[at]
            guard let member = audience.members[number], audience.wants(moment, member) else { continue }
            switch try question(&questions, member, change, image, moment) {
            case .nobody: continue
            case .unanswerable: miss(member, change.change)
            case .unknown: unanswered.insert(member.listener)
            case .pending(let pending):
                let seen = try policies.seen(by: member, former, moment, &index, &views, &asked)
                touches.ask(member, seen, pending, &audience.recipients, changeNumber)
            }
        }
    }

    /// What is left to find out about a member.
    private enum Inquiry {
        /// The change is not for it.
        case nobody
        case pending(PendingQuestion)
        /// A value that it depends on is absent: PostgreSQL could not tell either.
        case unanswerable
        /// The answer depends on memberships of that time, which are not known any more.
        case unknown
    }

    /// A change that may have been for the member. Of deletes that do not tell their row its channel was told when it
    /// subscribed.
    private mutating func miss(_ member: Member, _ change: borrowing Change) {
        if change.operation == .delete, change.oldImage == .full || knowsOfPartialRows(member) {
            return absent.add()
        }
        unanswered.insert(member.listener)
    }

    /// The channel was told when it subscribed that changes do not keep whole old rows. Where it was not, the identity was
    /// another for a while.
    private func knowsOfPartialRows(_ member: Member) -> Bool {
        views.views[member.view]?.key.table.identity != .full
    }

    /// A table that keeps whole old rows did not keep this one, and nobody knows it: whoever asked for moves may miss one.
    mutating func missDeparture(from table: UInt32, at offset: UInt64) { unknownDepartures[table] = offset }

    /// Tells everybody who listens to the tables that changes may be missing.
    mutating func missChanges(of tables: Set<UInt32>) {
        for number in audience.members.indices {
            guard let member = audience.members[number], let table = views.views[member.view]?.key.table.oid,
                tables.contains(table)
            else { continue }
            unanswered.insert(member.listener)
        }
    }

    private mutating func missUnknownDepartures() {
        if unknownDepartures.isEmpty { return }
        for number in audience.members.indices {
            guard let member = audience.members[number], let table = views.views[member.view]?.key.table.oid,
                let last = unknownDepartures[table]
            else { continue }
            let recipient = audience.recipients[Int(member.listener)]
            if recipient.wantsMoves, recipient.since <= last { unanswered.insert(member.listener) }
        }
        unknownDepartures = [:]
    }

    /// Asks what a member's predicate left open: its filter, its holder's policy, or both.
    ///
    /// Each is looked at by itself: that both together are open does not say that either of them is.
    private mutating func question(
        _ questions: inout NodeQuestions, _ member: Member, _ change: borrowing ReadableChange,
        _ image: RowTexts.Image, _ moment: Moment
    ) throws(ByteError) -> Inquiry {
        guard questions.verdict == .yes || questions.verdict == .ask else { return .nobody }
        switch try policies.verdict(member, on: change.change, image, &index) {
        case .yes: return try filterQuestion(&questions, change.change, image)
        case .no, .unknown, .notYes, .failed: return .nobody
        case .ask:
            guard !policies.isUnknown(member.policy, at: moment.commitLSN) else { return .unknown }
            return try policyQuestion(&questions, member.policy, change, image)
        }
    }

    /// The same for all of the node whose policies leave nothing open.
    private mutating func filterQuestion(
        _ questions: inout NodeQuestions, _ change: borrowing Change, _ image: RowTexts.Image
    ) throws(ByteError) -> Inquiry {
        if let known = questions.ofFilter { return .pending(known) }
        guard let filter = questions.filter, let question = try judged(filter, change, image) else {
            return .unanswerable
        }
        let pending = PendingQuestion()
        asked.add(pending, question)
        questions.ofFilter = pending
        return .pending(pending)
    }

    private mutating func policyQuestion(
        _ questions: inout NodeQuestions, _ policy: UInt32, _ change: borrowing ReadableChange,
        _ image: RowTexts.Image
    ) throws(ByteError) -> Inquiry {
        assert(policy != Member.noPolicy, "only a policy is asked about")
        if let last = questions.ofPolicy, last.policy == policy { return .pending(last.question) }
        let pending = PendingQuestion(
            parts: questions.verdict == .ask ? 2 : 1, hidesFailures: questions.hasFilter)
        guard try policies.ask(policy, pending, change, image, changeNumber, &asked) else {
            return .unanswerable
        }
        if questions.verdict == .ask {
            if let filter = questions.filter, let question = try judged(filter, change.change, image) {
                asked.add(pending, question)
            } else {
                // Whether there was anything to miss is the policy's to say.
                pending.take(nil)
            }
        }
        questions.ofPolicy = (policy, pending)
        return .pending(pending)
    }

    /// Nil where a value is absent that it asks about.
    private mutating func judged(
        _ filter: Question, _ change: borrowing Change, _ image: RowTexts.Image
    ) throws(ByteError) -> JudgedQuestion? {
        let isPast = image == .old && change.operation != .delete
        return JudgedQuestion(filter, row: try index.texts(of: filter.slots, in: change, image: isPast ? .old : .new))
    }

    // MARK: Rows that move out of view

    private mutating func addDepartures(
        of place: Int, _ change: borrowing ReadableChange, _ former: [UInt8]?, _ moment: Moment
    ) throws(ByteError) {
        assert(departures.count > 0, "there is somebody who wants to hear of rows that leave")
        guard change.change.operation == .update else { return }
        guard let former else {
            if hasDepartures(at: place) { try addDepartures(of: place, change, moment) }
            return
        }
        let bytes = Self.part(of: change.change, asItWas: former)
        var part = try TransactionPart(bytes.asBytes)
        var same = part
        _ = try Self.match(&same, by: &departures, into: &departedFormer, audience, &skipped)
        guard let whole = try part.next() else { return }
        swap(&departed, &departedFormer)
        defer { swap(&departed, &departedFormer) }
        guard hasDepartures(at: 0) else { return }
        try addDepartures(of: 0, ReadableChange(whole, change.relation), moment, isComposed: true)
    }

    /// `isComposed`: the change says what the row was, which the one in the log does not.
    private mutating func addDepartures(
        of place: Int, _ change: borrowing ReadableChange, _ moment: Moment, isComposed: Bool = false
    ) throws(ByteError) {
        for node in 0..<departed.certain(of: place).count {
            let count = departures.members(of: departed.certain(of: place), at: node).count
            for at in 0..<count {
                let number = departures.members(of: departed.certain(of: place), at: node)[at]
                try depart(number, nil, change, moment, isComposed: isComposed)
            }
        }
        for node in 0..<departed.asking(of: place).count {
            let asking = departed.asking(of: place)[node]
            var questions = NodeQuestions(
                try departures.filterVerdict(of: asking, on: change.change), departures.question(of: asking),
                hasFilter: departures.hasFilter(asking))
            let count = departures.members(of: departed.asking(of: place), at: node).count
            for at in 0..<count {
                let number = departures.members(of: departed.asking(of: place), at: node)[at]
                guard let member = audience.members[number] else { continue }
                switch try question(&questions, member, change, .old, moment) {
                case .nobody: continue
                case .pending(let pending):
                    try depart(number, pending, change, moment, isComposed: isComposed)
                // Of moves whoever wants to hear of them needs the whole old row.
                case .unanswerable:
                    if change.change.oldImage == .full || !knowsOfPartialRows(member) { miss(member, change.change) }
                case .unknown: if audience.wants(moment, member) { unanswered.insert(member.listener) }
                }
            }
        }
    }

    private mutating func depart(
        _ number: UInt32, _ pending: PendingQuestion?, _ change: borrowing ReadableChange, _ moment: Moment,
        isComposed: Bool
    ) throws(ByteError) {
        assert(change.change.operation == .update, "rows move by updates")
        guard let member = audience.members[number], audience.wants(moment, member) else { return }
        let view = views.departed(member.view)
        if isComposed { try desk.write(change, moment, view, &views) }
        touches.depart(member, view, pending, &audience.recipients, changeNumber)
    }

    // MARK: Those with several bindings

    private mutating func deliverTouched(
        _ change: borrowing ReadableChange, _ moment: Moment, on loop: SocketLoop
    ) throws(ByteError) -> Int {
        var delivered = 0
        for place in touches.all.indices {
            let touch = touches.all[place]
            guard touch.certain != 0 || !touch.provisos.isEmpty else { continue }
            try desk.write(change, moment, touch.seen.view, &views)
            precondition(
                touch.seen.question == nil || touch.seen.masked != nil,
                "where it is asked whether the old row may be seen there is a view without it")
            guard let recipient = audience.recipient(touch.listener) else { continue }
            let operation = touch.isDeparture ? .delete : change.change.operation
            if recipient.isHeld || !touch.provisos.isEmpty || touch.seen.question != nil {
                if let masked = touch.seen.masked { try desk.write(change, moment, masked, &views) }
                hold(touch, operation, moment)
                continue
            }
            let envelope = envelope(touch.listener, touch.seen.view, touch.certain, operation)
            if recipient.manner != .plain {
                guard let own = positioned(envelope, touch.listener, moment.behind) else { continue }
                delivered += 1
                sent.add(recipient.seat, moment.offset)
                desk.send(touch.seen.view, views, in: own, to: recipient, on: loop)
                continue
            }
            delivered += 1
            sent.add(recipient.seat, moment.offset)
            let frame = desk.frame(
                envelope, touch.seen.view, compressed: recipient.wantsCompression, &views, &audience.envelopes,
                on: loop)
            FrameWriter.send(frame, to: recipient.connection, on: loop)
        }
        return delivered
    }

    /// The envelope as the listener gets it, which stands there now; nil where it has had as many as it may.
    private mutating func positioned(
        _ envelope: UInt32, _ listener: UInt32, _ position: EventLogPosition
    ) -> ChangeEnvelope? {
        let shared = audience.envelopes.envelope(envelope)
        let recipient = audience.recipients[Int(listener)]
        guard recipient.manner != .plain else { return shared }
        if recipient.manner == .feed {
            guard var share = audience.feeds[listener] else { preconditionFailure("a feed has its share") }
            let isFirst = share.told == 0
            guard share.take() else { return nil }
            audience.feeds[listener] = share
            audience.recipients[Int(listener)].toldAt = position.offset
            fed.insert(listener)
            fedChanges.add()
            return shared.record(at: "\(position)", isFirst: isFirst)
        }
        assert(position.offset > recipient.toldAt, "a channel is told of what is ahead of it")
        audience.recipients[Int(listener)].toldAt = position.offset
        let previous = EventLogPosition(epoch: position.epoch, offset: recipient.toldAt)
        return shared.standing(at: "\(position)", behind: "\(previous)")
    }

    private mutating func envelope(
        _ index: UInt32, _ view: UInt32, _ bindings: BindingSet, _ operation: Operation
    ) -> UInt32 {
        let isLegacy = audience.recipient(index)?.isLegacy == true
        let key = Audience.SetKey(view: view, bindings: bindings, legacy: isLegacy ? operation : nil)
        return audience.envelope(of: index, key)
    }

    // MARK: Deliveries that wait

    private mutating func hold(_ touch: Touch, _ operation: Operation, _ moment: Moment) {
        assert(
            audience.recipients[Int(touch.listener)].isHeld || !touch.provisos.isEmpty || touch.seen.question != nil,
            "who waits for nothing is served")
        var queue = waiting.removeValue(forKey: touch.listener) ?? WaitingQueue()
        assert(queue.isEmpty || audience.recipients[Int(touch.listener)].isHeld, "whoever waits is known to")
        var past: (question: PendingQuestion, masked: SeenBody)?
        if let question = touch.seen.question, let masked = touch.seen.masked {
            past = (question, SeenBody(body: waitingBody(masked), view: masked))
            question.listeners.append(touch.listener)
        }
        queue.append(
            WaitingDelivery(
                seen: SeenBody(body: waitingBody(touch.seen.view), view: touch.seen.view), past: past,
                operation: operation, bindings: touch.certain, provisos: touch.provisos, position: moment.behind))
        total.bytes += Limits.waitingDeliveryBytes
        heldCount += 1
        for proviso in touch.provisos { proviso.question.listeners.append(touch.listener) }
        audience.recipients[Int(touch.listener)].isHeld = true
        if queue.bytes > Limits.maximumWaitingDeliveryBytes / 4 { burdened.insert(touch.listener) }
        if queue.bytes > Limits.maximumWaitingDeliveryBytes || total.bytes > Limits.maximumWaitingTotalBytes {
            overfull.append(touch.listener)
        }
        waiting[touch.listener] = queue
    }

    private mutating func waitingBody(_ view: UInt32) -> WaitingBody {
        if let known = waitingBodies[view] { return known }
        let made = WaitingBody(desk.copyOfBody(view, views), total)
        waitingBodies[view] = made
        return made
    }

    /// So much waits for answers that whoever need not keep up with the log should wait for them.
    var isBurdened: Bool { !burdened.isEmpty || total.bytes > Limits.maximumWaitingTotalBytes / 4 }

    /// So much waits that the log should wait too; not for longer than for a while, and not again before most went out.
    mutating func isCrowded(_ now: UInt64) -> Bool {
        if total.bytes <= Limits.maximumWaitingTotalBytes / 4 {
            crowdedSince = nil
            return false
        }
        if crowdedSince == nil, total.bytes > Limits.maximumWaitingTotalBytes / 2 { crowdedSince = now }
        return crowdedSince.map { now - $0 < Limits.crowdPatience.wholeNanoseconds } ?? false
    }

    /// PostgreSQL has answered a part of a question: everything that waited for it goes on.
    ///
    /// - Parameter hasFailed: PostgreSQL failed on the row, as it would for whoever selects it.
    mutating func settle(
        _ pending: PendingQuestion, _ answer: Bool?, hasFailed: Bool = false, on loop: SocketLoop
    ) -> Int {
        if hasFailed { pending.fail() } else { pending.take(answer) }
        if case .none = pending.answer { return 0 }
        var delivered = 0
        for listener in pending.listeners { delivered += release(listener, on: loop) }
        pending.listeners = []
        return delivered
    }

    /// Asks a table, of nobody's delivery.
    mutating func ask(_ sight: TableSight, _ ticket: UInt64) { asked.add(sight, ticket) }

    private mutating func release(_ index: UInt32, on loop: SocketLoop) -> Int {
        guard var queue = waiting.removeValue(forKey: index) else { return 0 }
        var delivered = 0
        while let delivery = queue.popAnswered() {
            total.bytes -= Limits.waitingDeliveryBytes
            assert(total.bytes >= 0, "no more is taken out than was put in")
            if send(delivery, to: index, on: loop) { delivered += 1 }
        }
        if queue.bytes <= Limits.maximumWaitingDeliveryBytes / 4 { burdened.remove(index) }
        if queue.isEmpty {
            audience.recipients[Int(index)].isHeld = false
        } else {
            waiting[index] = queue
        }
        return delivered
    }

    private mutating func send(_ delivery: WaitingDelivery, to index: UInt32, on loop: SocketLoop) -> Bool {
        guard let recipient = audience.recipient(index) else { return false }
        let (bindings, isUncertain) = delivery.outcome()
        if isUncertain { unanswered.insert(index) }
        guard bindings != 0 else { return false }
        assert(bindings & ~delivery.asked == 0, "only bindings that it was for get a delivery")
        let shown = delivery.shown
        let envelope = envelope(index, shown.view, bindings, delivery.operation)
        guard let own = positioned(envelope, index, delivery.position) else { return false }
        desk.send(body: shown.body.bytes, in: own, to: recipient, on: loop)
        // Its position is the one behind the change.
        sent.add(recipient.seat, delivery.position.offset - 1)
        return true
    }

    var holdsAnybody: Bool { !waiting.isEmpty }

    /// Something of it waits for an answer.
    func isHeld(_ listener: UInt32) -> Bool { audience.recipients[Int(listener)].isHeld }

    /// The offset of the first change that waits for it.
    func firstHeld(_ listener: UInt32) -> UInt64? { waiting[listener]?.next.map { $0.position.offset - 1 } }

    /// Whoever waits, nobody waits for what is before it.
    var firstHeld: UInt64? { waiting.values.compactMap { $0.next.map { $0.position.offset - 1 } }.min() }

    /// The position that it was told last.
    func toldAt(_ listener: UInt32) -> UInt64? { audience.recipient(listener)?.toldAt }

    /// Nil of who is no feed.
    func share(_ listener: UInt32) -> FeedShare? { audience.feeds[listener] }

    /// What waits was judged for somebody else; true when there was anything.
    mutating func dropWaiting(_ listener: UInt32) -> Bool {
        guard let queue = waiting.removeValue(forKey: listener) else { return false }
        burdened.remove(listener)
        total.bytes -= queue.count * Limits.waitingDeliveryBytes
        audience.recipients[Int(listener)].isHeld = false
        return true
    }

    /// A channel is gone: nothing waits for it any more.
    // MARK: Those who began with a snapshot

    /// What was seen is not told to the listener once more.
    mutating func leaveOut(_ seen: SeenTransactions, for listener: UInt32) {
        assert(audience.listeners.contains(listener), "who is told less is there")
        snapshots[listener] = seen
    }

    /// A transaction, or a part of one, begins, and ends before that offset: it is not for those who have it already.
    mutating func begin(_ info: TransactionInfo, endingBefore end: UInt64) {
        if snapshots.isEmpty { return }
        for (listener, seen) in snapshots {
            if seen.isBehind(info.commitLSN.rawValue) {
                snapshots[listener] = nil
            } else if seen.contains(info.xid) {
                audience.recipients[Int(listener)].since = max(audience.recipients[Int(listener)].since, end)
            }
        }
    }

    /// What is before it is not for the listener.
    func since(_ listener: UInt32) -> UInt64? { audience.recipient(listener)?.since }

    mutating func forget(_ listener: UInt32) {
        snapshots[listener] = nil
        _ = dropWaiting(listener)
        audience.removeListener(listener)
    }
}

/// Listeners that were left out of a change, and how many bindings were.
private struct SkippedListeners {
    private var listeners: Set<UInt32> = []
    let drops: Counter

    init(drops: Counter) { self.drops = drops }

    mutating func add(_ listener: UInt32) { listeners.insert(listener) }

    mutating func take() -> [UInt32] {
        defer { listeners = [] }
        return listeners.sorted()
    }
}

public enum PostgresMoment {
    /// Microseconds since the beginning of 2000, from which PostgreSQL counts.
    public static func of(_ unixMicroseconds: Int64) -> Int64 { unixMicroseconds - 946_684_800_000_000 }
}

extension Allowance {
    /// What filters that are tried one by one may take of a loop.
    fileprivate static let ofFilters = Allowance(
        ofChange: Limits.filterWorkOfChange, ofAccount: Limits.filterWorkOfConnection, most: Limits.filterWorkReserve,
        perMicrosecond: Limits.filterWorkPerMicrosecond)
}
