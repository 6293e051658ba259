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

/// Channel of one client, joined or being joined: its session, its bindings, and its position in the log.
final class Channel {
    /// Entry of `postgres_changes` in a join, with the state of the binding made from it.
    struct Binding {
        let id: UInt32
        /// Parameters from the join; nil if they were invalid, for which the hub sends an error.
        let parameters: BindingParameters?
        /// True if the client wants a delete event for rows that an update moves out of its view.
        var wantsMoves = false
        /// True if the client wants the existing rows before changes.
        var wantsSnapshot = false
        /// True if the channel's snapshot has all rows that the binding can deliver, so that the binding leaves out
        /// the changes that these rows show.
        var beginsWithRows = false
        var tables: [Placement] = []
        /// Rules that decided about the rows of each table (by its oid) when the binding was last placed. Kept for
        /// bindings that want moves.
        var sights: [UInt32: RowSight] = [:]
        /// Newest result of resolving the binding.
        var outcome = Said.nothing
        /// Result that the hub last sent to the client. Each new result is sent once.
        var said = Said.nothing
    }

    /// Result of resolving a binding, in the form in which it is sent to the client.
    enum Said: Equatable {
        case nothing
        /// The client is subscribed. The texts warn about events that the binding cannot deliver.
        case subscribed([ClientText])
        case failed([ClientText])
    }

    /// Kind of receiver of the channel's messages.
    enum Recipient {
        /// Client that joined the channel on a WebSocket.
        case client
        /// HTTP request for changes, for which the hub made the channel.
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
    /// State machine for where the channel stands in the log.
    var position: ChannelPosition
    /// State machine for the progress of the join.
    var join: Join
    var joining: JoiningPart
    var bindings: [Binding]
    /// Ticket of the open question to the catalog about the bindings; 0 if there is none. The channel ignores answers
    /// to earlier questions.
    var ticket: UInt64 = 0
    var delivery = DeliveryPart()
    var told = ReportState()
    /// State of the channel's broadcasts, presence and options.
    var conversation: Conversation
    /// Progress of the snapshot that the hub sends to the client; nil if there is none.
    var snapshot: RunningSnapshot?
    /// Rows that the client may see now but did not before, or the other way, and is not told of yet.
    var otherRows = OtherRows()
    /// Entry in the resume registry, by which the hub recognizes the client if it returns; nil if it could not.
    var resumeEntry: ResumeEntry?
    /// Record of what the ledger's notes say about the channel.
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
        // A channel that resumes from a position receives all messages after it. Replaying messages by time would
        // repeat some.
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
        for index in bindings.indices { bindings[index].beginsWithRows = bindings.beginsWithRows(index) }
        let begun = bindings.filter { $0.parameters != nil }.map(\.beginsWithRows)
        let allBeginWithRows = !begun.isEmpty && begun.allSatisfy { $0 }
        // The snapshot is all that a public channel can have missed. Messages to a public topic are not promised for
        // the time before a join with a snapshot.
        position = ChannelPosition(
            ChannelPosition.Wishes(
                isFeed: session.feed != nil, wantsRows: bindings.contains(where: \.wantsSnapshot),
                wantsRowsOfAll: allBeginWithRows, rowsAreEverything: allBeginWithRows && !join.isPrivate))
        for binding in join.bindings {
            if case .failure(let error) = binding.parameters {
                joining.complaints.append(ClientText(.invalidBinding, error.message))
            }
        }
        if let key = join.presenceKey { conversation.detailed().presenceKey = Array(key.utf8) }
    }

    /// Number of conditions and list values in the channel's filters, which count for the filter budget.
    var filterParts: Int { bindings.reduce(0) { $0 + ($1.parameters?.filterParts ?? 0) } }

    /// True if some binding wants delete events for rows that updates move out of its view.
    var wantsMoves: Bool { bindings.contains(where: \.wantsMoves) }

    /// True if preparing the filters takes long.
    var isHeavy: Bool { filterParts > Limits.filterPartsAtOnce }

    var hasFilters: Bool { bindings.contains { $0.parameters?.filter != nil } }

    var isOpen: Bool { join.isOpen }

    var wantsSnapshot: Bool { bindings.contains(where: \.wantsSnapshot) }

    /// True if the hub must check each database message to the topic against the channel's position.
    var wantsReplay: Bool { joining.replay != .none || position.resumption != .none }

