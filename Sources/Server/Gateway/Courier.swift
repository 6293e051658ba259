import Bytes
import Change
import Diagnostics
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
struct Courier: ~Copyable {
    var audience = Audience()
    var views: ViewTable
    /// Who wants a row as a change leaves it, or of a row that goes as it was …
    var index = PredicateIndex(maximumRelations: Limits.maximumCachedRelations)
    /// … and who wants to know of rows that updates take out of their view.
    var departures = PredicateIndex(judging: .old, maximumRelations: Limits.maximumCachedRelations)
    var policies = HeldPolicies()
    /// What rows were whose deletes do not say it.
    var recall = RowRecall()
    private var matches = MatchBatch()
    private var recalled = MatchBatch()
    private var departed = MatchBatch()
    private var desk: DeliveryDesk
    private var touches = Touches()
    private var waiting: [UInt32: WaitingQueue] = [:]
    private let total = WaitingTotal()
    /// Bodies of the change at hand that somebody waits with, by view.
    private var waitingBodies: [UInt32: WaitingBody] = [:]
    /// Since when too much waits; nil when it does not.
    private var crowdedSince: UInt64?
    /// Deliveries that had to wait, ever.
    private(set) var heldCount = 0
    private var asked = AskedQuestions()
    /// Members that see the change at hand, and for whom it is to be found out whether they saw the row before.
    private var withPast: [UInt32] = []
    private var changeNumber: UInt64 = 0

    init(maximumBodyBytes: Int, deflater: Deflater?, tellsFormerKeys: Bool = false) {
        views = ViewTable(tellsFormerKeys: tellsFormerKeys)
        desk = DeliveryDesk(maximumBodyBytes: maximumBodyBytes, deflater: deflater)
    }

    /// Channels whose waiting deliveries became too many: to be closed.
    private(set) var overfull: [UInt32] = []
    /// Channels that miss something because a question was not answered: to be told.
    private(set) var unanswered: [UInt32] = []

    /// What tables were asked about decisions.
    var opinions = SecondOpinions()
    /// Policies of which PostgreSQL said something else than was decided without it.
    var contradicted: [UInt32] = []

    mutating func takeContradicted() -> [UInt32] {
        defer { contradicted = [] }
        return contradicted
    }

    mutating func takeTroubled() -> (overfull: [UInt32], unanswered: [UInt32]) {
        defer {
            overfull = []
            unanswered = []
        }
        return (overfull, unanswered)
    }

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

    mutating func noteRelation(_ fingerprint: UInt64, _ relation: Relation, foreign: Set<Int>) {
        index.noteRelation(fingerprint, relation, foreign: foreign)
        departures.noteRelation(fingerprint, relation, foreign: foreign)
    }

    // MARK: A change

    /// Judges some of the part's next changes.
    @_lifetime(part: copy part)
    mutating func match(_ part: inout TransactionPart) throws(ByteError) -> PredicateIndex.Outcome {
        let moment = PostgresMoment.now()
        index.moment = moment
        departures.moment = moment
        if departures.count > 0 {
            var same = part
            _ = try departures.match(&same, into: &departed)
        }
        return try index.match(&part, into: &matches)
    }

    /// How many changes `match` judged.
    var matchedChanges: Int { matches.changeCount }

    func hasMatches(at place: Int) -> Bool {
        !matches.certain(of: place).isEmpty || !matches.asking(of: place).isEmpty || hasDepartures(at: place)
    }

    private func hasDepartures(at place: Int) -> Bool {
        departures.count > 0 && (!departed.certain(of: place).isEmpty || !departed.asking(of: place).isEmpty)
    }

    struct Moment {
        let fingerprint: UInt64
        let commitTime: Int64
        let number: UInt64
        /// The change's place in the log.
        let offset: UInt64
        /// An update that says what the row was: not everybody who sees the new row may see the old one.
        let hasPast: Bool
    }

    /// Whom a change is judged for.
    enum Share {
        case everybody
        /// Those whom no policy restricts …
        case unrestricted
        /// … and those whom one does.
        case restricted

        @inline(__always)
        func includes(_ member: Member) -> Bool {
            switch self {
            case .everybody: true
            case .unrestricted: member.policy == Member.noPolicy
            case .restricted: member.policy != Member.noPolicy
            }
        }
    }

