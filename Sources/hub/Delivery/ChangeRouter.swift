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
/// One loop owns the router. The router writes a change's body once for each set of visible columns, and a frame once
/// for each combination of body and envelope.
public struct ChangeRouter: ~Copyable {
    var bindings: PlacedBindings
    /// Remembered rows, and the search for rows of which changes contain only a part.
    var recall: RowRecall
    /// Comparisons of the hub's policy decisions with what PostgreSQL shows.
    var opinions: SecondOpinions
    var losses: OpenLosses
    private var matches = ChangeMatches()
    private var writer: FrameWriter
    private var touches = MatchedChannels()
    /// Record of each delivery to channels that have a seat: an index in that record.
    private var sent = SentChanges()
    private var feeds: FeedShares
    private var waiting: WaitingDeliveries
    private var snapshots = SnapshotExclusions()
    private var asked = AskedQuestions()
    private var changeNumber: UInt64 = 0

    init(
        maximumBodyBytes: Int, deflater: Deflater?, deletesAreStrict: Bool = true, skipsSegments: Bool = false,
        _ metrics: ProjectMetrics
    ) {
        bindings = PlacedBindings(deletesAreStrict: deletesAreStrict, skipsSegments: skipsSegments)
        recall = RowRecall(metrics.recalls)
        opinions = SecondOpinions(metrics.shadowSamples)
        losses = OpenLosses(metrics.drops)
        writer = FrameWriter(maximumBodyBytes: maximumBodyBytes, deflater: deflater)
        feeds = FeedShares(metrics.feedChanges)
        waiting = WaitingDeliveries(metrics.heldBytes)
    }

    /// Forgets remembered rows, because the router did not see some changes, so the rows may be out of date.
    mutating func forgetRows() {
        recall.forgetAll()
        opinions.forgetAll()
    }

    /// Removes and returns the policies on which PostgreSQL's decision differed from the hub's.
    mutating func takeContradicted() -> [PolicyBinding] {
        opinions.takeConfirmed().compactMap { bindings.policies.entries[$0]?.policy }
    }

    /// Asks PostgreSQL if a holder sees the row of the change, to check the hub's own decision.
    mutating func sample(_ change: borrowing Change, _ relation: Relation) throws(ByteError) {
        try opinions.sample(change, relation, &bindings, &asked)
    }

    /// Confirms that PostgreSQL contradicts the hub, if no later change up to this WAL position explains the
    /// difference.
    mutating func confirmContradictions(at position: LSN) throws(ByteError) {
        try opinions.confirm(at: position, &bindings)
    }

    /// Records a loss for the listeners of tables whose rows could not be read from the log.
    mutating func missUnread(_ request: RecallRequest, _ answers: [RecallAnswer]) {
        losses.missUnread(request, answers, bindings)
    }

    /// Removes and returns the listeners of feeds that received changes.
    mutating func takeFed() -> [UInt32] { feeds.takeFed() }

    mutating func takeLosses() -> DeliveryLosses { losses.take(&bindings) }

    var hasQuestions: Bool { !asked.isEmpty }

    mutating func takeQuestions() -> AskedQuestions {
        defer { asked = AskedQuestions() }
        return asked
    }

    // MARK: A change

    /// Matches the next group of the part's changes with bindings. `now` and the time of the commit are in
    /// Unix microseconds.
    @_lifetime(part: copy part)
    mutating func match(
        _ part: inout TransactionPart, at now: Int64, committed: Int64
    ) throws(ByteError) -> PredicateIndex.Outcome {
        bindings.beginMoment(now, committed: committed)
        return try matches.match(&part, &bindings, &losses.skipped)
    }

    /// True if the hub needs the whole row to deliver the change. Some client's filter reads a value that the image
    /// lacks, or some client would receive the row without its unchanged values.
    func needsRow(at place: Int, _ change: borrowing Change) throws(ByteError) -> Bool {
        if matches.isLeft(place) { return true }
        guard change.operation == .update, change.oldImage != .full, hasMatches(at: place) else { return false }
        guard let new = change.new else { return false }
        return try new.isPartial()
    }

