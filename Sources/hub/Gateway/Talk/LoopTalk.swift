import Bytes
import Channels
import Delivery
import Diagnostics
import Messages
import Net
import Positions
import Protocol
import Settings
import System
import WebSocket

/// Messages to the topics of one project on one loop, from channels and from the database.
final class LoopTalk: LoopPart {
    unowned let home: ProjectLoop
    var topics = TopicTable<TopicListener>()
    var frames: BroadcastFrames
    /// Broadcasts of this turn that the other loops must receive.
    private var gathering = BroadcastGathering()
    /// Channels whose joins wait for past messages, by ticket.
    var replaysWaiting: [UInt64: Channel] = [:]
    /// Places (indices) of channels whose database messages were dropped in the current turn of a follower.
    private var channelsWithDroppedMessages: Set<UInt32> = []

    init(of home: ProjectLoop) {
        self.home = home
        frames = BroadcastFrames(home.clients.frames.deflater)
    }

    // MARK: From a client

    func broadcast(_ channel: Channel, _ message: borrowing ClientMessage, _ whole: RawSpan, isBinary: Bool) {
        switch home.rights.mayWrite(channel, whole, isBinary: isBinary) {
        case .unknown: return
        case .known(let broadcast, _):
            guard project.rates.events.take(at: loop.now) else { return home.expelForRate(channel) }
            guard broadcast else { return deny(channel, "broadcast") }
        }
        guard message.payload.byteCount <= limits.maximumPayloadBytes else {
            return refuseSize(channel, message.ref)
        }
        do throws(BroadcastError) {
            say(try Broadcast.said(by: message), on: channel)
        } catch {
            metrics.messagesMalformed.add()
            Log.shared.debug("UnableToHandleBroadcast: dropped a broadcast that cannot be parsed")
            return
        }
        guard channel.conversation.options.contains(.acknowledges), !message.ref.isEmpty else { return }
        let reply = channel.address(ref: message.ref)
        clients.output.sendMessage(to: channel.session) { encoder, writer in
            encoder.appendReply(.ok, reply, to: &writer)
        }
    }

    private func say(_ broadcast: borrowing Broadcast, on channel: Channel) {
        guard let topic = channel.conversation.topic else { return }
        countSaying()
        let speaker = channel.conversation.options.contains(.hearsItself) ? nil : channel.place
        let name = topics.name(of: topic)
        deliver(broadcast, topic, name, except: speaker)
        passOnLater(broadcast, name.subTopic, isPrivate: name.isPrivate)
    }

    private func refuseSize(_ channel: Channel, _ ref: RawSpan) {
        metrics.drops[.tooLarge].add()
        let options = channel.conversation.options
        if options.contains(.acknowledges), !ref.isEmpty {
            let reply = channel.address(ref: ref)
            return clients.output.sendMessage(to: channel.session) { encoder, writer in
                encoder.appendErrorReply("payload_size_exceeded", reply, to: &writer)
            }
        }
        home.tellOfLimit(channel, "A broadcast was dropped: its payload is too large")
    }

    /// Drops a message whose sender may not write to the channel. The reference (Supabase Realtime) does so silently;
    /// the hub tells clients that asked to be told about limits.
    func deny(_ channel: Channel, _ what: StaticString) {
        metrics.drops[.denied].add()
        Log.shared.debug("Unauthorized: dropped a message, because its sender may not write to the channel")
        home.tellOfLimit(channel, "A \(what) was dropped: you may not write to this channel")
    }

    // MARK: To a topic

    /// Broadcasts to all members of the topic: on this loop immediately, on the other loops after the turn. The channel
    /// at place `speaker` does not receive the message.
    func say(_ broadcast: borrowing Broadcast, _ topic: RawSpan, isPrivate: Bool, except speaker: UInt32?) {
        countSaying()
        deliver(broadcast, topic, isPrivate: isPrivate, except: speaker)
        passOnLater(broadcast, topic, isPrivate: isPrivate)
    }