    /// Delivers one of the changes that were judged; says how many channels got it now. With `past`, which is the row that
    /// a change only names by its key, those whom policies restrict are judged on that: whether they hear of a delete, and
    /// of an update whether they hear what the key was.
    mutating func deliver(
        _ place: Int, _ change: borrowing Change, _ relation: Relation, past: [UInt8]? = nil, commitTime: Int64,
        offset: UInt64,
        on loop: SocketLoop
    ) throws(ByteError) -> Int {
        changeNumber += 1
        desk.begin()
        touches.removeAll()
        if !waitingBodies.isEmpty { waitingBodies = [:] }
        let moment = Moment(
            fingerprint: change.relation, commitTime: commitTime, number: changeNumber, offset: offset,
            hasPast: change.operation == .update && change.oldImage != .none)
        let delivered = try distribute(place, change, past, relation, moment, on: loop)
        if hasDepartures(at: place) { try addDepartures(of: place, change, relation, moment) }
        return try delivered + deliverTouched(change, relation, moment, on: loop)
    }

    private mutating func distribute(
        _ place: Int, _ change: borrowing Change, _ past: [UInt8]?, _ relation: Relation, _ moment: Moment,
        on loop: SocketLoop
    ) throws(ByteError) -> Int {
        guard let past else {
            return try distribute(
                place, judging: change, change, former: change, relation, moment, .everybody, on: loop)
        }
        let bytes = Self.part(of: change, asItWas: past)
        var part = try TransactionPart(bytes.asBytes)
        guard change.operation != .delete else {
            let delivered = try distribute(
                place, judging: change, change, former: change, relation, moment, .unrestricted, on: loop)
            return try delivered + deliver(change, asIn: part, relation, moment, on: loop)
        }
        guard let former = try part.next() else { return 0 }
        return try distribute(place, judging: change, change, former: former, relation, moment, .everybody, on: loop)
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
        _ place: Int, judging judged: borrowing Change, _ change: borrowing Change, former: borrowing Change,
        _ relation: Relation, _ moment: Moment, _ share: Share, on loop: SocketLoop
    ) throws(ByteError) -> Int {
        var delivered = 0
        withPast.removeAll(keepingCapacity: true)
        for node in 0..<matches.certain(of: place).count {
            delivered += try Self.deliver(
                to: node, of: place, matches, share, index, change, relation, moment, &audience, &views, &desk,
                &touches, &withPast, loop)
        }
        for number in withPast {
            guard let member = audience.members[number] else { continue }
            let seen = try policies.seen(by: member, former, relation, moment, &index, &views, &asked)
            touches.add(member, seen, &audience.recipients, moment.number)
        }
        for node in 0..<matches.asking(of: place).count {
            try ask(node, of: place, judged, former: former, relation, moment, share)
        }
        return delivered
    }

    /// A delete to those who could see the row: they get no more of it than the delete has.
    private mutating func deliver(
        _ change: borrowing Change, asIn deleted: TransactionPart, _ relation: Relation, _ moment: Moment,
        on loop: SocketLoop
    ) throws(ByteError) -> Int {
        var part = deleted
        var same = part
        guard case .judged = try index.match(&same, into: &recalled), recalled.changeCount == 1,
            let past = try part.next()
        else { return 0 }
        swap(&matches, &recalled)
        defer { swap(&matches, &recalled) }
        return try distribute(
            0, judging: past, change, former: change, relation, moment, .restricted, on: loop)
    }

    /// Members that are all there is of their channel are served at once; others are collected first. Those who may not see
    /// the old row, perhaps, are left for afterwards.
    private static func deliver(
        to node: Int, of place: Int, _ matches: borrowing MatchBatch, _ share: Share,
        _ index: borrowing PredicateIndex,
        _ change: borrowing Change, _ relation: Relation, _ moment: Moment, _ audience: inout Audience,
        _ views: inout ViewTable, _ desk: inout DeliveryDesk, _ touches: inout Touches, _ withPast: inout [UInt32],
        _ loop: SocketLoop
    ) throws(ByteError) -> Int {
        var delivered = 0
        // Neighbours most often get the same frame, which then need not be looked for again.
        var last: (envelope: UInt32, view: UInt32, isCompressed: Bool, frame: FramePieces)?
        let members = index.members(of: matches.certain(of: place), at: node)
        for place in members.indices {
            guard let member = audience.members[members[place]], share.includes(member) else { continue }
            let recipient = audience.recipients[Int(member.listener)]
            if recipient.since > moment.offset { continue }
            if moment.hasPast, member.policy != Member.noPolicy {
                withPast.append(members[place])
                continue
            }
            guard recipient.isServedAtOnce else {
                touches.add(member, Seen(view: member.view), &audience.recipients, moment.number)
                continue
            }
            let envelope = recipient.soleEnvelope ?? audience.envelope(ofSole: member)
            if let last, last.envelope == envelope, last.view == member.view,
                last.isCompressed == recipient.wantsCompression
            {
                DeliveryDesk.send(last.frame, to: recipient.connection, on: loop)
            } else {
                try desk.write(change, relation, moment, member.view, &views)
                let frame = desk.frame(
                    envelope, member.view, compressed: recipient.wantsCompression, &views, &audience.envelopes,
                    on: loop)
                last = (envelope, member.view, recipient.wantsCompression, frame)
                DeliveryDesk.send(frame, to: recipient.connection, on: loop)
            }
            delivered += 1
        }
        return delivered
    }