    /// Number of changes in the group that the last call of `match` evaluated.
    var matchedChanges: Int { matches.count }

    func hasMatches(at place: Int) -> Bool { matches.hasMatches(at: place) || hasDepartures(at: place) }

    private func hasDepartures(at place: Int) -> Bool { bindings.wantDepartures && matches.hasDepartures(at: place) }

    /// Delivers one change of the group, completed if `completion` is given. Returns the number of channels that
    /// received it now.
    mutating func deliver(
        _ place: Int, _ change: borrowing ReadableChange, _ completion: Completion? = nil, _ moment: ChangeMoment,
        on sink: any FrameSink
    ) throws(ByteError) -> Int {
        assert(place < matches.count, "a change is delivered after it was judged")
        changeNumber += 1
        writer.begin()
        touches.removeAll()
        waiting.beginChange()
        let moment = moment.of(change.change, number: changeNumber)
        let former = completion?.former
        if let whole = completion?.whole { return try deliver(change, whole, former, moment, on: sink) }
        var delivered = try distribute(place, change, former, moment, on: sink)
        if bindings.wantDepartures { try addDepartures(of: place, change, former, moment) }
        delivered += try deliverMatches(change, moment, on: sink)
        return delivered
    }

    /// Delivers a completed change. For a delete, clients receive only the values that the delete in the log contains.
    private mutating func deliver(
        _ change: borrowing ReadableChange, _ whole: WholeChange, _ former: [UInt8]?, _ moment: ChangeMoment,
        on sink: any FrameSink
    ) throws(ByteError) -> Int {
        // An old row of another schema cannot be compared with this one.
        let past = whole.fingerprint == change.change.relation ? former : nil
        var evaluated: WholeChange?
        if bindings.oldRowReaders > 0, let past { evaluated = try whole.evaluated(withOldRow: past) }
        try matches.match(evaluated ?? whole, &bindings, &losses.skipped)
        matches.swapWhole()
        defer { matches.swapWhole() }
        var part = try TransactionPart(whole.part.asBytes)
        assert(matches.count <= 1, "a completed change stands by itself")
        guard matches.count == 1, let completed = try part.next() else { return 0 }
        let judged = ReadableChange(completed, whole.relation)
        if change.change.operation == .delete {
            let delivered = try distribute(0, judging: judged, change, former: change, moment, on: sink)
            return try delivered + deliverMatches(change, moment, on: sink)
        }
        let moment = moment.of(judged.change, number: changeNumber)
        if try judged.change.new?.isPartial() == true, change.change.oldImage != .full {
            try noteLacking(judged, moment)
        }
        let delivered = try distribute(0, judged, past, moment, evaluated, on: sink)
        if bindings.wantDepartures { try addDepartures(of: 0, judged, past, moment) }
        return try delivered + deliverMatches(judged, moment, on: sink)
    }

    /// Records a loss for the listeners that see a column whose value is still absent.
    private mutating func noteLacking(_ change: borrowing ReadableChange, _ moment: ChangeMoment) throws(ByteError) {
        guard let new = change.change.new else { return }
        var names: [String] = []
        var columns = new.columns()
        for column in change.relation.columns {
            if case .unchanged? = try columns.next() { names.append(column.name) }
        }
        for node in 0..<matches.found.certain(of: 0).count {
            for place in 0..<bindings.index.members(of: matches.found.certain(of: 0), at: node).count {
                let number = bindings.index.members(of: matches.found.certain(of: 0), at: node)[place]
                guard let member = bindings.audience.members[number], bindings.audience.wants(moment, member),
                    let key = bindings.views.views[member.view]?.key
                else { continue }
                let isShown = names.contains { key.table.slot(named: $0).map(key.delivered.contains) ?? false }
                if isShown { losses.noteLacking(member.listener) }
            }
        }
    }

