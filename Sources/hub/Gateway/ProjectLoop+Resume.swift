import Bytes
import Channels
import Delivery
import Diagnostics
import EventLog
import Net
import Protocol
import System
import WebSocket

extension Channel {
    /// Data kept about a channel, so that its returning client can resume.
    struct ResumeEntry {
        enum Reach {
            /// Changes before this offset.
            case offset(UInt64)
            /// Changes that the socket's receipt confirms.
            case socket
        }

        let key: ResumeKey
        var place: ResumeRegistry.Place?
        /// Offset acknowledged by the client, if it differs from the socket's receipt. `pinged` is the extent that the
        /// current ping asks about.
        var own: UInt64?
        var pinged: Reach?
        var loss = Loss.none

        /// State of a reported loss. The client may not have received the report yet.
        enum Loss { case none, told, asked }
    }

    /// Data about a channel that ended before its socket.
    struct Ended {
        /// Position up to which everything was sent on this socket. All of that arrives before anything sent now.
        let sent: EventLogPosition
        /// True if a loss was not reported yet.
        let owesLoss: Bool
        /// Position that the client had acknowledged.
        let got: LogMark
        let knowsRepublishedUpTo: UInt64
        let resumeEntry: ResumeEntry?
    }
}

/// Automatic resume. The hub recognizes a client that returns after its socket was cut, and continues where the client
/// was.
extension ProjectLoop {
    // MARK: Arrival

    /// Decides which part of the time before its join a joining channel receives. The loop calls this before the
    /// bindings are placed, when nothing can refuse the join any more. A client object that was connected before
    /// receives everything since then, or is told that changes may be missing.
    func resumeFromKnownPosition(_ channel: Channel) {
        let session = channel.session
        guard session.feed == nil else { return }
        let resumeStore = project.settings.resumeStore
        let past = resumeStore.map { session.ended.take($0.socketKey(of: channel)) } ?? session.ended.ofAnything
        if case .kept(let ended) = past { return goOn(channel, behind: ended) }
        assert(channel.follower == nil && channel.resumeEntry == nil, "a channel resumes before it is bound, once")
        let key = resumeStore?.key(of: channel)
        channel.resumeEntry = key.map { Channel.ResumeEntry(key: $0) }
        if case .mayBeForgotten = past { return tellThatPastIsUnknown(channel) }
        let arrival =
            resumeStore?.arrival(
                key, of: taker(channel), firstRef: session.firstRef, on: clients.number,
                now: loop.time.monotonicNanoseconds()) ?? (session.firstRef > 1 ? .unknown : .begins)
        switch arrival {
        case .begins: break
        case .goesOn(let claim):
            session.joinedTopics.remember((), for: channel.topic)
            channel.resumeEntry?.place = claim.place
            channel.knowsRepublishedUpTo = 0
            goOn(channel, from: EventLogPosition(claim.mark), owesLoss: claim.owesLoss)
        case .unknown:
            // A client that left the topic on this socket begins anew when it joins again.
            if case .kept = session.joinedTopics[channel.topic] { return }
            tellThatPastIsUnknown(channel)
        }
    }

    private func tellThatPastIsUnknown(_ channel: Channel) {
        metrics.returns[.unknown].add()
        let isRepeated: Bool
        switch channel.session.joinedTopics[channel.topic] {
        case .never: isRepeated = false
        case .kept, .mayBeForgotten: isRepeated = true
        }
        channel.session.joinedTopics.remember((), for: channel.topic)
        // A channel that named its position is answered by the reply.
        guard channel.recovery == .none, !hasEverything(channel) else { return }
        channel.missesUntilBound = .unknownPosition(isRepeated: isRepeated)
    }

    /// True if the channel misses nothing by joining late: it begins with all rows that exist, in a snapshot. The
    /// database's messages to a public channel's topic went to everybody, and a public channel with a snapshot is
    /// promised none.
    func hasEverything(_ channel: Channel) -> Bool { channel.wantsSnapshot && !channel.conversation.isPrivate }

    /// Returns the address and socket against which the entries of a channel's client count.
    private func taker(_ channel: Channel) -> ResumeRegistry.Taker {
        let connection = channel.session.connection
        var socket = KeyHash(seed: UInt64(clients.number))
        socket.combine(UInt64(connection.seat) << 32 | UInt64(connection.generation))
        return ResumeRegistry.Taker(
            address: channel.session.peer.subscriber, socket: UInt32(truncatingIfNeeded: socket.value))
    }

