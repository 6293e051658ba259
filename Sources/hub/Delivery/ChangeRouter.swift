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

/// Router from changes to frames: decides who gets a change, with which columns and in which envelope.
///
/// One loop owns the router. The router writes a body once for all who see the same columns, and a frame once for all
/// who also have the same envelope.
struct ChangeRouter: ~Copyable {
    var audience = Audience()
    var views: ViewTable
    /// Index of bindings by the row as a change leaves it, or as it was before a delete.
    var index = PredicateIndex(maximumRelations: Limits.maximumCachedRelations, allowance: .ofFilters)
    /// Index of bindings whose clients want to hear of rows that updates take out of their view.
    var leavingRows = PredicateIndex(
        judging: .old, maximumRelations: Limits.maximumCachedRelations, allowance: .ofFilters)
    var policies = ActivePolicies()
    /// Earlier versions of rows that deletes do not contain.
    var recall: RowRecall
    private var found = FoundListeners()
    private var desk: FrameWriter
    private var touches = MatchedChannels()
    /// Record of single deliveries, for channels that have a seat.
    var sent = SentChanges()
    private var waiting: WaitingDeliveries
    /// Transactions in the snapshot with which a listener began, until the log has passed all of them.
    private var snapshots: [UInt32: SeenTransactions] = [:]
    private var asked = AskedQuestions()
    /// Members that see the current change, for which the hub must find out if they may see the old row.
    private var withPast: [UInt32] = []
    /// Members of the current node.
    private var nodeMembers: [UInt32] = []
    private var changeNumber: UInt64 = 0

    /// Counts changes that could not be judged for want of a value.
    private let absent: Counter

    init(maximumBodyBytes: Int, deflater: Deflater?, tellsFormerKeys: Bool = false, _ metrics: ProjectMetrics) {
        absent = metrics.drops[.absentValue]
        fedChanges = metrics.feedChanges
        losses = OpenLosses(drops: metrics.drops[.tooMuchWork])
        recall = RowRecall(metrics.recalls)
        waiting = WaitingDeliveries(metrics.heldBytes)
        opinions = SecondOpinions(metrics.shadowSamples)
        views = ViewTable(tellsFormerKeys: tellsFormerKeys)
        desk = FrameWriter(maximumBodyBytes: maximumBodyBytes, deflater: deflater)
    }

    private var losses: OpenLosses

    /// Feeds that received changes since the last `takeFed`.
    private var fed: Set<UInt32> = []
    private let fedChanges: Counter

    mutating func takeFed() -> [UInt32] {
        defer { fed = [] }
        return fed.isEmpty ? [] : fed.sorted()
    }

    /// Checks of the hub's decisions against the tables themselves.
    var opinions: SecondOpinions

    /// Forgets remembered rows, because changes were skipped or may be missing and the rows may differ by now.
    mutating func forgetRows() {
        recall.forgetAll()
        opinions.forgetAll()
    }

    /// Policies on which PostgreSQL decided differently from the hub.
    var contradicted: [UInt32] = []

    mutating func takeContradicted() -> [UInt32] {
        defer { contradicted = [] }
        return contradicted
    }

    mutating func takeLosses() -> DeliveryLosses {
        missUnknownDepartures()
        return losses.take(stopped: Set(index.takeStopped() + leavingRows.takeStopped()))
    }

    mutating func fillPurses(_ now: UInt64) {
        index.fillPurse(now)
        leavingRows.fillPurse(now)
    }

    var hasQuestions: Bool { !asked.isEmpty }

    mutating func takeQuestions() -> AskedQuestions {
        defer { asked = AskedQuestions() }
        return asked
    }

    // MARK: Tables

    mutating func declare(table oid: UInt32, columns: [String]) {
        index.declare(table: oid, columns: columns)
        leavingRows.declare(table: oid, columns: columns)
    }

    mutating func forget(table oid: UInt32) {
        index.forget(table: oid)
        leavingRows.forget(table: oid)
    }

