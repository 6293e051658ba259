import Bytes
import Channels
import Diagnostics
import Messages
import Net
import Protocol

/// One channel as its topic sees it: what every broadcast looks at. It is plain, so that a delivery counts no references.
struct TopicListener: BitwiseCopyable {
    let connection: ConnectionID
    /// The channel's place among its project's.
    let channel: UInt32
    let speaksV2: Bool
    let wantsCompression: Bool
    var hearsBroadcasts: Bool
    var hearsPresence: Bool
    /// It asked for messages of the past: each of the database's is looked at, whether it is one of those.
    var hasReplayed: Bool
    /// Its past is being looked up: what the database says meanwhile is kept for it.
    var isCatchingUp = false

    /// Which of the frames that one message is written in.
    var form: Int { (speaksV2 ? 2 : 0) + (wantsCompression ? 1 : 0) }

    static let forms = 4

    static func version(of form: Int) -> SerializerVersion { form >= 2 ? .v2 : .v1 }
    static func isCompressed(_ form: Int) -> Bool { form % 2 == 1 }
}

/// What a channel says and hears beside the changes of tables. Small, as every channel has one.
struct Conversation {
    struct Options: OptionSet {
        let rawValue: UInt8

        static let acknowledges = Options(rawValue: 1)
        static let hearsItself = Options(rawValue: 2)
        static let showsPresence = Options(rawValue: 4)
        static let isPrivate = Options(rawValue: 8)
        static let wantsReplicationReady = Options(rawValue: 16)
        /// It asked to be told of what limits and rights keep from others.
        static let hearsOfLimits = Options(rawValue: 32)
        static let hearsPosition = Options(rawValue: 64)
    }

    var options: Options
    var topic: TopicID?
    /// Among the topic's members, from when its join was answered.
    var place: TopicPlace?
    /// What only some channels need.
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

/// A channel's rights and presence.
final class ConversationDetails {
    enum WriteRights {
        case unknown
        /// Asked; what it said meanwhile waits.
        case asked(ticket: UInt64)
        /// It has another token of which it is not known yet whether it is good: what it says counts with that one, and
        /// waits.
        case held(PendingWrites)
        case known(broadcast: Bool, presence: Bool)
    }

    /// Of a private channel; nil where presence was not looked at.
    var readsBroadcasts = true
    var readsPresence: Bool?
    /// What it may read of presence could not be found out: what it tracks next is not asked about.
    var tracksUnseen = false
    var writes = WriteRights.unknown
    /// The question for which that waits what it said with the token before; while there is one, `writes` is `held`. And
    /// whether the new token is in force by now.
    var saidBefore: (ticket: UInt64, isRenewed: Bool)?
    /// That is being said: what it may see of presence is the new token's affair.
    var saysWhatWasBefore = false
    /// The answer to what it may read that counts; older ones are of no use.
    var readTicket: UInt64 = 0
    var presenceKey: [UInt8] = []
    var tracker: PresenceTracker?
    /// What it tracks takes.
    var presenceBytes = 0
    var window = PresenceWindow()
    /// What the log has before this place is its past: it was replayed, or was not asked for. This loop may still come to
    /// some of it.
    var pastEnd: UInt64 = 0
    /// The offset that it was told it stands at, by a marker or by what it heard before one was due.
    var markedAt: UInt64 = 0
    /// True if past messages were asked for and looked up, up to `pastEnd`.
    private(set) var hasReplayed = false
    /// To be told once its join is answered.
    var pastMessages: [ArchivedMessage] = []
    /// What the database said while those were looked up.
    private(set) var meanwhile: [ArchivedMessage] = []
    private var meanwhileBytes = 0
    /// That was more than is kept.
    private(set) var hasLostMessages = false
    /// Until when it is to be told that the database's messages arrive.
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

    func takeReplay(_ messages: [ArchivedMessage], upTo end: UInt64) {
        hasReplayed = true
        pastMessages = messages
        pastEnd = end
    }

    /// Discards the replayed messages, as if the client had not asked for past messages.
    func forgetReplay() {
        hasReplayed = false
        pastMessages = []
        meanwhile = []
        pastEnd = 0
    }

    func takeMeanwhile() -> [ArchivedMessage] {
        defer { meanwhile = [] }
        return meanwhile.filter { $0.offset ?? 0 >= pastEnd }
    }
}