    private func goOn(_ channel: Channel, from position: EventLogPosition, owesLoss: Bool) {
        guard channel.recovery == .none else { return }
        // The client may lack snapshot rows or other data. It asked to begin with all existing rows, so it begins anew.
        if owesLoss, hasEverything(channel) { return }
        channel.isReturning = true
        channel.recovery = .asked(position)
        if owesLoss { channel.missesUntilBound = .toldBeforeReturn }
    }

    /// Resumes a channel that joins again on the same socket, after the hub ended it or without a leave.
    private func goOn(_ channel: Channel, behind ended: Channel.Ended) {
        if let resumeStore = project.settings.resumeStore, let key = resumeStore.key(of: channel) {
            let loss = ended.resumeEntry?.loss ?? .none
            let place = resumeStore.comeBack(
                to: ended.resumeEntry?.place, key, of: taker(channel), on: clients.number,
                lastRef: channel.session.lastRef,
                at: (ended.got, ended.owesLoss || loss != .none), now: loop.time.monotonicNanoseconds())
            channel.resumeEntry = Channel.ResumeEntry(key: key, place: place, own: ended.got.offset, loss: loss)
        }
        channel.knowsRepublishedUpTo = ended.knowsRepublishedUpTo
        goOn(channel, from: ended.sent, owesLoss: ended.owesLoss)
    }

    /// Starts tracking the acknowledged offset of a channel that has just been joined.
    func expectBack(_ channel: Channel) {
        guard channel.resumeEntry != nil else { return }
        let begins = channel.since ?? live.pipeline.frontier
        // A channel that joined again on its socket may still be receiving what was sent before.
        let got = channel.resumeEntry?.own ?? begins
        channel.resumeEntry?.own = min(got, begins)
        if mark == nil { mark = begins }
        individuallyTracked.insert(channel.place)
        positionsToRewrite.insert(channel.place)
        enter(channel)
        clients.watchReceipts()
    }

    /// Registers the client under a new key, because its token was replaced. The client will come back with the new
    /// token.
    func knowAgain(_ channel: Channel) {
        guard let resumeStore = project.settings.resumeStore, let resumeEntry = channel.resumeEntry else { return }
        let key = resumeStore.key(of: channel)
        guard key != resumeEntry.key else { return }
        let stood = acknowledgedOffset(of: channel)
        if let place = resumeEntry.place { resumeStore.leave(place) }
        channel.resumeEntry = key.map { Channel.ResumeEntry(key: $0, own: stood, loss: resumeEntry.loss) }
        guard key != nil else { return }
        individuallyTracked.insert(channel.place)
        enter(channel)
    }

    /// Enters the channel into the resumeEntry book, if the log has begun and there is room.
    private func enter(_ channel: Channel) {
        guard let resumeEntry = channel.resumeEntry, resumeEntry.place == nil, let own = resumeEntry.own,
            let resumeStore = project.settings.resumeStore, let mark = logMark(own, channel)
        else { return }
        let place = resumeStore.arrive(
            resumeEntry.key, of: taker(channel), on: clients.number, lastRef: channel.session.lastRef, at: mark,
            owesLoss: channel.owesLoss,
            now: loop.time.monotonicNanoseconds())
        channel.resumeEntry?.place = place
    }

    private func logMark(_ offset: UInt64, _ channel: Channel) -> LogMark? {
        epoch(of: channel).map { LogMark(epoch: $0, offset: offset) }
    }

    /// Returns the channel's mark at its end. A channel joined before the log had begun gets a mark outside every log,
    /// so that its client is told to fetch.
    private func lastMark(_ offset: UInt64, _ channel: Channel) -> LogMark {
        logMark(offset, channel) ?? LogMark(epoch: 0, offset: 0)
    }

    // MARK: Leaving

    func hasEnded(_ channel: Channel, comesBack: Bool) {
        assert(channels[channel.place] == nil, "a channel departs after it was removed")
        individuallyTracked.remove(channel.place)
        positionsToRewrite.remove(channel.place)
        // The client was not told of the loss yet. The hub reports the loss when the client joins again.
        if comesBack, channel.missesUntilBound != nil { channel.session.joinedTopics.take(channel.topic) }
        guard let resumeStore = project.settings.resumeStore else {
            if comesBack, channel.isOpen { channel.session.ended.forget() }
            return
        }
        guard comesBack else {
            if let place = channel.resumeEntry?.place { resumeStore.leave(place) }
            return
        }
        depart(channel, resumeStore)
        if !channel.session.hasGone { remember(channel, resumeStore) }
    }

