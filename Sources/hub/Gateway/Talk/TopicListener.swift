import Bytes
import Channels
import Diagnostics
import Messages
import Net
import Protocol

/// One channel as a member of its topic, with the fields that every broadcast reads. The struct is plain data, so that
/// a delivery counts no references.
struct TopicListener: BitwiseCopyable {
    let connection: ConnectionID
    /// Place of the channel in its project loop.
    let channel: UInt32
    let speaksV2: Bool
    let wantsCompression: Bool
    var hearsBroadcasts: Bool
    var hearsPresence: Bool
    /// True if each database message must be checked against the channel's position, because some may be past for it.
    var hasReplayed: Bool
    /// True while past messages are being looked up. Database messages that arrive meanwhile are kept for the channel.
    var isCatchingUp = false

    /// Index of the frame variant that the channel receives.
    var form: Int { (speaksV2 ? 2 : 0) + (wantsCompression ? 1 : 0) }

    static let forms = 4

    static func version(of form: Int) -> SerializerVersion { form >= 2 ? .v2 : .v1 }
    static func isCompressed(_ form: Int) -> Bool { form % 2 == 1 }
}

/// State of a channel's broadcasts and presence. The struct is small, because every channel has one.
struct Conversation {
    struct Options: OptionSet {
        let rawValue: UInt8

        static let acknowledges = Options(rawValue: 1)
        static let hearsItself = Options(rawValue: 2)
        static let showsPresence = Options(rawValue: 4)
        static let isPrivate = Options(rawValue: 8)
        static let wantsReplicationReady = Options(rawValue: 16)
        /// The client asked to be told about messages dropped by limits or missing rights.
        static let hearsOfLimits = Options(rawValue: 32)
        static let hearsPosition = Options(rawValue: 64)
    }

    var options: Options
    var topic: TopicID?
    /// Place among the topic's members; nil until the join is answered or past messages are looked up.
    var place: TopicPlace?
    /// State that only some channels need; nil until needed.
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
        /// The rights are being asked for. Messages that the channel sends meanwhile wait.
        case asked(ticket: UInt64)
        /// The channel has another token whose rights are not known yet. New messages are judged with that token, and
        /// wait.
        case held(PendingWrites)
        case known(broadcast: Bool, presence: Bool)
    }

    /// True if the channel may read broadcasts. `readsPresence` is the same for presence; nil if that was never asked.
    var readsBroadcasts = true
    var readsPresence: Bool?
    /// True if the right to read presence could not be determined, so that the next track is not delayed by asking
    /// again.
    var tracksUnseen = false
    var writes = WriteRights.unknown
    /// Ticket of the question for which messages of the former token wait, and whether the new token applies by now.
    /// While this value is set, `writes` is `held`.
    var saidBefore: (ticket: UInt64, isRenewed: Bool)?
    /// True while messages of the former token are being handled. The right to see presence is then left to the new
    /// token.
    var saysWhatWasBefore = false
    /// Ticket of the current question about read rights. Answers to older questions are ignored.
    var readTicket: UInt64 = 0
    var presenceKey: [UInt8] = []
    var tracker: PresenceTracker?
    /// Bytes of the presence that the channel tracks.
    var presenceBytes = 0
    var window = PresenceWindow()
    /// True if past messages were asked for and looked up.
    private(set) var hasReplayed = false
    /// Past messages to send once the join is answered.
    var pastMessages: [ArchivedMessage] = []
    /// Database messages that arrived while past messages were looked up.
    private(set) var meanwhile: [ArchivedMessage] = []
    private var meanwhileBytes = 0
    /// True if more messages arrived during the look-up than the hub keeps.
    private(set) var hasLostMessages = false
    /// Time by which the client must be told that database messages arrive.
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

    /// Discards the replayed messages, as if the client had not asked for past messages.
    func forgetReplay() {
        hasReplayed = false
        pastMessages = []
        meanwhile = []
    }

    /// Returns the messages that arrived during the look-up, from the offset on, and forgets all of them.
    func takeMeanwhile(from offset: UInt64) -> [ArchivedMessage] {
        defer { meanwhile = [] }
        return meanwhile.filter { $0.offset ?? 0 >= offset }
    }
}