    /// Delivers to the members that match. `evaluated` is the form of the change on which filters were evaluated, if it
    /// is another one than the change that clients receive.
    private mutating func distribute(
        _ place: Int, _ change: borrowing ReadableChange, _ past: [UInt8]?, _ moment: ChangeMoment,
        _ evaluated: WholeChange? = nil, on sink: any FrameSink
    ) throws(ByteError) -> Int {
        guard let past, moment.hasPast || evaluated != nil else {
            return try distribute(place, judging: change, change, former: change, moment, on: sink)
        }
        let bytes = if let evaluated { evaluated.part } else { Self.part(of: change.change, asItWas: past) }
        var part = try TransactionPart(bytes.asBytes)
        guard let was = try part.next() else { return 0 }
        let former = ReadableChange(was, change.relation)
        guard evaluated != nil else {
            return try distribute(place, judging: change, change, former: former, moment, on: sink)
        }
        return try distribute(place, judging: former, change, former: former, moment, on: sink)
    }

    /// Returns a part with the change, in which the whole old row replaces the key.
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

    /// Delivers to the members that match `judged`. The members receive `change`; `former` contains the old row.
    private mutating func distribute(
        _ place: Int, judging judged: borrowing ReadableChange, _ change: borrowing ReadableChange,
        former: borrowing ReadableChange, _ moment: ChangeMoment, on sink: any FrameSink
    ) throws(ByteError) -> Int {
        var delivered = 0
        matches.beginMembers()
        for node in 0..<matches.found.certain(of: place).count {
            delivered += try deliver(to: node, of: place, change, moment, on: sink)
        }
        for number in matches.withPast {
            guard let member = bindings.audience.members[number] else { continue }
            let seen = try bindings.policies.seen(by: member, former, moment, &bindings.index, &bindings.views, &asked)
            touches.add(member, seen, &bindings.audience.recipients, moment.number)
        }
        for node in 0..<matches.found.asking(of: place).count {
            try ask(node, of: place, judged, former: former, moment)
        }
        return delivered
    }

    /// Sends to members that are the only binding of their channel, and collects the others. Adds to `withPast` the
    /// members that may not be allowed to see the old row.
    private mutating func deliver(
        to node: Int, of place: Int, _ change: borrowing ReadableChange, _ moment: ChangeMoment, on sink: any FrameSink
    ) throws(ByteError) -> Int {
        var delivered = 0
        // Members next to each other mostly get the same frame, so the last one is kept.
        var last: (envelope: UInt32, view: UInt32, isCompressed: Bool, frame: FramePieces)?
        matches.copyMembers(of: node, of: place, bindings.index)
        for number in matches.nodeMembers {
            guard let member = bindings.audience.members[number] else { continue }
            let recipient = bindings.audience.recipients[Int(member.listener)]
            if !recipient.wants(moment.offset, member) { continue }
            if moment.hasPast, member.policy != Member.noPolicy {
                matches.add(withPast: number)
                continue
            }
            assert(member.policy == Member.noPolicy || !moment.hasPast, "who sees the old row is found out first")
            assert(bindings.audience.listeners.contains(member.listener), "a binding is of a channel that is there")
            guard recipient.isServedAtOnce else {
                touches.add(member, Seen(view: member.view), &bindings.audience.recipients, moment.number)
                continue
            }
            let envelope = recipient.soleEnvelope ?? bindings.audience.envelope(ofSole: member)
            if let last, last.envelope == envelope, last.view == member.view,
                last.isCompressed == recipient.wantsCompression
            {
                FrameWriter.send(last.frame, to: recipient.connection, on: sink)
            } else {
                try writer.write(change, moment, member.view, &bindings.views)
                let frame = writer.frame(
                    envelope, member.view, compressed: recipient.wantsCompression, &bindings.views,
                    &bindings.audience.envelopes,
                    on: sink)
                last = (envelope, member.view, recipient.wantsCompression, frame)
                FrameWriter.send(frame, to: recipient.connection, on: sink)
            }
            sent.add(recipient.seat, moment.offset)
            delivered += 1
        }
        return delivered
    }