    /// Sends a difference between two states of the topic's presence to the members that may see presence. Returns the
    /// number of receivers.
    func deliver(difference: RawSpan, to topic: TopicID, of name: RawSpan) -> Int {
        frames.deliver(difference: difference, to: topics.members(of: topic), of: name, on: loop)
    }

    private func countSaying() {
        metrics.broadcasts.add()
        project.reference.events.add()
    }

    /// Queues the broadcast for the other loops, which receive it at the end of the turn.
    private func passOnLater(_ broadcast: borrowing Broadcast, _ topic: RawSpan, isPrivate: Bool) {
        if project.mail.hasOthers { gathering.add(broadcast, topic: topic, isPrivate: isPrivate) }
    }

    /// Origin of a database message: its offset in the log, and the follower that has read it.
    typealias Origin = (offset: UInt64, follower: Follower)

    func deliver(
        _ broadcast: borrowing Broadcast, _ subTopic: RawSpan, isPrivate: Bool, except speaker: UInt32?,
        origin: Origin? = nil
    ) {
        guard let topic = topics.find(subTopic, isPrivate: isPrivate) else { return }
        deliver(broadcast, topic, topics.name(of: topic), except: speaker, origin: origin)
    }

    private func deliver(
        _ broadcast: borrowing Broadcast, _ topic: TopicID, _ name: TopicName, except speaker: UInt32?,
        origin: Origin? = nil
    ) {
        // Every loop delivers an admitted message to its members. So the rate is charged here, but the message is not
        // stopped.
        // SAFETY: any byte is a valid UInt8, and the name outlives the call.
        let full = unsafe name.full.span.bytes
        var count = 0
        if origin?.follower.isAtEnd ?? true {
            count += frames.deliver(
                broadcast, to: topics.members(of: topic), of: full, except: speaker, isOfDatabase: origin != nil,
                on: loop)
            if let origin, home.ledger.recordsEach {
                home.ledger.recordSent(message: origin.offset, to: Self.unreplayed(among: topics.members(of: topic)))
            }
        }
        if let origin { count += deliverToReplayed(broadcast, topic, full, origin) }
        project.rates.events.take(count, at: loop.now)
        project.reference.events.add(count)
        metrics.broadcastDeliveries.add(count)
    }

    /// Delivers a database message to members that resume or asked for past messages, unless they already have it.
    /// Returns the number of receivers.
    private func deliverToReplayed(
        _ broadcast: borrowing Broadcast, _ topic: TopicID, _ full: RawSpan, _ origin: Origin
    ) -> Int {
        var count = 0
        for place in Self.replayed(among: topics.members(of: topic)) {
            guard let channel = home.channels[place], let at = channel.conversation.place,
                channel.isServed(by: origin.follower)
            else { continue }
            assert(channel.conversation.topic == topic, "a member gets the messages of its own topic")
            if topics[at].isCatchingUp {
                channel.conversation.detailed().keep(broadcast, at: origin.offset)
                continue
            }
            guard origin.offset >= channel.position.messagesSince else { continue }
            if frames.deliver(broadcast, to: topics[at], of: full, joinRef: RawSpan(), on: loop) {
                count += 1
                home.ledger.recordSent(message: origin.offset, to: CollectionOfOne(place))
            }
        }
        return count
    }

    /// Returns the channels that receive database messages without a check of their position.
    private static func unreplayed(among members: [TopicMember<TopicListener>]) -> [UInt32] {
        members.indices.compactMap {
            let member = members[$0].member
            return member.hearsBroadcasts && !member.hasReplayed ? member.channel : nil
        }
    }

    /// Returns the channels that receive database messages only after a check of their position.
    private static func replayed(among members: [TopicMember<TopicListener>]) -> [UInt32] {
        members.indices.filter {
            let member = members[$0].member
            return member.hasReplayed && (member.hearsBroadcasts || member.isCatchingUp)
        }
        .map { members[$0].member.channel }
    }

