import Auth
import Bytes
import Catalog
import Channels
import Delivery
import Diagnostics
import EventLog
import Matching
import Net
import Protocol
import Snapshots

/// A channel that is joined or being joined: whose it is, and what it wants of the tables.
final class Channel {
    /// One `postgres_changes` entry.
    struct Binding {
        let id: UInt32
        /// Nil: its parameters could not be used, which was said.
        var parameters: BindingParameters?
        /// It wants to hear of rows that move out of its view.
        var wantsMoves = false
        /// It wants to be told first what rows there are.
        var wantsSnapshot = false
        var tables: [Placement] = []
        /// What it came to, and what of that was said: once each time it changes.
        var outcome = Said.nothing
        var said = Said.nothing
    }

    enum Recovery: Equatable {
        /// Nobody asked for one.
        case none
        /// Whether it can be told what it missed since then is known when the log has begun.
        case asked(EventLogPosition)
        /// What it missed from there on has been told, or will be.
        case from(EventLogPosition)
        case refused(LogStanding.Refusal)
    }

    enum Said: Equatable {
        case nothing
        /// With what is not to be expected of it.
        case subscribed([ClientText])
        case failed([ClientText])
    }

    let id: ChannelID
    let session: Session
    /// Up to where it was sent everything when its socket stopped to take more.
    var sentAtEnd: UInt64?
    /// Among the loop's channels.
    var place: UInt32 = 0
    /// What it was joined with, until that is answered.
    var joinToken: [UInt8] = []
    /// When it was asked for.
    let begun: UInt64
    /// How far the join has come.
    var join: Join
    let firstOfJoin: [Join.Action]
    let topic: [UInt8]
    let joinRef: [UInt8]
    var claims: Claims
    let isLegacy: Bool
    var bindings: [Binding]
    /// What its filters count.
    let filterParts: Int
    /// The join's bindings as the reply repeats them; nil once it was answered.
    var reply: [ChangeBinding]?
    /// What it says and hears beside changes of tables.
    var conversation: Conversation
    /// Of the past; nil when that was looked up.
    var replay: ReplayDemand
    /// Of rows that updates take out of its view.
    let wantsMoves: Bool
    /// Where its bindings are placed; nil while it waits for one that begins where it has to go on.
    var follower: Follower?
    /// Where in the log what it hears begins; nil until it is bound.
    var since: UInt64?
    /// The position that its client was told last, where that was by another follower than its own.
    var toldAt: UInt64?
    /// What became of its wish to go on from a position.
    var recovery = Recovery.none
    /// What it is told of the rows that there are, before it hears of changes.
    var snapshot = Snapshot.none
    /// What it was told so, as long as the log may still come to some of that …
    var seen: SeenTransactions?
    /// … and where in the log what it does not have begins.
    var floor: UInt64 = 0
    /// The rows could not be had, and may be when it joins again: it gets them then.
    var lacksSnapshot = false
    /// Nobody asked for it: its client came back, and is taken for the one that was here.
    var isReturning = false
    /// What is kept for its client's coming back; nil where it could not be known again.
    var departure: Departure?
    /// Whose policies will count when the follower at the log's end takes it over.
    var nextHolder: Holder?
    /// Whose policies count for its bindings; nil until one needs them.
    var holder: Holder?
    var listener: UInt32?
    /// Tables that the channel is parked for, until PostgreSQL shows their transactions.
    var heldBy: Set<UInt32> = []
    /// Errors in the parameters, to be said after the reply.
    var complaints: [ClientText] = []
    /// What was asked for and is not understood, to be said then as well.
    var advice: [ClientText] = []
    /// The question to the catalog that is under way; answers to older ones are of no use.
    var ticket: UInt64 = 0
    /// From there on the ledger has it as joined, and is to have its end; nil where it has not.
    var inLedgerSince: UInt64?
    var isInLedger: Bool { inLedgerSince != nil }
    /// Under which it is recorded what it is sent, where that is.
    var ledgerSeat: UInt32?
    /// When it was noted there last; nil where there was no room for that.
    var noted: Noted?

    struct Noted {
        /// Where the log was.
        var at: UInt64
        /// How often notes had been missed until then.
        var behindMisses: UInt32
    }
    /// When the token is looked at again.
    var expiry: TimerID?
    var joinTimer: TimerID?
    /// When the bindings are asked for again.
    var bindTimer: TimerID?
    /// Loss that the client is told when the timer has ended.
    var untoldLoss: LossReason?
    /// Left out of changes with its session.
    var isResting = false
    /// It was told of what never comes of tables that were out of the publication, as far as that was noticed before here.
    var knowsRepublishedUpTo: UInt64 = 0
    /// Loss that the client is told when its bindings are in place. Until then, more is missing.
    var missesUntilBound: LossReason?
    /// What it was told of generated columns that could not be computed: each thing once.
    var toldOfUncomputed: Set<ClientText> = []
    /// Tables of which all rows have gone, which it has not been told.
    var untoldTruncations: [(at: UInt64, text: ClientText)] = []
    /// Records lack values, of which it is to be told when the timer has ended.
    var lacksUntold = false
    var lackTimer: TimerID?
    var lossTimer: TimerID?
    /// When it is looked again whether the database's messages arrive.
    var readyTimer: TimerID?

