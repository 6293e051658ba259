import Auth
import Bytes
import Catalog
import Channels
import Delivery
import Diagnostics
import EventLog
import Matching
import Net
import Positions
import Protocol
import Snapshots

/// Joined or joining channel of one client: its owner, its bindings, and its progress in the log.
final class Channel {
    /// One `postgres_changes` entry.
    struct Binding {
        let id: UInt32
        /// Parameters from the join; nil if they were invalid. The client receives an error about that.
        let parameters: BindingParameters?
        /// True if the client wants events for rows that an update moves out of its view.
        var wantsMoves = false
        /// True if the client wants the existing rows before changes.
        var wantsSnapshot = false
        var tables: [Placement] = []
        /// Outcome of resolving the binding. `said` is the outcome last sent to the client, which receives each new
        /// outcome once.
        var outcome = Said.nothing
        var said = Said.nothing
    }

    enum Said: Equatable {
        case nothing
        /// Subscribed, with warnings about events that the binding cannot receive.
        case subscribed([ClientText])
        case failed([ClientText])
    }

    /// Receiver of the channel's messages.
    enum Recipient {
        /// Client that joined the channel on its WebSocket.
        case client
        /// Request for changes. It has a channel of its own, which nobody joined.
        case feed(Feed)
    }

    let id: ChannelID
    let session: Session
    let recipient: Recipient
    /// Index of the channel in `ProjectLoop.channels`.
    var place: UInt32 = 0
    let topic: [UInt8]
    let joinRef: [UInt8]
    var claims: Claims
    let isLegacy: Bool
    /// Machine that decides where the channel stands in the log.
    var position: ChannelPosition
    /// Machine that decides on the progress of the join.
    var join: Join
    var joining: JoiningPart
    var bindings: [Binding]
    /// Number of the current question to the catalog about the bindings; 0 for none. Answers to older questions are
    /// ignored.
    var ticket: UInt64 = 0
    var delivery = DeliveryPart()
    var told = ToldPart()
    /// State of the channel's broadcasts, presence and options.
    var conversation: Conversation
    /// Snapshot that the client receives; nil if none is under way.
    var snapshot: RunningSnapshot?
    /// Data kept for the client's return; nil if the hub could not recognize the client.
    var resumeEntry: ResumeEntry?
    /// State of the channel in the ledger.
    var ledger = ChannelLedgerEntry()
    var timers = ChannelTimers()

    init(
        _ id: ChannelID, _ session: Session, topic: [UInt8], joinRef: [UInt8], claims: Claims, _ join: JoinRequest,
        at now: UInt64
    ) {
        assert(topic.starts(with: "realtime:".utf8), "a channel's topic has the prefix that subTopic drops")
        self.id = id
        self.session = session
        recipient = session.feed.map { .feed($0) } ?? .client
        self.topic = topic
        self.joinRef = joinRef
        self.claims = claims
        isLegacy = join.isLegacy
        conversation = Conversation(Conversation.Options(join))
        // A channel that resumes from a position receives all messages since then. A replay by time would repeat them.
        let replay = join.replay == .ignored || join.resumption != .none ? .none : join.replay
        let first: [Join.Action]
        (self.join, first) = Join.begin(isPrivate: join.isPrivate, wantsPast: replay != .none)
        joining = JoiningPart(begun: now, first: first, reply: join.bindings, replay: replay, advice: join.advice)
        let movesOfAll = join.options[.moves] ?? false
        let snapshotOfAll = join.options[.snapshot] ?? false
        bindings = join.bindings.map { binding in
            let parameters = try? binding.parameters.get()
            return Binding(
                id: binding.id, parameters: parameters, wantsMoves: parameters?.options[.moves] ?? movesOfAll,
                wantsSnapshot: parameters?.options[.snapshot] ?? snapshotOfAll)
        }
        let isSnapshotWanted = bindings.contains(where: \.wantsSnapshot)
        // The database's messages to a public channel's topic went to everybody, and a public channel with a snapshot is
        // promised none.
        position = ChannelPosition(
            ChannelPosition.Wishes(
                isFeed: session.feed != nil, wantsRows: isSnapshotWanted,
                rowsAreEverything: isSnapshotWanted && !join.isPrivate))
        for binding in join.bindings {
            if case .failure(let error) = binding.parameters {
                joining.complaints.append(ClientText(.invalidBinding, error.message))
            }
        }
        if let key = join.presenceKey { conversation.detailed().presenceKey = Array(key.utf8) }
    }

