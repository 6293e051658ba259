import Bytes
import Change
import Diagnostics
import Net
import Protocol

/// One channel as deliveries see it: how its messages are written.
public struct Listener {
    /// The channel's place among the loop's channels.
    public let channel: UInt32
    let form: EnvelopeForm
    let topic: [UInt8]
    /// The numbers by which the client knows its bindings, by their places.
    let ids: [UInt32]

    public init(channel: UInt32, form: EnvelopeForm, topic: [UInt8], ids: [UInt32]) {
        self.channel = channel
        self.form = form
        self.topic = topic
        self.ids = ids
    }
}

/// What of a listener every delivery looks at. It is plain: copying a listener would count two references, which costs
/// more than all the rest of a delivery on our side of the kernel.
public struct Recipient: BitwiseCopyable {
    /// What is said with each change.
    public enum Manner: UInt8, BitwiseCopyable, Sendable {
        case plain
        /// Where the channel stands.
        case positioned
        /// Likewise, in a record of a feed, which gets only so many.
        case feed
    }

    // What every delivery looks at comes first, close together.
    let connection: ConnectionID
    /// The log's end when the channel was bound first: what is before it is not for the channel. It moves over transactions
    /// that the channel has in a snapshot.
    var since: UInt64
    private var soleEnvelopeOrNone = Self.none
    /// Under which it is recorded what it is sent; `unrecorded` where it is not.
    var seat = Self.unrecorded
    /// Bindings to tables. With one, its envelope is known beforehand.
    var members: UInt32 = 0
    /// An earlier delivery waits for PostgreSQL: what follows waits behind it.
    var isHeld = false
    let isLegacy: Bool
    let wantsCompression: Bool
    /// Of rows that leave its view: what it gets of an update depends on all that the update means for it.
    let wantsMoves: Bool
    let manner: Manner
    var touch: UInt32 = 0
    /// Where it stood when that was said last.
    var toldAt: UInt64
    /// The change for which `touch` is its newest entry in the list of touches.
    var stamp: UInt64 = 0

    private static let none = UInt32.max
    public static let unrecorded = UInt32.max

    var soleEnvelope: UInt32? {
        get { soleEnvelopeOrNone == Self.none ? nil : soleEnvelopeOrNone }
        set { soleEnvelopeOrNone = newValue ?? Self.none }
    }

    public init(
        _ connection: ConnectionID, isLegacy: Bool, wantsCompression: Bool, wantsMoves: Bool, since: UInt64,
        manner: Manner = .plain, toldAt: UInt64? = nil, seat: UInt32 = Self.unrecorded
    ) {
        self.since = since
        self.seat = seat
        self.manner = manner
        self.toldAt = toldAt ?? since
        self.wantsMoves = wantsMoves
        self.connection = connection
        self.isLegacy = isLegacy
        self.wantsCompression = wantsCompression
    }

    /// Its only binding decides what it gets; nothing has to be collected first.
    var isServedAtOnce: Bool { members == 1 && !isHeld && !isLegacy && !wantsMoves && manner == .plain }
}

/// One binding of one channel to one table: what a node of the predicate index points at.
struct Member {
    static let noPolicy: UInt32 = .max

    var listener: UInt32
    var view: UInt32
    /// What the listener may see of the table, where that is not every row.
    var policy = Member.noPolicy
    /// The binding's place in its channel.
    var binding: UInt8

    init(listener: UInt32, view: UInt32, policy: UInt32 = Member.noPolicy, binding: UInt8) {
        self.listener = listener
        self.view = view
        self.policy = policy
        self.binding = binding
    }
}

/// A set of a channel's bindings, by their places.
typealias BindingSet = UInt128

/// Everybody on one loop who hears of changes. Small numbers stand for all of it, so that a delivery follows indices
/// and counts no references.
struct Audience {
    private(set) var listeners = Slots<Listener>()
    /// By the numbers of listeners; meaningless where there is none.
    var recipients: [Recipient] = []
    private(set) var members = Slots<Member>()
    var envelopes = EnvelopeTable()
    /// What listeners that are feeds have had and may have.
    var feeds: [UInt32: FeedShare] = [:]
    /// Envelopes of channels with several bindings, by what matched; made when they are first needed.
    private var envelopesOfSets: [UInt32: [SetKey: UInt32]] = [:]

