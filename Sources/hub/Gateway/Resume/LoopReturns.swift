import Bytes
import Channels
import Delivery
import Diagnostics
import EventLog
import Net
import Positions
import Protocol
import System
import WebSocket

extension Channel {
    /// Entry of a channel in the resume registry, by which the hub recognizes a returning client.
    struct ResumeEntry {
        let key: ResumeKey
        /// Index of the entry in the registry; nil until the channel was entered or if there is no room.
        var place: ResumeRegistry.Place?
    }

    /// State of a channel that ended while its socket stayed open.
    struct Ended {
        /// Position before which the hub had sent everything on this socket. All of that arrives before anything sent
        /// later.
        let sent: EventLogPosition
        /// True if the hub still had to report a loss to the client.
        let owesLoss: Bool
        /// Position up to which the client had acknowledged everything.
        let got: EventLogPosition
        /// Offset before which the client knows of changes that were lost while tables were outside the publication.
        let knowsRepublishedUpTo: UInt64
        /// Index of the channel's entry in the resume registry; nil if it had none.
        let place: ResumeRegistry.Place?
        let lossReport: ChannelReceipt.LossReport
    }

    /// Sets the channel's registry entry and receipt. Nil means that the hub could not recognise the client on return.
    func keep(_ entry: ResumeEntry?, _ receipt: ChannelReceipt = ChannelReceipt()) {
        resumeEntry = entry
        position.keep(entry == nil ? nil : receipt)
    }
}

/// Returns of clients whose sockets broke. The hub recognizes such a client, and resumes its channels where they were.
final class LoopReturns: LoopPart {
    unowned let home: ProjectLoop
    /// Channels whose acknowledged offsets differ from their sockets', or must be written to the disk.
    private var receipts = ReceiptTracker()

    init(of home: ProjectLoop) { self.home = home }

    // MARK: Arrival

    /// Decides which changes from before its join a joining channel receives. The loop calls this before it places the
    /// bindings, when nothing can refuse the join any more. The hub sends a client that was connected before everything
    /// since then, or tells it that changes may be missing.
    func recognize(_ channel: Channel) {
        let session = channel.session
        guard channel.feed == nil else { return }
        let resumeStore = project.settings.resumeStore
        let past =
            resumeStore.map { session.past.ended.take($0.socketKey(of: channel)) } ?? session.past.ended.ofAnything
        if case .kept(let ended) = past { return goOn(channel, behind: ended) }
        assert(
            channel.delivery.follower == nil && channel.resumeEntry == nil, "a channel resumes before it is bound, once"
        )
        let key = resumeStore?.key(of: channel)
        channel.keep(key.map { Channel.ResumeEntry(key: $0) })
        if case .mayBeForgotten = past { return tellThatPastIsUnknown(channel) }
        let arrival =
            resumeStore?.arrival(
                key, of: taker(channel), firstRef: session.refs.first, on: clients.number,
                now: loop.time.monotonicNanoseconds(), keyOf: { resumeStore?.key(of: channel, $0) })
            ?? (session.refs.first > 1 ? .unknown : .begins)
        switch arrival {
        case .begins: break
        case .goesOn(let claim):
            session.past.topicsWithSettledPast.remember((), for: channel.topic)
            channel.resumeEntry?.place = claim.place
            channel.told.republishedUpTo = 0
            home.take(.recognised(claim.mark, owesLoss: claim.owesLoss), channel)
        case .unknown:
            // A client that left the topic on this socket begins again when it joins.
            if case .kept = session.past.topicsWithSettledPast[channel.topic] { return }
            tellThatPastIsUnknown(channel)
        }
    }

    private func tellThatPastIsUnknown(_ channel: Channel) {
        metrics.returns[.unknown].add()
        let isRepeated: Bool
        switch channel.session.past.topicsWithSettledPast[channel.topic] {
        case .never: isRepeated = false
        case .kept, .mayBeForgotten: isRepeated = true
        }
        channel.session.past.topicsWithSettledPast.remember((), for: channel.topic)
        home.take(.pastUnknown(isRepeated: isRepeated), channel)
    }