    /// Marks the channel as departed: its client may come back with another socket.
    private func depart(_ channel: Channel, _ resumeStore: ResumeStore) {
        guard let resumeEntry = channel.resumeEntry else { return }
        let session = channel.session
        // A join that was not opened still has the position from which it was to resume, or a refusal not told yet.
        let unopened =
            resumeEntry.own ?? channel.recovery.offset ?? (channel.isReturning ? live.pipeline.frontier : nil)
        let offset = channel.isOpen ? acknowledgedOffset(of: channel) : unopened
        guard let offset,
            case let mark = channel.recovery.mark(for: offset, isOpen: channel.isOpen) ?? lastMark(offset, channel),
            let place = resumeEntry.place
                ?? resumeStore.arrive(
                    resumeEntry.key, of: taker(channel), on: clients.number, lastRef: session.lastRef, at: mark,
                    owesLoss: channel.owesLoss,
                    now: loop.time.monotonicNanoseconds())
        else {
            if let place = resumeEntry.place { resumeStore.leave(place) }
            return
        }
        resumeStore.depart(
            place, at: mark, lastRef: session.lastRef, owesLoss: channel.owesLoss,
            heard: loop.heardAfter(session.connection), now: loop.time.monotonicNanoseconds())
    }

    /// Remembers the channel on its session: its client may join again on the same socket.
    private func remember(_ channel: Channel, _ resumeStore: ResumeStore) {
        guard channel.session.feed == nil else { return }
        guard let sent = sentOffset(of: channel) else { return }
        let epoch = lastMark(sent, channel).epoch
        let got = min(acknowledgedOffset(of: channel) ?? sent, sent)
        channel.session.ended.remember(
            Channel.Ended(
                sent: EventLogPosition(epoch: epoch, offset: sent), owesLoss: channel.hasUntold,
                got: LogMark(epoch: epoch, offset: got), knowsRepublishedUpTo: channel.knowsRepublishedUpTo,
                resumeEntry: channel.resumeEntry),
            for: resumeStore.socketKey(of: channel))
    }

    /// Returns the offset up to which everything was sent to the client; nil if nothing was sent yet.
    func sentOffset(of channel: Channel) -> UInt64? {
        if let sent = channel.sentAtEnd { return sent }
        guard channel.isOpen else { return channel.recovery.offset }
        switch reach(channel) {
        case .offset(let offset): return offset
        case .socket: return (channel.follower ?? live).pipeline.frontier
        case nil: return acknowledgedOffset(of: channel).map { max($0, channel.since ?? 0) }
        }
    }

    /// Freezes the sent offsets of a socket that takes no more data and closes later. Changes found until then count as
    /// not sent.
    func keepWhereItStands(_ session: Session) {
        for channel in session.channels.compactMap({ $0.flatMap { channels[$0] } }) {
            channel.sentAtEnd = sentOffset(of: channel)
        }
    }

    /// Returns the offset up to which the client has acknowledged everything.
    func acknowledgedOffset(of channel: Channel) -> UInt64? {
        channel.resumeEntry?.own ?? channel.session.receipt.since ?? mark
    }

    /// Records that the client was told of a loss. The client's next acknowledgement shows that the report has arrived.
    func isToldOfLoss(_ channel: Channel) {
        guard channel.resumeEntry != nil else { return }
        channel.resumeEntry?.loss = .told
        positionsToRewrite.insert(channel.place)
    }

    // MARK: Acknowledged offsets

    /// Begins to track the positions of channels that wait for PostgreSQL individually, before clients are asked: such
    /// channels have received less than the others.
    func trackWaitingChannels() {
        guard project.settings.resumeStore != nil, live.pipeline.holdsAnybody else { return }
        for place in channels.indices {
            guard let channel = channels[place], channel.isOpen, let resumeEntry = channel.resumeEntry,
                resumeEntry.own == nil, let listener = channel.listener, live.pipeline.isHeld(listener)
            else { continue }
            trackIndividually(channel)
        }
    }