    // MARK: Asking

    /// Asks PostgreSQL about the members of a node whose predicate the hub cannot decide.
    private mutating func ask(
        _ node: Int, of place: Int, _ change: borrowing ReadableChange, former: borrowing ReadableChange,
        _ moment: ChangeMoment
    ) throws(ByteError) {
        let image: RowTexts.Image = change.change.operation == .delete ? .old : .new
        let asking = matches.found.asking(of: place)[node]
        var questions = try NodeQuestions(asking, on: change.change, &bindings.index)
        let count = bindings.index.members(of: matches.found.asking(of: place), at: node).count
        for at in 0..<count {
            let number = bindings.index.members(of: matches.found.asking(of: place), at: node)[at]
            guard let member = bindings.audience.members[number], bindings.audience.wants(moment, member) else {
                continue
            }
            switch try bindings.ask(&questions, member, change, image, moment, &asked) {
            case .nobody: continue
            case .unanswerable: losses.miss(member, change.change, bindings)
            case .unknown: losses.noteUnanswered(member.listener)
            case .pending(let pending):
                let seen = try bindings.policies.seen(
                    by: member, former, moment, &bindings.index, &bindings.views, &asked)
                touches.ask(member, seen, pending, &bindings.audience.recipients, changeNumber)
            }
        }
    }

    // MARK: Rows that move out of view

    private mutating func addDepartures(
        of place: Int, _ change: borrowing ReadableChange, _ former: [UInt8]?, _ moment: ChangeMoment
    ) throws(ByteError) {
        assert(bindings.wantDepartures, "there is somebody who wants to hear of rows that leave")
        guard change.change.operation == .update else { return }
        guard let former else {
            if hasDepartures(at: place) { try addDepartures(of: place, change, moment) }
            return
        }
        let bytes = Self.part(of: change.change, asItWas: former)
        var part = try TransactionPart(bytes.asBytes)
        var same = part
        try matches.matchFormer(&same, &bindings, &losses.skipped)
        guard let whole = try part.next() else { return }
        matches.swapOldRowMatches()
        defer { matches.swapOldRowMatches() }
        guard hasDepartures(at: 0) else { return }
        try addDepartures(of: 0, ReadableChange(whole, change.relation), moment, isComposed: true)
    }

    /// Adds the departures that a change caused: rows that leave a view. `isComposed` is true if the hub added the old
    /// row to the change, because the log has only its key or nothing of it.
    private mutating func addDepartures(
        of place: Int, _ change: borrowing ReadableChange, _ moment: ChangeMoment, isComposed: Bool = false
    ) throws(ByteError) {
        for node in 0..<matches.departed.certain(of: place).count {
            let count = bindings.leavingRows.members(of: matches.departed.certain(of: place), at: node).count
            for at in 0..<count {
                let number = bindings.leavingRows.members(of: matches.departed.certain(of: place), at: node)[at]
                try depart(number, nil, change, moment, isComposed: isComposed)
            }
        }
        for node in 0..<matches.departed.asking(of: place).count {
            let asking = matches.departed.asking(of: place)[node]
            var questions = try NodeQuestions(asking, on: change.change, &bindings.leavingRows)
            let count = bindings.leavingRows.members(of: matches.departed.asking(of: place), at: node).count
            for at in 0..<count {
                let number = bindings.leavingRows.members(of: matches.departed.asking(of: place), at: node)[at]
                guard let member = bindings.audience.members[number] else { continue }
                switch try bindings.ask(&questions, member, change, .old, moment, &asked) {
                case .nobody: continue
                case .pending(let pending):
                    try depart(number, pending, change, moment, isComposed: isComposed)
                // A client that asked for departures needs the whole old row.
                case .unanswerable:
                    if change.change.oldImage == .full || !bindings.knowsOfPartialRows(member) {
                        losses.miss(member, change.change, bindings)
                    }
                case .unknown: if bindings.audience.wants(moment, member) { losses.noteUnanswered(member.listener) }
                }
            }
        }
    }

