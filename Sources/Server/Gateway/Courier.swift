import Bytes
import Change
import Diagnostics
import Matching
import Net
import Policy
import Protocol
import WebSocket

/// Changes in, frames at sockets out: who wants a change, what they see of it, and in which envelope.
///
/// One loop owns it. A body is written once for all who see the same columns, a frame once for all who also have the same
/// envelope.
struct Courier: ~Copyable {
    var audience = Audience()
    var views = ViewTable()
    var index = PredicateIndex(maximumRelations: Limits.maximumCachedRelations)
    private var matches = MatchBatch()
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
    /// Questions that are not sent yet.
    private var questions: [(pending: PendingQuestion, question: JudgedQuestion)] = []
    private var changeNumber: UInt64 = 0

    init(maximumBodyBytes: Int, deflater: Deflater?) {
        desk = DeliveryDesk(maximumBodyBytes: maximumBodyBytes, deflater: deflater)
    }

    /// Channels whose waiting deliveries became too many: to be closed.
    private(set) var overfull: [UInt32] = []
    /// Channels that miss something because a question was not answered: to be told.
    private(set) var unanswered: [UInt32] = []

    mutating func takeTroubled() -> (overfull: [UInt32], unanswered: [UInt32]) {
        defer {
            overfull = []
            unanswered = []
        }
        return (overfull, unanswered)
    }

    mutating func takeQuestions() -> [(pending: PendingQuestion, question: JudgedQuestion)] {
        defer { questions = [] }
        return questions
    }

    // MARK: A change

    /// Judges some of the part's next changes.
    @_lifetime(part: copy part)
    mutating func match(_ part: inout TransactionPart) throws(ByteError) -> PredicateIndex.Outcome {
        try index.match(&part, into: &matches)
    }

    /// How many changes `match` judged.
    var matchedChanges: Int { matches.changeCount }
    var hasMatches: Bool { matches.hasMatches }

    func hasMatches(at place: Int) -> Bool {
        !matches.certain(of: place).isEmpty || !matches.asking(of: place).isEmpty
    }

    /// Delivers one of the changes that were judged; says how many channels got it now.
    mutating func deliver(
        _ place: Int, _ change: borrowing Change, _ relation: Relation, commitTime: Int64, on loop: SocketLoop
    ) throws(ByteError) -> Int {
        changeNumber += 1
        desk.begin(changeNumber)
        touches.removeAll()
        if !waitingBodies.isEmpty { waitingBodies = [:] }
        let moment = Moment(fingerprint: change.relation, commitTime: commitTime, number: changeNumber)
        var delivered = 0
        for node in 0..<matches.certain(of: place).count {
            delivered += try Self.deliver(
                to: node, of: place, matches, index, change, relation, moment, &audience, &views, &desk, &touches, loop)
        }
        for node in 0..<matches.asking(of: place).count { try ask(node, of: place, change) }
        return try delivered + deliverTouched(change, relation, moment, on: loop)
    }

    struct Moment {
        let fingerprint: UInt64
        let commitTime: Int64
        let number: UInt64
    }