    /// Tracks the channel individually: from here on, of its socket's acknowledgements, only the one for the current
    /// ping applies to the channel.
    func trackIndividually(_ channel: Channel) {
        guard let resumeEntry = channel.resumeEntry else { return }
        if let asked = channel.session.receipt.asked {
            let isOfSocket = if case .socket = resumeEntry.pinged { true } else { resumeEntry.own == nil }
            if isOfSocket { channel.resumeEntry?.pinged = .offset(asked) }
        }
        guard resumeEntry.own == nil else { return }
        let own = acknowledgedOffset(of: channel)
        channel.resumeEntry?.own = own
        individuallyTracked.insert(channel.place)
        positionsToRewrite.insert(channel.place)
    }

    /// Asks a client to acknowledge what it was sent. At most one ping is under way.
    func ping(_ session: Session) {
        guard let mark, let epoch = live.pipeline.epoch else { return }
        let places = session.channels.compactMap(\.self).filter { channels[$0]?.resumeEntry != nil }
        guard !places.isEmpty else { return }
        guard let offset = session.receipt.sent(after: mark, upTo: live.pipeline.frontier) else { return }
        for place in places {
            guard let channel = channels[place] else { continue }
            let hasItAll = !channel.isSnapshotDue && channel.seen == nil
            if channel.resumeEntry?.loss == .told, hasItAll { channel.resumeEntry?.loss = .asked }
            let reached = reach(channel)
            if channel.resumeEntry?.own != nil { channel.resumeEntry?.pinged = reached }
            positionsToRewrite.insert(place)
        }
        clients.ping("\(EventLogPosition(epoch: epoch, offset: offset))", session)
    }

    /// Handles a client's answer to a ping: the client has received everything sent before that ping.
    func ponged(_ text: String, _ session: Session) {
        guard let position = EventLogPosition(text) else { return }
        switch session.receipt.answered(position.offset) {
        case .none: return
        case .quiet: break
        case .more: clients.pingsDue.append(session.connection)
        }
        for case let place? in session.channels {
            guard let channel = channels[place], let resumeEntry = channel.resumeEntry else { continue }
            if resumeEntry.own != nil { settle(channel, resumeEntry.pinged) }
            channel.resumeEntry?.pinged = nil
            if resumeEntry.loss == .asked { channel.resumeEntry?.loss = .none }
            positionsToRewrite.insert(place)
        }
    }

    /// Returns the extent of what the client was sent by now; nil while something is on its way to it.
    private func reach(_ channel: Channel) -> Channel.ResumeEntry.Reach? {
        guard channel.isOpen else { return nil }
        // A parked channel was sent everything before its position.
        guard let follower = channel.follower else { return channel.since.map { .offset($0) } }
        if let listener = channel.listener, follower.pipeline.isHeld(listener) {
            return follower.pipeline.firstHeld(listener).map { .offset(max(channel.since ?? 0, $0)) }
        }
        // A loop that lags may still read entries from before the channel's join.
        let (since, frontier) = (channel.since ?? 0, follower.pipeline.frontier)
        return follower.isAtEnd && frontier >= since ? .socket : .offset(max(since, frontier))
    }

    private func settle(_ channel: Channel, _ reach: Channel.ResumeEntry.Reach?) {
        switch reach {
        case nil: return
        case .offset(let offset):
            let before = channel.resumeEntry?.own ?? 0
            channel.resumeEntry?.own = max(offset, before)
        case .socket:
            channel.resumeEntry?.own = nil
            individuallyTracked.remove(channel.place)
        }
        positionsToRewrite.insert(channel.place)
    }

    /// Writes the acknowledged offsets down, after clients were asked.
    func writeReceipts() {
        forgetSnapshots()
        guard let resumeStore = project.settings.resumeStore, live.pipeline.isOpen, let epoch = live.pipeline.epoch
        else { return }
        let now = LogMark(epoch: epoch, offset: live.pipeline.frontier)
        for place in individuallyTracked.sorted() {
            guard let channel = channels[place] else { continue }
            // The client has received everything that it was sent.
            if channel.session.receipt.since == nil { settle(channel, reach(channel)) }
            enter(channel)
        }
        mark = now.offset
        var stands: [ResumeStore.Stand] = []
        for channel in positionsToRewrite.sorted().compactMap({ channels[$0] }) {
            // A returning channel keeps its former mark until it is joined.
            guard channel.isOpen, let resumeEntry = channel.resumeEntry, let place = resumeEntry.place else { continue }
            let own = resumeEntry.own ?? channel.session.receipt.since
            stands.append(
                ResumeStore.Stand(
                    place: place, mark: own.flatMap { logMark($0, channel) }, lastRef: channel.session.lastRef,
                    owesLoss: channel.owesLoss, heard: loop.heardAfter(channel.session.connection)))
        }
        positionsToRewrite = []
        let doubted = resumeStore.update(
            now, of: clients.number, stands, now: loop.time.monotonicNanoseconds(), metrics)
        if !doubted.isEmpty { ask(Set(doubted)) }
    }