    private mutating func depart(
        _ number: UInt32, _ pending: PendingQuestion?, _ change: borrowing ReadableChange, _ moment: ChangeMoment,
        isComposed: Bool
    ) throws(ByteError) {
        assert(change.change.operation == .update, "rows move by updates")
        guard let member = bindings.audience.members[number], bindings.audience.wants(moment, member) else { return }
        let view = bindings.views.departed(member.view)
        if isComposed { try writer.write(change, moment, view, &bindings.views) }
        touches.depart(member, view, pending, &bindings.audience.recipients, changeNumber)
    }

    // MARK: Channels with several bindings

    private mutating func deliverMatches(
        _ change: borrowing ReadableChange, _ moment: ChangeMoment, on sink: any FrameSink
    ) throws(ByteError) -> Int {
        var delivered = 0
        for place in touches.all.indices {
            let touch = touches.all[place]
            guard touch.certain != 0 || !touch.deferredBindings.isEmpty else { continue }
            try writer.write(change, moment, touch.seen.view, &bindings.views)
            precondition(
                touch.seen.question == nil || touch.seen.masked != nil,
                "where it is asked whether the old row may be seen there is a view without it")
            guard let recipient = bindings.audience.recipient(touch.listener) else { continue }
            let operation = touch.isDeparture ? .delete : change.change.operation
            if recipient.isHeld || !touch.deferredBindings.isEmpty || touch.seen.question != nil {
                if let masked = touch.seen.masked { try writer.write(change, moment, masked, &bindings.views) }
                hold(touch, operation, moment)
                continue
            }
            let envelope = envelope(touch.listener, touch.seen.view, touch.certain, operation)
            if recipient.manner != .plain {
                guard let own = positioned(envelope, touch.listener, moment.behind) else { continue }
                delivered += 1
                sent.add(recipient.seat, moment.offset)
                writer.send(touch.seen.view, bindings.views, in: own, to: recipient, on: sink)
                continue
            }
            delivered += 1
            sent.add(recipient.seat, moment.offset)
            let frame = writer.frame(
                envelope, touch.seen.view, compressed: recipient.wantsCompression, &bindings.views,
                &bindings.audience.envelopes,
                on: sink)
            FrameWriter.send(frame, to: recipient.connection, on: sink)
        }
        return delivered
    }

    /// Records the position as sent to the listener and returns the envelope with it. Nil if a feed has reached its
    /// limit of changes.
    private mutating func positioned(
        _ envelope: UInt32, _ listener: UInt32, _ position: EventLogPosition
    ) -> ChangeEnvelope? {
        let shared = bindings.audience.envelopes.envelope(envelope)
        let recipient = bindings.audience.recipients[Int(listener)]
        guard recipient.manner != .plain else { return shared }
        if recipient.manner == .feed {
            guard let isFirst = feeds.take(listener) else { return nil }
            bindings.audience.tell(listener, at: position.offset)
            return shared.record(at: "\(position)", isFirst: isFirst)
        }
        assert(position.offset > recipient.toldAt, "a channel is told of what is ahead of it")
        bindings.audience.tell(listener, at: position.offset)
        let previous = EventLogPosition(epoch: position.epoch, offset: recipient.toldAt)
        return shared.standing(at: "\(position)", behind: "\(previous)")
    }

    private mutating func envelope(
        _ index: UInt32, _ view: UInt32, _ bindings: BindingSet, _ operation: Operation
    ) -> UInt32 {
        let isLegacy = self.bindings.audience.recipient(index)?.isLegacy == true
        let key = Audience.SetKey(view: view, bindings: bindings, legacy: isLegacy ? operation : nil)
        return self.bindings.audience.envelope(of: index, key)
    }

    // MARK: Deliveries that wait