    /// Returns the address and socket whose limits apply to the registry entries of the channel's client.
    private func taker(_ channel: Channel) -> ResumeRegistry.Taker {
        let connection = channel.session.connection
        var socket = KeyHash(seed: UInt64(clients.number))
        socket.combine(UInt64(connection.seat) << 32 | UInt64(connection.generation))
        return ResumeRegistry.Taker(
            address: channel.session.peer.subscriber, socket: UInt32(truncatingIfNeeded: socket.value))
    }

    /// Resumes a channel that the client joins again on the same socket, without having left it.
    private func goOn(_ channel: Channel, behind ended: Channel.Ended) {
        if let resumeStore = project.settings.resumeStore, let key = resumeStore.key(of: channel) {
            let place = resumeStore.comeBack(
                to: ended.place, key, of: taker(channel), on: clients.number,
                lastRef: channel.session.refs.last,
                at: (ended.got, ended.owesLoss || ended.lossReport != .none), now: loop.time.monotonicNanoseconds())
            channel.keep(
                Channel.ResumeEntry(key: key, place: place),
                ChannelReceipt(own: ended.got.offset, lossReport: ended.lossReport))
        }
        channel.told.republishedUpTo = ended.knowsRepublishedUpTo
        home.take(.recognised(ended.sent, owesLoss: ended.owesLoss), channel)
    }

    /// Begins to track the acknowledged offset of a channel that was just joined, in case its client returns.
    func expectBack(_ channel: Channel) {
        guard channel.resumeEntry != nil else { return }
        let begins = channel.position.since ?? home.live.pipeline.frontier
        channel.position.note { $0.begin(at: begins) }
        receipts.begin(channel.place, at: begins)
        enter(channel)
        clients.receipts.begin()
    }

    /// Enters the channel under another key, because its token was replaced. The client will return with the new token.
    func reenter(_ channel: Channel) {
        guard let resumeStore = project.settings.resumeStore, let resumeEntry = channel.resumeEntry else { return }
        let key = resumeStore.key(of: channel)
        guard key != resumeEntry.key else { return }
        let stood = acknowledgedOffset(of: channel)
        if let place = resumeEntry.place { resumeStore.leave(place) }
        channel.keep(
            key.map { Channel.ResumeEntry(key: $0) },
            ChannelReceipt(own: stood, lossReport: channel.position.receipt?.lossReport ?? .none))
        guard key != nil else { return }
        receipts.separateFromSocket(channel.place)
        enter(channel)
    }

    /// Adds the channel to the resume registry, if the log has begun and there is room.
    private func enter(_ channel: Channel) {
        guard let resumeEntry = channel.resumeEntry, resumeEntry.place == nil, let own = channel.position.receipt?.own,
            let resumeStore = project.settings.resumeStore, let mark = logMark(own, channel)
        else { return }
        let place = resumeStore.arrive(
            resumeEntry.key, of: taker(channel), on: clients.number, lastRef: channel.session.refs.last, at: mark,
            owesLoss: channel.owesLoss,
            now: loop.time.monotonicNanoseconds())
        channel.resumeEntry?.place = place
    }

    private func logMark(_ offset: UInt64, _ channel: Channel) -> EventLogPosition? {
        channel.position.epoch(home.view(of: channel)).map { EventLogPosition(epoch: $0, offset: offset) }
    }

    // MARK: Leaving

    func hasEnded(_ channel: Channel, comesBack: Bool) {
        assert(home.channels[channel.place] == nil, "a channel departs after it was removed")
        receipts.forget(channel.place)
        // The hub has not reported a loss to the client. It does so when the client joins again.
        if comesBack, channel.position.owedLoss != nil {
            channel.session.past.topicsWithSettledPast.take(channel.topic)
        }
        guard let resumeStore = project.settings.resumeStore else {
            if comesBack, channel.isOpen { channel.session.past.ended.forget() }
            return
        }
        guard comesBack else {
            if let place = channel.resumeEntry?.place { resumeStore.leave(place) }
            return
        }
        depart(channel, resumeStore)
        if !channel.session.past.hasGone { remember(channel, resumeStore) }
    }