    struct SetKey: Hashable {
        var view: UInt32
        var bindings: BindingSet
        var legacy: Operation?
    }

    mutating func add(_ listener: Listener, _ recipient: Recipient) -> UInt32 {
        assert(listener.ids.count <= BindingSet.bitWidth, "a channel has no more bindings than a set can hold")
        let index = listeners.add(listener)
        assert(Int(index) <= recipients.count, "numbers are given one after the other")
        if Int(index) == recipients.count {
            recipients.append(recipient)
        } else {
            recipients[Int(index)] = recipient
        }
        return index
    }

    /// Whether the change is one of those that the member's channel was there for.
    func wants(_ moment: ChangeRouter.Moment, _ member: Member) -> Bool {
        recipients[Int(member.listener)].since <= moment.offset
    }

    /// Nil when it is gone.
    func recipient(_ listener: UInt32) -> Recipient? {
        listeners.contains(listener) ? recipients[Int(listener)] : nil
    }

    mutating func add(_ member: Member) -> UInt32 {
        precondition(listeners.contains(member.listener), "a binding is of a channel that is there")
        assert(Int(member.binding) < BindingSet.bitWidth, "a binding has a place in its channel's set")
        let index = members.add(member)
        recipients[Int(member.listener)].members += 1
        forgetEnvelopes(of: member.listener)
        return index
    }

    mutating func judge(_ member: UInt32, by policy: UInt32) {
        assert(members.contains(member), "who is judged is there")
        members[member]?.policy = policy
    }

    mutating func removeMember(_ index: UInt32) {
        guard let member = members.remove(index) else { return }
        assert(recipients[Int(member.listener)].members > 0, "a channel has the bindings that go")
        recipients[Int(member.listener)].members -= 1
        forgetEnvelopes(of: member.listener)
    }

    mutating func removeListener(_ index: UInt32) {
        assert(
            !listeners.contains(index) || recipients[Int(index)].members == 0, "a channel goes after its bindings")
        forgetEnvelopes(of: index)
        feeds[index] = nil
        listeners.remove(index)
    }

    private mutating func forgetEnvelopes(of listener: UInt32) {
        guard listeners.contains(listener) else { return }
        if let sole = recipients[Int(listener)].soleEnvelope {
            envelopes.release(sole)
            recipients[Int(listener)].soleEnvelope = nil
        }
        guard let all = envelopesOfSets.removeValue(forKey: listener) else { return }
        for envelope in all.values { envelopes.release(envelope) }
    }

    /// For the only member of a channel.
    mutating func envelope(ofSole member: Member) -> UInt32 {
        assert(recipients[Int(member.listener)].members == 1, "it is the only binding of its channel")
        if let known = recipients[Int(member.listener)].soleEnvelope { return known }
        let made = makeEnvelope(member.listener, view: member.view, 1 << BindingSet(member.binding), legacy: nil)
        recipients[Int(member.listener)].soleEnvelope = made
        return made
    }

    /// For several of a channel's bindings.
    mutating func envelope(of listener: UInt32, _ key: SetKey) -> UInt32 {
        precondition(key.bindings != 0, "a change is for some binding of the channel")
        if let known = envelopesOfSets[listener]?[key] { return known }
        // A channel with many overlapping bindings can match in a great many ways.
        if envelopesOfSets[listener]?.count ?? 0 >= Limits.maximumEnvelopesPerChannel {
            forgetEnvelopes(of: listener)
        }
        let made = makeEnvelope(listener, view: key.view, key.bindings, legacy: key.legacy)
        envelopesOfSets[listener, default: [:]][key] = made
        return made
    }

    private mutating func makeEnvelope(
        _ index: UInt32, view: UInt32, _ bindings: BindingSet, legacy: Operation?
    ) -> UInt32 {
        guard let listener = listeners[index] else { preconditionFailure("an envelope for a channel that is gone") }
        var ids: [UInt32] = []
        for place in listener.ids.indices where bindings & (1 << BindingSet(place)) != 0 {
            if !ids.contains(listener.ids[place]) { ids.append(listener.ids[place]) }
        }
        assert(!ids.isEmpty, "the client knows a binding that it is for")
        return envelopes.take(
            EnvelopeKey(form: listener.form, topic: listener.topic, ids: ids, legacy: legacy, view: view))
    }
}