    private mutating func hold(_ touch: MatchedChannel, _ operation: Operation, _ moment: ChangeMoment) {
        assert(
            bindings.audience.recipients[Int(touch.listener)].isHeld || !touch.deferredBindings.isEmpty
                || touch.seen.question != nil,
            "who waits for nothing is served")
        assert(
            waiting.first(of: touch.listener) == nil || bindings.audience.recipients[Int(touch.listener)].isHeld,
            "whoever waits is known to")
        var past: (question: PendingQuestion, masked: SeenBody)?
        if let question = touch.seen.question, let masked = touch.seen.masked {
            past = (question, SeenBody(body: waitingBody(masked), view: masked))
            question.listeners.append(touch.listener)
        }
        let delivery = WaitingDelivery(
            seen: SeenBody(body: waitingBody(touch.seen.view), view: touch.seen.view), past: past,
            operation: operation, bindings: touch.certain, deferredBindings: touch.deferredBindings,
            position: moment.behind)
        for proviso in touch.deferredBindings { proviso.question.listeners.append(touch.listener) }
        bindings.audience.hold(touch.listener)
        if !waiting.add(delivery, for: touch.listener) { losses.noteOverfull(touch.listener) }
    }

    private mutating func waitingBody(_ view: UInt32) -> WaitingBody {
        waiting.body(view) { writer.copyOfBody(view, bindings.views) }
    }

    /// True if so many deliveries wait for answers that a follower that catches up should stop reading.
    var isBurdened: Bool { waiting.isBurdened }

    /// True if so many deliveries wait that any follower should stop reading, for a limited time.
    public mutating func isCrowded(_ now: UInt64) -> Bool { waiting.isCrowded(now) }

    /// Number of deliveries that ever had to wait.
    var heldCount: Int { waiting.everHeld }

    /// Applies PostgreSQL's answer to a part of a question. Sends the deliveries that waited only for it.
    ///
    /// - Parameter hasFailed: true if PostgreSQL failed on the row, as it would for any client that selects it.
    private mutating func settle(
        _ pending: PendingQuestion, _ answer: Bool?, hasFailed: Bool = false, on sink: any FrameSink
    ) -> Int {
        if hasFailed { pending.fail() } else { pending.take(answer) }
        if case .none = pending.answer { return 0 }
        var delivered = 0
        for listener in pending.listeners { delivered += release(listener, on: sink) }
        pending.listeners = []
        return delivered
    }

    /// Applies PostgreSQL's answers to questions about filters. Returns the number of deliveries that were sent.
    mutating func settle(_ pending: [PendingQuestion], _ answers: [Bool?], on sink: any FrameSink) -> Int {
        let areComplete = answers.count == pending.count
        if !areComplete { Impossible.happened("each question about a filter has its answer", in: .delivery) }
        var delivered = 0
        for (place, question) in pending.enumerated() {
            delivered += settle(question, areComplete ? answers[place] : nil, on: sink)
        }
        return delivered
    }

    /// Applies PostgreSQL's answers to questions about policies. Returns the number of deliveries that were sent.
    mutating func settle(_ pending: [[PendingQuestion]], _ answers: [PolicyAnswers], on sink: any FrameSink) -> Int {
        precondition(answers.count == pending.count, "each question about a policy has its answers")
        var delivered = 0
        for (questions, answers) in zip(pending, answers) {
            for (place, question) in questions.enumerated() {
                delivered += settle(
                    question, answers[0, place], hasFailed: answers.hasFailed(0, place), on: sink)
            }
        }
        return delivered
    }

    private mutating func release(_ index: UInt32, on sink: any FrameSink) -> Int {
        var delivered = 0
        while let delivery = waiting.takeAnswered(index) {
            if send(delivery, to: index, on: sink) { delivered += 1 }
        }
        if waiting.settle(index) { bindings.audience.release(index) }
        return delivered
    }