    /// Members that are all there is of their channel are served at once; others are collected first.
    private static func deliver(
        to node: Int, of place: Int, _ matches: borrowing MatchBatch, _ index: borrowing PredicateIndex,
        _ change: borrowing Change, _ relation: Relation, _ moment: Moment, _ audience: inout Audience,
        _ views: inout ViewTable, _ desk: inout DeliveryDesk, _ touches: inout Touches,
        _ loop: SocketLoop
    ) throws(ByteError) -> Int {
        var delivered = 0
        // Neighbours most often get the same frame, which then need not be looked for again.
        var last: (envelope: UInt32, view: UInt32, isCompressed: Bool, frame: FramePieces)?
        let members = index.members(of: matches.certain(of: place), at: node)
        for place in members.indices {
            guard let member = audience.members[members[place]] else { continue }
            let recipient = audience.recipients[Int(member.listener)]
            guard recipient.isServedAtOnce else {
                touches.add(member, &audience.recipients, moment.number)
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

    private mutating func ask(_ node: Int, of place: Int, _ change: borrowing Change) throws(ByteError) {
        guard let question = index.question(of: matches.asking(of: place)[node]) else { return }
        let pending = PendingQuestion()
        let values = try index.texts(of: question.slots, in: change)
        questions.append((pending, JudgedQuestion(question, values: values)))
        Self.ask(pending, node, of: place, matches, index, &audience, &touches, changeNumber)
    }

    private static func ask(
        _ pending: PendingQuestion, _ node: Int, of place: Int, _ matches: borrowing MatchBatch,
        _ index: borrowing PredicateIndex, _ audience: inout Audience, _ touches: inout Touches, _ change: UInt64
    ) {
        let members = index.members(of: matches.asking(of: place), at: node)
        for place in members.indices {
            guard let member = audience.members[members[place]] else { continue }
            touches.ask(member, pending, &audience.recipients, change)
        }
    }

    private mutating func deliverTouched(
        _ change: borrowing Change, _ relation: Relation, _ moment: Moment, on loop: SocketLoop
    ) throws(ByteError) -> Int {
        var delivered = 0
        for place in touches.all.indices {
            let touch = touches.all[place]
            try desk.write(change, relation, moment, touch.view, &views)
            guard let recipient = audience.recipient(touch.listener) else { continue }
            if recipient.isHeld || !touch.asked.isEmpty {
                hold(touch, change.operation, moment)
                continue
            }
            let envelope = envelope(touch.listener, touch.view, touch.certain, change.operation)
            let frame = desk.frame(
                envelope, touch.view, compressed: recipient.wantsCompression, &views, &audience.envelopes, on: loop)
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

    private mutating func hold(_ touch: Touch, _ operation: Operation, _ moment: Moment) {
        let body = waitingBody(touch.view)
        var queue = waiting.removeValue(forKey: touch.listener) ?? WaitingQueue()
        queue.append(
            WaitingDelivery(
                body: body, view: touch.view, operation: operation, bindings: touch.certain, asked: touch.asked,
                commitTime: moment.commitTime))
        total.bytes += Limits.waitingDeliveryBytes
        heldCount += 1
        for asked in touch.asked { asked.question.listeners.append(touch.listener) }
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

    /// PostgreSQL has answered: everything that waited for it goes on.
    mutating func settle(_ pending: PendingQuestion, _ answer: Bool?, on loop: SocketLoop) -> Int {
        pending.answer = answer.map { .given($0) } ?? .failed
        var delivered = 0
        for listener in pending.listeners { delivered += release(listener, on: loop) }
        pending.listeners = []
        return delivered
    }

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
        var bindings = delivery.bindings
        for asked in delivery.asked {
            switch asked.question.answer {
            case .given(true): bindings |= 1 << BindingSet(asked.binding)
            case .given(false): break
            case .none, .failed: if !unanswered.contains(index) { unanswered.append(index) }
            }
        }
        guard bindings != 0 else { return false }
        let envelope = envelope(index, delivery.view, bindings, delivery.operation)
        desk.send(body: delivery.body.bytes, envelope, recipient, &audience.envelopes, on: loop)
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

/// What a change means for one channel that has several bindings, or waits: collected before it is delivered.
struct Touch {
    let listener: UInt32
    let view: UInt32
    var certain: BindingSet = 0
    var asked: [(question: PendingQuestion, binding: UInt8)] = []
    /// The channel's touch before this one, with another view.
    let earlier: UInt32?
}

/// The channels that the change at hand touches, each once for each view.
struct Touches {
    private(set) var all: [Touch] = []

    mutating func removeAll() { all.removeAll(keepingCapacity: true) }

    mutating func add(_ member: Member, _ recipients: inout [Recipient], _ change: UInt64) {
        let place = place(of: member, &recipients, change)
        all[place].certain |= 1 << BindingSet(member.binding)
    }

    mutating func ask(
        _ member: Member, _ question: PendingQuestion, _ recipients: inout [Recipient], _ change: UInt64
    ) {
        let place = place(of: member, &recipients, change)
        all[place].asked.append((question, member.binding))
    }

    private mutating func place(of member: Member, _ recipients: inout [Recipient], _ change: UInt64) -> Int {
        let recipient = recipients[Int(member.listener)]
        let newest = recipient.stamp == change ? recipient.touch : nil
        var known = newest
        while let place = known {
            if all[Int(place)].view == member.view { return Int(place) }
            known = all[Int(place)].earlier
        }
        all.append(Touch(listener: member.listener, view: member.view, earlier: newest))
        recipients[Int(member.listener)].stamp = change
        recipients[Int(member.listener)].touch = UInt32(all.count - 1)
        return all.count - 1
    }
}