    // MARK: Asking

    /// The members of a node whose predicate PostgreSQL has to decide.
    private mutating func ask(
        _ node: Int, of place: Int, _ change: borrowing Change, former: borrowing Change, _ relation: Relation,
        _ moment: Moment, _ share: Share
    ) throws(ByteError) {
        let image: RowTexts.Image = change.operation == .delete ? .old : .new
        var questions = NodeQuestions(index.question(of: matches.asking(of: place)[node]))
        let count = index.members(of: matches.asking(of: place), at: node).count
        for at in 0..<count {
            let number = index.members(of: matches.asking(of: place), at: node)[at]
            guard let member = audience.members[number], share.includes(member), audience.wants(moment, member),
                let pending = try question(&questions, member, change, relation, image)
            else { continue }
            let seen = try policies.seen(by: member, former, relation, moment, &index, &views, &asked)
            touches.ask(member, seen, pending, &audience.recipients, changeNumber)
        }
    }

    /// Asks what a member's predicate left open: its filter, its holder's policy, or both. Nil where the policy says no, and
    /// where it cannot even be asked.
    private mutating func question(
        _ questions: inout NodeQuestions, _ member: Member, _ change: borrowing Change, _ relation: Relation,
        _ image: RowTexts.Image
    ) throws(ByteError) -> PendingQuestion? {
        switch try policies.verdict(member, on: change, image, &index) {
        case .yes: return try filterQuestion(&questions, change, image)
        case .no, .unknown, .failed: return nil
        case .ask: return try policyQuestion(&questions, member.policy, change, relation, image)
        }
    }

    /// The same for all of the node whose policies leave nothing open.
    private mutating func filterQuestion(
        _ questions: inout NodeQuestions, _ change: borrowing Change, _ image: RowTexts.Image
    ) throws(ByteError) -> PendingQuestion? {
        if let known = questions.ofFilter { return known }
        guard let filter = questions.filter else { return nil }
        let pending = PendingQuestion()
        try ask(filter, pending, change, image)
        questions.ofFilter = pending
        return pending
    }

    private mutating func policyQuestion(
        _ questions: inout NodeQuestions, _ policy: UInt32, _ change: borrowing Change, _ relation: Relation,
        _ image: RowTexts.Image
    ) throws(ByteError) -> PendingQuestion? {
        if let last = questions.ofPolicy, last.policy == policy { return last.question }
        let pending = PendingQuestion(parts: questions.filter == nil ? 1 : 2)
        guard try policies.ask(policy, pending, change, relation, image, changeNumber, &asked) else {
            Metrics.shared.drops[.rowSecurity].add()
            return nil
        }
        if let filter = questions.filter { try ask(filter, pending, change, image) }
        questions.ofPolicy = (policy, pending)
        return pending
    }

    private mutating func ask(
        _ filter: Question, _ pending: PendingQuestion, _ change: borrowing Change, _ image: RowTexts.Image
    ) throws(ByteError) {
        let values = try index.texts(of: filter.slots, in: change, image: image == .old ? .old : .new)
        asked.add(pending, JudgedQuestion(filter, values: values))
    }

    // MARK: Rows that move out of view

    private mutating func addDepartures(
        of place: Int, _ change: borrowing Change, _ relation: Relation, _ moment: Moment
    ) throws(ByteError) {
        for node in 0..<departed.certain(of: place).count {
            let count = departures.members(of: departed.certain(of: place), at: node).count
            for at in 0..<count {
                depart(departures.members(of: departed.certain(of: place), at: node)[at], nil, moment)
            }
        }
        for node in 0..<departed.asking(of: place).count {
            var questions = NodeQuestions(departures.question(of: departed.asking(of: place)[node]))
            let count = departures.members(of: departed.asking(of: place), at: node).count
            for at in 0..<count {
                let number = departures.members(of: departed.asking(of: place), at: node)[at]
                guard let member = audience.members[number],
                    let pending = try question(&questions, member, change, relation, .old)
                else { continue }
                depart(number, pending, moment)
            }
        }
    }