    /// Delivers database messages that a follower read from the log. For the live follower, the first loop that reads a
    /// message decides if the project's rate admits it. Catch-up followers do not decide, because the message was
    /// admitted before. They skip messages that were deleted later, and send changed messages in their current form.
    func hearDatabase(_ batch: TurnBroadcasts, from follower: Follower) {
        for entry in batch.entries {
            assert(entry.offset != nil, "a message of the database has its offset")
            guard entry.payloadBytes <= limits.maximumPayloadBytes else {
                metrics.drops[.tooLarge].add()
                home.warnSometimes("UnableToBroadcastChanges: a message from the database is too large")
                noteDropped(entry, of: batch, follower)
                continue
            }
            if follower.isAtEnd, !admits(entry) {
                noteDropped(entry, of: batch, follower)
                continue
            }
            let origin = entry.offset.map { ($0, follower) }
            switch follower.isAtEnd ? .unchanged : follower.pastMessages.fate(of: entry.offset ?? 0) {
            case .deleted: break
            case .unknown: noteDropped(entry, of: batch, follower)
            case .unchanged:
                batch.read(entry) { topic, broadcast in
                    deliver(broadcast, topic, isPrivate: entry.isPrivate, except: nil, origin: origin)
                }
            case .rewritten(let message):
                batch.read(entry) { topic, _ in
                    message.read(isReplayed: false) {
                        deliver($0, topic, isPrivate: entry.isPrivate, except: nil, origin: origin)
                    }
                }
            }
        }
    }

    /// Records the members that do not receive a dropped database message. The hub tells their clients when the
    /// follower has ended its turn.
    private func noteDropped(_ entry: TurnBroadcasts.Entry, of batch: TurnBroadcasts, _ follower: Follower) {
        batch.read(entry) { name, _ in
            guard let topic = topics.find(name, isPrivate: entry.isPrivate) else { return }
            for member in topics.members(of: topic) where member.member.hearsBroadcasts {
                guard let channel = home.channels[member.member.channel], channel.isServed(by: follower) else {
                    continue
                }
                channelsWithDroppedMessages.insert(channel.place)
            }
        }
    }

    func tellOfDroppedMessages() {
        for place in channelsWithDroppedMessages.sorted() {
            if let channel = home.channels[place] { home.reports.missed(channel, .messageDropped) }
        }
        channelsWithDroppedMessages = []
    }

    private func admits(_ entry: TurnBroadcasts.Entry) -> Bool {
        project.admissions.isAdmitted(entry.offset ?? 0) {
            guard project.rates.events.take(at: loop.now) else {
                metrics.drops[.rateLimit].add()
                home.warnSometimes("MessagePerSecondRateLimitReached: dropped a message from the database")
                return false
            }
            metrics.broadcasts.add()
            return true
        }
    }

    // MARK: Between loops

    /// Delivers broadcasts that another loop sent to the members on this loop.
    func hear(_ batch: TurnBroadcasts) {
        project.mail.hasTaken(batch, on: clients.number)
        for entry in batch.entries {
            assert(entry.offset == nil, "each loop reads the database's messages by itself")
            batch.read(entry) { topic, broadcast in
                deliver(broadcast, topic, isPrivate: entry.isPrivate, except: nil)
            }
        }
    }

    /// Tells clients that broadcasts were lost, because this loop was too far behind to receive them from other loops.
    func hasLostBroadcasts() {
        home.warnSometimes("a socket loop is too far behind: the hub dropped broadcasts for its clients")
        for place in home.channels.indices {
            if let channel = home.channels[place] {
                home.tellOfLimit(channel, "Broadcasts were dropped: the server is overloaded")
            }
        }
    }

    /// Sends this turn's broadcasts to the other loops.
    func passOn() {
        if let batch = gathering.take() { project.mail.post(batch, from: clients.number) }
    }
}
