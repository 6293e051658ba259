import Bytes
import Change
import Diagnostics
import Net
import Protocol

/// Channel as deliveries use it: its topic, the form of its messages and the ids of its bindings.
public struct Listener {
    /// Index of the channel among the loop's channels.
    public let channel: UInt32
    let form: EnvelopeForm
    let topic: [UInt8]
    /// Ids by which the client knows its bindings; an id has the index of its binding (`Member.binding`).
    let ids: [UInt32]

    public init(channel: UInt32, form: EnvelopeForm, topic: [UInt8], ids: [UInt32]) {
        self.channel = channel
        self.form = form
        self.topic = topic
        self.ids = ids
    }
}

/// Fields of a listener that every delivery reads. The type holds no references: copying a `Listener` would count two,
/// which costs more than all other work on a delivery in this process.
public struct Recipient: BitwiseCopyable {
    /// Kind of message that the channel receives for each change.
    public enum Manner: UInt8, BitwiseCopyable, Sendable {
        case plain
        /// Messages that also contain the channel's position in the log.
        case positioned
        /// Records of a feed, which contain the position. The number of changes is limited.
        case feed
    }

    // Every delivery reads these fields, so they come first and close together.
    let connection: ConnectionID
    /// Offset of the first change that is for the channel: the log's end when the channel was first bound.
    let since: UInt64
    private var soleEnvelopeOrNone = Self.none
    /// Index under which the loop records the changes sent to this channel; `unrecorded` if the loop keeps no record.
    var seat = Self.unrecorded
    /// Number of the channel's bindings to tables. A channel with one binding always uses the same envelope.
    var members: UInt32 = 0
    /// True if an earlier delivery to the channel waits for PostgreSQL. Later deliveries wait until that one is sent.
    var isHeld = false
    let isLegacy: Bool
    let wantsCompression: Bool
    /// True if the client asked for a delete message when an update moves a row out of its view. The hub then collects
    /// all matches of an update before it sends anything.
    let wantsMoves: Bool
    let manner: Manner
    /// Index of the channel's newest entry in `MatchedChannels`; valid for the change with the number `stamp`.
    var touch: UInt32 = 0
    /// Log offset of the position that the hub last sent to the client.
    var toldAt: UInt64
    /// Number (`ChangeMoment.number`) of the change to which `touch` belongs.
    var stamp: UInt64 = 0
    /// Offset before which the channel has every change in the rows of its snapshot, for the bindings that begin with
    /// these rows. The router increases it to skip transactions that the snapshot shows.
    fileprivate(set) var rowsUpTo: UInt64

    private static let none = UInt32.max
    public static let unrecorded = UInt32.max

    var soleEnvelope: UInt32? {
        get { soleEnvelopeOrNone == Self.none ? nil : soleEnvelopeOrNone }
        set { soleEnvelopeOrNone = newValue ?? Self.none }
    }

    public init(
        _ connection: ConnectionID, isLegacy: Bool, wantsCompression: Bool, wantsMoves: Bool, since: UInt64,
        rowsUpTo: UInt64 = 0, manner: Manner = .plain, toldAt: UInt64? = nil, seat: UInt32 = Self.unrecorded
    ) {
        self.since = since
        self.rowsUpTo = rowsUpTo
        self.seat = seat
        self.manner = manner
        self.toldAt = toldAt ?? since
        self.wantsMoves = wantsMoves
        self.connection = connection
        self.isLegacy = isLegacy
        self.wantsCompression = wantsCompression
    }

    /// True if a change at the offset is for a binding of the channel: it is after the channel's begin, and not among
    /// the rows with which the binding began.
    @inline(__always)
    func wants(_ offset: UInt64, _ member: Member) -> Bool {
        since <= offset && !(member.beginsWithRows && rowsUpTo > offset)
    }

    /// True if the router can send a change as soon as the channel's only binding matches, without collecting other
    /// matches.
    var isServedAtOnce: Bool { members == 1 && !isHeld && !isLegacy && !wantsMoves && manner == .plain }
}

/// Binding of one channel to one table. Nodes of the predicate index refer to members by number.
struct Member {
    static let noPolicy: UInt32 = .max

    var listener: UInt32
    var view: UInt32
    /// Number of the policy that limits the rows for the listener; `noPolicy` if the listener may see every row.
    var policy = Member.noPolicy
    /// Index of the binding in its channel.
    var binding: UInt8
    /// True if the channel gets the existing rows of the binding's table before changes.
    let beginsWithRows: Bool

    init(
        listener: UInt32, view: UInt32, policy: UInt32 = Member.noPolicy, binding: UInt8, beginsWithRows: Bool = false
    ) {
        self.listener = listener
        self.view = view
        self.policy = policy
        self.binding = binding
        self.beginsWithRows = beginsWithRows
    }
}

/// Set of a channel's bindings, by their indices.
typealias BindingSet = UInt128

/// All channels on one loop that receive changes. Objects refer to each other by index, so that a delivery counts no
/// references.
struct Audience {
    private(set) var listeners = Slots<Listener>()
    /// Recipients by the indices of their listeners. An element at an index without a listener has no meaning.
    var recipients: [Recipient] = []
    private(set) var members = Slots<Member>()
    var envelopes = EnvelopeTable()
    /// Envelopes of channels with several bindings, by the set of bindings that matched. Each is made on first use.
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

    /// True if the member's channel receives the change, and does not have it from a snapshot.
    func wants(_ moment: ChangeMoment, _ member: Member) -> Bool {
        recipients[Int(member.listener)].wants(moment.offset, member)
    }

    /// Returns the recipient of a listener; nil if the listener was removed.
    func recipient(_ listener: UInt32) -> Recipient? {
        listeners.contains(listener) ? recipients[Int(listener)] : nil
    }

    /// Makes later deliveries to the listener wait until a delivery that waits for PostgreSQL has been sent.
    mutating func hold(_ listener: UInt32) { recipients[Int(listener)].isHeld = true }

    /// Records that no delivery to the listener waits any more.
    mutating func release(_ listener: UInt32) { recipients[Int(listener)].isHeld = false }

    /// Records that the hub sends this offset to the client as its position.
    mutating func tell(_ listener: UInt32, at offset: UInt64) { recipients[Int(listener)].toldAt = offset }

    /// Makes the bindings of the listener that began with rows skip the changes before the offset, which these rows
    /// show.
    mutating func skip(_ listener: UInt32, before offset: UInt64) {
        recipients[Int(listener)].rowsUpTo = max(recipients[Int(listener)].rowsUpTo, offset)
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

    /// Returns the envelope for a channel with a single binding.
    mutating func envelope(ofSole member: Member) -> UInt32 {
        assert(recipients[Int(member.listener)].members == 1, "it is the only binding of its channel")
        if let known = recipients[Int(member.listener)].soleEnvelope { return known }
        let made = makeEnvelope(member.listener, view: member.view, 1 << BindingSet(member.binding), legacy: nil)
        recipients[Int(member.listener)].soleEnvelope = made
        return made
    }

    /// Returns the envelope for a set of a channel's bindings.
    mutating func envelope(of listener: UInt32, _ key: SetKey) -> UInt32 {
        precondition(key.bindings != 0, "a change is for some binding of the channel")
        if let known = envelopesOfSets[listener]?[key] { return known }
        // A channel with many overlapping bindings can match in very many combinations.
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