    private mutating func depart(_ number: UInt32, _ pending: PendingQuestion?, _ moment: Moment) {
        guard let member = audience.members[number], audience.wants(moment, member) else { return }
        touches.depart(member, views.departed(member.view), pending, &audience.recipients, changeNumber)
    }

    // MARK: Those with several bindings

    private mutating func deliverTouched(
        _ change: borrowing Change, _ relation: Relation, _ moment: Moment, on loop: SocketLoop
    ) throws(ByteError) -> Int {
        var delivered = 0
        for place in touches.all.indices {
            let touch = touches.all[place]
            guard touch.certain != 0 || !touch.provisos.isEmpty else { continue }
            try desk.write(change, relation, moment, touch.seen.view, &views)
            guard let recipient = audience.recipient(touch.listener) else { continue }
            let operation = touch.isDeparture ? .delete : change.operation
            if recipient.isHeld || !touch.provisos.isEmpty || touch.seen.question != nil {
                if let masked = touch.seen.masked { try desk.write(change, relation, moment, masked, &views) }
                hold(touch, operation)
                continue
            }
            let envelope = envelope(touch.listener, touch.seen.view, touch.certain, operation)
            let frame = desk.frame(
                envelope, touch.seen.view, compressed: recipient.wantsCompression, &views, &audience.envelopes,
                on: loop)
            DeliveryDesk.send(frame, to: recipient.connection, on: loop)
            delivered += 1
        }
        return delivered
    }

    private mutating func envelope(
        _ index: UInt32, _ view: UInt32, _ bindings: BindingSet, _ operation: Operation
    ) -> UInt32 {
        let isLegacy = audience.recipient(index)?.isLegacy == true
        let key = Audience.SetKey(view: view, bindings: bindings, legacy: isLegacy ? operation : nil)
        return audience.envelope(of: index, key)
    }

    // MARK: Deliveries that wait

    private mutating func hold(_ touch: Touch, _ operation: Operation) {
        var queue = waiting.removeValue(forKey: touch.listener) ?? WaitingQueue()
        var past: (question: PendingQuestion, masked: SeenBody)?
        if let question = touch.seen.question, let masked = touch.seen.masked {
            past = (question, SeenBody(body: waitingBody(masked), view: masked))
            question.listeners.append(touch.listener)
        }
        queue.append(
            WaitingDelivery(
                seen: SeenBody(body: waitingBody(touch.seen.view), view: touch.seen.view), past: past,
                operation: operation, bindings: touch.certain, provisos: touch.provisos))
        total.bytes += Limits.waitingDeliveryBytes
        heldCount += 1
        for proviso in touch.provisos { proviso.question.listeners.append(touch.listener) }
        audience.recipients[Int(touch.listener)].isHeld = true
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
    mutating func settle(_ pending: PendingQuestion, _ answer: Bool?, on loop: SocketLoop) -> Int {
        pending.take(answer)
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
            if send(delivery, to: index, on: loop) { delivered += 1 }
        }
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
        if isUncertain, !unanswered.contains(index) { unanswered.append(index) }
        guard bindings != 0 else { return false }
        let shown = delivery.shown
        let envelope = envelope(index, shown.view, bindings, delivery.operation)
        desk.send(body: shown.body.bytes, envelope, recipient, &audience.envelopes, on: loop)
        return true
    }

    /// What waits was judged for somebody else; true when there was anything.
    mutating func dropWaiting(_ listener: UInt32) -> Bool {
        guard let queue = waiting.removeValue(forKey: listener) else { return false }
        total.bytes -= queue.count * Limits.waitingDeliveryBytes
        audience.recipients[Int(listener)].isHeld = false
        return true
    }

    /// A channel is gone: nothing waits for it any more.
    mutating func forget(_ listener: UInt32) {
        if let queue = waiting.removeValue(forKey: listener) {
            total.bytes -= queue.count * Limits.waitingDeliveryBytes
        }
        audience.removeListener(listener)
    }
}

enum PostgresMoment {
    /// Microseconds since the beginning of 2000, from which PostgreSQL counts.
    static func now() -> Int64 { Clock.unixMicroseconds() - 946_684_800_000_000 }
}