    /// Forgets the meaning of the columns of stored schemas, so that the hub reads it again.
    mutating func forgetRelations() {
        index.forgetRelations()
        leavingRows.forgetRelations()
    }

    mutating func noteRelation(_ fingerprint: UInt64, _ relation: Relation, foreign: Set<Int>) {
        index.noteRelation(fingerprint, relation, foreign: foreign)
        leavingRows.noteRelation(fingerprint, relation, foreign: foreign)
    }

    // MARK: A change

    /// Judges some of the part's next changes.
    @_lifetime(part: copy part)
    mutating func match(
        _ part: inout TransactionPart, at now: Int64
    ) throws(ByteError) -> PredicateIndex.Outcome {
        let moment = PostgresMoment.of(now)
        index.moment = moment
        leavingRows.moment = moment
        if leavingRows.count > 0 {
            var same = part
            _ = try Self.match(&same, by: &leavingRows, into: &found.departed, audience, &losses.skipped)
        }
        return try Self.match(&part, by: &index, into: &found.matches, audience, &losses.skipped, leavingPartial: true)
    }

    /// Matches changes; all matching goes through this function. Notes listeners that were left out because of the
    /// work, so that the hub can tell them.
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

    /// True if the hub must know the whole row before it delivers the change. Some client looks at a value that the
    /// image lacks, or would get the row without its unchanged values.
    func needsRow(at place: Int, _ change: borrowing Change) throws(ByteError) -> Bool {
        assert(place < found.matches.changeCount, "a change is looked at after it was judged")
        if found.matches.isLeft(place) { return true }
        guard change.operation == .update, change.oldImage != .full, hasMatches(at: place) else { return false }
        guard let new = change.new else { return false }
        return try new.isPartial()
    }

    /// Number of changes that `match` judged.
    var matchedChanges: Int { found.matches.changeCount }

    func hasMatches(at place: Int) -> Bool {
        assert(place < found.matches.changeCount, "a change is looked at after it was judged")
        return found.matches.isLeft(place) || !found.matches.certain(of: place).isEmpty
            || !found.matches.asking(of: place).isEmpty
            || hasDepartures(at: place)
    }

    private func hasDepartures(at place: Int) -> Bool {
        leavingRows.count > 0 && place < found.departed.changeCount
            && (!found.departed.certain(of: place).isEmpty || !found.departed.asking(of: place).isEmpty)
    }

    struct Moment {
        let commitTime: Int64
        let commitLSN: LSN
        /// Position of the change in the log.
        let position: EventLogPosition
        fileprivate(set) var number: UInt64 = 0
        /// True for an update that contains the old row. Not every client that sees the new row may see the old one.
        fileprivate(set) var hasPast = false

        init(commitTime: Int64, commitLSN: LSN, _ position: EventLogPosition) {
            self.commitTime = commitTime
            self.commitLSN = commitLSN
            self.position = position
        }

        var offset: UInt64 { position.offset }

        /// Position of a client that has received the change.
        var behind: EventLogPosition { EventLogPosition(epoch: position.epoch, offset: position.offset + 1) }

        fileprivate func of(_ change: borrowing Change) -> Moment {
            var moment = self
            moment.hasPast = change.operation == .update && change.oldImage != .none
            return moment
        }
    }

    /// Delivers one of the judged changes, or its completion. Returns the number of channels that got it now.
    mutating func deliver(
        _ place: Int, _ change: borrowing ReadableChange, _ completion: Completion? = nil, _ moment: Moment,
        on sink: any FrameSink
    ) throws(ByteError) -> Int {
        assert(place < found.matches.changeCount, "a change is delivered after it was judged")
        changeNumber += 1
        desk.begin()
        touches.removeAll()
        waiting.beginChange()
        var moment = moment.of(change.change)
        moment.number = changeNumber
        let former = completion?.former
        if let whole = completion?.whole { return try deliver(change, whole, former, moment, on: sink) }
        var delivered = try distribute(place, change, former, moment, on: sink)
        if leavingRows.count > 0 { try addDepartures(of: place, change, former, moment) }
        delivered += try deliverTouched(change, moment, on: sink)
        return delivered
    }