    /// Marks the channel as disconnected in the registry: its client may return on another socket.
    private func depart(_ channel: Channel, _ resumeStore: ResumeStore) {
        guard let resumeEntry = channel.resumeEntry else { return }
        let session = channel.session
        guard let kept = channel.position.kept(home.view(of: channel), acknowledged: acknowledgedOffset(of: channel)),
            let place = resumeEntry.place
                ?? resumeStore.arrive(
                    resumeEntry.key, of: taker(channel), on: clients.number, lastRef: session.refs.last, at: kept,
                    owesLoss: channel.owesLoss,
                    now: loop.time.monotonicNanoseconds())
        else {
            if let place = resumeEntry.place { resumeStore.leave(place) }
            return
        }
        resumeStore.depart(
            place, at: kept, lastRef: session.refs.last, owesLoss: channel.owesLoss,
            heard: loop.certainlySentAfter(session.connection), now: loop.time.monotonicNanoseconds())
    }

    /// Stores the channel's state in its session, because the client may join again on the same socket.
    private func remember(_ channel: Channel, _ resumeStore: ResumeStore) {
        guard channel.feed == nil else { return }
        guard let left = channel.position.left(home.view(of: channel), acknowledged: acknowledgedOffset(of: channel))
        else {
            return
        }
        channel.session.past.ended.remember(
            Channel.Ended(
                sent: left.sent, owesLoss: channel.owesReport, got: left.got,
                knowsRepublishedUpTo: channel.told.republishedUpTo,
                place: channel.resumeEntry?.place, lossReport: channel.position.receipt?.lossReport ?? .none),
            for: resumeStore.socketKey(of: channel))
    }

    /// Returns the offset before which the hub has sent everything to the client; nil if it has sent nothing.
    func sentOffset(of channel: Channel) -> UInt64? {
        channel.position.sent(home.view(of: channel), acknowledged: acknowledgedOffset(of: channel))
    }

    /// Fixes the sent offsets of the channels on a socket that takes no more data and will be closed. Later changes
    /// count as not sent.
    func fixSentOffsets(_ session: Session) {
        for channel in session.channels.compactMap({ $0.flatMap { home.channels[$0] } }) {
            home.take(.socketEnds(home.view(of: channel), acknowledged: acknowledgedOffset(of: channel)), channel)
        }
    }

    /// Returns the log offset before which the channel's client has acknowledged everything.
    func acknowledgedOffset(of channel: Channel) -> UInt64? {
        let ofSocket = channel.position.receipt?.own ?? channel.session.receipt.since ?? receipts.mark
        let acknowledged = channel.position.acknowledged(ofSocket)
        assert(
            channel.position.wasSent(upTo: acknowledged, home.view(of: channel)),
            "a client acknowledges no more than it was sent")
        return acknowledged
    }

    /// Records that the client was sent a loss report. The next acknowledgement shows that it has received the report.
    func isToldOfLoss(_ channel: Channel) {
        guard channel.resumeEntry != nil else { return }
        channel.position.note { $0.noteLossReport() }
        receipts.noteChange(channel.place)
    }

    // MARK: Acknowledged offsets

    /// Begins to track individually those channels with changes that wait for PostgreSQL. The loop calls this before it
    /// pings clients, because these channels have received less than the others of their sockets.
    func trackWaitingChannels() {
        guard project.settings.resumeStore != nil, home.live.pipeline.holdsAnybody else { return }
        for place in home.channels.indices {
            guard let channel = home.channels[place], channel.isOpen, home.live.holds(channel) else { continue }
            trackIndividually(channel)
        }
    }

    /// Begins to track a channel's acknowledged offset apart from its socket's. Of the socket's acknowledgements, only
    /// that of the current ping applies to the channel.
    func trackIndividually(_ channel: Channel) {
        guard let receipt = channel.position.receipt else { return }
        let (acknowledged, asked) = (acknowledgedOffset(of: channel), channel.session.receipt.asked)
        channel.position.note { $0.separate(acknowledged: acknowledged, asked: asked) }
        guard receipt.own == nil else { return }
        receipts.separateFromSocket(channel.place)
    }

