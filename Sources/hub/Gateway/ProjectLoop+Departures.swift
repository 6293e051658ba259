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
    /// What is kept of a channel, so that its client goes on where it was when it comes back.
    struct Departure {
        enum Reach {
            /// So far.
            case offset(UInt64)
            /// As far as its socket.
            case socket
        }

        let key: DepartureKey
        var place: DepartureBook.Place?
        /// What its client has got, where that is not what its socket's receipt says, and what a ping under way asks about.
        var own: UInt64?
        var pinged: Reach?
        var loss = Loss.none

        /// It was told that something is missing, and may not have got that.
        enum Loss { case none, told, asked }
    }

    /// What is known of a channel that ended before its socket.
    struct Ended {
        /// Everything before was sent to its client, on this socket: it arrives before whatever is sent now.
        let sent: EventLogPosition
        /// Something that was missing had not been told.
        let owesLoss: Bool
        /// What its client had certainly got.
        let got: LogMark
        let knowsRepublishedUpTo: UInt64
        let departure: Departure?
    }
}

/// Clients that come back after their socket was cut, and ask for nothing: they are known again, and go on where they were.
extension ProjectLoop {
    // MARK: Coming

    /// Decides what a joining channel receives of the time before its join. It runs before the channel's bindings are placed,
    /// when nothing can refuse the join any more. A client object that was connected before receives everything since then, or
    /// is told that changes may be missing.
    func resumeFromKnownPosition(_ channel: Channel) {
        let session = channel.session
        guard session.feed == nil else { return }
        let departures = project.settings.departures
        let past = departures.map { session.ended.take($0.socketKey(of: channel)) } ?? session.ended.ofAnything
        if case .kept(let ended) = past { return goOn(channel, behind: ended) }
        let key = departures?.key(of: channel)
        channel.departure = key.map { Channel.Departure(key: $0) }
        if case .mayBeForgotten = past { return tellThatPastIsUnknown(channel) }
        let arrival =
            departures?.arrival(
                key, of: taker(channel), firstRef: session.firstRef, on: clients.number,
                now: loop.time.monotonicNanoseconds()) ?? (session.firstRef > 1 ? .unknown : .begins)
        switch arrival {
        case .begins: break
        case .goesOn(let claim):
            session.joinedTopics.remember((), for: channel.topic)
            channel.departure?.place = claim.place
            channel.knowsRepublishedUpTo = 0
            goOn(channel, from: EventLogPosition(claim.mark), owesLoss: claim.owesLoss)
        case .unknown:
            // A topic that its client left on this socket and joins again begins anew.
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
        // The reply answers a channel that named its position.
        guard channel.recovery == .none, !hasEverything(channel) else { return }
        channel.missesUntilBound = .unknownPosition(isRepeated: isRepeated)
    }

    /// True if the channel misses nothing by joining late: it begins with all rows that exist, in a snapshot. The database's
    /// messages to a public channel's topic went to everybody, and a public channel with a snapshot is promised none.
    func hasEverything(_ channel: Channel) -> Bool { channel.wantsSnapshot && !channel.conversation.isPrivate }

    /// Returns the address and socket against which the entries of a channel's client count.
    private func taker(_ channel: Channel) -> DepartureBook.Taker {
        let connection = channel.session.connection
        var socket = KeyHash(seed: UInt64(clients.number))
        socket.combine(UInt64(connection.seat) << 32 | UInt64(connection.generation))
        return DepartureBook.Taker(
            address: channel.session.peer.subscriber, socket: UInt32(truncatingIfNeeded: socket.value))
    }

    private func goOn(_ channel: Channel, from position: EventLogPosition, owesLoss: Bool) {
        guard channel.recovery == .none else { return }
        // It may not have got all of the rows that it was told, or other things; it wants to begin with all there is.
        if owesLoss, hasEverything(channel) { return }
        channel.isReturning = true
        channel.recovery = .asked(position)
        if owesLoss { channel.missesUntilBound = .toldBeforeReturn }
    }

    /// It joins again on the socket it has, after its channel was ended or without having left it.
    private func goOn(_ channel: Channel, behind ended: Channel.Ended) {
        if let departures = project.settings.departures, let key = departures.key(of: channel) {
            let loss = ended.departure?.loss ?? .none
            let place = departures.comeBack(
                to: ended.departure?.place, key, of: taker(channel), on: clients.number,
                lastRef: channel.session.lastRef,
                at: (ended.got, ended.owesLoss || loss != .none), now: loop.time.monotonicNanoseconds())
            channel.departure = Channel.Departure(key: key, place: place, own: ended.got.offset, loss: loss)
        }
        channel.knowsRepublishedUpTo = ended.knowsRepublishedUpTo
        goOn(channel, from: ended.sent, owesLoss: ended.owesLoss)
    }

    /// It is joined: from here on it is known where it stands.
    func expectBack(_ channel: Channel) {
        guard channel.departure != nil else { return }
        let begins = channel.since ?? live.pipeline.frontier
        // Who joined again on its socket may be about to get what it was sent before.
        let got = channel.departure?.own ?? begins
        channel.departure?.own = min(got, begins)
        if mark == nil { mark = begins }
        apart.insert(channel.place)
        restated.insert(channel.place)
        enter(channel)
        clients.watchReceipts()
    }

    /// Its token is another: with that its client comes back.
    func knowAgain(_ channel: Channel) {
        guard let departures = project.settings.departures, let departure = channel.departure else { return }
        let key = departures.key(of: channel)
        guard key != departure.key else { return }
        let stood = stood(channel)
        if let place = departure.place { departures.leave(place) }
        channel.departure = key.map { Channel.Departure(key: $0, own: stood, loss: departure.loss) }
        guard key != nil else { return }
        apart.insert(channel.place)
        enter(channel)
    }

    /// Into the book, where the log has begun and there is room.
    private func enter(_ channel: Channel) {
        guard let departure = channel.departure, departure.place == nil, let own = departure.own,
            let departures = project.settings.departures, let mark = logMark(own, channel)
        else { return }
        let place = departures.arrive(
            departure.key, of: taker(channel), on: clients.number, lastRef: channel.session.lastRef, at: mark,
            owesLoss: channel.owesLoss,
            now: loop.time.monotonicNanoseconds())
        channel.departure?.place = place
    }

    private func logMark(_ offset: UInt64, _ channel: Channel) -> LogMark? {
        epoch(of: channel).map { LogMark(epoch: $0, offset: offset) }
    }

    /// Where it stands as it ends. Who was joined before the log had begun comes back to where no log is, and is told that it
    /// has to fetch.
    private func lastMark(_ offset: UInt64, _ channel: Channel) -> LogMark {
        logMark(offset, channel) ?? LogMark(epoch: 0, offset: 0)
    }

    // MARK: Going

    func hasEnded(_ channel: Channel, comesBack: Bool) {
        apart.remove(channel.place)
        restated.remove(channel.place)
        // The channel was not told of its loss: it is told when it joins again.
        if comesBack, channel.missesUntilBound != nil { channel.session.joinedTopics.take(channel.topic) }
        guard let departures = project.settings.departures else {
            if comesBack, channel.isOpen { channel.session.ended.forget() }
            return
        }
        guard comesBack else {
            if let place = channel.departure?.place { departures.leave(place) }
            return
        }
        depart(channel, departures)
        if !channel.session.hasGone { remember(channel, departures) }
    }

    /// Its client may come back with another socket.
    private func depart(_ channel: Channel, _ departures: Departures) {
        guard let departure = channel.departure else { return }
        let session = channel.session
        // A join that went with its socket took with it where it was to go on, or that it was to be told it cannot.
        let unopened = departure.own ?? channel.recovery.offset ?? (channel.isReturning ? live.pipeline.frontier : nil)
        let offset = channel.isOpen ? stood(channel) : unopened
        guard let offset,
            case let mark = channel.recovery.mark(for: offset, isOpen: channel.isOpen) ?? lastMark(offset, channel),
            let place = departure.place
                ?? departures.arrive(
                    departure.key, of: taker(channel), on: clients.number, lastRef: session.lastRef, at: mark,
                    owesLoss: channel.owesLoss,
                    now: loop.time.monotonicNanoseconds())
        else {
            if let place = departure.place { departures.leave(place) }
            return
        }
        departures.depart(
            place, at: mark, lastRef: session.lastRef, owesLoss: channel.owesLoss,
            heard: loop.heardAfter(session.connection), now: loop.time.monotonicNanoseconds())
    }

    /// Its client may come back with the socket it has.
    private func remember(_ channel: Channel, _ departures: Departures) {
        guard channel.session.feed == nil else { return }
        guard let sent = sent(channel) else { return }
        let epoch = lastMark(sent, channel).epoch
        let got = min(stood(channel) ?? sent, sent)
        channel.session.ended.remember(
            Channel.Ended(
                sent: EventLogPosition(epoch: epoch, offset: sent), owesLoss: channel.hasUntold,
                got: LogMark(epoch: epoch, offset: got), knowsRepublishedUpTo: channel.knowsRepublishedUpTo,
                departure: channel.departure),
            for: departures.socketKey(of: channel))
    }

    /// Up to where everything was sent to its client; nil where that was nothing yet.
    func sent(_ channel: Channel) -> UInt64? {
        if let sent = channel.sentAtEnd { return sent }
        guard channel.isOpen else { return channel.recovery.offset }
        switch reach(channel) {
        case .offset(let offset): return offset
        case .socket: return (channel.follower ?? live).pipeline.frontier
        case nil: return stood(channel).map { max($0, channel.since ?? 0) }
        }
    }

    /// Its socket takes no more, and is closed later: what is found for it until then was not sent.
    func keepWhereItStands(_ session: Session) {
        for channel in session.channels.compactMap({ $0.flatMap { channels[$0] } }) {
            channel.sentAtEnd = sent(channel)
        }
    }

    /// Up to where its client has certainly got everything.
    func stood(_ channel: Channel) -> UInt64? {
        channel.departure?.own ?? channel.session.receipt.since ?? mark
    }

    /// It is told that something is missing, which it has got when it says so.
    func isToldOfLoss(_ channel: Channel) {
        guard channel.departure != nil else { return }
        channel.departure?.loss = .told
        restated.insert(channel.place)
    }

    // MARK: What clients have got

    /// Before clients are asked: who waits for PostgreSQL has not got what the others have.
    func setApartWhoWaits() {
        guard project.settings.departures != nil, live.pipeline.holdsAnybody else { return }
        for place in channels.indices {
            guard let channel = channels[place], channel.isOpen, let departure = channel.departure,
                departure.own == nil, let listener = channel.listener, live.pipeline.isHeld(listener)
            else { continue }
            setApart(channel)
        }
    }

    /// What its socket's receipt says is not said of the channel any more, but for what was asked before.
    func setApart(_ channel: Channel) {
        guard let departure = channel.departure else { return }
        if let asked = channel.session.receipt.asked {
            let isOfSocket = if case .socket = departure.pinged { true } else { departure.own == nil }
            if isOfSocket { channel.departure?.pinged = .offset(asked) }
        }
        guard departure.own == nil else { return }
        let own = stood(channel)
        channel.departure?.own = own
        apart.insert(channel.place)
        restated.insert(channel.place)
    }

    /// The client was sent something: it is asked to say that it has got it, unless it is being asked.
    func ping(_ session: Session) {
        guard let mark, let epoch = live.pipeline.epoch else { return }
        let places = session.channels.compactMap(\.self).filter { channels[$0]?.departure != nil }
        guard !places.isEmpty else { return }
        guard let offset = session.receipt.sent(after: mark, upTo: live.pipeline.frontier) else { return }
        for place in places {
            guard let channel = channels[place] else { continue }
            let hasItAll = !channel.isSnapshotDue && channel.seen == nil
            if channel.departure?.loss == .told, hasItAll { channel.departure?.loss = .asked }
            let reached = reach(channel)
            if channel.departure?.own != nil { channel.departure?.pinged = reached }
            restated.insert(place)
        }
        clients.ping("\(EventLogPosition(epoch: epoch, offset: offset))", session)
    }

    /// The client has got what it was sent before that ping.
    func ponged(_ text: String, _ session: Session) {
        guard let position = EventLogPosition(text) else { return }
        switch session.receipt.answered(position.offset) {
        case .none: return
        case .quiet: break
        case .more: clients.pingsDue.append(session.connection)
        }
        for case let place? in session.channels {
            guard let channel = channels[place], let departure = channel.departure else { continue }
            if departure.own != nil { settle(channel, departure.pinged) }
            channel.departure?.pinged = nil
            if departure.loss == .asked { channel.departure?.loss = .none }
            restated.insert(place)
        }
    }

    /// How far it was told of everything by now; nil where something is on its way to it.
    private func reach(_ channel: Channel) -> Channel.Departure.Reach? {
        guard channel.isOpen else { return nil }
        // It is parked where it was told of everything.
        guard let follower = channel.follower else { return channel.since.map { .offset($0) } }
        if let listener = channel.listener, follower.pipeline.isHeld(listener) {
            return follower.pipeline.firstHeld(listener).map { .offset(max(channel.since ?? 0, $0)) }
        }
        // What a loop that lags has yet to read may be from before the channel's join.
        let (since, frontier) = (channel.since ?? 0, follower.pipeline.frontier)
        return follower.isAtEnd && frontier >= since ? .socket : .offset(max(since, frontier))
    }

    private func settle(_ channel: Channel, _ reach: Channel.Departure.Reach?) {
        switch reach {
        case nil: return
        case .offset(let offset):
            let before = channel.departure?.own ?? 0
            channel.departure?.own = max(offset, before)
        case .socket:
            channel.departure?.own = nil
            apart.remove(channel.place)
        }
        restated.insert(channel.place)
    }

    /// After clients were asked: what is known now is written down.
    func writeReceipts() {
        forgetSnapshots()
        guard let departures = project.settings.departures, live.pipeline.isOpen, let epoch = live.pipeline.epoch
        else { return }
        let now = LogMark(epoch: epoch, offset: live.pipeline.frontier)
        for place in apart.sorted() {
            guard let channel = channels[place] else { continue }
            // Nothing was sent that it has not got.
            if channel.session.receipt.since == nil { settle(channel, reach(channel)) }
            enter(channel)
        }
        mark = now.offset
        var stands: [Departures.Stand] = []
        for channel in restated.sorted().compactMap({ channels[$0] }) {
            // Who comes back stands where it stood, until it is joined.
            guard channel.isOpen, let departure = channel.departure, let place = departure.place else { continue }
            let own = departure.own ?? channel.session.receipt.since
            stands.append(
                Departures.Stand(
                    place: place, mark: own.flatMap { logMark($0, channel) }, lastRef: channel.session.lastRef,
                    owesLoss: channel.owesLoss, heard: loop.heardAfter(channel.session.connection)))
        }
        restated = []
        let doubted = departures.update(now, of: clients.number, stands, now: loop.time.monotonicNanoseconds(), metrics)
        if !doubted.isEmpty { ask(Set(doubted)) }
    }

    /// Somebody else came who was taken for these clients.
    private func ask(_ doubted: Set<DepartureBook.Place>) {
        for place in channels.indices {
            guard let channel = channels[place], let entered = channel.departure?.place, doubted.contains(entered)
            else {
                continue
            }
            ping(channel.session)
        }
    }
}

extension ClientLoop {
    /// Begins to ask clients for receipts, at the first client that may come back.
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
        for case let project? in projects { project.setApartWhoWaits() }
        let due = pingsDue
        pingsDue = []
        for connection in loop.takeSent() + due {
            guard let session = session(connection), case .client = session.stage else { continue }
            session.project?.ping(session)
        }
        // The pings themselves are nothing to ask about.
        _ = loop.takeSent()
        for case let project? in projects { project.writeReceipts() }
        awaitReceipts()
    }

    func ping(_ text: String, _ session: Session) {
        let payload = Array(text.utf8)
        writer.removeAll()
        // SAFETY: any byte is a valid UInt8, and the array outlives the call.
        FrameEncoder.appendPing(unsafe payload.span.bytes, to: &writer)
        Self.send(writer, to: session, on: loop)
    }

    func ponged(_ payload: RawSpan, _ session: Session) {
        guard session.receipt.awaitsPong else { return }
        session.project?.ponged(payload.text, session)
    }
}

extension Channel {
    /// Something that its client is to be told of has not been said.
    fileprivate var hasUntold: Bool {
        untoldLoss != nil || missesUntilBound != nil || isSnapshotDue || lacksSnapshot || seen != nil || lacksUntold
            || !untoldTruncations.isEmpty
    }

    /// It has not been said, or may not have arrived.
    fileprivate var owesLoss: Bool { hasUntold || departure.map { $0.loss != .none } ?? false }
}

extension Channel.Recovery {
    var offset: UInt64? {
        switch self {
        case .asked(let position), .from(let position): position.offset
        case .none, .refused: nil
        }
    }

    /// Of a join that did not come to know whether it could go on.
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