    /// Delivers a completed change. For a delete, no client gets more than the delete in the log contains.
    private mutating func deliver(
        _ change: borrowing ReadableChange, _ whole: WholeChange, _ former: [UInt8]?, _ moment: Moment,
        on sink: any FrameSink
    ) throws(ByteError) -> Int {
        var part = try TransactionPart(whole.part.asBytes)
        try matchWhole(part, whole)
        swap(&found.matches, &found.recalled)
        swap(&found.departed, &found.departedWhole)
        defer {
            swap(&found.matches, &found.recalled)
            swap(&found.departed, &found.departedWhole)
        }
        assert(found.matches.changeCount <= 1, "a completed change stands by itself")
        guard found.matches.changeCount == 1, let completed = try part.next() else { return 0 }
        let judged = ReadableChange(completed, whole.relation)
        if change.change.operation == .delete {
            let delivered = try distribute(0, judging: judged, change, former: change, moment, on: sink)
            return try delivered + deliverTouched(change, moment, on: sink)
        }
        let moment = moment.of(judged.change)
        if try judged.change.new?.isPartial() == true, change.change.oldImage != .full {
            try noteLacking(judged, moment)
        }
        // A row in an old schema has no meaning in another one.
        let past = whole.fingerprint == change.change.relation ? former : nil
        let delivered = try distribute(0, judged, past, moment, on: sink)
        if leavingRows.count > 0 { try addDepartures(of: 0, judged, past, moment) }
        return try delivered + deliverTouched(judged, moment, on: sink)
    }

    /// Notes the listeners that see a column whose value is still absent.
    private mutating func noteLacking(_ change: borrowing ReadableChange, _ moment: Moment) throws(ByteError) {
        guard let new = change.change.new else { return }
        var names: [String] = []
        var columns = new.columns()
        for column in change.relation.columns {
            if case .unchanged? = try columns.next() { names.append(column.name) }
        }
        for node in 0..<found.matches.certain(of: 0).count {
            for place in 0..<index.members(of: found.matches.certain(of: 0), at: node).count {
                let number = index.members(of: found.matches.certain(of: 0), at: node)[place]
                guard let member = audience.members[number], audience.wants(moment, member),
                    let key = views.views[member.view]?.key
                else { continue }
                let isShown = names.contains { key.table.slot(named: $0).map(key.delivered.contains) ?? false }
                if isShown { losses.lacking.insert(member.listener) }
            }
        }
    }

    /// Matches a completed change. PostgreSQL is asked about values that are still absent.
    private mutating func matchWhole(_ part: TransactionPart, _ whole: WholeChange) throws(ByteError) {
        var same = part
        if case .unknownRelation = try Self.match(&same, by: &index, into: &found.recalled, audience, &losses.skipped) {
            noteRelation(whole.fingerprint, whole.relation, foreign: [])
            same = part
            _ = try Self.match(&same, by: &index, into: &found.recalled, audience, &losses.skipped)
        }
        guard leavingRows.count > 0 else { return found.departedWhole.removeAll() }
        same = part
        _ = try Self.match(&same, by: &leavingRows, into: &found.departedWhole, audience, &losses.skipped)
    }

    private mutating func distribute(
        _ place: Int, _ change: borrowing ReadableChange, _ past: [UInt8]?, _ moment: Moment, on sink: any FrameSink
    ) throws(ByteError) -> Int {
        guard let past, moment.hasPast else {
            return try distribute(place, judging: change, change, former: change, moment, on: sink)
        }
        let bytes = Self.part(of: change.change, asItWas: past)
        var part = try TransactionPart(bytes.asBytes)
        guard let was = try part.next() else { return 0 }
        let former = ReadableChange(was, change.relation)
        return try distribute(place, judging: change, change, former: former, moment, on: sink)
    }