    /// Pings a client, whose answer acknowledges what it was sent. At most one ping is open.
    func ping(_ session: Session) {
        let places = session.channels.compactMap(\.self).filter { home.channels[$0]?.resumeEntry != nil }
        guard !places.isEmpty else { return }
        guard let mark = receipts.mark, let epoch = home.live.pipeline.epoch else {
            // A catch-up follower may serve the client before the live follower has opened the log.
            return clients.receipts.pingNext(session.connection)
        }
        guard let offset = session.receipt.sent(after: mark, upTo: home.live.pipeline.frontier) else { return }
        for place in places {
            guard let channel = home.channels[place] else { continue }
            let hasItAll = !channel.position.awaitsRows && channel.position.seen == nil
            let reached = channel.position.reach(home.view(of: channel))
            channel.position.note { $0.notePing(about: reached, hasItAll: hasItAll) }
            receipts.noteChange(place)
        }
        clients.receipts.ping("\(EventLogPosition(epoch: epoch, offset: offset))", session)
    }

    /// Applies a client's answer to a ping: the client has received everything that was sent before the ping.
    func ponged(_ text: String, _ session: Session) {
        guard let position = EventLogPosition(text) else { return }
        switch session.receipt.answered(position.offset) {
        case .none: return
        case .quiet: break
        case .more: clients.receipts.pingNext(session.connection)
        }
        for case let place? in session.channels {
            guard let channel = home.channels[place], channel.position.receipt != nil else { continue }
            settle(channel) { $0.noteAnswer() }
        }
    }

    /// Applies an acknowledgement to the channel's receipt. The socket's offset may apply to the channel afterwards.
    private func settle(_ channel: Channel, _ acknowledge: (inout ChannelReceipt) -> Void) {
        channel.position.note(acknowledge)
        if channel.position.receipt?.own == nil { receipts.joinToSocket(channel.place) }
        receipts.noteChange(channel.place)
    }

    /// Writes the acknowledged offsets to the resume store, after clients were pinged.
    func writeReceipts() {
        home.snapshots.forgetPassed()
        guard let resumeStore = project.settings.resumeStore, home.live.pipeline.isOpen,
            let epoch = home.live.pipeline.epoch
        else { return }
        let now = EventLogPosition(epoch: epoch, offset: home.live.pipeline.frontier)
        for place in receipts.separated {
            guard let channel = home.channels[place] else { continue }
            // The client has acknowledged everything that it was sent.
            if channel.session.receipt.since == nil, let reach = channel.position.reach(home.view(of: channel)) {
                settle(channel) { $0.settle(reach) }
            }
            enter(channel)
        }
        var stands: [ResumeStore.Stand] = []
        for channel in receipts.takeChanged(allReached: now.offset).compactMap({ home.channels[$0] }) {
            // A returning channel keeps its former position until its join is answered.
            guard channel.isOpen, let resumeEntry = channel.resumeEntry, let place = resumeEntry.place else { continue }
            let own = channel.position.receipt?.own ?? channel.session.receipt.since
            stands.append(
                ResumeStore.Stand(
                    place: place, mark: own.flatMap { logMark($0, channel) }, lastRef: channel.session.refs.last,
                    owesLoss: channel.owesLoss, heard: loop.certainlySentAfter(channel.session.connection)))
        }
        let doubted = resumeStore.update(
            now, of: clients.number, stands, now: loop.time.monotonicNanoseconds(), metrics)
        if !doubted.isEmpty { ask(Set(doubted)) }
    }

    /// Pings clients whose registry entries are in doubt: the hub took a newly joined client for one of them. An answer
    /// to the ping shows that the entry belongs to another client, which is still connected.
    private func ask(_ doubted: Set<ResumeRegistry.Place>) {
        for place in home.channels.indices {
            guard let channel = home.channels[place], let entered = channel.resumeEntry?.place,
                doubted.contains(entered)
            else {
                continue
            }
            ping(channel.session)
        }
    }
}

extension Channel {
    /// True if the hub has a report for the client that it has not sent: of a loss, of missing values or of a
    /// truncation.
    fileprivate var owesReport: Bool {
        position.owesReport || told.lacks.untold != nil || !told.truncationsDue.isEmpty
    }

    /// True if the hub has not reported some loss, or does not know if the client has received the report.
    fileprivate var owesLoss: Bool { owesReport || position.owesLoss }
}

extension PeerAddress {
    /// Hash of a subscriber's address: the whole IPv4 address, or the first half of an IPv6 one.
    fileprivate var subscriber: UInt32 {
        var hash = KeyHash(seed: isIPv6 ? 6 : 4)
        hash.combine(network)
        return UInt32(truncatingIfNeeded: hash.value)
    }
}