    /// Number of conditions and list values in the channel's filters, which the filter budget counts.
    var filterParts: Int { bindings.reduce(0) { $0 + ($1.parameters?.filterParts ?? 0) } }

    /// True if a binding wants events for rows that updates move out of its view.
    var wantsMoves: Bool { bindings.contains(where: \.wantsMoves) }

    /// True if the filters take long to prepare.
    var isHeavy: Bool { filterParts > Limits.filterPartsAtOnce }

    var hasFilters: Bool { bindings.contains { $0.parameters?.filter != nil } }

    var isOpen: Bool { join.isOpen }

    var wantsSnapshot: Bool { bindings.contains(where: \.wantsSnapshot) }

    /// True if each database message to the topic must be checked against the channel's position.
    var wantsReplay: Bool { joining.replay != .none || position.resumption != .none }

    /// Request for changes that the channel belongs to; nil for a client's channel.
    var feed: Feed? { if case .feed(let feed) = recipient { feed } else { nil } }

    /// Form in which the channel's changes are sent.
    var manner: Delivery.Recipient.Manner {
        switch recipient {
        case .feed: .feed
        case .client: conversation.options.contains(.hearsPosition) ? .positioned : .plain
        }
    }

    /// Form of the envelopes of the channel's changes.
    var envelopeForm: EnvelopeForm {
        switch recipient {
        case .feed(let feed): .records(feed.form)
        case .client: .messages(session.terms.version)
        }
    }

    /// Topic under which the ledger lists the channel.
    var ledgerTopic: [UInt8] {
        switch recipient {
        case .feed: Feed.ledgerTopic
        case .client: topic
        }
    }

    /// True if the given follower's events are for this channel.
    func isServed(by other: Follower) -> Bool {
        if let follower = delivery.follower { return follower === other }
        return other.isAtEnd && !position.isResumed
    }

    /// Returns the address for the reply to a message with this ref.
    func address(ref: RawSpan) -> ChannelAddress { ChannelAddress(topic: topic, joinRef: joinRef, ref: ref.copied()) }

    /// The topic without `realtime:`.
    var subTopic: ArraySlice<UInt8> { topic.dropFirst(9) }

    /// Returns a catalog request for each binding with valid parameters, with the binding's index.
    func requests() -> [(binding: Int, request: BindingRequest)] {
        let role = claims.role.text
        return bindings.indices.compactMap { index in
            guard let parameters = bindings[index].parameters else { return nil }
            return (index, BindingRequest(role: role, parameters))
        }
    }
}

extension Channel {
    /// Parts of the join request that count until the join is answered, and what follows the answer at once.
    struct JoiningPart {
        /// Monotonic time of the join request, in nanoseconds.
        let begun: UInt64
        let first: [Join.Action]
        /// Bindings from the join request, repeated in the reply; emptied when the reply is sent.
        var reply: [ChangeBinding]
        /// Request for past messages; `none` once they were looked up.
        var replay: ReplayDemand
        /// Token from the join request; emptied when the join is answered.
        var token: [UInt8] = []
        /// Errors in the join's parameters, sent after the reply.
        var complaints: [ClientText] = []
        /// Advice about parts of the join that the hub does not understand, sent after the errors.
        var advice: [ClientText]
    }

    /// Follower and listener that deliver the channel's changes, and the rights by which they are judged.
    struct DeliveryPart {
        /// Follower that delivers the channel's changes; nil while the channel is parked or waits for a catch-up.
        var follower: Follower?
        var listener: UInt32?
        /// Holder (role and claims) whose policies apply to the bindings; nil until a binding needs policies.
        var holder: Holder?
        /// Holder for the live follower, prepared before the channel moves there.
        var nextHolder: Holder?
        /// Tables for which the channel is parked, until PostgreSQL shows their transactions.
        var heldBy: Set<UInt32> = []
        /// True while the channel receives no changes because of its session's filter pause.
        var isResting = false
    }

    /// Reports about rows and values that did not come: those that the client was sent, and those that are due.
    struct ToldPart {
        /// Offset up to which the client knows about changes that were lost while tables were outside the publication.
        var republishedUpTo: UInt64 = 0
        /// Messages already sent about generated columns that could not be computed. Each is sent once.
        var uncomputed: Set<ClientText> = []
        /// Messages not sent yet about truncated or removed rows, with their offsets.
        var truncationsDue: [(at: UInt64, text: ClientText)] = []
        /// Report that records lacked values, with its pause.
        var lacks = PacedReport<Void>()
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