    /// HTTP request for changes that the channel serves; nil for a client's channel.
    var feed: Feed? { if case .feed(let feed) = recipient { feed } else { nil } }

    /// Kind of message that the channel receives for each change.
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

    /// True if the given follower reads the log for this channel.
    func isServed(by other: Follower) -> Bool {
        if let follower = delivery.follower { return follower === other }
        return other.isAtEnd && !position.isResumed
    }

    /// Returns the address for the reply to a message with this ref.
    func address(ref: RawSpan) -> ChannelAddress { ChannelAddress(topic: topic, joinRef: joinRef, ref: ref.copied()) }

    /// Topic without `realtime:`.
    var subTopic: ArraySlice<UInt8> { topic.dropFirst(9) }

    /// Returns a request to the catalog for each binding with valid parameters, with the binding's index.
    func requests() -> [(binding: Int, request: BindingRequest)] {
        let role = claims.role.text
        return bindings.indices.compactMap { index in
            guard let parameters = bindings[index].parameters else { return nil }
            return (index, BindingRequest(role: role, parameters))
        }
    }
}

extension [Channel.Binding] {
    /// True if the channel's snapshot has all rows that the binding with this index can deliver. All bindings that may
    /// have the same table are treated alike: if one of them does not begin with rows, none leaves out changes, because
    /// a delete that only one of them leaves out would be wrong for the client's rows.
    func beginsWithRows(_ index: Int) -> Bool {
        guard let own = self[index].parameters else { return false }
        return allSatisfy { other in
            guard let parameters = other.parameters, parameters.mayShareTable(with: own) else { return true }
            return other.wantsSnapshot
                && contains { $0.wantsSnapshot && $0.parameters?.hasRows(of: parameters) ?? false }
        }
    }
}

extension BindingParameters {
    fileprivate func mayShareTable(with other: BindingParameters) -> Bool {
        (schema == other.schema || schema == "*" || other.schema == "*")
            && (table == other.table || table == "*" || other.table == "*")
    }

    /// True if a snapshot has rows for this binding, among them all rows of the other.
    fileprivate func hasRows(of other: BindingParameters) -> Bool {
        (event == .all || event == .insert) && schema == other.schema && table == other.table
            && (filter == nil || filter == other.filter)
    }
}

extension Channel {
    /// Parts of the join request that are needed until the join is answered or right after it.
    struct JoiningPart {
        /// Monotonic time in nanoseconds at which the join request arrived.
        let begun: UInt64
        let first: [Join.Action]
        /// Bindings from the join request, which the reply repeats; emptied when the reply is sent.
        var reply: [ChangeBinding]
        /// Request for past messages; `none` after they were searched.
        var replay: ReplayDemand
        /// Token from the join request; emptied when the join is answered.
        var token: [UInt8] = []
        /// Errors in the join's parameters, sent after the reply.
        var complaints: [ClientText] = []
        /// Advice about parts of the join that the hub does not understand, sent after the errors.
        var advice: [ClientText]
    }

    /// Follower and listener that deliver the channel's changes, and the holder whose policies apply.
    struct DeliveryPart {
        /// Follower that delivers the channel's changes; nil while the channel is parked or waits for a catch-up.
        var follower: Follower?
        /// Number of the channel's listener in the follower's router; nil while it has none.
        var listener: UInt32?
        /// Holder (role and claims) whose policies apply to the bindings; nil if no binding needs policies.
        var holder: Holder?
        /// Holder on the live follower, prepared before the channel moves there; nil otherwise.
        var nextHolder: Holder?
        /// Tables for which the channel is parked until PostgreSQL shows their transactions.
        var heldBy: Set<UInt32> = []
        /// True while the channel receives no changes because its session's filters took too much work.
        var isResting = false
    }

    /// Reports about missing rows and values: those that the client was sent, and those that are due.
    struct ReportState {
        /// Offset before which the client knows of changes that were lost while tables were outside the publication.
        var republishedUpTo: UInt64 = 0
        /// Messages already sent about generated columns that PostgreSQL could not compute. Each is sent once.
        var uncomputed: Set<ClientText> = []
        /// Messages to send about truncated or removed rows, each with its offset.
        var truncationsDue: [(at: UInt64, text: ClientText)] = []
        /// Report that records lack values, with its pauses.
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
