import Bytes
import Channels
import Delivery
import Diagnostics
import EventLog
import Messages
import Net
import Positions
import Protocol

/// Replay of past database messages to joining channels, and the notice that new messages arrive.
extension LoopTalk {
    private static let failed = "UnableToReplayMessages: Realtime was unable to replay messages"

    // MARK: Replay

    /// Asks the archive for the past messages that a joining channel wants.
    func askReplay(_ channel: Channel) {
        guard let start = start(of: channel) else { return home.joins.take(.refused(Self.failed), channel) }
        let ticket = home.nextTicket()
        replaysWaiting[ticket] = channel
        // The answer may lack messages that arrive from now on, so the channel collects these.
        home.wait(channel)
        let query = ReplayQuery(
            topic: Array(channel.subTopic), isPrivate: channel.conversation.isPrivate, since: start.since,
            limit: start.limit)
        project.archive.replay(query) { [mailbox = home.mailbox] answer in
            mailbox.post(.replayed(ticket: ticket, answer))
        }
    }

    private func start(of channel: Channel) -> (since: Int64, limit: Int)? {
        guard case .since(let request) = channel.joining.replay else { return nil }
        return (request.since, request.count(maximum: project.settings.maximumReplay))
    }

    func replayed(_ ticket: UInt64, _ answer: ReplayAnswer) {
        guard let channel = replaysWaiting.removeValue(forKey: ticket), home.channels[channel.place] === channel else {
            return
        }
        assert(channel.join.stage == .readingPast, "a join waits for its past messages")
        channel.joining.replay = .none
        switch answer {
        case .failed: home.joins.take(.refused(Self.failed), channel)
        case .messages(let all, let upTo, _):
            let details = channel.conversation.detailed()
            guard !details.hasLostMessages else { return home.joins.take(.refused(Self.failed), channel) }
            // Less than a search returns, so that it is known here if a search left out what was too large.
            let messages = Self.newest(all, within: min(loop.bytesAtOnce, Limits.maximumReplayedBytes / 2))
            details.takeReplay(messages)
            home.take(.messagesPassed(upTo.offset), channel)
            home.joins.take(.pastRead, channel)
            if messages.count < all.count, channel.isOpen { home.reports.missed(channel, .replayCut) }
        }
    }

    /// Returns the newest message and those before it, as long as they are not larger together than a client may be
    /// sent at once.
    private static func newest(_ messages: [ArchivedMessage], within bytes: Int) -> [ArchivedMessage] {
        var taken = 0
        return messages.reversed().prefix { message in
            defer { taken += message.byteCount }
            return taken == 0 || taken + message.byteCount <= bytes
        }.reversed()
    }

    /// Sends the past messages right after the join's reply, oldest first. The messages that arrived during the search
    /// follow.
    func sendReplay(_ channel: Channel) {
        guard let details = channel.conversation.details, let place = channel.conversation.place,
            details.readsBroadcasts
        else { return }
        let (topic, joinRef) = (channel.topic, channel.joinRef)
        for message in details.pastMessages { send(message, isReplayed: true, to: topics[place], topic, joinRef) }
        details.pastMessages = []
        for message in details.takeMeanwhile(from: channel.position.messagesSince) {
            send(message, isReplayed: false, to: topics[place], topic, [])
        }
    }

    private func send(
        _ message: ArchivedMessage, isReplayed: Bool, to hearer: TopicListener, _ topic: [UInt8], _ joinRef: [UInt8]
    ) {
        var isSent = false
        message.read(isReplayed: isReplayed) {
            isSent = frames.deliver($0, to: hearer, of: topic.rawBytes, joinRef: joinRef.rawBytes, on: loop)
        }
        guard isSent else { return }
        metrics.broadcastDeliveries.add()
        if let offset = message.offset { home.ledger.recordSent(message: offset, to: CollectionOfOne(hearer.channel)) }
    }

    // MARK: Readiness

    /// Tells the client once that the hub receives messages that PostgreSQL broadcasts. If it does not before the
    /// deadline, closes the channel.
    func sayWhetherReplicationIsReady(_ channel: Channel) {
        guard channel.conversation.options.contains(.wantsReplicationReady) else { return }
        let details = channel.conversation.detailed()
        let deadline = details.readyDeadline ?? loop.now + Limits.readinessPatience.wholeNanoseconds
        details.readyDeadline = deadline
        if project.stream.hearsDatabase() {
            home.tell(channel, ChannelNotice(.ok, "Replication connection established", from: .system))
        } else if loop.now >= deadline {
            home.expel(channel, ClientText(.notReady, "Replication connection was not established in time"))
        } else {
            channel.timers.ready = loop.after(
                nanoseconds: Limits.readinessInterval.wholeNanoseconds,
                token: home.token(channel) { .ready(channel: $0, generation: $1) })
        }
    }

    func readinessIsDue(_ place: UInt32, _ generation: UInt32) {
        guard let channel = home.channel(place, generation) else { return }
        channel.timers.ready = nil
        sayWhetherReplicationIsReady(channel)
    }
}

extension ArchivedMessage {
    /// Calls `body` with the archived message as a broadcast.
    func read(isReplayed: Bool, _ body: (borrowing Broadcast) -> Void) {
        let (event, id) = (event, id)
        let (form, payload): (BroadcastForm, [UInt8]) =
            switch payload {
            case .json(let bytes): (.json, bytes)
            case .binary(let bytes): (.binary, bytes)
            }
        body(
            Broadcast(form, event: event.rawBytes, payload: payload.rawBytes, id: id.rawBytes, isReplayed: isReplayed))
    }
}