    /// Asks clients whether they are still connected, because another client has arrived that the hub took for one of
    /// them.
    private func ask(_ doubted: Set<ResumeRegistry.Place>) {
        for place in channels.indices {
            guard let channel = channels[place], let entered = channel.resumeEntry?.place, doubted.contains(entered)
            else {
                continue
            }
            ping(channel.session)
        }
    }
}

extension ClientLoop {
    /// Starts the check of acknowledgements, once a second, when the first client that may resume has joined.
    func watchReceipts() {
        guard !watchesReceipts else { return }
        watchesReceipts = true
        _ = loop.takeSent()
        awaitReceipts()
    }

    /// Asks sooner at first: a hub that dies again soon after its start would otherwise repeat the same changes each time.
    private func awaitReceipts() {
        let interval = earlyReceipts > 0 ? Limits.earlyReceiptInterval : Limits.receiptInterval
        earlyReceipts = max(0, earlyReceipts - 1)
        loop.after(nanoseconds: interval.wholeNanoseconds, token: TimerToken.receipts.rawValue)
    }

    func receiptsAreDue() {
        for case let project? in projects { project.trackWaitingChannels() }
        let due = pingsDue
        pingsDue = []
        for connection in loop.takeSent() + due {
            guard let session = session(connection), case .client = session.stage else { continue }
            session.project?.ping(session)
        }
        // The pings themselves need no acknowledgement.
        _ = loop.takeSent()
        for case let project? in projects { project.writeReceipts() }
        awaitReceipts()
    }

    func ping(_ text: String, _ session: Session) {
        let payload = Array(text.utf8)
        writer.removeAll()
        FrameEncoder.appendPing(payload.rawBytes, to: &writer)
        Self.send(writer, to: session, on: loop)
    }

    func ponged(_ payload: RawSpan, _ session: Session) {
        guard session.receipt.awaitsPong else { return }
        session.project?.ponged(payload.text, session)
    }
}

extension Channel {
    /// True if there is something that the client must be told and was not told yet.
    fileprivate var hasUntold: Bool {
        untoldLoss != nil || missesUntilBound != nil || isSnapshotDue || lacksSnapshot || seen != nil || lacksUntold
            || !untoldTruncations.isEmpty
    }

    /// True if a loss was not reported, or if its report may not have arrived.
    fileprivate var owesLoss: Bool { hasUntold || resumeEntry.map { $0.loss != .none } ?? false }
}

extension Channel.Recovery {
    var offset: UInt64? {
        switch self {
        case .asked(let position), .from(let position): position.offset
        case .none, .refused: nil
        }
    }

    /// Returns the mark for a join that ended before the hub knew whether it could resume; nil for any other.
    fileprivate func mark(for offset: UInt64, isOpen: Bool) -> LogMark? {
        guard !isOpen, case .asked(let position) = self else { return nil }
        return LogMark(epoch: position.epoch, offset: offset)
    }
}

extension EventLogPosition {
    fileprivate init(_ mark: LogMark) { self.init(epoch: mark.epoch, offset: mark.offset) }
}

extension Channel.Recovery {
    /// Loss to report to a client that cannot continue from its position.
    var loss: LossReason {
        switch self {
        case .refused(.olderThanRetention): .retention
        case .refused(.otherEpoch): .otherHistory
        case .refused(.unreadable): .unreadable
        case .refused(.unknown), .none, .asked, .from: .unknownPosition(isRepeated: false)
        }
    }
}

extension PeerAddress {
    /// Key by which addresses of one subscriber are counted as one: an IPv4 address, or the first half of an IPv6 one.
    fileprivate var subscriber: UInt32 {
        var hash = KeyHash(seed: isIPv6 ? 6 : 4)
        hash.combine(network)
        return UInt32(truncatingIfNeeded: hash.value)
    }
}
