import Bytes
import Channels
import Diagnostics
import Messages
import Net
import Protocol

/// Channel as a member of its topic, with the fields that every broadcast reads. The struct holds no references, so
/// that delivery counts none.
struct TopicListener: BitwiseCopyable {
    let connection: ConnectionID
    /// Index of the channel in `ProjectLoop.channels`.
    let channel: UInt32
    let speaksV2: Bool
    let wantsCompression: Bool
    var hearsBroadcasts: Bool
    var hearsPresence: Bool
    /// True if the hub must check each database message against the channel's position, because the channel may already
    /// have it.
    var hasReplayed: Bool
    /// True while the hub searches for past messages. Database messages that arrive during the search are kept for the
    /// channel.
    var isCatchingUp = false

    /// Index of the form of frames that the channel receives: protocol version and compression.
    var form: Int { (speaksV2 ? 2 : 0) + (wantsCompression ? 1 : 0) }

    /// Number of different forms of frames.
    static let forms = 4

    static func version(of form: Int) -> SerializerVersion { form >= 2 ? .v2 : .v1 }
    static func isCompressed(_ form: Int) -> Bool { form % 2 == 1 }
}

/// State of a channel's broadcasts and presence. Every channel has one, so the struct is small.
struct Conversation {
    struct Options: OptionSet {
        let rawValue: UInt8

        static let acknowledges = Options(rawValue: 1)
        static let hearsItself = Options(rawValue: 2)
        static let showsPresence = Options(rawValue: 4)
        static let isPrivate = Options(rawValue: 8)
        static let wantsReplicationReady = Options(rawValue: 16)
        /// True if the client asked to be told about its messages that limits or missing rights stopped.
        static let hearsOfLimits = Options(rawValue: 32)
        static let hearsPosition = Options(rawValue: 64)
    }

    var options: Options
    var topic: TopicID?
    /// Place among the topic's members; nil until the join is answered or past messages are searched.
    var place: TopicPlace?
    /// State of the channel that only some channels need; nil until it is needed.
    private(set) var details: ConversationDetails?

    init(_ options: Options) { self.options = options }

    var isPrivate: Bool { options.contains(.isPrivate) }

    mutating func detailed() -> ConversationDetails {
        if let details { return details }
        let made = ConversationDetails()
        details = made
        return made
    }
}

/// Rights, presence and replay of a channel.
final class ConversationDetails {
    enum WriteRights {
        case unknown
        /// The hub has asked for the rights to write. Messages of the channel wait for the answer.
        case asked(ticket: UInt64)
        /// The channel has another token, whose rights are not known yet. New messages wait until they are known.
        case held(PendingWrites)
        case known(broadcast: Bool, presence: Bool)
    }

    /// True if the channel may read broadcasts.
    var readsBroadcasts = true
    /// True if the channel may see presence; nil if the hub never asked or could not find out.
    var readsPresence: Bool?
    /// True if the hub could not find out if the channel may see presence. The next track then does not ask again, so
    /// that it is not delayed.
    var tracksUnseen = false
    var writes = WriteRights.unknown
    /// Ticket of the question about rights for which messages of the former token wait, and whether the new token
    /// applies already; nil if none wait. While it is set, `writes` is `held`.
    var formerTokenQuestion: (ticket: UInt64, isRenewed: Bool)?
    /// True while messages of the former token are being handled. The right to see presence then depends on the new
    /// token.
    var handlesFormerToken = false
    /// Ticket of the newest question about read rights. Answers to older questions are ignored.
    var readTicket: UInt64 = 0
    var presenceKey: [UInt8] = []
    var tracker: PresenceTracker?
    /// Bytes that the channel has reserved for the presence that it tracks.
    var presenceBytes = 0
    var window = PresenceWindow()
    /// True if the channel asked for past messages and the archive has answered with them.
    private(set) var hasReplayed = false
    /// Past messages to send after the join's reply.
    var pastMessages: [ArchivedMessage] = []
    /// Database messages that arrived during the search for past messages.
    private(set) var meanwhile: [ArchivedMessage] = []
    private var meanwhileBytes = 0
    /// True if more messages arrived during the search than the hub keeps.
    private(set) var hasLostMessages = false
    /// Monotonic time in nanoseconds at which the channel is closed if database messages do not arrive; nil until it is
    /// set.
    var readyDeadline: UInt64?

    func keep(_ broadcast: borrowing Broadcast, at offset: UInt64) {
        let payload: ArchivedMessage.Payload
        switch broadcast.form {
        case .json: payload = .json(broadcast.payload.copied())
        case .binary: payload = .binary(broadcast.payload.copied())
        case .text, .batch: return
        }
        meanwhileBytes += broadcast.payload.byteCount + broadcast.event.byteCount
        guard !hasLostMessages, meanwhile.count < Limits.maximumReplayedMessages,
            meanwhileBytes <= Limits.maximumReplayedBytes
        else {
            hasLostMessages = true
            meanwhile = []
            return
        }
        meanwhile.append(
            ArchivedMessage(
                id: broadcast.id.copied(), event: broadcast.event.copied(), payload: payload, insertedAt: 0,
                offset: offset
            ))
    }

    func takeReplay(_ messages: [ArchivedMessage]) {
        assert(!hasReplayed, "past messages are looked up once")
        hasReplayed = true
        pastMessages = messages
    }

    /// Discards past messages, as if the client had not asked for them.
    func forgetReplay() {
        hasReplayed = false
        pastMessages = []
        meanwhile = []
    }

    /// Removes all messages that arrived during the search for past messages, and returns those from the offset on.
    func takeMeanwhile(from offset: UInt64) -> [ArchivedMessage] {
        defer { meanwhile = [] }
        return meanwhile.filter { $0.offset ?? 0 >= offset }
    }
}