    /// Returns the change with the whole old row in place of the key.
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

    /// Delivers to the members that matched `judged`. The members get `change`; `former` contains the old row.
    private mutating func distribute(
        _ place: Int, judging judged: borrowing ReadableChange, _ change: borrowing ReadableChange,
        former: borrowing ReadableChange, _ moment: Moment, on sink: any FrameSink
    ) throws(ByteError) -> Int {
        var delivered = 0
        withPast.removeAll(keepingCapacity: true)
        for node in 0..<found.matches.certain(of: place).count {
            delivered += try deliver(to: node, of: place, change, moment, on: sink)
        }
        for number in withPast {
            guard let member = audience.members[number] else { continue }
            let seen = try policies.seen(by: member, former, moment, &index, &views, &asked)
            touches.add(member, seen, &audience.recipients, moment.number)
        }
        for node in 0..<found.matches.asking(of: place).count {
            try ask(node, of: place, judged, former: former, moment)
        }
        return delivered
    }

    /// Serves members that are the only binding of their channel, and collects the others. Members that perhaps may not
    /// see the old row go to `withPast`.
    private mutating func deliver(
        to node: Int, of place: Int, _ change: borrowing ReadableChange, _ moment: Moment, on sink: any FrameSink
    ) throws(ByteError) -> Int {
        var delivered = 0
        // Neighbours most often get the same frame, which then need not be looked up again.
        var last: (envelope: UInt32, view: UInt32, isCompressed: Bool, frame: FramePieces)?
        Self.copyMembers(of: node, of: place, found.matches, index, to: &nodeMembers)
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
                FrameWriter.send(last.frame, to: recipient.connection, on: sink)
            } else {
                try desk.write(change, moment, member.view, &views)
                let frame = desk.frame(
                    envelope, member.view, compressed: recipient.wantsCompression, &views, &audience.envelopes,
                    on: sink)
                last = (envelope, member.view, recipient.wantsCompression, frame)
                FrameWriter.send(frame, to: recipient.connection, on: sink)
            }
            sent.add(recipient.seat, moment.offset)
            delivered += 1
        }
        return delivered
    }

    /// Copies the members that certainly matched out of the index, so that the index is not held while they are served.
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

    /// Asks PostgreSQL for the members of a node whose predicate only PostgreSQL can decide.
    private mutating func ask(
        _ node: Int, of place: Int, _ change: borrowing ReadableChange, former: borrowing ReadableChange,
        _ moment: Moment
    ) throws(ByteError) {
        let image: RowTexts.Image = change.change.operation == .delete ? .old : .new
        let asking = found.matches.asking(of: place)[node]
        var questions = NodeQuestions(
            try index.filterVerdict(of: asking, on: change.change), index.question(of: asking),
            hasFilter: index.hasFilter(asking))
        let count = index.members(of: found.matches.asking(of: place), at: node).count
        for at in 0..<count {
            let number = index.members(of: found.matches.asking(of: place), at: node)[at]
            guard let member = audience.members[number], audience.wants(moment, member) else { continue }
            switch try question(&questions, member, change, image, moment) {
            case .nobody: continue
            case .unanswerable: miss(member, change.change)
            case .unknown: losses.unanswered.insert(member.listener)
            case .pending(let pending):
                let seen = try policies.seen(by: member, former, moment, &index, &views, &asked)
                touches.ask(member, seen, pending, &audience.recipients, changeNumber)
            }
        }
    }

    /// Result of asking about a member.
    private enum Inquiry {
        /// The change is not for the member.
        case nobody
        case pending(PendingQuestion)
        /// A value that the decision depends on is absent: PostgreSQL could not tell either.
        case unanswerable
        /// The answer depends on memberships at that time, which are no longer known.
        case unknown
    }

    /// Notes that the member may miss a change. If a table's deletes do not contain the row, the hub told the client
    /// when it subscribed.
    private mutating func miss(_ member: Member, _ change: borrowing Change) {
        if change.operation == .delete, change.oldImage == .full || knowsOfPartialRows(member) {
            return absent.add()
        }
        losses.unanswered.insert(member.listener)
    }

    /// True if the client was told on subscribing that changes do not keep whole old rows. If not, the table had
    /// another replica identity for a while.
    private func knowsOfPartialRows(_ member: Member) -> Bool {
        views.views[member.view]?.key.table.identity != .full
    }

    /// Notes that an old row is unknown, although the table keeps whole old rows. Clients that asked for moves may miss
    /// one.
    mutating func missDeparture(from table: UInt32, at offset: UInt64) { losses.unknownDepartures[table] = offset }

    /// Notes for every listener of the tables that changes may be missing.
    mutating func missChanges(of tables: Set<UInt32>) {
        for number in audience.members.indices {
            guard let member = audience.members[number], let table = views.views[member.view]?.key.table.oid,
                tables.contains(table)
            else { continue }
            losses.unanswered.insert(member.listener)
        }
    }

    private mutating func missUnknownDepartures() {
        if losses.unknownDepartures.isEmpty { return }
        for number in audience.members.indices {
            guard let member = audience.members[number], let table = views.views[member.view]?.key.table.oid,
                let last = losses.unknownDepartures[table]
            else { continue }
            let recipient = audience.recipients[Int(member.listener)]
            if recipient.wantsMoves, recipient.since <= last { losses.unanswered.insert(member.listener) }
        }
        losses.unknownDepartures = [:]
    }

    /// Asks about the open parts of a member's predicate: its filter, its holder's policy, or both.
    ///
    /// Each part is judged by itself: if both together are open, one of them may still be decided.
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

    /// Returns the question of the filter, shared by all members of the node whose policies leave nothing open.
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
                // Only the policy can say if there was anything to miss.
                pending.take(nil)
            }
        }
        questions.ofPolicy = (policy, pending)
        return .pending(pending)
    }

    /// Returns the filter's question about a row; nil if a value is absent that the question needs.
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
        assert(leavingRows.count > 0, "there is somebody who wants to hear of rows that leave")
        guard change.change.operation == .update else { return }
        guard let former else {
            if hasDepartures(at: place) { try addDepartures(of: place, change, moment) }
            return
        }
        let bytes = Self.part(of: change.change, asItWas: former)
        var part = try TransactionPart(bytes.asBytes)
        var same = part
        _ = try Self.match(&same, by: &leavingRows, into: &found.departedFormer, audience, &losses.skipped)
        guard let whole = try part.next() else { return }
        swap(&found.departed, &found.departedFormer)
        defer { swap(&found.departed, &found.departedFormer) }
        guard hasDepartures(at: 0) else { return }
        try addDepartures(of: 0, ReadableChange(whole, change.relation), moment, isComposed: true)
    }

    /// Adds the leavingRows that a change caused. `isComposed` is true if the old row was added to the change, because
    /// the log does not have it there.
    private mutating func addDepartures(
        of place: Int, _ change: borrowing ReadableChange, _ moment: Moment, isComposed: Bool = false
    ) throws(ByteError) {
        for node in 0..<found.departed.certain(of: place).count {
            let count = leavingRows.members(of: found.departed.certain(of: place), at: node).count
            for at in 0..<count {
                let number = leavingRows.members(of: found.departed.certain(of: place), at: node)[at]
                try depart(number, nil, change, moment, isComposed: isComposed)
            }
        }
        for node in 0..<found.departed.asking(of: place).count {
            let asking = found.departed.asking(of: place)[node]
            var questions = NodeQuestions(
                try leavingRows.filterVerdict(of: asking, on: change.change), leavingRows.question(of: asking),
                hasFilter: leavingRows.hasFilter(asking))
            let count = leavingRows.members(of: found.departed.asking(of: place), at: node).count
            for at in 0..<count {
                let number = leavingRows.members(of: found.departed.asking(of: place), at: node)[at]
                guard let member = audience.members[number] else { continue }
                switch try question(&questions, member, change, .old, moment) {
                case .nobody: continue
                case .pending(let pending):
                    try depart(number, pending, change, moment, isComposed: isComposed)
                // A client that wants to hear of moves needs the whole old row.
                case .unanswerable:
                    if change.change.oldImage == .full || !knowsOfPartialRows(member) { miss(member, change.change) }
                case .unknown: if audience.wants(moment, member) { losses.unanswered.insert(member.listener) }
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

    // MARK: Channels with several bindings

    private mutating func deliverTouched(
        _ change: borrowing ReadableChange, _ moment: Moment, on sink: any FrameSink
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
                desk.send(touch.seen.view, views, in: own, to: recipient, on: sink)
                continue
            }
            delivered += 1
            sent.add(recipient.seat, moment.offset)
            let frame = desk.frame(
                envelope, touch.seen.view, compressed: recipient.wantsCompression, &views, &audience.envelopes,
                on: sink)
            FrameWriter.send(frame, to: recipient.connection, on: sink)
        }
        return delivered
    }

    /// Moves the listener to the position and returns its envelope; nil if the feed has had as many changes as it may.
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

    private mutating func hold(_ touch: MatchedChannel, _ operation: Operation, _ moment: Moment) {
        assert(
            audience.recipients[Int(touch.listener)].isHeld || !touch.provisos.isEmpty || touch.seen.question != nil,
            "who waits for nothing is served")
        assert(
            waiting.first(of: touch.listener) == nil || audience.recipients[Int(touch.listener)].isHeld,
            "whoever waits is known to")
        var past: (question: PendingQuestion, masked: SeenBody)?
        if let question = touch.seen.question, let masked = touch.seen.masked {
            past = (question, SeenBody(body: waitingBody(masked), view: masked))
            question.listeners.append(touch.listener)
        }
        let delivery = WaitingDelivery(
            seen: SeenBody(body: waitingBody(touch.seen.view), view: touch.seen.view), past: past,
            operation: operation, bindings: touch.certain, provisos: touch.provisos, position: moment.behind)
        for proviso in touch.provisos { proviso.question.listeners.append(touch.listener) }
        audience.recipients[Int(touch.listener)].isHeld = true
        if !waiting.add(delivery, for: touch.listener) { losses.overfull.append(touch.listener) }
    }

    private mutating func waitingBody(_ view: UInt32) -> WaitingBody {
        waiting.body(view) { desk.copyOfBody(view, views) }
    }

    /// True if so much waits for answers that a follower which need not keep up with the log should wait.
    var isBurdened: Bool { waiting.isBurdened }

    /// True if so much waits that reading the log should wait too, for a limited time.
    mutating func isCrowded(_ now: UInt64) -> Bool { waiting.isCrowded(now) }

    /// Number of deliveries that ever had to wait.
    var heldCount: Int { waiting.everHeld }

    /// Takes PostgreSQL's answer to a part of a question. Everything that waited for it goes on.
    ///
    /// - Parameter hasFailed: PostgreSQL failed on the row, as it would for any client that selects it.
    mutating func settle(
        _ pending: PendingQuestion, _ answer: Bool?, hasFailed: Bool = false, on sink: any FrameSink
    ) -> Int {
        if hasFailed { pending.fail() } else { pending.take(answer) }
        if case .none = pending.answer { return 0 }
        var delivered = 0
        for listener in pending.listeners { delivered += release(listener, on: sink) }
        pending.listeners = []
        return delivered
    }

    /// Queues a question to a table, on which no delivery waits.
    mutating func ask(_ sight: TableSight, _ ticket: UInt64) { asked.add(sight, ticket) }

    private mutating func release(_ index: UInt32, on sink: any FrameSink) -> Int {
        var delivered = 0
        while let delivery = waiting.takeAnswered(index) {
            if send(delivery, to: index, on: sink) { delivered += 1 }
        }
        if waiting.settle(index) { audience.recipients[Int(index)].isHeld = false }
        return delivered
    }

    private mutating func send(_ delivery: WaitingDelivery, to index: UInt32, on sink: any FrameSink) -> Bool {
        guard let recipient = audience.recipient(index) else { return false }
        let (bindings, isUncertain) = delivery.outcome()
        if isUncertain { losses.unanswered.insert(index) }
        guard bindings != 0 else { return false }
        assert(bindings & ~delivery.asked == 0, "only bindings that it was for get a delivery")
        let shown = delivery.shown
        let envelope = envelope(index, shown.view, bindings, delivery.operation)
        guard let own = positioned(envelope, index, delivery.position) else { return false }
        desk.send(body: shown.body.bytes, in: own, to: recipient, on: sink)
        // The delivery's position is the one after the change.
        sent.add(recipient.seat, delivery.position.offset - 1)
        return true
    }

    var holdsAnybody: Bool { !waiting.isEmpty }

    /// True if a delivery to the listener waits for an answer.
    func isHeld(_ listener: UInt32) -> Bool { audience.recipients[Int(listener)].isHeld }

    /// Returns the offset of the first change that waits for the listener; nil if none does.
    func firstHeld(_ listener: UInt32) -> UInt64? { waiting.first(of: listener) }

    /// Offset of the first change that waits for any listener; nil if none does.
    var firstHeld: UInt64? { waiting.first }

    /// Returns the position that the hub last told the listener's client.
    func toldAt(_ listener: UInt32) -> UInt64? { audience.recipient(listener)?.toldAt }

    /// Returns the quota of a feed; nil if the listener is not a feed.
    func share(_ listener: UInt32) -> FeedShare? { audience.feeds[listener] }

    /// Drops the listener's waiting deliveries, which were judged for another holder. True if there were any.
    mutating func dropWaiting(_ listener: UInt32) -> Bool {
        guard waiting.drop(listener) else { return false }
        audience.recipients[Int(listener)].isHeld = false
        return true
    }

    // MARK: Listeners that began with a snapshot

    /// Skips the transactions in `seen` for the listener, which already has them.
    mutating func leaveOut(_ seen: SeenTransactions, for listener: UInt32) {
        assert(audience.listeners.contains(listener), "who is told less is there")
        snapshots[listener] = seen
    }

    /// Begins a transaction or a part of one, which ends before offset `end`. Listeners that already have the
    /// transaction skip it.
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

    /// Returns the offset from which changes are for the listener.
    func since(_ listener: UInt32) -> UInt64? { audience.recipient(listener)?.since }

    mutating func forget(_ listener: UInt32) {
        assert(!losses.concern(listener), "who leaves has been told of what could not be delivered")
        snapshots[listener] = nil
        _ = dropWaiting(listener)
        audience.removeListener(listener)
    }
}

/// Listeners found for the changes of a part, in lists that serve one change after the other.
private struct FoundListeners: ~Copyable {
    /// Listeners whose bindings match a change.
    var matches = MatchBatch()
    /// The same, by the whole row that the log had.
    var recalled = MatchBatch()
    /// Listeners that want to hear of rows that leave their view.
    var departed = MatchBatch()
    /// The same, by the whole row.
    var departedWhole = MatchBatch()
    /// The same, by the row as it was before.
    var departedFormer = MatchBatch()
}

extension Allowance {
    /// Work allowance of a loop for filters that are tried one by one.
    fileprivate static let ofFilters = Allowance(
        ofChange: Limits.filterWorkOfChange, ofAccount: Limits.filterWorkOfConnection, most: Limits.filterWorkReserve,
        perMicrosecond: Limits.filterWorkPerMicrosecond)
}