    init(
        _ id: ChannelID, _ session: Session, topic: [UInt8], joinRef: [UInt8], claims: Claims, _ join: JoinRequest,
        at now: UInt64
    ) {
        self.id = id
        begun = now
        self.session = session
        self.topic = topic
        self.joinRef = joinRef
        self.claims = claims
        isLegacy = join.isLegacy
        conversation = Conversation(Conversation.Options(join))
        // Who goes on from a position gets what came since from there, and not once more by the moment.
        replay = join.replay == .ignored || join.resumption != .none ? .none : join.replay
        (self.join, firstOfJoin) = Join.begin(
            isPrivate: join.isPrivate, wantsPast: replay != .none)
        reply = join.bindings
        let movesOfAll = join.options[.moves] ?? false
        let snapshotOfAll = join.options[.snapshot] ?? false
        bindings = join.bindings.map { binding in
            let parameters = try? binding.parameters.get()
            return Binding(
                id: binding.id, parameters: parameters, wantsMoves: parameters?.options[.moves] ?? movesOfAll,
                wantsSnapshot: parameters?.options[.snapshot] ?? snapshotOfAll)
        }
        let isSnapshotWanted = bindings.contains(where: \.wantsSnapshot)
        snapshot = isSnapshotWanted ? .wanted : .none
        filterParts = bindings.reduce(0) { $0 + ($1.parameters?.filterParts ?? 0) }
        wantsMoves = bindings.contains(where: \.wantsMoves)
        advice = join.advice
        for binding in join.bindings {
            if case .failure(let error) = binding.parameters {
                complaints.append(ClientText(.invalidBinding, error.message))
            }
        }
        if let key = join.presenceKey { conversation.detailed().presenceKey = Array(key.utf8) }
    }

    /// Its filters take long to make ready.
    var isHeavy: Bool { filterParts > Limits.filterPartsAtOnce }

    var hasFilters: Bool { bindings.contains { $0.parameters?.filter != nil } }

    var isOpen: Bool { join.isOpen }

    var wantsSnapshot: Bool { bindings.contains(where: \.wantsSnapshot) }

    /// What the database says to its topic is looked at one by one, whether it is for the channel.
    var wantsReplay: Bool { replay != .none || recovery != .none }

    /// How its changes are told.
    var manner: Recipient.Manner {
        if session.feed != nil { return .feed }
        return conversation.options.contains(.hearsPosition) ? .positioned : .plain
    }

    /// What that follower comes to is for it.
    func isServed(by other: Follower) -> Bool {
        if let follower { return follower === other }
        return other.isAtEnd && !recovery.isWanted
    }

    /// For the answer to a message.
    func address(ref: RawSpan) -> ChannelAddress { ChannelAddress(topic: topic, joinRef: joinRef, ref: ref.copied()) }

    /// The topic without `realtime:`.
    var subTopic: ArraySlice<UInt8> { topic.dropFirst(9) }

    /// What the catalog is asked for each binding that can be asked about, and which one that is.
    func requests() -> [(binding: Int, request: BindingRequest)] {
        let role = claims.role.text
        return bindings.indices.compactMap { index in
            guard let parameters = bindings[index].parameters else { return nil }
            return (index, BindingRequest(role: role, parameters))
        }
    }
}

extension Channel.Recovery {
    /// What it missed is to be told to it.
    var isWanted: Bool {
        switch self {
        case .asked, .from: true
        case .none, .refused: false
        }
    }

    var outcome: ProjectMetrics.Resume? {
        switch self {
        case .none, .asked: nil
        case .from: .recovered
        case .refused(.olderThanRetention): .olderThanRetention
        case .refused(.otherEpoch): .otherEpoch
        case .refused(.unknown): .unknown
        case .refused(.unreadable): .unreadable
        }
    }
}

extension Conversation.Options {
    init(_ join: JoinRequest) {
        self = []
        if join.acknowledgesBroadcasts { insert(.acknowledges) }
        if join.receivesOwnBroadcasts { insert(.hearsItself) }
        if join.enablesPresence { insert(.showsPresence) }
        if join.isPrivate { insert(.isPrivate) }
        if join.wantsReplicationReady { insert(.wantsReplicationReady) }
        if join.options[.limits] == true { insert(.hearsOfLimits) }
        if join.options[.position] == true { insert(.hearsPosition) }
    }
}

extension BindingRequest {
    init(role: String, _ parameters: BindingParameters) {
        let operations: RowOperations =
            switch parameters.event {
            case .all: .all
            case .insert: .insert
            case .update: .update
            case .delete: .delete
            }
        self.init(
            role: role, schema: parameters.schema, table: parameters.table, filter: parameters.filter,
            select: parameters.select.isEmpty ? nil : parameters.select, operations: operations)
    }
}