    private mutating func send(_ delivery: WaitingDelivery, to index: UInt32, on sink: any FrameSink) -> Bool {
        guard let recipient = bindings.audience.recipient(index) else { return false }
        let (bindings, isUncertain) = delivery.outcome()
        if isUncertain { losses.noteUnanswered(index) }
        guard bindings != 0 else { return false }
        assert(bindings & ~delivery.asked == 0, "only bindings that it was for get a delivery")
        let shown = delivery.shown
        let envelope = envelope(index, shown.view, bindings, delivery.operation)
        guard let own = positioned(envelope, index, delivery.position) else { return false }
        writer.send(body: shown.body.bytes, in: own, to: recipient, on: sink)
        // `position` is the position after the change.
        sent.add(recipient.seat, delivery.position.offset - 1)
        return true
    }

    var holdsAnybody: Bool { !waiting.isEmpty }

    /// True if a delivery to the listener waits for an answer.
    func isHeld(_ listener: UInt32) -> Bool { bindings.audience.recipients[Int(listener)].isHeld }

    /// Returns the offset of the first change that waits for the listener; nil if none does.
    func firstHeld(_ listener: UInt32) -> UInt64? { waiting.first(of: listener) }

    /// Offset of the first change that waits for any listener; nil if none does.
    var firstHeld: UInt64? { waiting.first }

    /// Returns the offset of the position that the hub last sent to the listener's client.
    func toldAt(_ listener: UInt32) -> UInt64? { bindings.audience.recipient(listener)?.toldAt }

    /// Returns the quota of a feed; nil if the listener is no feed.
    func share(_ listener: UInt32) -> FeedShare? { feeds[listener] }

    /// Drops the listener's waiting deliveries, because they were decided for another holder. Returns true if there
    /// were any.
    public mutating func dropWaiting(_ listener: UInt32) -> Bool {
        guard waiting.drop(listener) else { return false }
        bindings.audience.release(listener)
        return true
    }

    /// Number of changes whose deliveries were recorded since the last `takeSent`.
    var sentCount: Int { sent.changes.count }

    /// Calls `visit` with each recorded change and the seats of its recipients, then forgets the record.
    public mutating func takeSent(_ visit: (_ offset: UInt64, _ seats: Span<UInt32>) -> Void) { sent.take(visit) }

    // MARK: Listeners

    /// Adds a listener and returns its index.
    ///
    /// - Parameter share: quota of a feed; nil for every other listener.
    public mutating func add(_ listener: Listener, _ recipient: Recipient, _ share: FeedShare? = nil) -> UInt32 {
        precondition((recipient.manner == .feed) == (share != nil), "a feed has its share, and nobody else has one")
        let index = bindings.audience.add(listener, recipient)
        if let share { feeds.add(index, share) }
        return index
    }

    /// Returns the index of the listener's channel among the loop's channels.
    func channel(of listener: UInt32) -> UInt32? { bindings.audience.listeners[listener]?.channel }

    // MARK: Listeners that began with a snapshot

    /// Skips the transactions in `seen` for the listener, which already has them.
    public mutating func leaveOut(_ seen: SeenTransactions, for listener: UInt32) {
        assert(bindings.audience.listeners.contains(listener), "who is told less is there")
        snapshots.add(seen, for: listener)
    }

    /// Begins a transaction, or a part of one that ends before offset `end`. Listeners that have the transaction from
    /// their snapshot skip it.
    mutating func begin(_ info: TransactionInfo, endingBefore end: UInt64) {
        snapshots.begin(info, endingBefore: end, &bindings.audience)
    }

    /// Returns the log offset from which changes are for the listener; nil if the listener was removed.
    func since(_ listener: UInt32) -> UInt64? { bindings.audience.recipient(listener)?.since }

    public mutating func forget(_ listener: UInt32) {
        assert(!losses.concern(listener), "who leaves has been told of what could not be delivered")
        snapshots.remove(listener)
        feeds.remove(listener)
        _ = dropWaiting(listener)
        bindings.audience.removeListener(listener)
    }
}
